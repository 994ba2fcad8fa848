package ledger

import (
	"context"
	"errors"
	"fmt"
)

// NameKey is where a payer's own name for a payment is kept. It is scoped by
// network and payer, so that nobody can name, find or block another's payment.
func NameKey(network, payer, id string) string {
	return "id|" + network + "|" + payer + "|" + id
}

// Bind names a payment. It reports false when the name is taken by another
// authorization of the same payer. Binding again is a success.
func (l *Ledger) Bind(ctx context.Context, name string, p Payment) (bool, error) {
	now := l.now()
	r := Record{
		Key: name, Version: 1, WriteID: l.newID(), State: Bound, AuthDigest: p.AuthDigest,
		ValidBefore: p.ValidBefore, CreatedAt: now, UpdatedAt: now,
	}
	r.ExpiresAt = expiry(r, now)
	old, err := l.store.Create(ctx, r)
	switch {
	case err != nil:
		return false, fmt.Errorf("bind: %w", err)
	case old == nil:
		return true, nil
	case old.State != Bound:
		return false, fmt.Errorf("bind: %w: the name is a payment", ErrCorrupt)
	case !l.expired(*old):
		return old.AuthDigest == p.AuthDigest, nil
	}
	r.Version, r.WriteID = old.Version+1, l.newID()
	err = l.store.Replace(ctx, r)
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
