package ledger

import "time"

// Standing is the situation of a payment at one time. Code that classifies a record always
// calls Stand, and then looks up the standing in the table Meaning. So the same rules decide
// what becomes of a repeated payment, what becomes of another payment for the same purchase,
// what the operator's lists say, and what the documentation says.
type Standing int

// The standings of a payment.
const (
	StandingMissing Standing = iota // there is no record, or it has expired

	// In the next three standings, it is not known whether money has moved.

	StandingInFlight      // an attempt holds the lease
	StandingPerhapsUnsent // an attempt died, perhaps before it sent the payment to the facilitator
	StandingInDoubt       // the payment may have been sent, and no attempt holds the lease

	// No money has moved, as far as is known.

	StandingUnsent // the payment was never sent
	// StandingJustRefused: a facilitator has just refused the payment. It is too early to send
	// the payment again, because a call costs the seller something and the sender nothing.
	StandingJustRefused
	StandingRefused // a facilitator refused the payment or did not process it, and it can still move money
	// StandingRefusalOver: a facilitator refused the payment, and its authorization expired
	// some time ago (deadAfter). The seller has no node that could show whether the payment
	// has moved money nevertheless.
	StandingRefusalOver
	StandingDisproved  // evidence shows that the payment moves no money
	StandingSuperseded // another payment is used for the purchase; this one was never sent, or is disproved
	// StandingSupersededSent: another payment is used for the purchase. This payment was sent
	// and refused, but there is no proof that it moved no money.
	StandingSupersededSent

	// Money has moved, and the answer is owed.

	StandingRunning      // a lookup is running
	StandingOwed         // the next lookup may begin
	StandingOwedLater    // it is too early for the next lookup
	StandingOverdue      // the next lookup may begin, and the answer has been owed for a day
	StandingOverdueLater // it is too early for the next lookup, and the answer has been owed for a day
	StandingSilent       // the target's silence is the answer, and this answer is not stored yet
	StandingExhausted    // the seller runs no more lookups, and there is no answer
	StandingDueBack      // the amount must be refunded: see DueBack
	StandingSendingBack  // an operator has begun a refund

	// Money has moved, and the answer was given.

	StandingAnswered    // the whole answer is stored
	StandingPartOwed    // a part of the answer is owed, and the next lookup may begin
	StandingPartLater   // a part of the answer is owed, and it is too early for the next lookup, or a lookup is running
	StandingUnkept      // the answer was too large to be stored; the next lookup may begin
	StandingUnkeptLater // the answer was too large to be stored, and it is too early for the next lookup
	StandingUnkeptRuns  // the answer was too large to be stored, and a lookup is running
	StandingAnswerGone  // the answer was deleted or never kept, and no more lookups are allowed
	StandingAttested    // an operator has shown that the payer got the answer

	StandingRefunded // the operator has sent the amount back

	standings // the number of standings
)

// Standings yields every standing.
func Standings(yield func(Standing) bool) {
	for s := range standings {
		if !yield(s) {
			return
		}
	}
}

// View holds the circumstances in which a record is classified.
type View struct {
	Now time.Time
	// Arrived is the arrival time of the request for which the record is classified; zero
	// means Now.
	Arrived time.Time
	// Node reports whether the seller has a node that can be asked about the chain.
	Node bool
	// Endpoint is the endpoint that received the request.
	Endpoint string
}

// Stand returns the standing of a payment. r is the payment's record, or nil if the payment
// has none. Stand does no I/O.
func Stand(r *Payment, v View) Standing {
	if r == nil {
		return StandingMissing
	}
	live := leaseLive(*r, v.Now)
	switch r.State {
	case Settling:
		switch {
		case live:
			return StandingInFlight
		case !r.Sent && !r.Doubt && r.Purchase != "":
			return StandingPerhapsUnsent
		}
		return StandingInDoubt
	case Uncertain:
		return StandingInDoubt
	case Refused:
		return standRefused(*r, v)
	case Superseded:
		if r.Sent && !r.Disproved {
			return StandingSupersededSent
		}
		return StandingSuperseded
	case Settled:
		return standOwed(*r, v.Now, live)
	case Redeemed:
		return standAnswered(*r, v.Now, live)
	case Refunded:
		return StandingRefunded
	}
	return StandingMissing // cannot happen: Unmarshal refuses any other state
}

func standRefused(r Payment, v View) Standing {
	switch {
	case r.Disproved:
		return StandingDisproved
	case !r.Sent:
		return StandingUnsent
	case resendWait(r, v.Now) > 0:
		return StandingJustRefused
	case !v.Node && !r.Doubt && v.Now.After(r.ValidBefore.Add(deadAfter)):
		return StandingRefusalOver
	}
	return StandingRefused
}

// deadAfter is the time from the expiry of an authorization until its refused payment counts
// as dead. It applies only if the seller has no node.
const deadAfter = 10 * time.Minute

func standOwed(r Payment, now time.Time, live bool) Standing {
	wait := lookupWait(r, now)
	overdue := now.Sub(r.SettledAt) > OwedFor
	switch {
	// A refund counts as begun even if its time is in the future: the operator's clock may be
	// wrong.
	case r.SendingBack != nil:
		return StandingSendingBack
	case r.DueBack != "":
		return StandingDueBack
	case live:
		return StandingRunning
	case r.LeaseUntil.IsZero() && r.LastFault != nil && r.LastFault.Silence && isSilenceAnswer(r, now):
		return StandingSilent // LeaseUntil is zero, so the last lookup ended by itself and not with its process
	case r.MostLookups > 0 && r.Lookups >= r.MostLookups:
		return StandingExhausted
	case overdue && wait > 0:
		return StandingOverdueLater
	case overdue:
		return StandingOverdue
	case wait > 0:
		return StandingOwedLater
	}
	return StandingOwed
}

func standAnswered(r Payment, now time.Time, live bool) Standing {
	switch {
	case r.Attested():
		return StandingAttested
	case now.Sub(r.AnsweredAt) > KeptFor:
		return StandingAnswerGone
	case r.Answer != nil && !r.Answer.Stored:
		return standUnkept(r, now, live)
	case !isIncomplete(r, now) || !now.Before(r.AnswerValidUntil):
		return StandingAnswered
	case live || r.LookupAt.Add(pauseAfter(max(r.Lookups, 2))).After(now): // the pause after the first lookup is as long as the one after the second
		return StandingPartLater
	}
	return StandingPartOwed
}

func standUnkept(r Payment, now time.Time, live bool) Standing {
	switch {
	case live:
		return StandingUnkeptRuns
	case r.Lookups >= MostUnkept:
		return StandingAnswerGone
	case lookupWait(r, now) > 0:
		return StandingUnkeptLater
	}
	return StandingUnkept
}

// PartsOwed returns the names of the parts of an answer that a repeat of the payment can still
// get.
func PartsOwed(r Payment, now time.Time) []string {
	switch Stand(&r, View{Now: now}) {
	case StandingPartOwed, StandingPartLater:
		return r.Answer.Owed
	default:
		return nil
	}
}

// Ownership says whether another payment can become the owner of a purchase that already has
// an owner.
type Ownership int

const (
	OwnerBusy  Ownership = iota + 1 // an attempt to settle or answer the owner is running
	OwnerDoubt                      // the owner's payment may have been sent; it is not known whether it is paid or dead
	// OwnerDead: another payment can be used for the purchase. The owner has no record, was
	// never sent, or moves no money as far as the seller can find out. Or an operator has
	// begun or finished the refund of its amount.
	OwnerDead
	OwnerAnswers // the owner is paid, and its answer is stored or owed
	// OwnerOver: the owner is paid, but its answer is no longer valid for the purchase, is
	// given only at another endpoint, or is replaced by a refund that is due.
	OwnerOver
)

// Ownership says how the payment that owns a purchase affects another payment for the same
// purchase. r is the record of the owning payment, or nil if that payment has no record.
// Ownership does no I/O.
func (l *Ledger) Ownership(r *Payment, v View) Ownership {
	o := l.rules.Meanings[Stand(r, v)].Owner
	if o == OwnerWhileValid {
		o = OwnerOver
		if r.answerValidAt(v.arrivalTime()) {
			o = OwnerAnswers
		}
	}
	if o == OwnerAnswers && !r.SoldAt(v.Endpoint) {
		return OwnerOver // the owner's answer is given only at the endpoint where it was sold, which is not this one
	}
	return o
}

// OwnerWhileValid takes the place of two values in the table Meaning: OwnerAnswers as long as
// the answer is valid for the purchase, and OwnerOver after that. Ledger.Ownership returns one
// of these two, and never OwnerWhileValid.
const OwnerWhileValid Ownership = -1

func (v View) arrivalTime() time.Time {
	if v.Arrived.IsZero() {
		return v.Now
	}
	return v.Arrived
}

// answerValidAt reports whether the answer of a payment is valid for its purchase at a time.
func (r Payment) answerValidAt(at time.Time) bool {
	if Named(r.Purchase) {
		return at.Before(r.AnsweredAt.Add(KeptFor))
	}
	return at.Before(r.AnswerValidUntil)
}

// Case is the name that an operator's list gives to the situation of a payment.
type Case string

const (
	CaseUnderWay   Case = "under_way" // an attempt holds the lease, or died so recently that nothing more is known
	CaseInDoubt    Case = "in_doubt"  // it is not known whether the payment moved money
	CaseNotCharged Case = "not_charged"
	CaseRefused    Case = "refused"     // a facilitator refused the payment, and nothing proves that no money moved
	CaseSuperseded Case = "superseded"  // not paid, and another payment is used for the purchase
	CaseAnswerOwed Case = "answer_owed" // paid; the same signature gets the answer
	CaseRefundDue  Case = "refund_due"  // paid, and the amount must be refunded
	CaseAnswered   Case = "answered"
	CaseRefunded   Case = "refunded"
	CaseUnknown    Case = "unknown"
)

// Moved says whether a payment has moved money.
type Moved int

const (
	MovedUnknown Moved = iota
	MovedNo            // no, as far as is known
	MovedYes
)

// Meaning says what a standing means to each party.
type Meaning struct {
	Claim ClaimResult // what a payer who repeats the payment gets: the result of the claim
	Owner Ownership   // if this payment owns a purchase: what that means for another payment for the purchase
	Case  Case        // what the operator's lists say
	Moved Moved       // what the JSON member "charged" tells the payer
}

// Meaning returns the row of the table for a standing. If Claim is Held, the caller of the
// claim holds the lease and continues the attempt: if the payment is known to be paid, the
// caller runs the lookup, and otherwise it sends the payment.
func (s Standing) Meaning() Meaning {
	switch s { // each row has Claim, Owner, Case and Moved, in this order
	case StandingMissing:
		return Meaning{Held, OwnerDead, CaseUnknown, MovedNo}

	case StandingInFlight:
		return Meaning{InFlight, OwnerBusy, CaseUnderWay, MovedUnknown}
	case StandingPerhapsUnsent: // Ledger.Sending tells the operator whether the payment was sent
		return Meaning{Held, OwnerDoubt, CaseUnderWay, MovedUnknown}
	case StandingInDoubt:
		return Meaning{Held, OwnerDoubt, CaseInDoubt, MovedUnknown}

	case StandingUnsent:
		return Meaning{Held, OwnerDead, CaseNotCharged, MovedNo}
	case StandingJustRefused:
		return Meaning{Over, OwnerDoubt, CaseRefused, MovedNo}
	case StandingRefused:
		return Meaning{Held, OwnerDoubt, CaseRefused, MovedNo}
	case StandingRefusalOver:
		return Meaning{Held, OwnerDead, CaseRefused, MovedNo}
	case StandingDisproved:
		return Meaning{Over, OwnerDead, CaseNotCharged, MovedNo}
	case StandingSuperseded:
		return Meaning{Replaced, OwnerDead, CaseSuperseded, MovedNo}
	case StandingSupersededSent:
		return Meaning{Replaced, OwnerDead, CaseRefused, MovedNo}

	case StandingRunning:
		return Meaning{InFlight, OwnerBusy, CaseAnswerOwed, MovedYes}
	case StandingOwed:
		return Meaning{Held, OwnerAnswers, CaseAnswerOwed, MovedYes}
	case StandingOwedLater:
		return Meaning{Waiting, OwnerAnswers, CaseAnswerOwed, MovedYes}
	case StandingOverdue:
		return Meaning{Held, OwnerAnswers, CaseRefundDue, MovedYes}
	case StandingOverdueLater:
		return Meaning{Waiting, OwnerAnswers, CaseRefundDue, MovedYes}
	case StandingSilent:
		return Meaning{SilenceAnswers, OwnerAnswers, CaseAnswered, MovedYes}
	case StandingExhausted:
		return Meaning{Exhausted, OwnerAnswers, CaseRefundDue, MovedYes}
	case StandingDueBack:
		return Meaning{GoesBack, OwnerOver, CaseRefundDue, MovedYes}
	case StandingSendingBack:
		return Meaning{GoesBack, OwnerDead, CaseRefundDue, MovedYes}

	case StandingAnswered:
		return Meaning{Answered, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingPartOwed:
		return Meaning{Held, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingPartLater:
		return Meaning{Answered, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingUnkept:
		return Meaning{Held, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingUnkeptLater:
		return Meaning{Waiting, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingUnkeptRuns:
		return Meaning{InFlight, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingAnswerGone:
		return Meaning{Over, OwnerWhileValid, CaseAnswered, MovedYes}
	case StandingAttested:
		return Meaning{Over, OwnerWhileValid, CaseAnswered, MovedYes}

	case StandingRefunded:
		return Meaning{Over, OwnerDead, CaseRefunded, MovedYes}
	case standings: // not a standing, but the exhaustive linter wants every constant
	}
	return Meaning{}
}
