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
	campaignTrace = flag.Bool("campaign.trace", false, "print what happens; for one schedule: -campaign.n 2")
	campaignShow  = flag.Bool("campaign.progress", false, "show progress")
)

// The campaign runs the real Gate, Ledger and Reconciler through random
// schedules of faults and holds every answer, every write and the end of each
// schedule to what must be true. What it contains: campaign_world_test.go (the
// chain and its accounts), campaign_store_test.go (the ledger's store),
// campaign_process_test.go (an execution environment with its weather),
// campaign_chain_test.go (the facilitator's words, and the chain as it is read),
// campaign_second_test.go (a second facilitator),
// campaign_payer_test.go (clients, payer, strangers, reconciler),
// campaign_older_test.go (a process of the first version), campaign_judge_test.go
// (what must be true of answers), campaign_purchase_test.go (what must be true of
// purchases), campaign_calm_test.go (the patient client, and the books at the
// end), campaign_sees_test.go (the rules broken one by one).
//
// Every client may sign anew at any moment, so that one payer has many
// authorizations for one purchase at once. Each is judged by itself, as in the
// first version, and all of one purchase together: money moves once.
//
// The model is kinder than the world in two places: evidence is honest about
// what is final, and the ledger's Fetch is consistent, as ledger.Store promises
// (the index is not).
//
// What random schedules do not see in reasonable time, or what costs nobody
// money, has a unit test: what a refusal says whose write failed; that doubt
// and an unknown outcome ask the chain at once, and with how much time; that
// an attempt goes on from evidence of its own payment, and only within its
// lease; that a lookup which had no time uses none up; a reconciler's verdict
// on another version than the one that it asked about; other signatures beyond
// the eighth; answers too large to keep; bundles that owe a part; a new price
// between two signatures for one purchase; a client that goes away
// (gate_rules_test.go, gate_time_test.go, gate_proof_test.go,
// reconcile_test.go, ledger/rules_test.go). Not held against an answer: what a
// third party's transfer did after the verdict, or to a signature that nobody
// can check any more.

// schedule runs one seed.
func schedule(t *testing.T, f *fixture, seed uint64, rpc bool, s sabotage, sum *tally) {
	synctest.Test(t, func(t *testing.T) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		c := newPayer(f, newWorld(f, rng, rpc, s), rng, seed)
		c.storm()
		c.absence()
		x := c.calm()
		time.Sleep(5 * time.Minute) // the frozen thaw, and find that they are dead
		c.audit()
		c.afterwards(x)
		w := c.w
		w.mu.Lock()
		defer w.mu.Unlock()
		sum.report(seed, w.complaints)
		sum.count(w)
	})
}

// tally is what all schedules of a campaign came to.
type tally struct {
	mu     sync.Mutex
	n      int
	ends   map[string]int
	broken map[string]int // invariant -> schedules
	first  map[string]uint64
}

func newTally() *tally {
	return &tally{ends: map[string]int{}, broken: map[string]int{}, first: map[string]uint64{}}
}

// report counts each complaint once a schedule.
func (t *tally) report(seed uint64, complaints map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range complaints {
		if t.broken[c]++; t.broken[c] == 1 {
			t.first[c] = seed
		}
	}
}

func (t *tally) count(w *world) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	t.ends[w.end]++
	for what := range w.events {
		t.ends[what]++
	}
}

// String counts how schedules ended, and in how many things happened that the
// campaign is there for.
func (t *tally) String() string { return fmt.Sprintf("%d schedules: %v", t.n, t.ends) }

func campaign(t *testing.T, f *fixture, n int, rpc bool, s sabotage, first uint64) *tally {
	if raceDetector && !*campaignShow {
		n /= 20
	}
	sum := newTally()
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

// TestCampaign: no schedule of crashes, lost messages, faults and impatient
// clients makes a payer pay twice, keeps money without an answer, or gives an
// answer without money.
func TestCampaign(t *testing.T) {
	f := newFixture(t)
	for _, rpc := range []bool{true, false} {
		t.Run(fmt.Sprintf("chain evidence %v", rpc), func(t *testing.T) {
			sum := campaign(t, f, *campaignN/2, rpc, whole, *campaignSeed)
			for what, n := range sum.broken {
				t.Errorf("%d schedules: %s (first seed %d)", n, what, sum.first[what])
			}
			sum.holdsEnough(t, rpc)
			t.Logf("%s", sum)
		})
	}
}

// holdsEnough fails a campaign in which too little happened to prove anything,
// or in which too many payers ended in doubt.
func (t *tally) holdsEnough(tt *testing.T, rpc bool) {
	tt.Helper()
	if t.n < 10000 {
		return // the rare events may be missing
	}
	for _, what := range happens(rpc) {
		if t.ends[what] == 0 {
			tt.Errorf("in none of %d schedules: %s", t.n, what)
		}
	}
	if n := t.ends["answered"]; n < t.n*7/10 {
		tt.Errorf("only %d of %d schedules ended with an answer", n, t.n)
	}
	// Without a view of the chain, what is in doubt at the end of its window
	// stays so: 5 % under these faults.
	if n := t.ends["stuck in doubt"]; n > t.n*8/100 {
		tt.Errorf("%d of %d schedules ended in doubt", n, t.n)
	}
}
