package x402_test

import (
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	campaignN     = flag.Int("campaign.n", 20000, "schedules of the campaign")
	campaignSeed  = flag.Uint64("campaign.seed", 0, "first seed of the campaign")
	campaignTrace = flag.Bool("campaign.trace", false, "print every step; -campaign.n 2 runs one schedule with chain evidence and one without")
	campaignShow  = flag.Bool("campaign.progress", false, "show progress")
)

// The campaign runs the real Gate, Ledger and Reconciler through random
// schedules of faults. It checks invariants of every answer, of every write and
// of the state at the end of each schedule. A schedule has a phase with faults
// and a phase without.
//
// Every client may sign a new authorization at any moment, so one payer can have
// several authorizations for one purchase at once. The invariants hold for each
// authorization by itself and for the purchase as a whole: money moves once.
//
// The model is more favourable than reality in two ways: evidence is never wrong
// about final blocks, and the ledger's Fetch is consistent, as ledger.Store
// requires (the index is not consistent).
//
// What random schedules do not reach in reasonable time, or what costs nobody
// money, has a unit test: the answer when the write of a refusal failed; that
// doubt and an unknown outcome ask the chain at once, and with how much time;
// that an attempt continues from evidence of its own payment, and only within
// its lease; that a lookup which got no time is not counted; a reconciler's
// verdict on another version than the one that it asked about; more than eight
// other signatures; answers too large to keep; bundles that owe a part; a new
// price between two signatures for one purchase; a client that disconnects.
// Two effects are no violation by an answer: a third party's transfer after the
// verdict, and what happens to a signature that cannot be verified any more.

// schedule runs the schedule of one seed.
func schedule(t *testing.T, f *fixture, seed uint64, rpc bool, s brokenRule, sum *campaignResult) {
	synctest.Test(t, func(t *testing.T) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		c := newActors(f, newWorld(f, rng, rpc, s), rng, seed)
		c.runWithFaults()
		c.returnLate()
		x := c.runWithoutFaults()
		time.Sleep(5 * time.Minute) // frozen processes resume and end before the synctest bubble does
		c.checkEnd()
		c.checkLongAfter(x)
		w := c.w
		w.mu.Lock()
		defer w.mu.Unlock()
		sum.add(seed, w)
	})
}

// campaignResult sums up the schedules of a campaign.
type campaignResult struct {
	mu     sync.Mutex
	n      int
	ends   map[string]int    // number of schedules by result, and by observed event
	broken map[string]int    // number of schedules by violated invariant
	first  map[string]uint64 // the first seed that violated it
}

// add counts each result, event and violated invariant once per schedule.
func (t *campaignResult) add(seed uint64, w *world) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	t.ends[w.result]++
	for what := range w.events {
		t.ends[what]++
	}
	for what := range w.violations {
		if t.broken[what]++; t.broken[what] == 1 {
			t.first[what] = seed
		}
	}
}

// String lists the results of the schedules, and in how many of them each event
// was observed.
func (t *campaignResult) String() string { return fmt.Sprintf("%d schedules: %v", t.n, t.ends) }

func campaign(t *testing.T, f *fixture, n int, rpc bool, s brokenRule, first uint64) *campaignResult {
	if raceDetector && !*campaignShow {
		n /= 20
	}
	sum := &campaignResult{ends: map[string]int{}, broken: map[string]int{}, first: map[string]uint64{}}
	var next, done atomic.Uint64
	begun := time.Now()
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for {
					i := next.Add(1) - 1
					if i >= uint64(n) {
						return
					}
					schedule(t, f, first+i, rpc, s, sum)
					if d := done.Add(1); *campaignShow && d%10000 == 0 {
						fmt.Printf("%d of %d schedules, %s\n", d, n, time.Since(begun).Round(time.Second))
					}
				}
			})
		}
	})
	return sum
}

// TestCampaign: under no schedule of crashes, lost messages, faults and clients
// that retry early does a payer pay twice, pay without being owed an answer, or
// get an answer without payment.
func TestCampaign(t *testing.T) {
	f := newFixture(t)
	for _, rpc := range []bool{true, false} {
		t.Run(fmt.Sprintf("chain evidence %v", rpc), func(t *testing.T) {
			sum := campaign(t, f, *campaignN/2, rpc, everyRuleHolds, *campaignSeed)
			for what, n := range sum.broken {
				t.Errorf("%d schedules: %s (first seed %d)", n, what, sum.first[what])
			}
			sum.checkCoverage(t, rpc)
			t.Logf("%s", sum)
		})
	}
}

// checkCoverage fails a large campaign in which a required event never occurred,
// too few schedules ended with an answer, or too many ended in doubt.
func (t *campaignResult) checkCoverage(tt *testing.T, rpc bool) {
	tt.Helper()
	if t.n < 10000 {
		return // rare events may not occur
	}
	for _, what := range requiredEvents(rpc) {
		if t.ends[what] == 0 {
			tt.Errorf("in none of %d schedules: %s", t.n, what)
		}
	}
	if n := t.ends["answered"]; n < t.n*7/10 {
		tt.Errorf("only %d of %d schedules ended with an answer", n, t.n)
	}
	// Without chain evidence, a payment that is in doubt when its window ends stays
	// in doubt: about 5 % of the schedules with these fault rates.
	if n := t.ends["stuck in doubt"]; n > t.n*8/100 {
		tt.Errorf("%d of %d schedules ended in doubt", n, t.n)
	}
}
