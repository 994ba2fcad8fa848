package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLost says that the lease went to somebody else before this verdict was
// written. Nothing was overwritten; a receipt was still recorded.
var ErrLost = errors.New("ledger: the lease was lost")

// Hold is a claim that was won: the right to write the verdict of one attempt.
// Its methods are the edges of the state machine. It is not safe for
// concurrent use.
type Hold struct {
	ledger *Ledger
	record Record
	// pending is a write whose fate is not known: it is asked for before the
	// next one.
	pending  *Record
	lookupAt time.Time // of the lookup before this claim's
	// refusedBy is who refused the payment in this attempt, for the write that
	// ends it.
	refusedBy string
}

func (l *Ledger) hold(r Record) *Hold { return &Hold{ledger: l, record: r} }

// Record is the record as this holder last wrote it.
func (h *Hold) Record() Record { return h.record }

// Released says that this holder's last write gave the lease back.
func (h *Hold) Released() bool { return h.record.LeaseUntil.IsZero() }

// Settled records proof of payment. begins says that the lookup runs already:
// it keeps the lease; otherwise the lease is released. If the lease was lost
// the receipt is recorded all the same, and the error is ErrLost.
func (h *Hold) Settled(ctx context.Context, receipt Receipt, begins bool) error {
	c := change{receipt: &receipt, begins: begins}
	if begins {
		c.lease = h.record.LeaseUntil
	}
	err := h.write(ctx, EventSettled, c)
	if errors.Is(err, ErrLost) {
		return h.evidence(ctx, receipt, begins)
	}
	return err
}

// Ask records that a facilitator is about to be asked. Only if it succeeds may that
// one be sent the payment. It writes also where the name is there already, so that
// an attempt that has lost its lease finds out before it asks anybody else. It fails
// with ErrIllegal once the lease is past.
func (h *Hold) Ask(ctx context.Context, facilitator string) error {
	return h.write(ctx, EventAsk, change{asks: facilitator})
}

// RefusedBy has the write that ends this attempt, whichever it is, name the
// facilitator that refused the payment for a reason about the payer.
func (h *Hold) RefusedBy(facilitator string) { h.refusedBy = facilitator }

// Refused records that the facilitator said no. A record in doubt becomes
// uncertain: a refusal proves nothing about an earlier attempt.
func (h *Hold) Refused(ctx context.Context, reason string) error {
	return h.write(ctx, EventRefused, change{reason: reason})
}

// RefusedSignature is Refused for the signature of the payment.
func (h *Hold) RefusedSignature(ctx context.Context, reason string) error {
	return h.write(ctx, EventRefused, change{reason: reason, badSignature: true})
}

// TurnedAway records that the facilitator would not deal with the request, for a
// reason that is the operator's affair.
func (h *Hold) TurnedAway(ctx context.Context, reason string) error {
	return h.write(ctx, EventTurnedAway, change{reason: reason})
}

// Disproved records proof that the authorization moved nothing and never will.
func (h *Hold) Disproved(ctx context.Context, reason string) error {
	return h.write(ctx, EventDisproved, change{reason: reason})
}

// NotSent records that this attempt provably sent nothing.
func (h *Hold) NotSent(ctx context.Context, reason string) error {
	return h.write(ctx, EventNotSent, change{reason: reason})
}

// Uncertain records that money may have moved. transaction is its hash when it
// is known, else empty.
func (h *Hold) Uncertain(ctx context.Context, reason, transaction string) error {
	return h.write(ctx, EventUncertain, change{reason: reason, transaction: transaction})
}

// Redeem stores the answer. The payment is used up. stands is for how long the
// answer stands for a purchase without a key. unused says that the lookup uses none
// up: a bundle whose owed parts were not tried.
func (h *Hold) Redeem(ctx context.Context, a Answer, stands time.Duration, unused bool) error {
	return h.write(ctx, EventRedeem, change{answer: &a, stands: stands, unused: unused})
}

// Supersede ends an attempt that sent nothing, because another payment, whose
// key owner is, has paid for its purchase. A payment in doubt stays in doubt, but
// its record names the owner, so that it is not sent for the purchase any more.
func (h *Hold) Supersede(ctx context.Context, owner string) error {
	if h.record.Doubt {
		return h.write(ctx, EventNotSent, change{reason: h.record.Reason, owner: owner})
	}
	return h.write(ctx, EventSupersede, change{owner: owner})
}

// Release gives the lease back after a lookup that failed on our side. The
// answer stays owed.
func (h *Hold) Release(ctx context.Context, f Failure) error {
	return h.write(ctx, EventRelease, change{failure: &f})
}

// KeepAnswer gives the lease back after a lookup that brought no better answer than the
// one that is stored. unused says that it uses none up.
func (h *Hold) KeepAnswer(ctx context.Context, unused bool) error {
	return h.write(ctx, EventRelease, change{unused: unused, lookupAt: h.ledger.now()})
}

// Return gives the lease back without having begun the lookup of this claim:
// none is used up.
func (h *Hold) Return(ctx context.Context) error {
	if err := h.confirm(ctx); err != nil || h.Released() {
		return err
	}
	return h.write(ctx, EventRelease, change{unused: true, lookupAt: h.lookupAt})
}

// write applies an event and compares and swaps. After an error other than
// ErrLost and ErrIllegal the write may have happened; the next one finds out.
func (h *Hold) write(ctx context.Context, event Event, c change) error {
	if err := h.confirm(ctx); err != nil {
		return err
	}
	c.refusedBy = h.refusedBy
	next, err := h.ledger.apply(ctx, h.record, event, c)
	if errors.Is(err, ErrIllegal) {
		return err
	}
	return h.wrote(next, err)
}

// wrote goes on from a write that has ended.
func (h *Hold) wrote(next Record, err error) error {
	switch {
	case errors.Is(err, ErrConflict):
		return ErrLost
	case err != nil:
		h.pending = &next
		return err
	}
	h.record, h.pending = next, nil
	return nil
}

// confirm settles the fate of a write that failed: it is sent again with the
// same write id, which a store takes as success if it had happened. A receipt
// that comes too late for the lease is recorded as evidence.
func (h *Hold) confirm(ctx context.Context) error {
	if h.pending == nil {
		return nil
	}
	late := h.pending
	err := h.wrote(*late, h.ledger.store.Replace(ctx, *late))
	if errors.Is(err, ErrLost) && h.record.Receipt == nil && late.Receipt != nil {
		return h.evidence(ctx, *late.Receipt, late.Lookups > 0)
	}
	return err
}

// evidence writes a receipt over whatever another attempt has made of the
// record, unless it already knows. The lease of a live attempt is left to it.
// It returns ErrLost when the receipt is on record and the lease is not ours.
func (h *Hold) evidence(ctx context.Context, receipt Receipt, begins bool) error {
	r, written, err := h.ledger.testify(ctx, h.record.Key, func(Record) change { return change{receipt: &receipt} })
	switch {
	case err != nil:
		return fmt.Errorf("record evidence: %w", err)
	case r == nil:
		return fmt.Errorf("record evidence: %w: the record is gone", ErrCorrupt)
	case written:
		return ErrLost
	}
	return h.adopt(*r, begins)
}

// adopt goes on from a record that somebody else has found to be paid while
// this attempt held the lease: nobody has claimed it since, so the lookup that
// began is ours. Anything else is lost.
func (h *Hold) adopt(r Record, begins bool) error {
	ours := r.State == Settled && r.Attempt == h.record.Attempt && !leasePast(r, h.ledger.now())
	if !ours || !begins {
		return ErrLost
	}
	r.Lookups, r.LookupAt = r.Lookups+1, h.ledger.now()
	h.record, h.pending = r, nil
	return nil
}
