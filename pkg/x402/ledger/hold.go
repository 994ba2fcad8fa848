package ledger

import (
	"context"
	"errors"
	"time"
)

// ErrLost says that the lease went to somebody else before this verdict was
// written. Nothing was overwritten; a receipt was still recorded.
var ErrLost = errors.New("ledger: the lease was lost")

// Hold is a claim that was won: the right to write the verdict of one attempt. It is not
// safe for concurrent use.
type Hold struct {
	ledger    *Ledger
	record    Payment
	pending   *Payment  // a write whose fate is not known; the next one asks for it
	lookupAt  time.Time // of the lookup before this claim's
	refusedBy string    // see RefusedBy
}

// Record is the record as this holder last wrote it.
func (h *Hold) Record() Payment { return h.record }

// Released says that this holder's last write gave the lease back.
func (h *Hold) Released() bool { return h.record.LeaseUntil.IsZero() }

// Settled records proof of payment. begins says that the lookup runs already and keeps the
// lease. If the lease was lost the receipt is recorded all the same, and the error is ErrLost.
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

// Ask records that a facilitator is about to be asked. Only if it succeeds may that one be
// sent the payment. It writes also where the name is there already, so that an attempt that
// has lost its lease finds out. It fails with ErrIllegal once the lease is past.
func (h *Hold) Ask(ctx context.Context, facilitator string) error {
	return h.write(ctx, EventAsk, Change{asks: facilitator})
}

// RefusedBy has the write that ends this attempt, whichever it is, name the
// facilitator that refused the payment for a reason about the payer.
func (h *Hold) RefusedBy(facilitator string) { h.refusedBy = facilitator }

// End records how an attempt to settle ended without proof of payment: EventRefused,
// EventBadSignature, EventTurnedAway, EventDisproved, EventNotSent or EventUncertain. A
// record in doubt stays so after all but EventDisproved: a refusal proves nothing about an
// earlier attempt. transaction is the hash of a payment that is EventUncertain, or empty.
func (h *Hold) End(ctx context.Context, event Event, reason, transaction string) error {
	return h.write(ctx, event, Change{Reason: reason, Transaction: transaction})
}

// Redeem stores the answer, which uses the payment up. stands is how long the answer stands
// for a purchase without a key. unused says that the lookup does not count: it was of a
// bundle whose owed parts were not tried.
func (h *Hold) Redeem(ctx context.Context, a Answer, stands time.Duration, unused bool) error {
	return h.write(ctx, EventRedeem, Change{answer: &a, stands: stands, unused: unused})
}

// Supersede ends an attempt that sent nothing, because another payment, whose
// key owner is, has paid for its purchase. A payment in doubt stays in doubt, but
// its record names the owner, so that it is not sent for the purchase any more.
func (h *Hold) Supersede(ctx context.Context, owner string) error {
	if h.record.Doubt {
		return h.write(ctx, EventNotSent, Change{Reason: h.record.Reason, owner: owner})
	}
	return h.write(ctx, EventSupersede, Change{owner: owner})
}

// Release gives the lease back after a lookup that failed on our side. The
// answer stays owed.
func (h *Hold) Release(ctx context.Context, f Failure) error {
	return h.write(ctx, EventRelease, Change{failure: &f})
}

// KeepAnswer gives the lease back after a lookup that brought no better answer than the
// one that is stored. unused says that it does not count.
func (h *Hold) KeepAnswer(ctx context.Context, unused bool) error {
	return h.write(ctx, EventRelease, Change{unused: unused, lookupAt: h.ledger.now()})
}

// Return gives the lease back without having begun the lookup of this claim, which does
// not count.
func (h *Hold) Return(ctx context.Context) error {
	if err := h.confirm(ctx); err != nil || h.Released() {
		return err
	}
	return h.write(ctx, EventRelease, Change{unused: true, lookupAt: h.lookupAt})
}

// write applies an event and compares and swaps. After an error other than
// ErrLost and ErrIllegal the write may have happened; the next one finds out.
func (h *Hold) write(ctx context.Context, event Event, c Change) error {
	if err := h.confirm(ctx); err != nil {
		return err
	}
	c.refusedBy = h.refusedBy
	return h.wrote(h.ledger.Apply(ctx, h.record, event, c))
}

// wrote takes the result of a write.
func (h *Hold) wrote(next Payment, err error) error {
	switch {
	case errors.Is(err, ErrConflict):
		return ErrLost
	case errors.Is(err, ErrIllegal): // nothing was sent
	case err != nil:
		h.pending = &next
	default:
		h.record = next
		h.pending = nil
	}
	return err
}

// confirm settles the fate of a write that failed: it is sent again, which succeeds if it
// had happened. A receipt that comes too late for the lease is recorded as evidence.
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

// evidence writes a receipt over whatever another attempt has made of the record,
// unless it already knows. It returns ErrLost when the receipt is on record and the
// lease is not ours.
func (h *Hold) evidence(ctx context.Context, receipt Receipt, begins bool) error {
	r, written, err := h.ledger.Testify(ctx, Witness{
		Key:     h.record.Key,
		Receipt: receipt,
		Terms:   h.record.Terms,
	})
	switch {
	case err != nil:
		return err
	case written, !begins, !r.Owed(), !mayBeAnswered(*r, time.Time{}), r.Attempt != h.record.Attempt, leasePast(*r, h.ledger.now()):
		return ErrLost
	}
	// Somebody else has found it to be paid while this attempt held the lease. Nobody has
	// claimed it since, so the lookup that began is ours.
	r.Lookups = r.Lookups + 1
	r.LookupAt = h.ledger.now()
	h.record = *r
	h.pending = nil
	return nil
}
