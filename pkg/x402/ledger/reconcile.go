package ledger

import (
	"context"
	"errors"
	"fmt"
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
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	return l.hold(next), nil
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
		return 0, fmt.Errorf("read the purchase: %w", err)
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
	switch {
	case errors.Is(err, ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("close unsent: %w", err)
	}
	return true, nil
}

// InDoubt says that the outcome of a record is not known: what Index.ListInDoubt lists.
func (r Record) InDoubt() bool { return r.State == Settling || r.State == Uncertain }

// Owed says that a record is paid and not answered.
func (r Record) Owed() bool { return r.State == Settled }

// Unasked says that a record is money that came without a request.
func (r Record) Unasked() bool { return r.Owed() && r.AuthDigest == "" }

// LookingUp says that a record is owed, and that a lookup was under way when it
// was last written. Index.ListInDoubt lists it, also when that lookup has died since.
func (r Record) LookingUp() bool { return r.Owed() && r.LeaseUntil.After(r.UpdatedAt) }

// Sleeping says that a record has been in doubt, or was abandoned, and nobody
// holds it.
func (l *Ledger) Sleeping(r Record) bool {
	return r.InDoubt() && leasePast(r, l.now())
}

// Unclaimed says that a record is paid, not answered, and nobody is looking up.
func (l *Ledger) Unclaimed(r Record) bool {
	return r.Owed() && leasePast(r, l.now())
}

// ListedAt is what an Index sorts by: the end of the lease while there is one,
// else the last write.
func (r Record) ListedAt() time.Time {
	if r.LeaseUntil.After(r.UpdatedAt) {
		return r.LeaseUntil
	}
	return r.UpdatedAt
}

// RepaymentKey names a transfer to a payer in a transaction: the nth of an amount, from
// 0 on. All parts must be in lower case.
func RepaymentKey(network, asset, payer, transaction, amount string, n int) string {
	return "refund|" + Key(network, asset, payer, transaction) + "|" + amount + "|" + strconv.Itoa(n)
}

// Reserve takes a transfer for the refund of one debt, so that no other is closed on
// it, also when another operator tries that at the same time. It reports whether the transfer is that
// debt's. A reservation has no end: a transaction stays on the chain.
func (l *Ledger) Reserve(ctx context.Context, transfer, debt string) (bool, error) {
	old, err := l.store.Create(ctx, l.fresh(Record{Key: transfer, State: Repaid, Owner: debt}))
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

// Cursor is how far the chain was read for transfers of one token to one payee.
type Cursor struct {
	Next uint64 // the first block that was not read
	// DebtsFrom is the first block in which a transfer without a record is a debt:
	// what is older may have been answered before the cursor was made.
	DebtsFrom uint64
	record    Record
}

// CursorKey names the cursor of a token and a payee. All parts must be in lower
// case.
func CursorKey(network, asset, payee string) string {
	return "cursor|" + network + "|" + asset + "|" + payee
}

func cursorOf(r Record) *Cursor { return &Cursor{Next: r.Block, DebtsFrom: r.DebtsFrom, record: r} }

// Cursor reads a cursor; nil when there is none yet.
func (l *Ledger) Cursor(ctx context.Context, key string) (*Cursor, error) {
	r, err := l.store.Fetch(ctx, key)
	if err != nil || r == nil {
		return nil, err
	}
	if r.State != Scanned {
		return nil, fmt.Errorf("%w: %s is not a cursor", ErrCorrupt, key)
	}
	return cursorOf(*r), nil
}

// Begin makes a cursor. ErrConflict means that somebody else has made it.
func (l *Ledger) Begin(ctx context.Context, key string, next, debtsFrom uint64) (*Cursor, error) {
	r := l.fresh(Record{Key: key, State: Scanned, Block: next, DebtsFrom: debtsFrom})
	old, err := l.store.Create(ctx, r)
	if err == nil && old != nil {
		err = ErrConflict
	}
	if err != nil {
		return nil, fmt.Errorf("begin cursor: %w", err)
	}
	return cursorOf(r), nil
}

// Advance moves a cursor forward. ErrConflict means that somebody else has moved
// it, and reads on from there.
func (l *Ledger) Advance(ctx context.Context, c Cursor, next uint64) (*Cursor, error) {
	if next < c.Next {
		return nil, errors.New("ledger: a cursor does not go back")
	}
	r := c.record
	r.Block, r.Version, r.WriteID, r.UpdatedAt = next, r.Version+1, l.newID(), l.now()
	if err := l.store.Replace(ctx, r); err != nil {
		return nil, fmt.Errorf("advance cursor: %w", err)
	}
	return cursorOf(r), nil
}
