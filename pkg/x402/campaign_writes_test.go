package x402_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkWrite checks the invariants of a write that has taken effect. old is the previous
// record, or nil for the first write of a key.
func (p *process) checkWrite(old, written ledger.Record) {
	p.writes++
	switch r := written.(type) {
	case ledger.Payment:
		before, _ := old.(ledger.Payment)
		p.checkPaymentWrite(&before, r)
	case ledger.Purchase:
		before, _ := old.(ledger.Purchase)
		p.checkPurchaseWrite(before, r)
	case ledger.Cursor:
		if r.Version == 1 {
			p.w.firstCursorAt = time.Now()
		}
	}
}

// checkPaymentWrite checks the invariants of a write of a payment. old is the previous record,
// or the zero value for the first write.
func (p *process) checkPaymentWrite(old *ledger.Payment, r ledger.Payment) {
	w := p.w
	w.trace("  p%d writes %s v%d %s sent=%v doubt=%v disproved=%v lookups=%d lease=%v owner=%s", p.number, w.shortName(r.Key), r.Version, r.State, r.Sent, r.Doubt, r.Disproved, r.Lookups, !r.LeaseUntil.IsZero(), w.shortName(r.Owner))
	a := w.authorizationOf(r.Key)
	if a == nil {
		return
	}
	p.claimedFirst = p.claimedFirst || a == p.payment && r.Version == 1
	p.checkTransition(a, *old, r)
	if by := p.attemptOn(a).refusedBy; by != "" && a.refusedBy == "" && r.Attempt == old.Attempt {
		a.refusedBy, a.refusedAt = by, time.Now()
	}
	p.attemptOn(a).wroteAt, p.attemptOn(a).wroteDoubt = time.Now(), r.Doubt
	p.checkLease(a, *old, r)
	if r.Attempt > old.Attempt {
		p.attemptOn(a).claimedAt, p.lastPayment, p.attemptOn(a).sentBefore = time.Now(), a, a.possibleSends > 0
		a.leaseHolder = p
		if a == p.payment {
			// p.paymentIsPublic was first set when the request came. Since then, another attempt
			// may have ended without sending the payment.
			p.paymentIsPublic = isPublic(*old)
		}
	}
	if r.State == ledger.Refused {
		if a == p.payment {
			p.refusedAt = time.Now()
		}
		if old.Doubt && !w.isProvenUnmoved(a, r.CreatedAt) {
			w.noteViolation("refused in doubt and without proof")
		}
	}
	switch {
	case r.State != ledger.Redeemed || old.State == ledger.Redeemed:
	case isKeyed(r.Purchase):
		a.answerStandsUntil = r.AnsweredAt.Add(24 * time.Hour)
	case p.kind == actorReconciler: // nobody has received this answer, so it is not replayed to another payment
		a.answerStandsUntil = r.AnsweredAt
	default:
		a.answerStandsUntil = r.AnsweredAt.Add(p.answerWindow())
	}
	a.lookupsBegun += r.Lookups - old.Lookups
	if r.Lookups < old.Lookups {
		a.toldUsedUp = false // an attempt gave a lookup back after its lease had ended, so a lookup is left again
	}
	a.settledAt = r.SettledAt
	p.noteRefund(a, *old, r)
	if !onlyVersionRaised(*old, r) {
		a.lastWriter = p
	}
}

// checkLease checks a write of a process to a record whose lease another process has. The clock
// of the writing process decides whether that lease is still valid. If it is, the only
// permitted write records a settlement and does not change the lease. A record whose refund has
// begun has no lease.
func (p *process) checkLease(a *authorization, old, r ledger.Payment) {
	if a.leaseHolder == p || !old.LeaseUntil.After(p.now()) || old.SendingBack != nil {
		return
	}
	if old.State == ledger.Settling && r.State == ledger.Settled && r.LeaseUntil.Equal(old.LeaseUntil) {
		p.w.noteEvent("evidence over a lost lease")
		return
	}
	p.w.noteViolation("a live lease was taken")
}

func (p *process) checkSuperseded(a *authorization, old, r ledger.Payment) {
	w := p.w
	a.supersededAt = time.Now()
	mine := p.payment == a && !p.attemptOn(a).claimedAt.IsZero()
	o := w.authorizationOf(r.Owner)
	blind := !w.chainVisible && !old.Doubt && p.now().After(a.validBefore.Add(refusalDoubtPeriod))
	w.noteViolations(map[string]bool{
		"superseded by a payment that has not paid":         mine && (o == nil || w.record(o) == nil || !w.record(o).Paid()),
		"taken over from a payment that may have been sent": !mine && !old.Disproved && a.possibleSends > 0 && !blind,
	})
}

func (p *process) checkTransition(a *authorization, old, r ledger.Payment) {
	w := p.w
	if a.purchase != "" && r.Purchase != a.purchase {
		w.noteViolation("what a payment buys was changed")
	}
	a.purchase = r.Purchase
	if old.State != "" && r.Endpoint != a.endpoint {
		w.noteViolation("where a payment was made was changed")
	}
	a.endpoint = r.Endpoint
	if old.State == "" {
		if (p.kind == actorClient || p.kind == actorStranger) && r.Purchase != w.purchaseOf(p.key, p.path) {
			w.noteViolation("claimed for another purchase than its own")
		}
		if (p.kind == actorClient || p.kind == actorStranger) && r.Endpoint != p.endpoint {
			w.noteViolation("claimed at another endpoint than its own")
		}
		a.token = r.Token
	}
	switch {
	case onlyVersionRaised(old, r):
	case r.State == ledger.Refused && !r.Disproved && !r.Sent && a.possibleSends > 0:
		w.noteViolation("a send was forgotten")
	case old.State == ledger.Superseded && r.State == ledger.Settled:
		w.checkFoundPaid(a, r, p)
	case old.State == ledger.Superseded:
		w.noteViolation("a superseded payment was changed")
	case r.State == ledger.Superseded:
		p.checkSuperseded(a, old, r)
	case a.ownershipLost && a.supersededAt.IsZero() && p.kind != actorReconciler && p.kind != actorOperator && old.SendingBack != nil:
		w.noteViolation("a payment was changed after its purchase was taken over")
	}
}

// onlyVersionRaised reports whether a write changed nothing but the version. A takeover of a
// purchase makes this write, so that a process with an older copy of the record can no longer
// write it.
func onlyVersionRaised(old, r ledger.Payment) bool {
	return old.State == r.State && old.Attempt == r.Attempt && old.UpdatedAt.Equal(r.UpdatedAt)
}

// checkFoundPaid checks a superseded payment that turns out to have moved money. If another
// payment has paid for the same purchase, a refund of this payment is due. Otherwise its
// answer is owed.
func (w *world) checkFoundPaid(a *authorization, r ledger.Payment, p *process) {
	if a.movedByUs {
		w.noteEvent("a superseded payment was found to be paid")
		if !a.movedAfterRefusal {
			w.noteViolation("a superseded payment was moved by us")
		}
		if w.chainVisible {
			w.noteViolation("a payment was superseded although chain evidence shows its transfer")
		}
	}
	o := w.owner(a.purchase)
	// If the owner was recorded as paid only a moment ago, this process may have decided about
	// the refund before that.
	paid := o != nil && o != a && w.record(o) != nil && w.record(o).Paid() && time.Since(o.settledAt) > 5*time.Second+w.clockSkew
	if paid && r.DueBack == "" && !p.froze.Load() {
		w.noteViolation("paid twice for a purchase, and no refund is due")
	}
}

// The following functions check the invariants of purchases. For one payer and one purchase,
// money moves at most once, however many authorizations the payer signs.

// purchaseOf returns the ledger key of a purchase. It is made from the payer's key, or from the
// path of the request if the payer gave no key.
func (w *world) purchaseOf(key, path string) string {
	what := "request:" + digestHex(path)
	if key != "" {
		what = "key:" + digestHex(key)
	}
	return ledger.PurchaseKey(terms().Network, strings.ToLower(terms().Asset), w.payer, what)
}

func digestHex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func isKeyed(purchase string) bool { return strings.Contains(purchase, "|key:") }

func (w *world) owner(purchase string) *authorization {
	if p, ok := w.store[purchase].(ledger.Purchase); ok {
		return w.authorizationOf(p.Owner)
	}
	return nil
}

// checkChargedOnce is called when a facilitator moves money. It checks that no facilitator has
// moved money for the same purchase before. There are three exceptions:
//   - One of the two payments was over (isOver) when the other became the owner of the purchase.
//   - A third party submitted the earlier payment. checkTakeover checks this case.
//   - There is no chain evidence, and a facilitator moved the money of a payment that it had
//     refused. The reconciler finds this transfer at the end of the schedule, and
//     checkFoundPaid then checks that a refund is due.
func (w *world) checkChargedOnce(a *authorization) {
	for _, b := range w.authorizations {
		switch {
		case b == a || !b.moved() || a.purchase == "" || b.purchase != a.purchase || a.overAtTakeover[b] || b.overAtTakeover[a]:
		case !b.movedByUs:
		case !w.chainVisible && (a.movedAfterRefusal || b.movedAfterRefusal):
			w.noteEvent("charged twice after a false refusal, without chain evidence")
		default:
			w.noteViolation("charged twice for one purchase")
		}
	}
}

func (p *process) checkPurchaseWrite(old, r ledger.Purchase) {
	w := p.w
	a := w.authorizationOf(r.Owner)
	switch {
	case a == nil:
		w.noteViolation("a purchase without an owner")
		return
	case p.kind == actorReconciler:
		if r.Owner != old.Owner {
			w.noteViolation("the reconciler took a purchase over")
		}
		return
	case a.purchase != r.Key:
		w.noteViolation("a payment owns a purchase that is not its own")
	}
	p.attemptOn(a).openedPurchase = true
	if r.Owner == old.Owner {
		return
	}
	if previousOwner := w.authorizationOf(old.Owner); previousOwner != nil {
		p.checkTakeover(previousOwner, a, old)
	}
	p.noteOverPayments(a, old, r)
}

// checkTakeover checks that a payment was allowed to take the purchase over from its previous
// owner. The previous owner must be over (isOver), superseded or without a record, or the
// record of the purchase must have expired.
func (p *process) checkTakeover(previousOwner, a *authorization, old ledger.Purchase) {
	w := p.w
	previousOwner.ownershipLost = true
	expired := !old.ExpiresAt.IsZero() && !old.ExpiresAt.After(p.now())
	b := w.record(previousOwner)
	if b != nil && b.State == ledger.Superseded && b.Owner != a.key {
		w.noteEvent("a takeover stopped halfway")
	}
	// movedByThirdParty says that the previous owner was superseded, and that its money was
	// moved by a third party.
	movedByThirdParty := !previousOwner.movedByUs && !previousOwner.supersededAt.IsZero()
	if !expired && b != nil && b.State != ledger.Superseded && !movedByThirdParty && !p.isOver(previousOwner) {
		w.noteViolation("a purchase was taken over from a payment that stands: " + string(b.State))
	}
}

// noteOverPayments notes, when a payment becomes the owner of a purchase, which other payments
// of the purchase are over.
func (p *process) noteOverPayments(a *authorization, old, r ledger.Purchase) {
	w := p.w
	a.overAtTakeover = map[*authorization]bool{}
	if previousOwner := w.authorizationOf(old.Owner); previousOwner != nil {
		// A payment that was over when the previous owner took the purchase stays over, even
		// if isOver now returns false because the clock of this process is behind the clock of
		// the process that found the payment over.
		maps.Copy(a.overAtTakeover, previousOwner.overAtTakeover)
	}
	for _, b := range w.authorizations {
		if b == a || b.purchase != r.Key {
			continue
		}
		if r := w.record(b); r == nil || p.isOver(b) {
			a.overAtTakeover[b] = true
		}
	}
}

// isOver reports whether a payment is over for this process's request. A payment is over if it
// is or will be refunded, if its answer is no longer replayed, or if it was made at another
// endpoint. The request gets no answer for such a payment; a new payment makes a new purchase.
func (p *process) isOver(a *authorization) bool {
	r := p.w.record(a)
	if r.Paid() && a.madeElsewhere(p.endpoint) {
		return true
	}
	switch r.State {
	case ledger.Refunded:
		return true
	case ledger.Redeemed:
		return !p.arrived.Before(a.answerStandsUntil)
	case ledger.Settled:
		return r.SendingBack != nil || r.DueBack != ""
	}
	return false
}
