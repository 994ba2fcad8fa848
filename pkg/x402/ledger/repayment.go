package ledger

import (
	"context"
	"fmt"
	"strconv"
)

// RepaymentKey names the nth transfer to a payer in a transaction. All parts must be
// in lower case.
func RepaymentKey(network, asset, payer, transaction string, n int) string {
	return "refund|" + Key(network, asset, payer, transaction) + "|" + strconv.Itoa(n)
}

// Reserve takes a transfer for the refund of one debt, so that no other is closed on
// it, whoever tries that at the same time. It reports whether the transfer is that
// debt's. A reservation has no end: a transaction stays on the chain.
func (l *Ledger) Reserve(ctx context.Context, transfer, debt string) (bool, error) {
	now := l.now()
	r := Record{
		Key: transfer, Version: 1, WriteID: l.newID(), State: Repaid, Owner: debt, CreatedAt: now, UpdatedAt: now,
	}
	old, err := l.store.Create(ctx, r)
	switch {
	case err != nil:
		return false, fmt.Errorf("reserve a transfer: %w", err)
	case old == nil:
		return true, nil
	case old.State != Repaid:
		return false, fmt.Errorf("reserve a transfer: %w: %s is none", ErrCorrupt, transfer)
	}
	return old.Owner == debt, nil
}
