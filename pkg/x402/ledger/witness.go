package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Reclaim takes the lease of a payment whose outcome is unknown. The reconciler calls Reclaim
// instead of Claim, because the reconciler does not have the payer's request. Reclaim returns
// nil if the payment is decided or if an attempt holds its lease.
func (l *Ledger) Reclaim(ctx context.Context, r Payment, lease time.Time) (*Hold, error) {
	if !l.Sleeping(r) {
		return nil, nil
	}
	next, err := l.Apply(ctx, r, EventClaim, Change{leaseUntil: lease})
	c, err := l.claimOf(next, err, time.Time{})
	return c.Hold, err
}

// Sending says whether an undecided payment was sent, as far as the ledger can tell without
// evidence from the chain. No attempt holds the lease of such a payment.
type Sending int

const (
	MayBeSent Sending = iota + 1 // only evidence can decide whether the payment was sent
	TooEarly                     // an attempt died, and it is too early to tell whether it sent the payment
	// NoPurchase: an attempt died, the payment's authorization has expired, and the purchase
	// has no record. Until the payment's record is 35 days old, only evidence can decide.
	NoPurchase
	NeverSent // the payment was not sent, and can no longer be sent
)

// Sending returns whether a payment was sent, as far as the ledger can tell. If the record
// says that the payment may have been sent, or if the payment is for no purchase, the result
// is MayBeSent. Otherwise the purchase decides: an attempt sends the payment only after the
// purchase names the payment as the owner.
//
// A frozen attempt may open the purchase and send the payment at any later time. But once the
// payment's authorization has expired, a facilitator or the chain refuses the payment. So
// Sending first checks that the authorization expired more than ClockSlack ago, and only then
// reads the purchase.
//
// A purchase is kept for purchaseRetention. If the payment's record is at least that old, an
// earlier purchase, which has expired, may have named the payment as its owner. The result is
// then MayBeSent.
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
	case p != nil && p.Owner == r.Key, age >= purchaseRetention:
		return MayBeSent, nil
	case p == nil && age < purchaseRetention/2:
		return NoPurchase, nil
	}
	return NeverSent, nil
}

// ClockSlack is how far the clock of a process may be ahead of the chain's clock. If a
// transfer is older than the first claim of its payment by more than ClockSlack, the transfer
// was made for something else.
const ClockSlack = 10 * time.Minute

// Witness is proof of a transfer to a payee.
type Witness struct {
	Key     string
	Receipt Receipt
	At      time.Time       // when the chain says that the transfer took place; zero if a facilitator has just reported it
	Terms   json.RawMessage // asset, payee and amount of the transfer
	// Of reports whether the transfer belongs to a given record. If Of is nil, the transfer
	// belongs to the record under Key.
	Of func(Payment) bool
}

// RecordTransfer records proof that money moved, whatever other writers have written
// meanwhile. It returns the stored record, and reports whether this call wrote it. If the
// payment is already known to be paid, RecordTransfer writes nothing. Otherwise an answer is
// owed from then on, or the amount must be refunded (DueBack). The amount must be refunded in
// four cases. No record of the authorization existed; the payer had been told that the payment
// was finally refused; the transfer is older than the request; or another payment has paid for
// the purchase. RecordTransfer may be called again for the same transfer.
func (l *Ledger) RecordTransfer(ctx context.Context, w Witness) (r *Payment, written bool, err error) {
	const tries = 3 // a conflict means that somebody else has written the record, which happens only a few times
	for range tries {
		switch r, err = l.Fetch(ctx, w.Key); {
		case err != nil:
			return nil, false, err
		case r == nil:
			r, err = l.createOrphan(ctx, w)
		case w.Of != nil && !w.Of(*r):
			// The record is about another authorization with the same nonce. Only one of the
			// two authorizations can have moved money, and it was not the recorded one. So
			// record the transfer under another key.
			w.Key = w.Key + "|" + w.Receipt.Transaction
			w.Of = nil
			continue
		case r.Paid():
			return r, false, nil
		default:
			r, err = l.recordProof(ctx, w, *r)
		}
		if !errors.Is(err, ErrConflict) {
			return r, err == nil, err
		}
	}
	return nil, false, ErrConflict
}

// recordProof records that a payment is paid. It replaces r, the version of the record that
// was read. If an attempt still holds the lease, the attempt keeps it.
func (l *Ledger) recordProof(ctx context.Context, w Witness, r Payment) (*Payment, error) {
	c := Change{receipt: &w.Receipt}
	if !w.At.IsZero() && (r.Disproved || w.At.Before(r.CreatedAt.Add(-ClockSlack))) {
		c.dueBack = DueLate
	}
	if r.Owner != "" && c.dueBack == "" {
		elsewhere, err := l.isOwnerPaid(ctx, r)
		if err != nil {
			return nil, err
		}
		if elsewhere {
			c.dueBack = DueElsewhere
		}
	}
	if !leaseEnded(r, l.now()) {
		c.leaseUntil = r.LeaseUntil
	}
	next, err := l.Apply(ctx, r, EventSettled, c)
	return &next, err
}

// createOrphan creates a record for a transfer that belongs to no record. The amount of such a
// transfer must be refunded.
func (l *Ledger) createOrphan(ctx context.Context, w Witness) (*Payment, error) {
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
