package x402_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// brokenRule is a mutation: one rule is broken on purpose, below the ledger or in
// what the Gate is given, and an invariant of the campaign must detect it.
type brokenRule string

const (
	everyRuleHolds  brokenRule = ""
	forgetDoubt     brokenRule = "doubt is not sticky"
	dropLease       brokenRule = "the lease ends at settled"
	shortLease      brokenRule = "the lease is shorter than the invocation"
	takeLeases      brokenRule = "a live lease does not exclude others"
	dropEvidence    brokenRule = "evidence is not written without the lease"
	blindReplace    brokenRule = "versions are not compared"
	forgetWrites    brokenRule = "write ids are not compared"
	endedWrites     brokenRule = "verdicts end with the invocation"
	sendUnclaimed   brokenRule = "nothing is written before sending"
	trustRefusal    brokenRule = "a used nonce is a refusal"
	unknownIsNo     brokenRule = "an unknown outcome is a refusal"
	usedIsUnpaid    brokenRule = "without a chain, used in doubt is not paid"
	usedAlone       brokenRule = "used alone is paid"
	anyTransfer     brokenRule = "a transfer from long before pays for this request"
	clockProof      brokenRule = "the window's end is proof by our clock"
	openIsOver      brokenRule = "an unused authorization counts as one that cannot be used"
	anySignature    brokenRule = "any signature opens a contract wallet's record"
	todaysTerms     brokenRule = "known payments are judged by today's terms"
	forgetPurchases brokenRule = "a purchase has no owner"
	noSlots         brokenRule = "work takes no slot"
	shortKeep       brokenRule = "what is owed or in doubt is kept for 72 hours"
	freeLookups     brokenRule = "lookups are not counted"
	fewLookups      brokenRule = "only one lookup is permitted"
	noSpacing       brokenRule = "lookups are not spaced"

	// The state of the payment that owns a purchase is misread; then the takeover of
	// a purchase, and what must precede a send.
	otherIsSame   brokenRule = "an owner for another request is one for this"
	busyIsDead    brokenRule = "an owner in flight is dead"
	doubtIsDead   brokenRule = "an owner in doubt was never sent"
	refusedIsDead brokenRule = "an owner that the facilitator refused was never sent"
	deadIsDoubt   brokenRule = "an owner that is proven dead is in doubt"
	owedIsOver    brokenRule = "an owner whose answer is owed is used up"
	overIsOwed    brokenRule = "an owner that is used up owes an answer"
	keyedIsOver   brokenRule = "a key whose lookups are used up is free at once"
	answerIsOver  brokenRule = "an answer is not replayed to other signatures"
	answerStands  brokenRule = "an answer is replayed for ever"
	stampIsWrite  brokenRule = "the replay window begins with the first claim"
	skipClose     brokenRule = "the owner's record is not closed before a takeover"
	skipOpen      brokenRule = "a purchase that is there is not opened before a send"
	forgetSent    brokenRule = "a later attempt forgets that an earlier one sent"
	noProof       brokenRule = "a repeat needs no proof"
	bareProof     brokenRule = "a repeat without a token is permitted once paid"
	noWait        brokenRule = "nobody waits for another payment"
	sendReplaced  brokenRule = "a superseded payment may be sent like a refused one"

	// The rules of a second facilitator.
	unrecordedAsks   brokenRule = "who is asked is not recorded"
	forgetRefuser    brokenRule = "who refused is not recorded"
	trustFallback    brokenRule = "the fallback's success in doubt is not checked"
	doubtIsRejection brokenRule = "an unknown outcome at the primary counts as a rejection"
)

// applyBrokenRead changes a record that is read, according to the broken rule. The
// lock is held.
func (p *process) applyBrokenRead(r *ledger.Record) *ledger.Record {
	if r == nil {
		return nil
	}
	switch p.w.brokenRule {
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
	if a := p.w.authorizationOf(r.Key); a != nil && a != p.pay && p.kind == asClient {
		p.applyBrokenOwnerRead(r)
	}
	return r
}

// applyBrokenOwnerRead changes the record of another payment, which owns the
// purchase, according to the broken rule. The lock is held.
func (p *process) applyBrokenOwnerRead(r *ledger.Record) {
	held := r.LeaseUntil.After(p.now())
	dead := func() { r.State, r.Sent, r.LeaseUntil = ledger.Refused, false, time.Time{} }
	switch s := p.w.brokenRule; {
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
		p.offset += 8 * time.Second // to the end of the time that a request waits
	}
}

// heldByWriteID is, under forgetWrites, the record that the same write has stored
// before, which the store then reports as a conflict; otherwise nil. The lock is
// held.
func (w *world) heldByWriteID(r ledger.Record) *ledger.Record {
	if w.brokenRule != forgetWrites {
		return nil
	}
	held, err := w.store.Fetch(background(), r.Key)
	if err != nil || held == nil || held.WriteID != r.WriteID {
		return nil
	}
	return held
}

// applyBrokenWrite changes a record that is written, according to the broken rule.
// The lock is held.
func (p *process) applyBrokenWrite(r *ledger.Record) {
	switch p.w.brokenRule {
	case shortLease:
		if !r.LeaseUntil.IsZero() {
			r.LeaseUntil = p.now().Add(5 * time.Second)
		}
	case shortKeep:
		if r.State == ledger.Settling || r.State == ledger.Uncertain || r.State == ledger.Settled {
			r.ExpiresAt = r.ValidBefore.Add(72 * time.Hour)
		}
	case unrecordedAsks:
		r.Asked = nil
	default:
	}
}

// contains says whether the name of one of the violations contains part.
func contains(violations map[string]int, part string) bool {
	for what := range violations {
		if strings.Contains(what, part) {
			return true
		}
	}
	return false
}

// TestCampaignDetects: each rule, broken in turn, makes the campaign fail with the
// expected violation.
func TestCampaignDetects(t *testing.T) {
	if raceDetector {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	f := newFixture(t)
	for _, c := range []struct {
		s    brokenRule
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
		{forgetWrites, true, 500, "in progress, and no attempt is running"},
		{endedWrites, true, 500, "not on record"},
		{sendUnclaimed, true, 500, "an answer of another purchase"},
		{trustRefusal, true, 500, "charged"},
		{unknownIsNo, true, 500, "told that nothing moved and never will, and charged"},
		{unknownIsNo, false, 500, "charged twice for one purchase"},
		{usedIsUnpaid, false, 500, "in doubt after the faults, inside the window"},
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
		{unrecordedAsks, true, 500, "asked, and not named on record"},
		{forgetRefuser, true, 1000, "a refusal about the payer was taken to the other facilitator"},
		{trustFallback, true, 1000, "a lookup before money moved"},
		{doubtIsRejection, true, 500, "the fallback was asked at once"},
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
