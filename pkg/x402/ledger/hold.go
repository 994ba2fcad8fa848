package ledger

import (
	"context"
	"errors"
	"time"
)

// ErrLost means that somebody else wrote the record before this attempt wrote its outcome. In
// most cases, another attempt has taken the lease. The outcome was not written, with one
// exception: a receipt is recorded even then.
var ErrLost = errors.New("ledger: the lease was lost")

// Hold is the result of a successful claim. It gives the right to write the outcome of one
// attempt. It is not safe for concurrent use.
type Hold struct {
	ledger    *Ledger
	record    Payment
	pending   *Payment  // the record of a write whose result is unknown, or nil; see confirm
	lookupAt  time.Time // when the lookup before this claim ended; if it never ended, when it began
	refusedBy string    // the facilitator that refused the payment, or empty; see RefusedBy
}

// Record returns the payment's record as this holder last wrote it. There is one exception: if
// Settled found that somebody else has recorded the proof of payment, Record returns the
// record with that proof. This record also counts the lookup of this attempt, although the
// count is only stored with this holder's next write.
func (h *Hold) Record() Payment { return h.record }

// Released reports whether this holder's last write gave the lease back.
func (h *Hold) Released() bool { return h.record.LeaseUntil.IsZero() }

// Settled records proof of payment. If begins is true, the lookup begins now, and this attempt
// keeps the lease for it; otherwise Settled gives the lease back. If this attempt has lost the
// lease, Settled records the receipt nevertheless and returns ErrLost. If this attempt still
// has the lease, but somebody else has already recorded proof of payment, the result depends
// on begins. If begins is true, Settled returns nil, and this attempt runs the lookup.
// Otherwise Settled returns ErrLost.
func (h *Hold) Settled(ctx context.Context, receipt Receipt, begins bool) error {
	c := Change{receipt: &receipt, beginsLookup: begins}
	if begins {
		c.leaseUntil = h.record.LeaseUntil
	}
	err := h.write(ctx, EventSettled, c)
	if errors.Is(err, ErrLost) {
		return h.recordEvidence(ctx, receipt, begins)
	}
	return err
}

// Ask records that this attempt is about to send the payment to a facilitator. The attempt may
// send the payment there only if Ask succeeds. Ask writes even if the facilitator's name is
// already recorded, so that an attempt notices that it has lost its lease. Ask fails with
// ErrIllegal once the lease has ended.
func (h *Hold) Ask(ctx context.Context, facilitator string) error {
	return h.write(ctx, EventAsk, Change{askedNext: facilitator})
}

// RefusedBy notes that a facilitator refused the payment for a reason about the payer. The
// write that ends this attempt records the facilitator's name.
func (h *Hold) RefusedBy(facilitator string) { h.refusedBy = facilitator }

// End records how an attempt to settle ended without proof of payment: EventRefused,
// EventBadSignature, EventTurnedAway, EventDisproved, EventNotSent or EventUncertain. If the
// payment is in doubt, only EventDisproved ends the doubt, because a refusal proves nothing
// about an earlier attempt. With EventUncertain, transaction is the hash of the payment's
// transaction if it is known; otherwise it is empty.
func (h *Hold) End(ctx context.Context, event Event, reason, transaction string) error {
	return h.write(ctx, event, Change{Reason: reason, Transaction: transaction})
}

// Redeem stores the answer, and the payment is then used up. validFor is how long the answer
// is valid for a purchase that the payer has not named with a key. If unused is true, this
// claim's lookup does not count, because the owed parts of a bundle were not tried.
func (h *Hold) Redeem(ctx context.Context, a Answer, validFor time.Duration, unused bool) error {
	return h.write(ctx, EventRedeem, Change{answer: &a, validFor: validFor, lookupUncounted: unused})
}

// Supersede ends an attempt after another payment was charged for the purchase. The attempt
// must have sent nothing. owner is the key of that other payment. If this attempt's payment is
// in doubt, it stays in doubt. But from then on its record names the owner, so this payment is
// no longer sent for the purchase.
func (h *Hold) Supersede(ctx context.Context, owner string) error {
	if h.record.Doubt {
		return h.write(ctx, EventNotSent, Change{Reason: h.record.Reason, owner: owner})
	}
	return h.write(ctx, EventSupersede, Change{owner: owner})
}

// Release, KeepAnswer and GiveBack give the lease back and leave the stored answer unchanged.
// All three write EventRelease, but they count the lookup of this claim in different ways.

// Release gives the lease back after a lookup that failed on the seller's side. The answer
// stays owed. The lookup counts, and counts as silent if f.Silence is true. The pause before
// the next lookup begins now.
func (h *Hold) Release(ctx context.Context, f Failure) error {
	return h.write(ctx, EventRelease, Change{failure: &f})
}

// KeepAnswer gives the lease back after a lookup that brought no better answer than the stored
// one. The lookup counts unless unused is true. The pause before the next lookup begins now in
// either case.
func (h *Hold) KeepAnswer(ctx context.Context, unused bool) error {
	return h.write(ctx, EventRelease, Change{lookupUncounted: unused, lookupAt: h.ledger.now()})
}

// GiveBack gives the lease back when no lookup was run. No lookup is counted, and the pause
// before the next lookup is as it was before this claim. GiveBack writes nothing if the lease
// was given back already.
func (h *Hold) GiveBack(ctx context.Context) error {
	if err := h.confirm(ctx); err != nil || h.Released() {
		return err
	}
	return h.write(ctx, EventRelease, Change{lookupUncounted: true, lookupAt: h.lookupAt})
}

// write applies an event to the record that this holder wrote last, and stores the result in
// place of that record. If the error is neither ErrLost nor ErrIllegal, the result may have
// been stored; this holder's next write finds out.
func (h *Hold) write(ctx context.Context, event Event, c Change) error {
	if err := h.confirm(ctx); err != nil {
		return err
	}
	c.refusedBy = h.refusedBy
	return h.noteWrite(h.ledger.Apply(ctx, h.record, event, c))
}

// noteWrite updates the Hold after a write. next is the record that was to be written, and err
// is the error of the write. noteWrite returns ErrLost if err is ErrConflict, and otherwise
// err.
func (h *Hold) noteWrite(next Payment, err error) error {
	switch {
	case errors.Is(err, ErrConflict):
		return ErrLost
	case errors.Is(err, ErrIllegal): // nothing was sent to the store
	case err != nil:
		h.pending = &next
	default:
		h.record = next
		h.pending = nil
	}
	return err
}

// confirm repeats this holder's last write if the result of that write is unknown. If the
// write took effect after all, the store recognizes the repeated write and reports success.
// If the lease was lost meanwhile, and the write had the payment's first receipt, confirm
// records this receipt as evidence.
func (h *Hold) confirm(ctx context.Context) error {
	if h.pending == nil {
		return nil
	}
	pending := h.pending
	_, err := put(ctx, h.ledger, *pending)
	err = h.noteWrite(*pending, err)
	if errors.Is(err, ErrLost) && h.record.Receipt == nil && pending.Receipt != nil {
		return h.recordEvidence(ctx, *pending.Receipt, pending.Lookups > 0)
	}
	return err
}

// recordEvidence records a receipt, whatever another attempt has written meanwhile. If the
// payment is already paid, it writes nothing. begins has the same meaning as in Settled.
// recordEvidence returns nil if this attempt may still look up the answer. It returns ErrLost
// if the receipt is on record and this attempt must not look up the answer.
func (h *Hold) recordEvidence(ctx context.Context, receipt Receipt, begins bool) error {
	r, written, err := h.ledger.RecordTransfer(ctx, Witness{
		Key:     h.record.Key,
		Receipt: receipt,
		Terms:   h.record.Terms,
	})
	if err != nil {
		return err
	}
	if written || !begins || !h.stillHolds(*r) {
		return ErrLost
	}
	// Somebody else recorded the proof of payment while this attempt held the lease. Count
	// this attempt's lookup only in memory here: the next write of this attempt stores the
	// count.
	r.Lookups++
	r.LookupAt = h.ledger.now()
	h.record = *r
	h.pending = nil
	return nil
}

// stillHolds reports whether this attempt may still look up the answer to its payment. r is
// the record that somebody else has written. The answer must be owed, and the attempt must
// still have the lease: the lease has not ended, and no other attempt has claimed the payment.
func (h *Hold) stillHolds(r Payment) bool {
	now := h.ledger.now()
	holdsLease := r.Attempt == h.record.Attempt && leaseLive(r, now)
	return holdsLease && r.Owed() && mayBeAnswered(r, now)
}
