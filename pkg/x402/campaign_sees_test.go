package x402_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// sabotage breaks one rule on purpose, below the ledger or beside the Gate, so
// that the campaign can show that it would see.
type sabotage string

const (
	whole         sabotage = ""
	forgetDoubt   sabotage = "doubt is not sticky"
	dropLease     sabotage = "the lease ends at settled"
	shortLease    sabotage = "the lease is shorter than the invocation"
	takeLeases    sabotage = "a live lease is no lease"
	dropEvidence  sabotage = "evidence does not beat the lease"
	blindReplace  sabotage = "versions are not compared"
	forgetWrites  sabotage = "write ids are not compared"
	endedWrites   sabotage = "verdicts end with the invocation"
	sendUnclaimed sabotage = "nothing is written before sending"
	trustRefusal  sabotage = "a used nonce is a refusal"
	unknownIsNo   sabotage = "an unknown outcome is a refusal"
	usedIsUnpaid  sabotage = "without a chain, used in doubt is not paid"
	usedAlone     sabotage = "used alone is paid"
	anyTransfer   sabotage = "a transfer of long before is for this request"
	clockProof    sabotage = "the window's end is proof by our clock"
	openIsOver    sabotage = "unused is never to be used"
	anySignature  sabotage = "any signature opens a contract wallet's record"
	todaysTerms   sabotage = "known payments are judged by today's terms"
	forgetNames   sabotage = "a name is any payment's"
	noSlots       sabotage = "work takes no slot"
	shortKeep     sabotage = "what is owed or in doubt is kept for 72 hours"
	freeLookups   sabotage = "lookups are not counted"
	fewLookups    sabotage = "one lookup is all"
	noSpacing     sabotage = "lookups are not spaced"
)

// seen is a record as a sabotaged ledger would see it. The lock is held.
func (p *process) seen(r *ledger.Record) *ledger.Record {
	if r == nil {
		return nil
	}
	switch p.w.sabotage {
	case forgetDoubt, trustRefusal:
		r.Doubt = false
		if r.State == ledger.Uncertain || r.State == ledger.Settling && r.LeaseUntil.Before(time.Now()) {
			r.State = ledger.Refused
		}
	case dropLease:
		if r.State == ledger.Settled {
			r.LeaseUntil, r.LookupAt = time.Time{}, time.Time{}
		}
	case takeLeases:
		r.LeaseUntil = time.Time{}
	case anySignature:
		r.SigDigest = p.signed.digest
	case freeLookups:
		r.Lookups = min(r.Lookups, 1)
	case fewLookups:
		if r.State == ledger.Settled && r.Lookups > 0 {
			r.Lookups = ledger.MaxLookups
		}
	case noSpacing:
		r.LookupAt = time.Time{}
	default:
	}
	return r
}

// forgets is the record that a write has made already and that a sabotaged
// store takes for somebody else's, or nil. The lock is held.
func (w *planet) forgets(r ledger.Record) *ledger.Record {
	if w.sabotage != forgetWrites {
		return nil
	}
	held, err := w.store.Fetch(background(), r.Key)
	if err != nil || held == nil || held.WriteID != r.WriteID {
		return nil
	}
	return held
}

// spoil is what a sabotaged ledger would write. The lock is held.
func (p *process) spoil(r *ledger.Record) {
	switch p.w.sabotage {
	case shortLease:
		if !r.LeaseUntil.IsZero() {
			r.LeaseUntil = p.now().Add(5 * time.Second)
		}
	case shortKeep:
		if r.State == ledger.Settling || r.State == ledger.Uncertain || r.State == ledger.Settled {
			r.ExpiresAt = r.ValidBefore.Add(72 * time.Hour)
		}
	default:
	}
}

// TestCampaignSees: each rule, broken on purpose, makes the campaign fail. A
// test that cannot fail proves nothing.
func TestCampaignSees(t *testing.T) {
	if raceDetector {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	f := newFixture(t)
	for _, c := range []struct {
		s    sabotage
		rpc  bool
		n    int
		want string
	}{
		{forgetDoubt, false, 500, "refused in the end"},
		{dropLease, true, 500, "two lookups ran at once"},
		{shortLease, true, 500, "two lookups ran at once"},
		{takeLeases, true, 500, "a live lease was taken"},
		{dropEvidence, true, 3000, "not on record"},
		{blindReplace, true, 3000, "a live lease was taken"},
		{forgetWrites, true, 500, "in progress, and nobody is at it"},
		{endedWrites, true, 500, "not on record"},
		{sendUnclaimed, true, 500, "an answer for another request"},
		{trustRefusal, true, 500, "charged"},
		{unknownIsNo, true, 500, "told that nothing moved and never will, and charged"},
		{unknownIsNo, false, 500, "charged twice for one thing"},
		{usedIsUnpaid, false, 500, "in doubt in calm weather, inside the window"},
		{usedAlone, true, 500, "told that money moved, and it did not"},
		{anyTransfer, true, 1000, "an answer for a transfer of long before"},
		{clockProof, true, 3000, "refused in doubt and without proof"},
		{openIsOver, true, 500, "refused in doubt and without proof"},
		{anySignature, true, 500, "a forged signature got an answer"},
		{todaysTerms, true, 500, "refused in the end"},
		{forgetNames, true, 500, "one identifier, two payments"},
		{noSlots, true, 500, "worked without a slot"},
		{shortKeep, true, 1000, "a debt or a doubt was forgotten"},
		{freeLookups, true, 500, "more than five lookups"},
		{fewLookups, true, 500, "used up before five lookups"},
		{noSpacing, true, 1000, "a lookup came too soon"},
	} {
		t.Run(string(c.s)+", "+c.want, func(t *testing.T) {
			t.Parallel()
			sum := campaign(t, f, c.n, c.rpc, c.s, 1<<32)
			all := make([]string, 0, len(sum.broken))
			for what := range sum.broken {
				all = append(all, what)
			}
			if !slices.ContainsFunc(all, func(what string) bool { return strings.Contains(what, c.want) }) {
				t.Errorf("the campaign did not see it: %v", sum.broken)
			}
			t.Logf("%v", sum.broken)
		})
	}
}
