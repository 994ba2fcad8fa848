package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// byKey begins the id of a purchase that its payer has named, and byRequest that of any
// other.
const (
	byKey     = "key:"
	byRequest = "request:"
)

// KeyID is the id of a purchase that its payer has named, by the digest of that name.
func KeyID(digest string) string { return byKey + digest }

// RequestID is the id of a purchase that its payer has not named, by the digest of what is
// asked.
func RequestID(digest string) string { return byRequest + digest }

// Named says whether the payer has named a purchase. The first claim of a payment decides
// what it buys.
func Named(purchase string) bool { return strings.Contains(purchase, "|"+byKey) }

// PurchaseKey names a purchase of a payer, by a KeyID or a RequestID. All parts must be in
// lower case.
func PurchaseKey(network, asset, payer, id string) string {
	return "purchase|" + Key(network, asset, payer, id)
}

// OwnedBy says that a purchase is made with the payment of a hold.
func (p Purchase) OwnedBy(h *Hold) bool {
	return p.Owner == h.record.Key && p.AuthDigest == h.record.AuthDigest
}

// Purchase reads a purchase. It returns nil for one that is missing or expired.
func (l *Ledger) Purchase(ctx context.Context, key string) (*Purchase, error) {
	return fetch[Purchase](ctx, l, key)
}

// Owner reads the record of the payment that a purchase is made with; nil when
// there is none any more.
func (l *Ledger) Owner(ctx context.Context, p *Purchase) (*Payment, error) {
	r, err := l.Fetch(ctx, p.Owner)
	if r == nil || r.AuthDigest != p.AuthDigest {
		return nil, err
	}
	return r, nil
}

// OpenPurchase opens the purchase of a payment, which every attempt does before it sends. It
// returns the purchase as it stands: the payment's own, or that of another payment.
// ErrConflict means that somebody else opens it now.
func (l *Ledger) OpenPurchase(ctx context.Context, h *Hold) (*Purchase, error) {
	made, old, err := create(ctx, l, h.purchase())
	switch {
	case err == nil:
		return &made, nil
	case old == nil:
		return nil, fmt.Errorf("open a purchase: %w", err)
	case !old.OwnedBy(h):
		return old, nil
	}
	return l.swap(ctx, *old, h)
}

// TakeOver gives a purchase whose owner is dead, or over, to another payment. owner is the
// record in which that was found, or nil when there is none. It is closed
// first, so that no attempt on it can begin or end any more, and only then is the purchase
// swapped. ErrConflict means that something has changed since it was read; an owner that was
// closed stays closed.
func (l *Ledger) TakeOver(ctx context.Context, p *Purchase, owner *Payment, h *Hold) (*Purchase, error) {
	if owner != nil {
		if err := l.close(ctx, *owner, h.record.Key); err != nil {
			return nil, fmt.Errorf("take over: %w", err)
		}
	}
	return l.swap(ctx, *p, h)
}

// close writes the record of an owner that loses its purchase to the payment with a key, if
// it can be sent again, or a lookup of it can be under way. One that was paid keeps its
// state; an attempt that still works on it finds another version.
func (l *Ledger) close(ctx context.Context, owner Payment, key string) error {
	switch {
	case owner.State == Refused:
		_, err := l.Apply(ctx, owner, EventSupersede, Change{owner: key})
		return err
	case owner.State == Settled, incomplete(owner, time.Time{}):
		owner.Version++
		owner.WriteID = l.newID()
		_, err := put(ctx, l, owner)
		return err
	}
	return nil
}

// swap writes a purchase for another payment, or for the same again, over the version that
// was read.
func (l *Ledger) swap(ctx context.Context, old Purchase, h *Hold) (*Purchase, error) {
	next := h.purchase()
	next.Row = l.newRow(old.Key)
	next.Version = old.Version + 1
	next.CreatedAt = old.CreatedAt
	next.ExpiresAt = next.UpdatedAt.Add(purchaseKept)
	if _, err := put(ctx, l, next); err != nil {
		return nil, fmt.Errorf("open a purchase: %w", err)
	}
	return &next, nil
}

// purchase is that of a payment, not written yet.
func (h *Hold) purchase() Purchase {
	return Purchase{
		Row:        Row{Key: h.record.Purchase},
		Owner:      h.record.Key,
		AuthDigest: h.record.AuthDigest,
	}
}

// answered says whether the purchase of a superseded payment was paid for with
// another one, so that money of this one is due back.
func (l *Ledger) answered(ctx context.Context, r Payment) (bool, error) {
	p, err := l.Purchase(ctx, r.Purchase)
	if p == nil {
		return false, err
	}
	owner, err := l.Owner(ctx, p)
	return owner != nil && owner.Paid(), err
}
