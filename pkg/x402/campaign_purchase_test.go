package x402_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Invariants of purchases: for one payer and one purchase money moves at most once,
// whatever the payer signs. They state the rules for the owner of a purchase a
// second time, over what the chain and the store contain.

// purchaseOf is the ledger key of a purchase, which is named by the payer's key or,
// without one, by the request.
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

// keyed says whether a purchase is named by a key of the payer.
func keyed(purchase string) bool { return strings.Contains(purchase, "|key:") }

// replayWindow is how long an answer is replayed to other payments of a purchase.
func (w *world) replayWindow(purchase string) time.Duration {
	if keyed(purchase) {
		return 24 * time.Hour
	}
	return w.window
}

// owner is the payment that owns a purchase, or nil. The lock is held.
func (w *world) owner(purchase string) *authorization {
	if i := w.store.rows[purchase]; i != nil {
		return w.authorizationOf(i.Owner)
	}
	return nil
}

// checkChargedOnce checks that no facilitator moved money twice for one purchase.
// The exceptions: the first payment was used up, refunded or no longer replayed
// when the second came to own the purchase; a third party had submitted the first
// (whether its ownership could be taken over is checked there); a facilitator
// moved money that it had refused, and there is no chain evidence (the end of the
// schedule checks that a refund is due); or a process of the first version, which
// does not know purchases, took part. The lock is held.
func (w *world) checkChargedOnce(a *authorization) {
	for _, b := range w.authorizations {
		switch {
		case b == a || !b.moved() || a.purchase == "" || b.purchase != a.purchase || a.overBefore[b] || b.overBefore[a]:
		case !b.byUs:
			w.observed("a third party had submitted another payment of the purchase")
		case !w.chainVisible && (a.movedAfterRefusal || b.movedAfterRefusal):
			w.observed("charged twice after a false refusal, without chain evidence")
		case a.firstVersion || b.firstVersion:
			w.observed("charged beside an older version")
		default:
			w.violated("charged twice for one purchase")
		}
	}
}

// checkPurchaseWrite checks the invariants of a write of a purchase that has taken
// effect. The lock is held.
func (p *process) checkPurchaseWrite(old *ledger.Record, r ledger.Record) {
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
	p.openedPurchase[a] = true
	if r.Owner == old.Owner {
		return
	}
	if before := w.authorizationOf(old.Owner); before != nil {
		w.observed("a purchase was taken over")
		before.ownershipLost = true
		expired := !old.ExpiresAt.IsZero() && !old.ExpiresAt.After(p.now())
		b := w.record(before)
		if b != nil && b.State == ledger.Superseded && b.Owner != a.key {
			w.observed("a takeover stopped halfway")
		}
		if !expired && b != nil && b.State != ledger.Superseded && !p.isOver(*b) {
			w.violated("a purchase was taken over from a payment that stands: " + string(b.State))
		}
	}
	a.overBefore = map[*authorization]bool{}
	if before := w.authorizationOf(old.Owner); before != nil {
		// A payment that was over for the owner before remains so, even if this
		// process's clock is behind the clock of the one that found it.
		maps.Copy(a.overBefore, before.overBefore)
	}
	for _, b := range w.authorizations {
		if b == a || b.purchase != r.Key {
			continue
		}
		if r := w.record(b); r == nil || p.isOver(*r) {
			a.overBefore[b] = true
		}
	}
}

// isOver says that a payment gives no answer to this process's request any more
// (it is refunded, used up, or no longer replayed), so that a new payment makes a
// new purchase. The lock is held.
func (p *process) isOver(r ledger.Record) bool {
	switch r.State {
	case ledger.Refunded:
		return true
	case ledger.Redeemed:
		return !p.arrived.Before(r.Since().Add(p.w.replayWindow(r.Purchase)))
	case ledger.Settled:
		exhausted := r.Lookups >= lookupsPerPayment || p.now().Sub(r.SettledAt) > owedFor-11*time.Minute
		told := !keyed(r.Purchase) || !p.arrived.Before(r.LookupAt.Add(24*time.Hour))
		return exhausted && told && !r.LeaseUntil.After(p.now())
	default:
	}
	return false
}
