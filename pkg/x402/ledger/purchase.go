package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The id of a purchase begins with byKey if the payer has named the purchase with a key, and
// otherwise with byRequest.
const (
	byKey     = "key:"
	byRequest = "request:"
)

// KeyID returns the id of a purchase that the payer has named with a key, given the digest of
// that key.
func KeyID(digest string) string { return byKey + digest }

// RequestID returns the id of a purchase that the payer has not named, given the digest of the
// request.
func RequestID(digest string) string { return byRequest + digest }

// Named reports whether the payer has named a purchase with a key. The argument is the key of
// the purchase's record.
func Named(purchase string) bool { return strings.Contains(purchase, "|"+byKey) }

// PurchaseKey returns the key of a payer's purchase; id is a KeyID or a RequestID. All four
// parts must be in lower case.
func PurchaseKey(network, asset, payer, id string) string {
	return "purchase|" + Key(network, asset, payer, id)
}

// OwnedBy reports whether the payment of a hold is the owner of a purchase.
func (p Purchase) OwnedBy(h *Hold) bool {
	return p.Owner == h.record.Key && p.AuthDigest == h.record.AuthDigest
}

// Purchase reads a purchase. It returns nil if the purchase is missing or expired.
func (l *Ledger) Purchase(ctx context.Context, key string) (*Purchase, error) {
	return fetch[Purchase](ctx, l, key)
}

// Owner returns the record of the payment that owns a purchase. It returns nil if that record
// has been deleted, or if the record under its key is now about another authorization.
func (l *Ledger) Owner(ctx context.Context, p *Purchase) (*Payment, error) {
	r, err := l.Fetch(ctx, p.Owner)
	if r == nil || r.AuthDigest != p.AuthDigest {
		return nil, err
	}
	return r, nil
}

// OpenPurchase opens the purchase of a hold's payment. Every attempt calls it before it sends
// the payment. If the purchase has no owner yet, the payment becomes the owner. If the payment
// already is the owner, the purchase is written again, and so is kept longer. If another
// payment is the owner, nothing is written. OpenPurchase returns the stored purchase.
// ErrConflict means that somebody else is opening the purchase at the same time.
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
	return l.writeOwner(ctx, *old, h)
}

// ReplaceOwner gives a purchase to the payment of h. The Ownership of the old owner must be
// OwnerDead or OwnerOver. owner is the record of the old owner, or nil if the old owner has
// none. ReplaceOwner first closes that record, so that an attempt that has read the record can
// no longer change it. Then it writes the purchase. ErrConflict means that the old owner's
// record or the purchase has changed since it was read. A closed record stays closed even if
// the purchase could not be written.
func (l *Ledger) ReplaceOwner(ctx context.Context, p *Purchase, owner *Payment, h *Hold) (*Purchase, error) {
	if owner != nil {
		if err := l.closeOwner(ctx, *owner, h.record.Key); err != nil {
			return nil, fmt.Errorf("take over: %w", err)
		}
	}
	return l.writeOwner(ctx, *p, h)
}

// closeOwner is called before a purchase gets a new owner, the payment with the given key. It
// changes the record of the old owner. A refused owner is marked as superseded, so that it can
// no longer be sent. If a lookup for the owner may be running, closeOwner only increases the
// version of the record, so that the writes of the running attempt fail. Any other record
// stays as it is.
func (l *Ledger) closeOwner(ctx context.Context, owner Payment, key string) error {
	switch {
	case owner.State == Refused:
		_, err := l.Apply(ctx, owner, EventSupersede, Change{owner: key})
		return err
	case owner.State == Settled, isIncomplete(owner, time.Time{}):
		owner.Version++
		owner.WriteID = l.newID()
		_, err := put(ctx, l, owner)
		return err
	}
	return nil
}

// writeOwner makes the payment of h the owner of a purchase. old is the purchase as it was
// read, and writeOwner replaces only that version.
func (l *Ledger) writeOwner(ctx context.Context, old Purchase, h *Hold) (*Purchase, error) {
	next := h.purchase()
	next.Row = l.newRow(old.Key)
	next.Version = old.Version + 1
	next.CreatedAt = old.CreatedAt
	next.ExpiresAt = next.UpdatedAt.Add(purchaseRetention)
	if _, err := put(ctx, l, next); err != nil {
		return nil, fmt.Errorf("open a purchase: %w", err)
	}
	return &next, nil
}

// purchase returns the purchase that the hold's payment is for, with that payment as the
// owner. It writes nothing.
func (h *Hold) purchase() Purchase {
	return Purchase{
		Row:        Row{Key: h.record.Purchase},
		Owner:      h.record.Key,
		AuthDigest: h.record.AuthDigest,
	}
}

// isOwnerPaid reports whether the owner of a purchase is known to be paid. r is a payment that
// was replaced by another one for that purchase. If the owner is paid, money that r moved must
// be refunded.
func (l *Ledger) isOwnerPaid(ctx context.Context, r Payment) (bool, error) {
	p, err := l.Purchase(ctx, r.Purchase)
	if p == nil {
		return false, err
	}
	owner, err := l.Owner(ctx, p)
	return owner != nil && owner.Paid(), err
}
