package ledger

import (
	"context"
	"errors"
	"strconv"
)

// CursorKey returns the key under which the Cursor for a token and a payee is stored. The
// network, the asset and the payee must be in lower case.
func CursorKey(network, asset, payee string) string {
	return "cursor|" + network + "|" + asset + "|" + payee
}

// Cursor reads the cursor that is stored under a key. It returns nil if there is none.
func (l *Ledger) Cursor(ctx context.Context, key string) (*Cursor, error) {
	return fetch[Cursor](ctx, l, key)
}

// Begin creates a cursor under a key. next is the first block that was not read. debtsFrom is
// the first block in which a transfer without a record is a debt; see Cursor. ErrConflict
// means that somebody else has already created the cursor.
func (l *Ledger) Begin(ctx context.Context, key string, next, debtsFrom uint64) (*Cursor, error) {
	c, _, err := create(ctx, l, Cursor{Row: Row{Key: key}, Next: next, DebtsFrom: debtsFrom})
	return &c, err
}

// Advance moves a cursor forward: next becomes the first block that was not read. If next is
// lower than c.Next, Advance returns an error. ErrConflict means that somebody else has
// already moved the cursor, and will read on from there.
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

// RepaymentKey returns the key under which a refund transfer is recorded. One transaction can
// contain several transfers of the same amount to the same payer. n is the number of the
// transfer among these, counted from 0. All other parameters must be in lower case.
func RepaymentKey(network, asset, payer, transaction, amount string, n int) string {
	return "refund|" + Key(network, asset, payer, transaction) + "|" + amount + "|" + strconv.Itoa(n)
}

// Reserve assigns a refund transfer to one debt. transfer is a RepaymentKey, and debt is the
// key of the payment that is refunded. After that, no other debt can be closed with the same
// transfer, even by another operator at the same time. Reserve returns true if the transfer is
// assigned to this debt, by this call or by an earlier one. It returns false if the transfer
// is assigned to another debt. A reservation does not expire, because the transaction stays on
// the chain.
func (l *Ledger) Reserve(ctx context.Context, transfer, debt string) (bool, error) {
	_, old, err := create(ctx, l, Repayment{Row: Row{Key: transfer}, Debt: debt})
	if old != nil {
		return old.Debt == debt, nil
	}
	return err == nil, err
}
