package x402_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// sabotage breaks one rule on purpose, below the ledger or beside the Gate, so
// that the campaign can show that it would see.
type sabotage string

const (
	whole           sabotage = ""
	forgetDoubt     sabotage = "doubt is not sticky"
	dropLease       sabotage = "the lease ends at settled"
	shortLease      sabotage = "the lease is shorter than the invocation"
	takeLeases      sabotage = "a live lease is no lease"
	dropEvidence    sabotage = "evidence does not beat the lease"
	blindReplace    sabotage = "versions are not compared"
	forgetWrites    sabotage = "write ids are not compared"
	endedWrites     sabotage = "verdicts end with the invocation"
	sendUnclaimed   sabotage = "nothing is written before sending"
	trustRefusal    sabotage = "a used nonce is a refusal"
	unknownIsNo     sabotage = "an unknown outcome is a refusal"
	usedIsUnpaid    sabotage = "without a chain, used in doubt is not paid"
	usedAlone       sabotage = "used alone is paid"
	anyTransfer     sabotage = "a transfer of long before is for this request"
	clockProof      sabotage = "the window's end is proof by our clock"
	openIsOver      sabotage = "unused is never to be used"
	anySignature    sabotage = "any signature opens a contract wallet's record"
	todaysTerms     sabotage = "known payments are judged by today's terms"
	forgetPurchases sabotage = "a purchase is any payment's"
	noSlots         sabotage = "work takes no slot"
	shortKeep       sabotage = "what is owed or in doubt is kept for 72 hours"
	freeLookups     sabotage = "lookups are not counted"
	fewLookups      sabotage = "one lookup is all"
	noSpacing       sabotage = "lookups are not spaced"

	// The rows of the design's table of owners: what the owner of a purchase is
	// taken for. Then the takeover, and what comes before a send.
	otherIsSame   sabotage = "an owner for another request is one for this"
	busyIsDead    sabotage = "an owner in flight is dead"
	doubtIsDead   sabotage = "an owner in doubt was never sent"
	refusedIsDead sabotage = "an owner that the facilitator refused was never sent"
	deadIsDoubt   sabotage = "an owner that is proven dead is in doubt"
	owedIsOver    sabotage = "an owner whose answer is owed is used up"
	overIsOwed    sabotage = "an owner that is used up owes an answer"
	keyedIsOver   sabotage = "a key that is used up is over at once"
	answerIsOver  sabotage = "an answer is over at once"
	answerStands  sabotage = "an answer stands for ever"
	stampIsWrite  sabotage = "an answer stands from the first claim on"
	skipClose     sabotage = "the owner's record is not closed before a takeover"
	skipOpen      sabotage = "a purchase that is there is not opened before a send"
	forgetSent    sabotage = "a later attempt takes back what was sent"
	noProof       sabotage = "a repeat needs no proof"
	bareProof     sabotage = "without a token a repeat is good for ever"
	noWait        sabotage = "nobody waits for another payment"
	sendReplaced  sabotage = "a superseded payment is a refused one"

	// The rules of a second facilitator.
	unnamedAsks   sabotage = "who is asked is not recorded"
	forgetRefuser sabotage = "who refused is not recorded"
	trustFallback sabotage = "the fallback's success in doubt is not checked"
	doubtIsDoor   sabotage = "a primary that leaves doubt has turned the request away"
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
		r.Proof, r.SigDigest = nil, p.signed.digest
	case noProof:
		r.Proof = nil
	case bareProof:
		if r.Proof != nil && *r.Proof == (ledger.Proof{}) {
			r.Proof = nil
		}
	case forgetSent:
		r.Sent = false
	case forgetRefuser:
		r.RefusedBy, r.Refusals = "", 0
	case sendReplaced:
		if r.State == ledger.Superseded {
			r.State = ledger.Refused
		}
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
	if a := p.w.pay(r.Key); a != nil && a != p.pay && p.kind == asClient {
		p.seenAsOwner(r)
	}
	return r
}

// seenAsOwner is the record of another payment, which owns the purchase, as a
// sabotaged table of owners would see it. The lock is held.
func (p *process) seenAsOwner(r *ledger.Record) {
	held := r.LeaseUntil.After(p.now())
	dead := func() { r.State, r.Sent, r.LeaseUntil = ledger.Refused, false, time.Time{} }
	switch s := p.w.sabotage; {
	case s == otherIsSame:
		r.Request = p.path
	case s == busyIsDead && r.Open() && held, s == doubtIsDead && r.Open() && !held, s == refusedIsDead && r.State == ledger.Refused:
		dead()
	case s == deadIsDoubt && r.State == ledger.Refused:
		r.Disproved, r.Sent, r.Doubt = false, true, true
	case s == owedIsOver && r.State == ledger.Settled && !held:
		r.Lookups = ledger.MaxLookups
		r.LookupAt = time.Time{}
	case s == overIsOwed && r.State == ledger.Settled:
		r.Lookups, r.LookupAt = 1, r.SettledAt
	case s == keyedIsOver && r.State == ledger.Settled:
		r.LookupAt = time.Time{}
	case s == answerIsOver && r.State == ledger.Redeemed:
		r.AnsweredAt = time.Unix(1, 0)
	case s == answerStands && r.State == ledger.Redeemed:
		r.AnsweredAt = p.now()
	case s == stampIsWrite && r.State == ledger.Redeemed:
		r.AnsweredAt = r.CreatedAt
	case s == noWait && held:
		p.offset += 8 * time.Second // to the end of the time for which one waits
	}
}

// forgets is the record that a write has made already and that a sabotaged
// store takes for somebody else's, or nil. The lock is held.
func (w *world) forgets(r ledger.Record) *ledger.Record {
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
	case unnamedAsks:
		r.Asked = nil
	default:
	}
}

// contains says whether one of the complaints has a part.
func contains(complaints map[string]int, part string) bool {
	for what := range complaints {
		if strings.Contains(what, part) {
			return true
		}
	}
	return false
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
		{sendUnclaimed, true, 500, "an answer of another purchase"},
		{trustRefusal, true, 500, "charged"},
		{unknownIsNo, true, 500, "told that nothing moved and never will, and charged"},
		{unknownIsNo, false, 500, "charged twice for one purchase"},
		{usedIsUnpaid, false, 500, "in doubt in calm weather, inside the window"},
		{usedAlone, true, 500, "told that money moved, and it did not"},
		{anyTransfer, true, 1000, "an answer for a transfer of long before"},
		{clockProof, true, 3000, "refused in doubt and without proof"},
		{openIsOver, true, 500, "refused in doubt and without proof"},
		{anySignature, true, 500, "a forged signature got an answer"},
		{todaysTerms, true, 500, "refused in the end"},
		{forgetPurchases, true, 500, "charged twice for one purchase"},
		{otherIsSame, true, 1000, "an answer for another request"},
		{busyIsDead, true, 500, "taken over from a payment that may have been sent"},
		{doubtIsDead, true, 500, "charged twice for one purchase"},
		{refusedIsDead, true, 500, "taken over from a payment that may have been sent"},
		{deadIsDoubt, true, 500, "no end, and not on the list of what is in doubt"},
		{owedIsOver, true, 500, "charged twice for one purchase"},
		{overIsOwed, true, 500, "more than five lookups"},
		{keyedIsOver, true, 2000, "charged twice for one purchase"},
		{answerIsOver, true, 500, "charged twice for one purchase"},
		{answerStands, true, 500, "what was over is answered once more"},
		{stampIsWrite, true, 1000, "charged twice for one purchase"},
		{skipClose, true, 500, "a purchase was taken over from a payment that stands"},
		{skipOpen, true, 500, "this attempt did not open its purchase"},
		{forgetSent, true, 500, "a send was forgotten"},
		{noProof, true, 500, "a stranger's copy got something"},
		{bareProof, true, 500, "a stranger's copy got something"},
		{noWait, true, 500, "did not wait for another payment"},
		{sendReplaced, true, 500, "a superseded payment was"},
		{noSlots, true, 500, "worked without a slot"},
		{unnamedAsks, true, 500, "asked, and not named on record"},
		{forgetRefuser, true, 1000, "a refusal about the payer was taken to the other facilitator"},
		{trustFallback, true, 1000, "a lookup before money moved"},
		{doubtIsDoor, true, 500, "the fallback was asked at once"},
		{shortKeep, true, 1000, "a debt or a doubt was forgotten"},
		{freeLookups, true, 500, "more than five lookups"},
		{fewLookups, true, 500, "used up before five lookups"},
		{noSpacing, true, 1000, "a lookup came too soon"},
	} {
		t.Run(string(c.s)+", "+c.want, func(t *testing.T) {
			t.Parallel()
			const some = 50
			seen := map[string]int{}
			for at := 0; at < c.n; at += some {
				maps.Copy(seen, campaign(t, f, some, c.rpc, c.s, 1<<32+uint64(at)).broken)
				if contains(seen, c.want) {
					return
				}
			}
			t.Errorf("the campaign did not see it: %v", seen)
		})
	}
}
