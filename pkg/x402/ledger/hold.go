package ledger

import (
	"context"
	"errors"
	"time"
)

// ErrLost means that another attempt took the lease before this attempt wrote its outcome. The
// outcome was not written, except that a receipt is recorded even then.
var ErrLost = errors.New("ledger: the lease was lost")

// Hold is the result of a successful claim. It gives the right to write the outcome of one
// attempt. It is not safe for concurrent use.
type Hold struct {
	ledger    *Ledger
	record    Payment
	pending   *Payment  // the record of a write that may have succeeded; see confirm
	lookupAt  time.Time // when the previous lookup ended or, if it never ended, began
	refusedBy string    // see RefusedBy
}

// Record returns the record as this holder last wrote it. If somebody else has recorded the
// proof of payment meanwhile, Record returns the record that they wrote, with this holder's
// lookup counted in it. The count is stored with the next write.
func (h *Hold) Record() Payment { return h.record }

// Released reports whether this holder's last write gave the lease back.
func (h *Hold) Released() bool { return h.record.LeaseUntil.IsZero() }

// Settled records proof of payment. If begins is true, the lookup has begun, and the lease is
// kept for it. If the lease was lost, Settled records the receipt nevertheless and returns
// ErrLost.
func (h *Hold) Settled(ctx context.Context, receipt Receipt, begins bool) error {
	c := Change{receipt: &receipt, begins: begins}
	if begins {
		c.lease = h.record.LeaseUntil
	}
	err := h.write(ctx, EventSettled, c)
	if errors.Is(err, ErrLost) {
		return h.evidence(ctx, receipt, begins)
	}
	return err
}

// Ask records that this attempt is about to send the payment to a facilitator. The attempt may
// do so only if Ask succeeds. Ask writes even if the facilitator's name is already recorded,
// so that an attempt notices that it has lost its lease. Ask fails with ErrIllegal once the
// lease has ended.
func (h *Hold) Ask(ctx context.Context, facilitator string) error {
	return h.write(ctx, EventAsk, Change{asks: facilitator})
}

// RefusedBy notes that a facilitator refused the payment for a reason about the payer. The
// write that ends this attempt records the facilitator's name.
func (h *Hold) RefusedBy(facilitator string) { h.refusedBy = facilitator }

// End records how an attempt to settle ended without proof of payment: EventRefused,
// EventBadSignature, EventTurnedAway, EventDisproved, EventNotSent or EventUncertain. A record
// that is in doubt stays in doubt unless the event is EventDisproved, because a refusal proves
// nothing about an earlier attempt. With EventUncertain, transaction is the hash of the
// payment's transaction if it is known; otherwise it is empty.
func (h *Hold) End(ctx context.Context, event Event, reason, transaction string) error {
	return h.write(ctx, event, Change{Reason: reason, Transaction: transaction})
}

// Redeem stores the answer, and the payment is then used up. For a purchase without a key,
// validFor is how long the answer is valid. If unused is true, the lookup does not count,
// because the owed parts of a bundle were not tried.
func (h *Hold) Redeem(ctx context.Context, a Answer, validFor time.Duration, unused bool) error {
	return h.write(ctx, EventRedeem, Change{answer: &a, validFor: validFor, unused: unused})
}

// Supersede ends an attempt that sent nothing, because another payment was charged for the
// purchase; owner is the key of that other payment. A payment in doubt stays in doubt. But
// from then on its record names the owner, so it is no longer sent for the purchase.
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
	return h.write(ctx, EventRelease, Change{unused: unused, lookupAt: h.ledger.now()})
}

// GiveBack gives the lease back when no lookup was run. No lookup is counted, and the pause
// before the next lookup is as it was before this claim. GiveBack writes nothing if the lease
// was given back already.
func (h *Hold) GiveBack(ctx context.Context) error {
	if err := h.confirm(ctx); err != nil || h.Released() {
		return err
	}
	return h.write(ctx, EventRelease, Change{unused: true, lookupAt: h.lookupAt})
}

// write applies an event, and replaces the version that this holder wrote last with the
// result. If the error is neither ErrLost nor ErrIllegal, the write may have succeeded; the
// next write finds out.
func (h *Hold) write(ctx context.Context, event Event, c Change) error {
	if err := h.confirm(ctx); err != nil {
		return err
	}
	c.refusedBy = h.refusedBy
	return h.wrote(h.ledger.Apply(ctx, h.record, event, c))
}

// wrote updates the Hold after the record next was written with the result err. It turns
// ErrConflict into ErrLost.
func (h *Hold) wrote(next Payment, err error) error {
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

// confirm repeats the last write if it may have failed. If that write took effect after all,
// the store recognizes the repeated one and reports success. If the lease was lost meanwhile,
// the receipt of that write is recorded as evidence.
func (h *Hold) confirm(ctx context.Context) error {
	if h.pending == nil {
		return nil
	}
	late := h.pending
	_, err := put(ctx, h.ledger, *late)
	err = h.wrote(*late, err)
	if errors.Is(err, ErrLost) && h.record.Receipt == nil && late.Receipt != nil {
		return h.evidence(ctx, *late.Receipt, late.Lookups > 0)
	}
	return err
}

// evidence records a receipt, whatever another attempt has written meanwhile, unless the
// record is already paid. It returns nil if this attempt may still look up the answer. If the
// receipt is on record and this attempt does not hold the lease, it returns ErrLost.
func (h *Hold) evidence(ctx context.Context, receipt Receipt, begins bool) error {
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
	// Somebody else recorded the proof of payment while this attempt held the lease. This
	// attempt's lookup is counted only in memory, because the next write of this attempt
	// stores the count.
	r.Lookups++
	r.LookupAt = h.ledger.now()
	h.record = *r
	h.pending = nil
	return nil
}

// stillHolds reports whether this attempt may still look up the answer to its payment, given
// the record r that somebody else has written. It may if the answer is owed, and if this
// attempt still holds the lease, because nobody has claimed the payment since.
func (h *Hold) stillHolds(r Payment) bool {
	now := h.ledger.now()
	holdsLease := r.Attempt == h.record.Attempt && leaseLive(r, now)
	return holdsLease && r.Owed() && mayBeAnswered(r, now)
}
