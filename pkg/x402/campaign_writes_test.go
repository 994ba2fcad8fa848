package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkWrite checks the invariants of a write that has taken effect. old is nil
// for the first write of a key. The lock is held.
func (p *process) checkWrite(old *ledger.Record, r ledger.Record) {
	w := p.w
	p.writes++
	w.trace("  p%d writes %s v%d %s sent=%v doubt=%v disproved=%v lookups=%d lease=%v owner=%s", p.number, w.number(r.Key), r.Version, r.State, r.Sent, r.Doubt, r.Disproved, r.Lookups, !r.LeaseUntil.IsZero(), w.number(r.Owner))
	if old == nil {
		old = &ledger.Record{}
	}
	if r.State == ledger.Bought {
		p.checkPurchaseWrite(old, r)
		return
	}
	a := w.authorizationOf(r.Key)
	if a == nil {
		return // a cursor
	}
	p.checkTransition(a, *old, r)
	if by := p.refusedBy[a]; by != "" && a.refusedBy == "" && r.Attempt == old.Attempt {
		a.refusedBy, a.refusedAt = by, time.Now()
	}
	p.lastWrites[a] = writtenRecord{time.Now(), r.Doubt}
	live := a.leaseHolder != p && old.LeaseUntil.After(p.now())
	testimony := old.State == ledger.Settling && r.State == ledger.Settled && r.LeaseUntil.Equal(old.LeaseUntil)
	switch {
	case live && !testimony:
		w.violated("a live lease was taken")
	case live:
		w.observed("evidence over a lost lease")
	}
	if r.Attempt > old.Attempt {
		p.claims[a], p.current = claim{time.Now(), r.WriteID}, a
		if r.Attempt > 1 && a == p.pay && a.proof == (ledger.Proof{}) && !a.firstVersion {
			w.observed("repeated without a token")
		}
		a.leaseHolder = p
	}
	switch r.State {
	case ledger.Settling:
		if !a.refusalToldAt.IsZero() {
			w.observed("sent again after a no")
		}
		if r.Doubt && !old.Doubt {
			w.observed("taken over in doubt")
		}
	case ledger.Refused:
		if a == p.pay {
			p.refusedAt = time.Now()
		}
		if old.Doubt && !w.provenUnmoved(a, r.CreatedAt) {
			w.violated("refused in doubt and without proof")
		}
		if old.Doubt {
			w.observed("refused by proof")
		}
	case ledger.Settled:
		if p.kind == asReconciler {
			w.observed("settled by the reconciler")
		}
	default:
	}
	a.lookupsBegun += r.Lookups - old.Lookups
	if r.Lookups < old.Lookups {
		a.toldUsedUp = false // an attempt whose lease had ended returned its lookup
	}
	a.settledAt = r.SettledAt
	if !onlyRaised(*old, r) {
		a.lastWriter = p
	}
}

// checkSuperseded checks the invariants of a payment that another one replaces. The
// lock is held.
func (p *process) checkSuperseded(a *authorization, old, r ledger.Record) {
	w := p.w
	a.supersededAt = time.Now()
	if p.pay == a && p.claims[a] != (claim{}) {
		if o := w.authorizationOf(r.Owner); o == nil || w.record(o) == nil || !w.record(o).Paid() {
			w.violated("superseded by a payment that has not paid")
		}
		return
	}
	blind := !w.chainVisible && !old.Doubt && p.now().After(a.validBefore.Add(refusedUntil))
	if !old.Disproved && a.possibleSends > 0 && !blind {
		w.violated("taken over from a payment that may have been sent")
	}
}

// checkTransition compares a write with the record before it. The lock is held.
func (p *process) checkTransition(a *authorization, old, r ledger.Record) {
	w := p.w
	if a.purchase != "" && r.Purchase != a.purchase {
		w.violated("what a payment buys was changed")
	}
	a.purchase = r.Purchase
	if old.State == "" {
		switch p.kind {
		case asFirstVersion:
			a.firstVersion = true
		case asClient, asStranger:
			if r.Purchase != p.purchaseKey() {
				w.violated("claimed for another purchase than its own")
			}
		case asReconciler:
		}
		if a.proof = (ledger.Proof{}); r.Proof != nil {
			a.proof = *r.Proof
		}
	}
	switch {
	case onlyRaised(old, r):
	case r.State == ledger.Refused && !r.Disproved && !r.Sent && a.possibleSends > 0 && p.kind != asFirstVersion:
		w.violated("a send was forgotten")
	case old.State == ledger.Superseded && r.State == ledger.Settled:
		w.checkFoundPaid(a, r, p)
	case old.State == ledger.Superseded:
		w.violated("a superseded payment was changed")
	case r.State == ledger.Superseded:
		p.checkSuperseded(a, old, r)
	case a.ownershipLost && r.State != ledger.Refunded && p.kind != asReconciler && old.Lookups >= lookupsPerPayment:
		w.violated("a payment was changed after its purchase was taken over")
	}
}

// onlyRaised says that a write changed the version alone, as a takeover does to a
// record so that its previous holder cannot write any more.
func onlyRaised(old, r ledger.Record) bool {
	return old.State == r.State && old.Attempt == r.Attempt && old.UpdatedAt.Equal(r.UpdatedAt)
}

// checkFoundPaid checks a superseded payment that is found to have moved money: its
// answer is owed, or a refund is due if another payment has paid for the same
// purchase. The lock is held.
func (w *world) checkFoundPaid(a *authorization, r ledger.Record, p *process) {
	switch {
	case !a.byUs:
		w.observed("a third party's transfer of a superseded payment was found")
	case a.firstVersion:
		w.observed("an older version's transfer of a superseded payment was found")
	default:
		w.observed("a superseded payment was found to be paid")
		if !a.movedAfterRefusal {
			w.violated("a superseded payment was moved by us")
		}
		if w.chainVisible {
			w.violated("a payment was superseded although chain evidence shows its transfer")
		}
	}
	o := w.owner(a.purchase)
	paid := o != nil && o != a && w.record(o) != nil && w.record(o).Paid()
	if due := ledger.Spent(r, p.now()); paid && !due {
		w.violated("paid twice for a purchase, and no refund is due")
	}
}
