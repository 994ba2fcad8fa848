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
			p.w.cursorAt = time.Now()
		}
	}
}

// checkPaymentWrite checks the invariants of a write of a payment. old is the previous record,
// or the zero value for the first write.
func (p *process) checkPaymentWrite(old *ledger.Payment, r ledger.Payment) {
	w := p.w
	w.trace("  p%d writes %s v%d %s sent=%v doubt=%v disproved=%v lookups=%d lease=%v owner=%s", p.number, w.number(r.Key), r.Version, r.State, r.Sent, r.Doubt, r.Disproved, r.Lookups, !r.LeaseUntil.IsZero(), w.number(r.Owner))
	a := w.authorizationOf(r.Key)
	if a == nil {
		return
	}
	p.claimedFirst = p.claimedFirst || a == p.pay && r.Version == 1
	p.checkTransition(a, *old, r)
	if by := p.of(a).refusedBy; by != "" && a.refusedBy == "" && r.Attempt == old.Attempt {
		a.refusedBy, a.refusedAt = by, time.Now()
	}
	p.of(a).wroteAt, p.of(a).wroteDoubt = time.Now(), r.Doubt
	p.checkLease(a, *old, r)
	if r.Attempt > old.Attempt {
		p.of(a).claimed, p.current, p.of(a).sentBefore = time.Now(), a, a.possibleSends > 0
		a.leaseHolder = p
		if a == p.pay {
			// p.copied was first set when the request came. Since then, another attempt may have
			// ended without sending the payment.
			p.copied = isPublic(*old)
		}
	}
	if r.State == ledger.Refused {
		if a == p.pay {
			p.refusedAt = time.Now()
		}
		if old.Doubt && !w.provenUnmoved(a, r.CreatedAt) {
			w.violated("refused in doubt and without proof")
		}
	}
	switch {
	case r.State != ledger.Redeemed || old.State == ledger.Redeemed:
	case keyed(r.Purchase):
		a.standsUntil = r.AnsweredAt.Add(24 * time.Hour)
	case p.kind == asReconciler: // nobody has received this answer, so it is not replayed to another payment
		a.standsUntil = r.AnsweredAt
	default:
		a.standsUntil = r.AnsweredAt.Add(p.window())
	}
	a.lookupsBegun += r.Lookups - old.Lookups
	if r.Lookups < old.Lookups {
		a.toldUsedUp = false // an attempt gave a lookup back after its lease had ended, so a lookup is left again
	}
	a.settledAt = r.SettledAt
	p.noteRefund(a, *old, r)
	if !onlyRaised(*old, r) {
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
		p.w.observed("evidence over a lost lease")
		return
	}
	p.w.violated("a live lease was taken")
}

func (p *process) checkSuperseded(a *authorization, old, r ledger.Payment) {
	w := p.w
	a.supersededAt = time.Now()
	mine := p.pay == a && !p.of(a).claimed.IsZero()
	o := w.authorizationOf(r.Owner)
	blind := !w.chainVisible && !old.Doubt && p.now().After(a.validBefore.Add(refusedUntil))
	w.check(map[string]bool{
		"superseded by a payment that has not paid":         mine && (o == nil || w.record(o) == nil || !w.record(o).Paid()),
		"taken over from a payment that may have been sent": !mine && !old.Disproved && a.possibleSends > 0 && !blind,
	})
}

func (p *process) checkTransition(a *authorization, old, r ledger.Payment) {
	w := p.w
	if a.purchase != "" && r.Purchase != a.purchase {
		w.violated("what a payment buys was changed")
	}
	a.purchase = r.Purchase
	if old.State != "" && r.Endpoint != a.endpoint {
		w.violated("where a payment was made was changed")
	}
	a.endpoint = r.Endpoint
	if old.State == "" {
		if (p.kind == asClient || p.kind == asStranger) && r.Purchase != w.purchaseOf(p.key, p.path) {
			w.violated("claimed for another purchase than its own")
		}
		if (p.kind == asClient || p.kind == asStranger) && r.Endpoint != p.endpoint {
			w.violated("claimed at another endpoint than its own")
		}
		a.token = r.Token
	}
	switch {
	case onlyRaised(old, r):
	case r.State == ledger.Refused && !r.Disproved && !r.Sent && a.possibleSends > 0:
		w.violated("a send was forgotten")
	case old.State == ledger.Superseded && r.State == ledger.Settled:
		w.checkFoundPaid(a, r, p)
	case old.State == ledger.Superseded:
		w.violated("a superseded payment was changed")
	case r.State == ledger.Superseded:
		p.checkSuperseded(a, old, r)
	case a.ownershipLost && a.supersededAt.IsZero() && p.kind != asReconciler && p.kind != asOperator && old.SendingBack != nil:
		w.violated("a payment was changed after its purchase was taken over")
	}
}

// onlyRaised reports whether a write changed nothing but the version. A takeover of a purchase
// makes this write, so that a process with an older copy of the record can no longer write it.
func onlyRaised(old, r ledger.Payment) bool {
	return old.State == r.State && old.Attempt == r.Attempt && old.UpdatedAt.Equal(r.UpdatedAt)
}

// checkFoundPaid checks a superseded payment that turns out to have moved money. If another
// payment has paid for the same purchase, a refund of this payment is due. Otherwise its
// answer is owed.
func (w *world) checkFoundPaid(a *authorization, r ledger.Payment, p *process) {
	if a.byUs {
		w.observed("a superseded payment was found to be paid")
		if !a.movedAfterRefusal {
			w.violated("a superseded payment was moved by us")
		}
		if w.chainVisible {
			w.violated("a payment was superseded although chain evidence shows its transfer")
		}
	}
	o := w.owner(a.purchase)
	// If the owner was recorded as paid only a moment ago, this process may have decided about
	// the refund before that.
	paid := o != nil && o != a && w.record(o) != nil && w.record(o).Paid() && time.Since(o.settledAt) > 5*time.Second+w.clockSkew
	if paid && r.DueBack == "" && !p.froze.Load() {
		w.violated("paid twice for a purchase, and no refund is due")
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

func keyed(purchase string) bool { return strings.Contains(purchase, "|key:") }

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
		case b == a || !b.moved() || a.purchase == "" || b.purchase != a.purchase || a.overBefore[b] || b.overBefore[a]:
		case !b.byUs:
		case !w.chainVisible && (a.movedAfterRefusal || b.movedAfterRefusal):
			w.observed("charged twice after a false refusal, without chain evidence")
		default:
			w.violated("charged twice for one purchase")
		}
	}
}

func (p *process) checkPurchaseWrite(old, r ledger.Purchase) {
	w := p.w
	a := w.authorizationOf(r.Owner)
	switch {
	case a == nil:
		w.violated("a purchase without an owner")
		return
	case p.kind == asReconciler:
		if r.Owner != old.Owner {
			w.violated("the reconciler took a purchase over")
		}
		return
	case a.purchase != r.Key:
		w.violated("a payment owns a purchase that is not its own")
	}
	p.of(a).opened = true
	if r.Owner == old.Owner {
		return
	}
	if before := w.authorizationOf(old.Owner); before != nil {
		p.checkTakeover(before, a, old)
	}
	p.noteOver(a, old, r)
}

// checkTakeover checks that a payment could take the purchase over from its previous owner.
// The previous owner must be over (isOver), superseded or without a record, or the record of
// the purchase must have expired.
func (p *process) checkTakeover(before, a *authorization, old ledger.Purchase) {
	w := p.w
	before.ownershipLost = true
	expired := !old.ExpiresAt.IsZero() && !old.ExpiresAt.After(p.now())
	b := w.record(before)
	if b != nil && b.State == ledger.Superseded && b.Owner != a.key {
		w.observed("a takeover stopped halfway")
	}
	// found says that the previous owner was superseded, and that its money was moved by a third
	// party.
	found := !before.byUs && !before.supersededAt.IsZero()
	if !expired && b != nil && b.State != ledger.Superseded && !found && !p.isOver(before) {
		w.violated("a purchase was taken over from a payment that stands: " + string(b.State))
	}
}

// noteOver notes, when a payment becomes the owner of a purchase, which other payments of the
// purchase are over.
func (p *process) noteOver(a *authorization, old, r ledger.Purchase) {
	w := p.w
	a.overBefore = map[*authorization]bool{}
	if before := w.authorizationOf(old.Owner); before != nil {
		// A payment that was over when the previous owner took the purchase stays over. The
		// clock of this process cannot decide that: it may be behind the clock of the process
		// that found the payment over.
		maps.Copy(a.overBefore, before.overBefore)
	}
	for _, b := range w.authorizations {
		if b == a || b.purchase != r.Key {
			continue
		}
		if r := w.record(b); r == nil || p.isOver(b) {
			a.overBefore[b] = true
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
		return !p.arrived.Before(a.standsUntil)
	case ledger.Settled:
		return r.SendingBack != nil || r.DueBack != ""
	}
	return false
}
