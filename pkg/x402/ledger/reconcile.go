package ledger

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Reclaim takes the lease of a record whose outcome is not known, without the
// payment that made it: for the reconciler. It returns nil for a record that
// is decided, that a live attempt holds, or that is gone.
func (l *Ledger) Reclaim(ctx context.Context, r Record, lease time.Time) (*Hold, error) {
	if !l.Sleeping(r) {
		return nil, nil
	}
	next, err := l.apply(ctx, r, EventClaim, change{lease: lease})
	switch {
	case errors.Is(err, ErrConflict):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Hold{ledger: l, record: next}, nil
}

// Sending is what is known, without evidence, of whether an undecided payment that
// nobody holds was sent.
type Sending int

const (
	// MayBeSent: it may have been sent, so that only evidence decides about it.
	MayBeSent Sending = iota + 1
	// Undue: an attempt died with it, and it is too early to tell.
	Undue
	// Unopened: the same, and its window is over. Its purchase is missing. Evidence
	// may decide about it; nothing else does until the row is older.
	Unopened
	// NeverSent: it was not sent, and cannot be any more.
	NeverSent
)

// Sending says it. Nothing but the payment that its purchase names is sent. An attempt
// that stood still for any time may still open the purchase and send, but a facilitator
// or the chain refuses what comes after the payment's window. So the clock is read
// first, and says that the window is over, whatever is wrong with it by ClockSlack; and
// then the purchase is read. A purchase that may have ended since it named the payment
// says nothing. A payment without a purchase may have been sent by any holder.
func (l *Ledger) Sending(ctx context.Context, r Record) (Sending, error) {
	if r.State != Settling || r.Sent || r.Doubt || r.Purchase == "" {
		return MayBeSent, nil
	}
	now := l.now()
	if !now.After(r.ValidBefore.Add(ClockSlack)) {
		return Undue, nil
	}
	p, err := l.Purchase(ctx, r.Purchase)
	age := now.Sub(r.CreatedAt)
	switch {
	case err != nil:
		return 0, err
	case p != nil && p.Owner == r.Key, age >= purchaseKept:
		return MayBeSent, nil
	case p == nil && age < purchaseKept/2:
		return Unopened, nil
	}
	return NeverSent, nil
}

// CloseUnsent closes a payment that was NeverSent, on the version that was read.
// It reports whether it wrote that; somebody else may have come first.
func (l *Ledger) CloseUnsent(ctx context.Context, r Record) (bool, error) {
	_, err := l.apply(ctx, r, EventNotSent, change{reason: "its attempt ended before it was sent"})
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// InDoubt says that the outcome of a record is not known.
func (r Record) InDoubt() bool { return r.State == Settling || r.State == Uncertain }

// Owed says that a record is paid and not answered.
func (r Record) Owed() bool { return r.State == Settled }

// Unasked says that a record is money that came without a request.
func (r Record) Unasked() bool { return r.Owed() && r.AuthDigest == "" }

// Sleeping says that a record has been in doubt, or was abandoned, and nobody
// holds it.
func (l *Ledger) Sleeping(r Record) bool { return r.InDoubt() && leasePast(r, l.now()) }

// Unclaimed says that a record is paid, not answered, and nobody is looking up.
func (l *Ledger) Unclaimed(r Record) bool { return r.Owed() && leasePast(r, l.now()) }

// RepaymentKey names a transfer to a payer in a transaction: the nth of an amount, from
// 0 on. All parts must be in lower case.
func RepaymentKey(network, asset, payer, transaction, amount string, n int) string {
	return "refund|" + Key(network, asset, payer, transaction) + "|" + amount + "|" + strconv.Itoa(n)
}

// Reserve takes a transfer for the refund of one debt, so that no other is closed on it,
// also when another operator tries that at the same time. It reports whether the transfer
// is that debt's. A reservation has no end: a transaction stays on the chain.
func (l *Ledger) Reserve(ctx context.Context, transfer, debt string) (bool, error) {
	old, err := l.create(ctx, l.fresh(Record{Key: transfer, State: Repaid, Owner: debt}))
	return err == nil && (old == nil || old.Owner == debt), err
}

// Cursor is how far the chain was read for transfers of one token to one payee: a record
// in state Scanned. A transfer without a record is a debt from DebtsFrom on: what is older
// may have been answered before the cursor was made.
type Cursor = Record

// CursorKey names the cursor of a token and a payee. All parts must be in lower
// case.
func CursorKey(network, asset, payee string) string {
	return "cursor|" + network + "|" + asset + "|" + payee
}

// Cursor reads a cursor; nil when there is none yet.
func (l *Ledger) Cursor(ctx context.Context, key string) (*Cursor, error) {
	return l.fetch(ctx, key, Scanned)
}

// Begin makes a cursor. ErrConflict means that somebody else has made it.
func (l *Ledger) Begin(ctx context.Context, key string, next, debtsFrom uint64) (*Cursor, error) {
	c := l.fresh(Record{Key: key, State: Scanned, Next: next, DebtsFrom: debtsFrom})
	old, err := l.create(ctx, c)
	if err == nil && old != nil {
		err = ErrConflict
	}
	return &c, err
}

// Advance moves a cursor forward. ErrConflict means that somebody else has moved
// it, and reads on from there.
func (l *Ledger) Advance(ctx context.Context, c Cursor, next uint64) (*Cursor, error) {
	if next < c.Next {
		return nil, errors.New("ledger: a cursor does not go back")
	}
	c.Next, c.Version, c.WriteID, c.UpdatedAt = next, c.Version+1, l.newID(), l.now()
	_, err := l.put(ctx, c)
	return &c, err
}
