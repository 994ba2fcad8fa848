package ledger

import (
	"context"
	"errors"
	"strconv"
)

// CursorKey returns the key of the cursor for a token and a payee. The network, the asset and
// the payee must be in lower case.
func CursorKey(network, asset, payee string) string {
	return "cursor|" + network + "|" + asset + "|" + payee
}

// Cursor returns the cursor under a key, or nil if there is none.
func (l *Ledger) Cursor(ctx context.Context, key string) (*Cursor, error) {
	return fetch[Cursor](ctx, l, key)
}

// Begin creates a cursor with the fields Next and DebtsFrom. ErrConflict means that somebody
// else has already created it.
func (l *Ledger) Begin(ctx context.Context, key string, next, debtsFrom uint64) (*Cursor, error) {
	c, _, err := create(ctx, l, Cursor{Row: Row{Key: key}, Next: next, DebtsFrom: debtsFrom})
	return &c, err
}

// Advance moves a cursor forward: next becomes the first block that was not read. ErrConflict
// means that somebody else has already moved the cursor and will read on from there.
func (l *Ledger) Advance(ctx context.Context, c Cursor, next uint64) (*Cursor, error) {
	if next < c.Next {
		return nil, errors.New("ledger: a cursor does not go back")
	}
	c.Next = next
	c.Version++
	c.WriteID = l.newID()
	c.UpdatedAt = l.now()
	_, err := put(ctx, l, c)
	return &c, err
}

// RepaymentKey returns the key of a refund transfer. A transaction can have several transfers
// of the same amount to the same payer; n is the number of this one, counted from 0. All other
// parameters must be in lower case.
func RepaymentKey(network, asset, payer, transaction, amount string, n int) string {
	return "refund|" + Key(network, asset, payer, transaction) + "|" + amount + "|" + strconv.Itoa(n)
}

// Reserve assigns a transfer to the refund of one debt. transfer is a RepaymentKey, and debt
// is the key of the payment that is refunded. No other debt can then be closed with that
// transfer, even by another operator at the same time. Reserve reports whether the transfer is
// assigned to that debt. A reservation does not expire, because the transaction stays on the
// chain.
func (l *Ledger) Reserve(ctx context.Context, transfer, debt string) (bool, error) {
	_, old, err := create(ctx, l, Repayment{Row: Row{Key: transfer}, Debt: debt})
	if old != nil {
		return old.Debt == debt, nil
	}
	return err == nil, err
}
