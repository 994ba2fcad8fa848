package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Reclaim takes the lease of a record whose outcome is not known. The reconciler uses it,
// because it does not have the payer's request. It returns nil if the record is decided or is
// held by a live attempt.
func (l *Ledger) Reclaim(ctx context.Context, r Payment, lease time.Time) (*Hold, error) {
	if !l.Sleeping(r) {
		return nil, nil
	}
	next, err := l.Apply(ctx, r, EventClaim, Change{lease: lease})
	c, err := l.claimed(next, err, time.Time{})
	return c.Hold, err
}

// Sending says what the ledger alone, without evidence from the chain, knows about whether an
// undecided payment was sent. No attempt holds that payment.
type Sending int

const (
	MayBeSent Sending = iota + 1 // only evidence can decide
	TooEarly                     // its attempt died, and it is too early to tell
	// NoPurchase: its attempt died, its window is over, and its purchase is missing. Only
	// evidence can decide it until the record is older.
	NoPurchase
	NeverSent // it was not sent, and can no longer be sent
)

// Sending returns what the ledger knows about whether a payment was sent. A payment is sent
// only if its purchase names that payment as the owner. An attempt that was frozen may open
// the purchase and send at any time, but after the payment's window a facilitator or the chain
// refuses it. So Sending compares the clock with the window first, allowing for ClockSlack,
// and then reads the purchase. A missing purchase proves nothing if it may have named the
// payment and expired since. A payment without a purchase may have been sent by any holder.
func (l *Ledger) Sending(ctx context.Context, r Payment) (Sending, error) {
	if r.State != Settling || r.Sent || r.Doubt || r.Purchase == "" {
		return MayBeSent, nil
	}
	now := l.now()
	if !now.After(r.ValidBefore.Add(ClockSlack)) {
		return TooEarly, nil
	}
	p, err := l.Purchase(ctx, r.Purchase)
	age := now.Sub(r.CreatedAt)
	switch {
	case err != nil:
		return 0, err
	case p != nil && p.Owner == r.Key, age >= purchaseKept:
		return MayBeSent, nil
	case p == nil && age < purchaseKept/2:
		return NoPurchase, nil
	}
	return NeverSent, nil
}

// ClockSlack is how far a process's clock may be ahead of the chain's. A transfer that is
// older than the first claim of its payment by more than ClockSlack was made for something
// else.
const ClockSlack = 10 * time.Minute

// Witness is proof of a transfer to a payee.
type Witness struct {
	Key     string
	Receipt Receipt
	At      time.Time       // the time of the transfer by the chain's clock; zero if a facilitator has just reported it
	Terms   json.RawMessage // asset, payee and amount of the transfer
	// Of reports whether the transfer is the one that a record is about; nil means that it
	// always is.
	Of func(Payment) bool
}

// Testify records proof that money moved, whatever other writers have written meanwhile. It
// returns the stored record and whether this call wrote it. It writes nothing if the record is
// known to be paid. Otherwise an answer is owed from then on, or the amount must be refunded
// (DueBack). It must be refunded if there was no record before, if the payer had been told
// that the payment was finally refused, if the transfer is older than the request, or if
// another payment has paid for the purchase. Testify may be called again for the same
// transfer.
func (l *Ledger) Testify(ctx context.Context, w Witness) (r *Payment, written bool, err error) {
	const tries = 3 // each conflict is another writer's decision, and such decisions are few
	for range tries {
		switch r, err = l.Fetch(ctx, w.Key); {
		case err != nil:
			return nil, false, err
		case r == nil:
			r, err = l.orphan(ctx, w)
		case w.Of != nil && !w.Of(*r):
			// The record is about another authorization with the same nonce. Only one of the
			// two authorizations can have moved money, and it was not the recorded one. So use
			// another key.
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

// prove writes that a record is paid, over the version that was read. A live attempt keeps its
// lease.
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

// orphan creates a record for a transfer that has none.
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
