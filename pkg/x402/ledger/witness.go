package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Reclaim takes the lease of a record whose outcome is not known, without the
// payment that made it: for the reconciler. It returns nil for a record that
// is decided, that a live attempt holds, or that is gone.
func (l *Ledger) Reclaim(ctx context.Context, r Payment, lease time.Time) (*Hold, error) {
	if !l.Sleeping(r) {
		return nil, nil
	}
	next, err := l.Apply(ctx, r, EventClaim, Change{lease: lease})
	c, err := l.claimed(next, err, time.Time{})
	return c.Hold, err
}

// Sending says what is known, without evidence, about whether an undecided payment that
// nobody holds was sent.
type Sending int

const (
	MayBeSent Sending = iota + 1 // only evidence decides it
	Undue                        // its attempt died, and it is too early to tell
	// Unopened: its attempt died, its window is over, and its purchase is missing.
	// Evidence may decide it; nothing else does until the record is older.
	Unopened
	NeverSent // it was not sent, and cannot be any more
)

// Sending returns what is known. Only the payment that a purchase names is sent. An attempt
// that was frozen may open the purchase and send at any time, but a facilitator or the chain
// refuses what comes after the payment's window. So the clock is read first, with ClockSlack,
// and then the purchase. A purchase that may have expired since it named the payment proves
// nothing. A payment without a purchase may have been sent by any holder.
func (l *Ledger) Sending(ctx context.Context, r Payment) (Sending, error) {
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

// ClockSlack is how far a process's clock may be ahead of the chain's. A transfer
// that is older than the first claim of its payment by more than that was made
// for something else.
const ClockSlack = 10 * time.Minute

// Witness is proof of a transfer to a payee.
type Witness struct {
	Key     string
	Receipt Receipt
	At      time.Time       // by the chain's clock; zero when a facilitator has just said so
	Terms   json.RawMessage // of the transfer: asset, payee, amount
	// Of says whether the transfer is the one that a record is about.
	Of func(Payment) bool
}

// Testify records proof that money moved, over whatever other writers have made of its
// record. It returns the record that stands, and whether this call wrote it: it does not
// where the money is known. The record then owes an answer, or has to go back (DueBack)
// if there was no record before, if its payer had been told for good that nothing moves, if
// the transfer is older than the request, or if another payment has paid for the purchase.
// Testify may be called again for the same transfer.
func (l *Ledger) Testify(ctx context.Context, w Witness) (r *Payment, written bool, err error) {
	const tries = 3 // against other writers; each of them is a verdict, and those end
	for range tries {
		switch r, err = l.Fetch(ctx, w.Key); {
		case err != nil:
			return nil, false, err
		case r == nil:
			r, err = l.orphan(ctx, w)
		case w.Of != nil && !w.Of(*r):
			// The same nonce in another authorization: both cannot have moved
			// money, and the record that is there did not.
			w.Key = w.Key + "|" + w.Receipt.Transaction
			w.Of = nil
			continue
		case r.Paid():
			return r, false, nil
		default:
			r, err = l.prove(ctx, w, *r)
		}
		if !errors.Is(err, ErrConflict) {
			return r, err == nil, err
		}
	}
	return nil, false, ErrConflict
}

// prove writes that a record is paid, over the version that was read. The lease of a live
// attempt is left to it.
func (l *Ledger) prove(ctx context.Context, w Witness, r Payment) (*Payment, error) {
	c := Change{receipt: &w.Receipt}
	if !w.At.IsZero() && (r.Disproved || w.At.Before(r.CreatedAt.Add(-ClockSlack))) {
		c.dueBack = DueLate
	}
	if r.Owner != "" && c.dueBack == "" {
		elsewhere, err := l.answered(ctx, r)
		if err != nil {
			return nil, err
		}
		if elsewhere {
			c.dueBack = DueElsewhere
		}
	}
	if !leasePast(r, l.now()) {
		c.lease = r.LeaseUntil
	}
	next, err := l.Apply(ctx, r, EventSettled, c)
	return &next, err
}

// orphan makes a record for money that there was none for.
func (l *Ledger) orphan(ctx context.Context, w Witness) (*Payment, error) {
	now := l.now()
	r, _, err := create(ctx, l, Payment{
		Row:         Row{Key: w.Key},
		State:       Settled,
		Terms:       w.Terms,
		Receipt:     &w.Receipt,
		Transaction: w.Receipt.Transaction,
		DueBack:     DueUnasked,
		SettledAt:   now,
	})
	return &r, err
}
