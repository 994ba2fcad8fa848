package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Event is something that happens to a record.
type Event string

// These are all events. The arrows in the diagram of the package comment show only the main
// ones.
const (
	EventClaim      Event = "claim"       // an attempt takes the lease
	EventSettled    Event = "settled"     // there is proof of payment, from any source
	EventRefused    Event = "refused"     // the facilitator refused the payment
	EventTurnedAway Event = "turned_away" // the facilitator did not process the payment, and the operator must act
	EventDisproved  Event = "disproved"   // there is proof that the authorization never moved money and never will
	EventNotSent    Event = "not_sent"    // there is proof that the payment was never sent to the facilitator
	EventUncertain  Event = "uncertain"   // the attempt ended and does not know whether money moved
	// EventBadSignature is like EventRefused; the reason for the refusal is the payment's
	// signature.
	EventBadSignature Event = "bad_signature"
	EventRedeem       Event = "redeem"    // the answer is stored
	EventRelease      Event = "release"   // an attempt gives the lease back, and stores no answer
	EventRefund       Event = "refund"    // the operator has sent the amount back
	EventSupersede    Event = "supersede" // another payment is used for the purchase
	EventAsk          Event = "ask"       // one more facilitator is about to be asked
	EventSendBack     Event = "send_back" // an operator is about to send the amount back
	EventWithdraw     Event = "withdraw"  // an operator cancels a refund that was begun
	EventAttest       Event = "attest"    // an operator has shown that the payer got the answer
)

// ErrIllegal says that an event cannot happen in the record's state. It shows a bug, and
// nothing is written.
var ErrIllegal = errors.New("ledger: illegal transition")

// Edge is one row of the transition table: an event that may happen in a state, and the
// state that it leads to.
type Edge struct {
	From   State
	Events []Event
	When   func(r Payment, now time.Time) bool // nil means always
	To     State

	apply func(r *Payment, c Change) // called after the state has changed
}

// Change holds the details of an event.
type Change struct {
	Reason      string
	Transaction string // Uncertain: hash of the payment's transaction, if known; Refund: hash of the refund's transaction
	Operator    string // SendBack, Refund, Attest: the name of the operator

	event           Event
	now             time.Time
	leaseUntil      time.Time
	receipt         *Receipt
	owner           string
	askedNext       string  // Claim, Ask: the facilitator that the attempt asks next
	refusedBy       string  // events that end an attempt: the facilitator that refused for a reason about the payer
	beginsLookup    bool    // Settled: the lookup begins at once
	dueBack         DueBack // Settled: why the amount must be refunded
	answer          *Answer
	validFor        time.Duration // Redeem: how long the answer is valid for a purchase without a key
	failure         *Failure
	lookupUncounted bool      // Redeem, Release: the lookup does not count towards MostLookups
	lookupAt        time.Time // Release with lookupUncounted: the time from which the next pause is counted
}

// edges returns the rows of the transition table. The first row that matches the state, the
// event and the condition applies. If no row matches, the event is illegal. The claim that
// creates a record has no row.
func edges() []Edge {
	endedWithoutProof := []Event{EventRefused, EventBadSignature, EventTurnedAway, EventNotSent}
	return []Edge{
		{Settling, []Event{EventClaim}, leaseEnded, Settling, takeAbandonedLease},
		{Settling, []Event{EventSettled}, nil, Settled, keepReceipt},
		{Settling, endedWithoutProof, inDoubt, Uncertain, endAttempt},
		{Settling, endedWithoutProof, nil, Refused, endAttempt},
		{Settling, []Event{EventDisproved}, nil, Refused, endAttempt},
		{Settling, []Event{EventUncertain}, nil, Uncertain, endAttempt},
		{Settling, []Event{EventSupersede}, notInDoubt, Superseded, supersede},
		{Settling, []Event{EventAsk}, leaseLive, Settling, addAsked},

		{Uncertain, []Event{EventClaim}, nil, Settling, takeLease},
		{Uncertain, []Event{EventSettled}, nil, Settled, keepReceipt},

		{Refused, []Event{EventClaim}, mayStillMove, Settling, takeLease},
		{Refused, []Event{EventSettled}, nil, Settled, keepReceipt},
		{Refused, []Event{EventSupersede}, leaseEnded, Superseded, supersede},

		{Superseded, []Event{EventSettled}, nil, Settled, keepReceipt},

		// A refund can begin whenever no lookup is running. Once a refund has begun, the
		// payment is not answered, unless an operator withdraws the refund.
		{Settled, []Event{EventClaim}, mayLookUp, Settled, beginLookup},
		{Settled, []Event{EventRedeem}, mayBeAnswered, Redeemed, keepAnswer},
		{Settled, []Event{EventRelease}, nil, Settled, release},
		{Settled, []Event{EventSendBack}, leaseEnded, Settled, sendBack},
		{Settled, []Event{EventWithdraw}, refundBegun, Settled, withdraw},
		{Settled, []Event{EventRefund}, leaseEnded, Refunded, refund},
		{Settled, []Event{EventAttest}, leaseEnded, Redeemed, attest},

		{Redeemed, []Event{EventClaim}, isIncomplete, Redeemed, beginLookup},
		{Redeemed, []Event{EventRedeem}, isIncomplete, Redeemed, keepAnswer},
		{Redeemed, []Event{EventRelease}, isIncomplete, Redeemed, release},
	}
}

// step returns a copy of r to which an event has been applied. It does no I/O.
func (t Rules) step(r Payment, event Event, c Change) (Payment, error) {
	for _, e := range t.Edges {
		if e.From != r.State || !slices.Contains(e.Events, event) || (e.When != nil && !e.When(r, c.now)) {
			continue
		}
		r.State = e.To
		c.event = event
		e.apply(&r, c)
		r.Version++
		r.UpdatedAt = c.now
		r.ExpiresAt = expiry(r, c.now)
		return r, nil
	}
	return r, fmt.Errorf("%w: %s in state %s", ErrIllegal, event, r.State)
}

// paymentRetention is how long the record of a decided payment is kept after the authorization
// has expired or after the record was last written, whichever is later. It covers a month's
// bookkeeping.
const paymentRetention = 35 * 24 * time.Hour

// purchaseRetention is how long a purchase is kept after it was given to a payment. A purchase
// must not expire before its owner is decided, even if the chain cannot be read for weeks. A
// purchase is kept twice as long as a decided payment. As long as a payment's record is
// younger than purchaseRetention, its purchase cannot have expired. So if the purchase is
// missing, the payment has never opened it (see Sending).
const purchaseRetention = 2 * paymentRetention

// expiry returns the time from which a record that was just written may be deleted. The zero
// time means never: it is returned for a payment that is in doubt or whose answer is owed, and
// for cursors, repayments and payees.
func expiry(r Record, now time.Time) time.Time {
	switch r := r.(type) {
	case Payment:
		if r.InDoubt() || r.Owed() {
			return time.Time{}
		}
		return laterOf(r.ValidBefore, now).Add(paymentRetention)
	case Purchase:
		return now.Add(purchaseRetention)
	default:
		return time.Time{}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func leaseEnded(r Payment, now time.Time) bool { return !r.LeaseUntil.After(now) }
func leaseLive(r Payment, now time.Time) bool  { return !leaseEnded(r, now) }
func inDoubt(r Payment, _ time.Time) bool      { return r.Doubt }
func notInDoubt(r Payment, _ time.Time) bool   { return !r.Doubt }
func mayStillMove(r Payment, _ time.Time) bool { return !r.Disproved }

func refundBegun(r Payment, _ time.Time) bool { return r.SendingBack != nil }

// mayBeAnswered reports whether a paid payment may be answered: its amount does not have to be
// refunded, and no refund has begun.
func mayBeAnswered(r Payment, _ time.Time) bool { return r.SendingBack == nil && r.DueBack == "" }

func mayLookUp(r Payment, now time.Time) bool { return leaseEnded(r, now) && mayBeAnswered(r, now) }

// isIncomplete reports whether a record has an answer that was too large to keep or that has
// owed parts. A repeat of the request then runs the lookup again, under a lease.
func isIncomplete(r Payment, _ time.Time) bool {
	return r.Answer != nil && (!r.Answer.Stored || len(r.Answer.Owed) > 0)
}

func takeLease(r *Payment, c Change) {
	r.Attempt++
	r.LeaseUntil = c.leaseUntil
	r.RefusedAt = time.Time{}
	if r.State == Settling && r.RefusedBy == "" {
		addAsked(r, c)
	}
}

// addAsked adds a facilitator to the list of the facilitators that may have received the
// payment. The attempt writes this list before it sends the payment to that facilitator.
func addAsked(r *Payment, c Change) {
	if c.askedNext != "" && !slices.Contains(r.Asked, c.askedNext) {
		r.Asked = append(slices.Clip(r.Asked), c.askedNext)
	}
}

// takeAbandonedLease takes the lease of an attempt that died. That attempt may have sent the
// payment.
func takeAbandonedLease(r *Payment, c Change) {
	takeLease(r, c)
	r.Doubt = true
	r.Sent = true
	r.Reason = "an earlier attempt ended without a verdict"
}

func keepReceipt(r *Payment, c Change) {
	r.Receipt = c.receipt
	r.Transaction = c.receipt.Transaction
	r.Reason = ""
	r.Disproved = false
	r.Payload = nil
	r.Owner = ""
	r.SettledAt = c.now
	r.LeaseUntil = c.leaseUntil
	r.DueBack = c.dueBack
	if c.beginsLookup && c.dueBack == "" {
		r.Lookups = 1
		r.LookupAt = c.now
	}
}

// endAttempt records that an attempt to settle ended without proof of payment.
func endAttempt(r *Payment, c Change) {
	r.Reason = c.Reason
	r.LeaseUntil = time.Time{}
	r.Owner = cmp.Or(c.owner, r.Owner)
	r.RefusedBy = cmp.Or(r.RefusedBy, c.refusedBy)
	signature := c.event == EventBadSignature
	switch {
	case c.event == EventUncertain:
		r.Doubt = true
		r.Sent = true
		r.Transaction = cmp.Or(c.Transaction, r.Transaction)
	case c.event == EventDisproved:
		r.Doubt = false
		r.Disproved = true
		r.Payload = nil
	case c.event == EventTurnedAway:
		r.Sent = true
	case c.event == EventRefused, signature:
		r.Sent = true
		if r.State == Refused { // step has already set the new state
			r.Refusals++
			r.RefusedAt = c.now
			r.BadSignature = signature
		}
	}
}

func supersede(r *Payment, c Change) {
	r.LeaseUntil = time.Time{}
	r.Owner = c.owner
	r.Payload = nil
}

func refund(r *Payment, c Change) {
	r.Refund = c.Transaction
	r.ClosedBy = c.Operator
}

// attest records that the payer has got an answer, although its body is not stored here.
// AnsweredAt stays zero, because this answer cannot be replayed.
func attest(r *Payment, c Change) {
	r.Answer = &Answer{Stored: true}
	r.Reason = c.Reason
	r.LastFault = nil
	r.ClosedBy = c.Operator
}

// sendBack records which operator began the refund, and when. If the refund was begun before,
// the first operator stays on record.
func sendBack(r *Payment, c Change) {
	if r.SendingBack == nil {
		r.SendingBack = &SendingBack{At: c.now, By: c.Operator}
	}
}

func withdraw(r *Payment, _ Change) { r.SendingBack = nil }

func beginLookup(r *Payment, c Change) {
	takeLease(r, c)
	r.Lookups++
	r.LookupAt = c.now
}

func keepAnswer(r *Payment, c Change) {
	if c.lookupUncounted {
		r.Lookups--
	}
	if r.AnsweredAt.IsZero() || c.answer.Stored {
		setValidity(r, c)
	}
	r.Answer = c.answer
	r.LastFault = nil
	r.LeaseUntil = time.Time{}
}

// setValidity records when the answer was given, and until when it is valid for its purchase.
// A whole answer is valid for c.validFor. An answer with owed parts is valid for a day from
// the first answer, so that the payer can get those parts without another charge. An answer
// that is not stored can be looked up again for a day from the first time that it was given.
// In this case, setValidity sets the field Lookups to 1, for the lookup that gave the answer.
func setValidity(r *Payment, c Change) {
	first := r.AnsweredAt.IsZero()
	r.AnsweredAt = c.now
	switch {
	case len(c.answer.Owed) == 0:
		r.AnswerValidUntil = c.now.Add(c.validFor)
	case first:
		r.AnswerValidUntil = c.now.Add(KeptFor)
	}
	if !c.answer.Stored {
		r.Lookups = 1
	}
}

// release gives the lease back after a lookup that gave no better answer, or without a lookup.
// If c.lookupUncounted is true, no lookup is counted.
func release(r *Payment, c Change) {
	r.LeaseUntil = time.Time{}
	if c.lookupUncounted {
		r.Lookups--
		r.LookupAt = c.lookupAt
		return
	}
	r.LookupAt = c.now
	r.LastFault = c.failure
	if c.failure != nil && c.failure.Silence {
		r.Silent++
	}
}
