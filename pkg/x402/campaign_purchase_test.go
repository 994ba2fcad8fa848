package x402_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// What must be true of purchases: for one payer and one purchase money moves at
// most once, whatever he signs. The rules are those of the design's table of
// owners, written down a second time, over what the chain and the store hold.

// purchaseOf names a purchase: by a key, or without one by the request.
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

// keyed says that the payer has named a purchase.
func keyed(purchase string) bool { return strings.Contains(purchase, "|key:") }

// replays is how long an answer stands for a purchase.
func (w *world) replays(purchase string) time.Duration {
	if keyed(purchase) {
		return 24 * time.Hour
	}
	return w.window
}

// owner is the payment that a purchase is made with, or nil. The lock is held.
func (w *world) owner(purchase string) *authorization {
	if i := w.store.rows[purchase]; i != nil {
		return w.pay(i.Owner)
	}
	return nil
}

// once complains of a second transfer of ours for one purchase. One is allowed
// where the first was over when the second came to own the purchase; where a
// third party had submitted the first, so that we have charged once (who owned
// the purchase, and lost it, is judged where it is taken over); and where a
// facilitator moved money that it had refused, and there is no view of the
// chain. What came too much then is a refund, which the end of the schedule
// checks. A process of the first version knows nothing of purchases. The lock is
// held.
func (w *world) once(a *authorization) {
	for _, b := range w.pays {
		switch {
		case b == a || !b.moved() || a.purchase == "" || b.purchase != a.purchase || a.cleared[b] || b.cleared[a]:
		case !b.byUs:
			w.happened("a third party had submitted another payment of the purchase")
		case !w.rpc && (a.lied || b.lied):
			w.happened("charged twice by a lie, and no view of the chain")
		case a.older || b.older:
			w.happened("charged beside an older version")
		default:
			w.complain("charged twice for one purchase")
		}
	}
}

// bought holds a write of a purchase that has happened to what must be true of
// it. The lock is held.
func (p *process) bought(old *ledger.Record, r ledger.Record) {
	w := p.w
	a := w.pay(r.Owner)
	switch {
	case a == nil:
		w.complain("a purchase without an owner")
		return
	case p.kind == asReconciler:
		if r.Owner != old.Owner {
			w.complain("the reconciler took a purchase over")
		}
		return
	case a.purchase != r.Key:
		w.complain("a payment owns a purchase that is not its own")
	}
	p.opened[a] = true
	if r.Owner == old.Owner {
		return
	}
	if before := w.pay(old.Owner); before != nil {
		w.happened("a purchase was taken over")
		before.left = true
		expired := !old.ExpiresAt.IsZero() && !old.ExpiresAt.After(p.now())
		b := w.record(before)
		if b != nil && b.State == ledger.Superseded && b.Owner != a.key {
			w.happened("a takeover stopped halfway")
		}
		if !expired && b != nil && b.State != ledger.Superseded && !p.over(*b) {
			w.complain("a purchase was taken over from a payment that stands: " + string(b.State))
		}
	}
	a.cleared = map[*authorization]bool{}
	if before := w.pay(old.Owner); before != nil {
		// What was over for the owner before stays over, also by a clock that is
		// behind the one that this was found by.
		maps.Copy(a.cleared, before.cleared)
	}
	for _, b := range w.pays {
		if b == a || b.purchase != r.Key {
			continue
		}
		if r := w.record(b); r == nil || p.over(*r) {
			a.cleared[b] = true
		}
	}
}

// over says that what a payment has bought is over for a request of this
// process, so that a new one buys anew. The lock is held.
func (p *process) over(r ledger.Record) bool {
	switch r.State {
	case ledger.Refunded:
		return true
	case ledger.Redeemed:
		return !p.arrived.Before(r.Since().Add(p.w.replays(r.Purchase)))
	case ledger.Settled:
		exhausted := r.Lookups >= ledgerLookups || p.now().Sub(r.SettledAt) > owedFor-11*time.Minute
		told := !keyed(r.Purchase) || !p.arrived.Before(r.LookupAt.Add(24*time.Hour))
		return exhausted && told && !r.LeaseUntil.After(p.now())
	default:
	}
	return false
}

// superseded holds the end of a payment that another one stands in for to what
// must be true of it. The lock is held.
func (p *process) superseded(a *authorization, old, r ledger.Record) {
	w := p.w
	a.supersededAt = time.Now()
	if p.pay == a && p.claims[a] != (claim{}) {
		if o := w.pay(r.Owner); o == nil || w.record(o) == nil || !w.record(o).Paid() {
			w.complain("superseded by a payment that has not paid")
		}
		return
	}
	blind := !w.rpc && !old.Doubt && p.now().After(a.until.Add(blindDead))
	if !old.Disproved && a.maySent > 0 && !blind {
		w.complain("taken over from a payment that may have been sent")
	}
}

// follows holds a write to what was written before. The lock is held.
func (p *process) follows(a *authorization, old, r ledger.Record) {
	w := p.w
	if a.purchase != "" && r.Purchase != a.purchase {
		w.complain("what a payment buys was changed")
	}
	a.purchase = r.Purchase
	if old.State == "" {
		switch p.kind {
		case asOlder:
			a.older = true
		case asClient, asStranger:
			if r.Purchase != p.buys() {
				w.complain("claimed for another purchase than its own")
			}
		case asReconciler:
		}
		if a.proof = (ledger.Proof{}); r.Proof != nil {
			a.proof = *r.Proof
		}
	}
	switch {
	case onlyRaised(old, r):
	case r.State == ledger.Refused && !r.Disproved && !r.Sent && a.maySent > 0 && p.kind != asOlder:
		w.complain("a send was forgotten")
	case old.State == ledger.Superseded && r.State == ledger.Settled:
		w.foundPaid(a, r, p)
	case old.State == ledger.Superseded:
		w.complain("a superseded payment was changed")
	case r.State == ledger.Superseded:
		p.superseded(a, old, r)
	case a.left && r.State != ledger.Refunded && p.kind != asReconciler && old.Lookups >= ledgerLookups:
		w.complain("a payment was changed after its purchase was taken over")
	}
}

// onlyRaised says that a takeover has given another version to what stays as it
// is.
func onlyRaised(old, r ledger.Record) bool {
	return old.State == r.State && old.Attempt == r.Attempt && old.UpdatedAt.Equal(r.UpdatedAt)
}

// foundPaid is about money of a superseded payment: it is owed, or due back when
// another payment has paid for the same. The lock is held.
func (w *world) foundPaid(a *authorization, r ledger.Record, p *process) {
	switch {
	case !a.byUs:
		w.happened("a third party's transfer of a superseded payment was found")
	case a.older:
		w.happened("an older version's transfer of a superseded payment was found")
	default:
		w.happened("a superseded payment was found to be paid")
		if !a.lied {
			w.complain("a superseded payment was moved by us")
		}
		if w.rpc {
			w.complain("superseded, and the chain would have told")
		}
	}
	o := w.owner(a.purchase)
	paid := o != nil && o != a && w.record(o) != nil && w.record(o).Paid()
	if due := ledger.Spent(r, p.now()); paid && !due {
		w.complain("paid twice for a purchase, and no refund is due")
	}
}
