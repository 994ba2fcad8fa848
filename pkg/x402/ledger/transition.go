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
	EventRefund    Event = "refund"    // the operator has sent the amount back
)

// Events lists every event.
func Events() []Event {
	return []Event{EventClaim, EventSettled, EventRefused, EventDisproved, EventNotSent, EventUncertain, EventRedeem, EventRelease, EventRefund}
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
	spent       bool // Settled: no lookup is left, the amount must go back
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
		{Settling, EventDisproved, nil, Refused, disprove},
		{Settling, EventNotSent, inDoubt, Uncertain, giveUp},
		{Settling, EventNotSent, nil, Refused, giveUp},
		{Settling, EventUncertain, nil, Uncertain, doubt},

		{Uncertain, EventClaim, nil, Settling, takeLease},
		{Uncertain, EventSettled, nil, Settled, keepReceipt},

		{Refused, EventClaim, undisproved, Settling, takeLease},
		{Refused, EventSettled, nil, Settled, keepReceipt},

		{Settled, EventClaim, leasePast, Settled, beginLookup},
		{Settled, EventRedeem, nil, Redeemed, keepAnswer},
		{Settled, EventRelease, nil, Settled, release},
		{Settled, EventRefund, refundDue, Refunded, refund},

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

// keep is how long a decided row outlives its authorization and its last write:
// long enough for a month's books.
const keep = 35 * 24 * time.Hour

// expiry is when a record that was just written may be deleted. A payment in
// doubt, a debt and a cursor have no end: they are the only trace of what is
// owed, and of what was read.
func expiry(r Record, now time.Time) time.Time {
	if r.endless() {
		return time.Time{}
	}
	return later(r.ValidBefore, now).Add(keep)
}

// endless says that a record is kept until its state changes.
func (r Record) endless() bool { return r.Open() || r.Owed() || r.State == Scanned }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func leasePast(r Record, now time.Time) bool { return !r.LeaseUntil.After(now) }

func inDoubt(r Record, _ time.Time) bool { return r.Doubt }

func undisproved(r Record, _ time.Time) bool { return !r.Disproved }

// refundDue is a paid record without an answer that nobody is looking up and
// that has no lookup left.
func refundDue(r Record, now time.Time) bool { return leasePast(r, now) && Spent(r, now) }

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
	r.Reason, r.Disproved = "", false
	r.SettledAt = c.now
	r.LeaseUntil = c.lease
	switch {
	case c.spent:
		r.Lookups, r.LookupAt = MaxLookups, c.now
	case c.begins:
		r.Lookups, r.LookupAt = 1, c.now
	}
}

// giveUp ends an attempt that learned nothing new about earlier doubt.
func giveUp(r *Record, c change) {
	r.Reason = c.reason
	r.LeaseUntil = time.Time{}
}

func disprove(r *Record, c change) {
	giveUp(r, c)
	r.Doubt, r.Disproved = false, true
}

func refund(r *Record, c change) { r.Refund = c.transaction }

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
