package x402_test

import (
	"flag"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	campaignSchedules = flag.Int("campaign.n", 20000, "schedules of the campaign")
	campaignSeed      = flag.Uint64("campaign.seed", 0, "first seed of the campaign")
	campaignTrace     = flag.Bool("campaign.trace", false, "print every step; -campaign.n 2 runs one schedule with chain evidence and one without")
	campaignProgress  = flag.Bool("campaign.progress", false, "show progress")
)

// The campaign runs the real Gate, Ledger and Reconciler through random schedules of faults.
// It checks the invariants of every answer, of every write and of the state at the end of each
// schedule. A schedule has a phase with faults and a phase without.
//
// Every client may sign a new authorization at any moment, so one payer can have several
// authorizations for one purchase at once. The invariants hold for each authorization by
// itself and for the purchase as a whole: money moves once.
//
// The model is more favourable than reality in two ways: evidence is never wrong about final
// blocks, and the ledger's Fetch is consistent, as ledger.Store requires (the index is not
// consistent).
//
// Some events do not occur in random schedules in reasonable time, or cost nobody money. Unit
// tests cover them: the answer after a refusal that could not be written; when and for how
// long the chain is asked about a payment in doubt or an unknown outcome; an attempt that
// continues, within its lease, after the chain shows its payment; a lookup that is not counted
// because it had no time; a reconciler's decision about a version other than the one that it
// asked about; answers too large to keep; bundles with an owed piece; a new price between two
// signatures for one purchase; a client that disconnects; transfers smaller than the lowest
// price; lists of many pages; a debt for a silent target, if nobody repeats the request for a
// day.
//
// Two things never make an answer a violation: a transfer by a third party after the answer,
// and a signature that can no longer be verified.

// runSchedule runs the schedule of one seed.
func runSchedule(t *testing.T, f *fixture, seed uint64, chainVisible bool, rule *brokenRule, sum *campaignResult) {
	synctest.Test(t, func(t *testing.T) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		c := newActors(f, newWorld(f, rng, chainVisible, rule), rng, seed)
		c.runWithFaults()
		c.letTimePass()
		x := c.runWithoutFaults()
		c.w.waitUntilQuiet() // waits for frozen processes, which must end before the synctest bubble does
		c.checkEnd()
		c.checkLongAfter(x)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		sum.add(seed, c.w)
	})
}

// campaignResult sums up the schedules of a campaign.
type campaignResult struct {
	mu         sync.Mutex
	schedules  int
	outcomes   map[string]int    // number of schedules by result, and by observed event
	violations map[string]int    // number of schedules with each violation, by the name of the invariant
	firstSeeds map[string]uint64 // the first seed with each violation, by the name of the invariant
}

// add counts each result, event and violated invariant once per schedule.
func (t *campaignResult) add(seed uint64, w *world) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schedules++
	t.outcomes[w.result]++
	w.events.Range(func(what, _ any) bool { t.outcomes[what.(string)]++; return true })
	w.violations.Range(func(key, _ any) bool {
		what := key.(string)
		if t.violations[what]++; t.violations[what] == 1 {
			t.firstSeeds[what] = seed
		}
		return true
	})
}

// raceDetectorIsOn reports whether the race detector is on. The race detector makes the
// campaign twenty times slower. "make test" also runs the campaign without the race detector.
func raceDetectorIsOn() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func runCampaign(t *testing.T, f *fixture, n int, chainVisible bool, rule *brokenRule, firstSeed uint64) *campaignResult {
	if raceDetectorIsOn() && !*campaignProgress {
		n /= 20
	}
	sum := &campaignResult{outcomes: map[string]int{}, violations: map[string]int{}, firstSeeds: map[string]uint64{}}
	var next atomic.Uint64
	begun := time.Now()
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < uint64(n); i = next.Add(1) - 1 {
					runSchedule(t, f, firstSeed+i, chainVisible, rule, sum)
					if *campaignProgress && i%10000 == 0 {
						fmt.Printf("%d of %d schedules, %s\n", i, n, time.Since(begun).Round(time.Second))
					}
				}
			})
		}
	})
	return sum
}

// TestCampaign checks that a payer never pays twice, never pays without being owed an answer,
// and never gets an answer without payment, under any schedule of crashes, lost messages,
// faults and clients that retry early.
func TestCampaign(t *testing.T) {
	f := newFixture(t)
	for _, chainVisible := range []bool{true, false} {
		t.Run(fmt.Sprintf("chain evidence %v", chainVisible), func(t *testing.T) {
			sum := runCampaign(t, f, *campaignSchedules/2, chainVisible, nil, *campaignSeed)
			for what, n := range sum.violations {
				t.Errorf("%d schedules: %s (first seed %d)", n, what, sum.firstSeeds[what])
			}
			sum.checkCoverage(t, chainVisible)
			t.Logf("%d schedules: %v", sum.schedules, sum.outcomes)
		})
	}
}

// requiredEvents returns the events that must occur in some schedule of a large campaign,
// because otherwise the campaign has not tested what it is for. TestCampaignDetects covers
// further events.
func requiredEvents(chainVisible bool) []string {
	all := []string{
		"answered", "refused", "used up", "overloaded", "deployed in between", "submitted by a third party", "cancelled",
		"executed late", "executed after we hung up", "written after the deadline", "a write landed late",
		"sent twice by the store's client", "thawed with a clock that had stood still", "evidence over a lost lease",
		"a takeover stopped halfway", "a stranger's copy turned away once paid", "a copy without a token", "a conflict of names", "gone after a month",
		"abandoned, and in no list yet", "lied after the truth",
		"the fallback settled in doubt", "the fallback refused in doubt",
		"a refund was begun", "a refund was made", "a refund was withdrawn",
	}
	if chainVisible {
		return append(all, "the fallback reported a success that was none", "money without a request", "moved after the facilitator said no", "a transfer was read", "chain behind")
	}
	return append(all, "stuck in doubt", "used in doubt counts as paid", "a superseded payment was found to be paid")
}

// checkCoverage fails a large campaign if a required event never occurred, too few schedules
// ended with an answer, or too many ended in doubt.
func (t *campaignResult) checkCoverage(tt *testing.T, chainVisible bool) {
	tt.Helper()
	if t.schedules < 10000 {
		return // a small campaign may miss rare events
	}
	for _, what := range requiredEvents(chainVisible) {
		if t.outcomes[what] == 0 {
			tt.Errorf("in none of %d schedules: %s", t.schedules, what)
		}
	}
	if n := t.outcomes["answered"]; n < t.schedules*7/10 {
		tt.Errorf("only %d of %d schedules ended with an answer", n, t.schedules)
	}
	// Without chain evidence, a payment that is in doubt when its window ends stays in doubt.
	// With these fault rates, about 14 % of the schedules end in this way.
	if n := t.outcomes["stuck in doubt"]; n > t.schedules*18/100 {
		tt.Errorf("%d of %d schedules ended in doubt", n, t.schedules)
	}
}

// checkEnd compares, at the end of a schedule, what the payer paid with what the payer was
// told. It also compares both with the lists of debts and doubts.
func (c *actors) checkEnd() {
	w := c.w
	open, until, movedRefused := w.findUnsettled()
	if open {
		time.Sleep(max(0, time.Until(until)) + w.clockSkew + refusalDoubtPeriod + 2*safeHeadDelay)
		c.reconcile(w.chainVisible)
		if open, _, _ = w.findUnsettled(); open && w.chainVisible {
			w.noteViolation("in doubt in the end")
		}
	}
	if w.chainVisible || movedRefused { // other schedules end without a run of the reconciler with chain evidence
		time.Sleep(2 * safeHeadDelay) // by then every transfer is in a safe block
		c.reconcile(true)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	lost := 0
	for _, a := range w.authorizations {
		if a.moved() {
			lost++
		}
		switch resent := a.claimedAt.After(a.refusalToldAt); {
		case !a.moved() || !a.movedByUs: // cancelled, unused, or submitted by a third party
		case a.movedAfterRefusal: // the reconciler finds the transfer, and the answer is owed
			w.noteEvent("moved after the facilitator said no")
		case !a.refusalToldAt.IsZero() && !resent:
			w.noteViolation("told that nothing moved and never will, and charged")
		case !a.unchargedToldAt.IsZero() && !a.claimedAt.After(a.unchargedToldAt):
			w.noteViolation("told that nothing was charged, and it was")
		}
	}
	if initialBalance-w.balance != lost {
		w.noteViolation("money is missing")
	}
	w.checkRecorded()
}

// findUnsettled reports whether an authorization is in doubt, and whether a facilitator moved
// money although it had refused the payment. lastEnd is the latest end of the windows of the
// authorizations in doubt.
func (w *world) findUnsettled() (open bool, lastEnd time.Time, movedRefused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.authorizations {
		movedRefused = movedRefused || a.movedAfterRefusal && a.moved()
		if r := w.record(a); r != nil && r.InDoubt() {
			open = true
			if a.validBefore.After(lastEnd) {
				lastEnd = a.validBefore
			}
		}
	}
	return open, lastEnd, movedRefused
}

// checkLongAfter checks the state after 36 days, in some schedules. A decided row expires
// after 35 days, and another request with its authorization is then refused. Every debt and
// every doubt is still on its list.
func (c *actors) checkLongAfter(x *patientClient) {
	w := c.w
	if !c.oneIn(12) {
		return
	}
	time.Sleep(36 * 24 * time.Hour)
	w.mu.Lock()
	undecidedBefore := w.undecidedAuths()
	w.deleteExpired()
	if !maps.Equal(undecidedBefore, w.undecidedAuths()) {
		w.noteViolation("a debt or a doubt was forgotten after a month")
	}
	w.mu.Unlock()
	p, out := c.ask(x.request())
	w.mu.Lock()
	defer w.mu.Unlock()
	if undecidedBefore[x.payment] {
		return
	}
	w.noteEvent("gone after a month")
	if out == nil || out.Status != 402 || p.sends+p.lookups+p.writes > 0 {
		w.noteViolation("a month later a payment is not gone")
	}
}
