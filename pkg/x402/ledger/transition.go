package ledger

import (
	"errors"
	"fmt"
	"time"
)

// Event is something that happens to a record.
type Event string

// The events; each is an edge of the diagram in the package comment.
const (
	EventClaim     Event = "claim"     // an attempt takes the lease
	EventSettled   Event = "settled"   // proof of payment, from whoever learns of it
	EventRefused   Event = "refused"   // the facilitator said no
	EventDisproved Event = "disproved" // proof that the authorization never moved money and never will
	EventNotSent   Event = "not_sent"  // the request provably never left
	EventUncertain Event = "uncertain" // the attempt ended without learning whether money moved
	EventRedeem    Event = "redeem"    // the answer is here
	EventRelease   Event = "release"   // the lookup failed on our side; the answer stays owed
)

// Events lists every event.
func Events() []Event {
	return []Event{EventClaim, EventSettled, EventRefused, EventDisproved, EventNotSent, EventUncertain, EventRedeem, EventRelease}
}

// ErrIllegal says that an event cannot happen in the record's state. It is a
// bug, and it fails closed.
var ErrIllegal = errors.New("ledger: illegal transition")

// edge is one row of the transition table.
type edge struct {
	from  State
	event Event
	when  func(r Record, now time.Time) bool // nil: always
	to    State
	apply func(r *Record, c change)
}

// change is what an event brings along.
type change struct {
	now         time.Time
	lease       time.Time
	receipt     *Receipt
	reason      string
	transaction string
	begins      bool // Settled: the lookup begins at once
	answer      *Answer
	failure     *Failure
	unused      bool      // Release: the lookup never began
	lookupAt    time.Time // Release, unused: when the one before began
}

// edges is the state machine. The first row that fits is taken; a pair without
// a row is illegal. Claim on a missing record is Create and has no row.
func edges() []edge {
	return []edge{
		{Settling, EventClaim, leasePast, Settling, takeOver},
		{Settling, EventSettled, nil, Settled, keepReceipt},
		{Settling, EventRefused, inDoubt, Uncertain, giveUp},
		{Settling, EventRefused, nil, Refused, giveUp},
		{Settling, EventDisproved, nil, Refused, clearDoubt},
		{Settling, EventNotSent, inDoubt, Uncertain, giveUp},
		{Settling, EventNotSent, nil, Refused, giveUp},
		{Settling, EventUncertain, nil, Uncertain, doubt},

		{Uncertain, EventClaim, nil, Settling, takeLease},
		{Uncertain, EventSettled, nil, Settled, keepReceipt},

		{Refused, EventClaim, nil, Settling, takeLease},
		{Refused, EventSettled, nil, Settled, keepReceipt},

		{Settled, EventClaim, leasePast, Settled, beginLookup},
		{Settled, EventRedeem, nil, Redeemed, keepAnswer},
		{Settled, EventRelease, nil, Settled, release},

		{Redeemed, EventClaim, bodyless, Redeemed, beginLookup},
		{Redeemed, EventRedeem, bodyless, Redeemed, keepAnswer},
		{Redeemed, EventRelease, bodyless, Redeemed, release},
	}
}

// step applies an event to a copy of r: the state machine, free of I/O.
func step(r Record, event Event, c change) (Record, error) {
	for _, e := range edges() {
		if e.from != r.State || e.event != event || (e.when != nil && !e.when(r, c.now)) {
			continue
		}
		r.State = e.to
		e.apply(&r, c)
		r.Version++
		r.UpdatedAt = c.now
		r.ExpiresAt = expiry(r, c.now)
		return r, nil
	}
	return r, fmt.Errorf("%w: %s in state %s", ErrIllegal, event, r.State)
}

// How long rows are kept.
const (
	// keep is how long a decided payment outlives its authorization and its
	// last write: long enough that a fault of a Friday evening can be repaired
	// on Monday.
	keep = 72 * time.Hour
	// keepOpen is how long one that is in doubt, or paid and not answered,
	// outlives its authorization: while the row is there the debt is
	// remembered. Writes do not prolong it, so none stays for ever.
	keepOpen = 30 * 24 * time.Hour
)

// expiry is when a record that was just written may be deleted.
func expiry(r Record, now time.Time) time.Time {
	switch r.State {
	case Settling, Uncertain, Settled:
		return later(r.ValidBefore, r.CreatedAt).Add(keepOpen)
	case Refused, Redeemed, Bound:
	}
	return later(r.ValidBefore, now).Add(keep)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func leasePast(r Record, now time.Time) bool { return !r.LeaseUntil.After(now) }

func inDoubt(r Record, _ time.Time) bool { return r.Doubt }

// bodyless is a redeemed record whose answer was too large to keep: a repeat
// runs the lookup again, under a lease like any other.
func bodyless(r Record, _ time.Time) bool {
	return r.Answer != nil && !r.Answer.Stored
}

func takeLease(r *Record, c change) {
	r.Attempt++
	r.LeaseUntil = c.lease
}

// takeOver follows an attempt that died with the lease: it may have sent.
func takeOver(r *Record, c change) {
	takeLease(r, c)
	r.Doubt = true
	r.Reason = "an earlier attempt ended without a verdict"
}

func keepReceipt(r *Record, c change) {
	r.Receipt = c.receipt
	r.Transaction = c.receipt.Transaction
	r.Reason = ""
	r.SettledAt = c.now
	r.LeaseUntil = c.lease
	if c.begins {
		r.Lookups, r.LookupAt = 1, c.now
	}
}

// giveUp ends an attempt that learned nothing new about earlier doubt.
func giveUp(r *Record, c change) {
	r.Reason = c.reason
	r.LeaseUntil = time.Time{}
}

func clearDoubt(r *Record, c change) {
	giveUp(r, c)
	r.Doubt = false
}

func doubt(r *Record, c change) {
	giveUp(r, c)
	r.Doubt = true
	if c.transaction != "" {
		r.Transaction = c.transaction
	}
}

func beginLookup(r *Record, c change) {
	takeLease(r, c)
	r.Lookups++
	r.LookupAt = c.now
}

func keepAnswer(r *Record, c change) {
	r.Answer = c.answer
	r.LastFault = nil
	r.LeaseUntil = time.Time{}
}

// release returns the lease after a lookup that gave no answer. One that never
// began uses none up.
func release(r *Record, c change) {
	r.LeaseUntil = time.Time{}
	if c.unused {
		r.Lookups--
		r.LookupAt = c.lookupAt
		return
	}
	r.LookupAt = c.now
	r.LastFault = c.failure
}
