package ledger

import (
	"context"
	"fmt"
	"time"
)

// Purchase is what a payer means to buy once, and the payment that it is bought with, its
// Owner: a record in state Bought. A payment is sent only by an attempt that has opened its
// purchase and found it to be its own; so of all the payments that a payer signs for one
// purchase only one can be sent, until that one is known to be dead. The item has no clock:
// the record of its owner decides.
type Purchase = Record

// PurchaseKey names a purchase of a payer: by the digest of a key that the payer
// chose, or of a request. All parts must be in lower case.
func PurchaseKey(network, asset, payer, id string) string {
	return "purchase|" + Key(network, asset, payer, id)
}

// Mine says that a purchase is made with the payment of a hold.
func (r Record) Mine(h *Hold) bool {
	return r.Owner == h.record.Key && r.AuthDigest == h.record.AuthDigest
}

// Purchase reads a purchase; nil when there is none, or it has expired.
func (l *Ledger) Purchase(ctx context.Context, key string) (*Purchase, error) {
	return l.fetch(ctx, key, Bought)
}

// Owner reads the record of the payment that a purchase is made with; nil when
// there is none any more.
func (l *Ledger) Owner(ctx context.Context, p *Purchase) (*Record, error) {
	r, err := l.Fetch(ctx, p.Owner)
	if err != nil || r == nil || r.AuthDigest != p.AuthDigest {
		return nil, err
	}
	return r, nil
}

// OpenPurchase opens the purchase of a payment, which every attempt does before it
// sends. It returns the purchase as it stands: the payment's own, which another
// attempt cannot have opened before and take over after this, or that of
// another payment. ErrConflict means that somebody else opens it now.
func (l *Ledger) OpenPurchase(ctx context.Context, h *Hold) (*Purchase, error) {
	item := l.item(h)
	old, err := l.create(ctx, item)
	switch {
	case err != nil:
		return nil, err
	case old == nil:
		return &item, nil
	case !old.Mine(h) && !l.expired(*old):
		return old, nil
	}
	return l.swap(ctx, *old, h)
}

// TakeOver gives a purchase whose owner is dead, or over, to another payment.
// owner is the record of the owner, on which that was found, or nil when there is
// none. It is closed first, so that no attempt on it can begin any more, and none
// that had lost its lease can end, and only then is the purchase swapped.
// ErrConflict means that something has changed since it was read; an owner that
// was closed stays closed.
func (l *Ledger) TakeOver(ctx context.Context, p *Purchase, owner *Record, h *Hold) (*Purchase, error) {
	if owner != nil {
		if err := l.close(ctx, *owner, h.record.Key); err != nil {
			return nil, fmt.Errorf("take over: %w", err)
		}
	}
	return l.swap(ctx, *p, h)
}

// close writes the record of an owner that loses its purchase to the payment with a key,
// if an attempt on it can begin, or still end: it can be sent again, or a lookup of it can
// be under way. Nothing changes any other. One that was paid keeps its state; an attempt
// that still works on it finds another version.
func (l *Ledger) close(ctx context.Context, owner Record, key string) error {
	switch {
	case owner.State == Refused:
		_, err := l.apply(ctx, owner, EventSupersede, change{owner: key})
		return err
	case owner.State == Settled, owner.State == Redeemed && incomplete(owner, time.Time{}):
		owner.Version, owner.WriteID = owner.Version+1, l.newID()
		_, err := l.put(ctx, owner)
		return err
	}
	return nil
}

func (l *Ledger) swap(ctx context.Context, old Record, h *Hold) (*Purchase, error) {
	next := l.item(h)
	next.Version, next.CreatedAt = old.Version+1, old.CreatedAt
	if _, err := l.put(ctx, next); err != nil {
		return nil, fmt.Errorf("open a purchase: %w", err)
	}
	return &next, nil
}

// item is the purchase of a payment as it is stored.
func (l *Ledger) item(h *Hold) Record {
	return l.fresh(Record{Key: h.record.Purchase, State: Bought, Owner: h.record.Key, AuthDigest: h.record.AuthDigest})
}

// answered says whether the purchase of a superseded payment was paid for with
// another one, so that money of this one is due back.
func (l *Ledger) answered(ctx context.Context, r Record) (bool, error) {
	p, err := l.Purchase(ctx, r.Purchase)
	if err != nil || p == nil || p.Owner == r.Key {
		return false, err
	}
	owner, err := l.Owner(ctx, p)
	return owner != nil && owner.Paid(), err
}
