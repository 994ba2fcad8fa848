package ledger

import "time"

// Standing is the situation of a payment at one moment. All code that classifies a record
// calls Stand, and then looks the standing up in the table Meaning. This holds for a repeated
// payment, for another payment for the same purchase, for the operator's lists, and for the
// documents.
type Standing int

// The standings of a payment.
const (
	StandingMissing Standing = iota // there is no record, or it is gone

	// It is not known whether money has moved.

	StandingInFlight      // an attempt holds the lease
	StandingPerhapsUnsent // its attempt died, perhaps before it sent the payment
	StandingInDoubt       // it may have been sent, and no attempt holds it

	// No money has moved, as far as is known.

	StandingUnsent // it was never sent
	// StandingJustRefused: a facilitator refused it a moment ago, and is not asked again yet,
	// because asking costs the seller something and the sender nothing.
	StandingJustRefused
	StandingRefused // a facilitator or its operator refused it; it can still be paid
	// StandingRefusalOver: a facilitator refused it, its window has been over for a while, and
	// there is no node that could show whether money has moved nevertheless.
	StandingRefusalOver
	StandingDisproved  // evidence shows that it moves no money
	StandingSuperseded // another payment is used for its purchase; this one was never sent
	// StandingSupersededSent: another payment is used for its purchase. A facilitator refused
	// this one before, but there is no proof that it moved no money.
	StandingSupersededSent

	// Money has moved, and the answer is owed.

	StandingRunning      // a lookup is under way
	StandingOwed         // the next lookup may begin
	StandingOwedLater    // it is too early for the next lookup
	StandingOverdue      // the next lookup may begin, and the answer has been owed for a day
	StandingOverdueLater // it is too early for the next lookup, and the answer has been owed for a day
	StandingSilent       // the answer is that the target was silent; it is not stored yet
	StandingExhausted    // the seller allows no more lookups
	StandingDueBack      // its amount must be refunded: see DueBack
	StandingSendingBack  // a refund was begun

	// Money has moved, and the answer was given.

	StandingAnswered    // the whole answer is stored
	StandingPartOwed    // a part of the answer is owed, and the next lookup may begin
	StandingPartLater   // a part is owed, and it is too early for the next lookup, or one is under way
	StandingUnkept      // the answer was too large to be stored; the next lookup may begin
	StandingUnkeptLater // the answer was too large, and it is too early for the next lookup
	StandingUnkeptRuns  // the answer was too large, and a lookup is under way
	StandingAnswerGone  // the answer is no longer kept, or never was, and no more lookups are allowed
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
	// Arrived is when the request arrived that the record is classified for; zero means Now.
	Arrived time.Time
	// Node reports whether there is a node that can be asked about the chain.
	Node bool
	// Endpoint is the endpoint that received the request.
	Endpoint string
}

// Stand returns the standing of a payment; nil means that it has no record. It does no I/O.
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
	return StandingMissing // Unmarshal reads no other state
}

func standRefused(r Payment, v View) Standing {
	switch {
	case r.Disproved:
		return StandingDisproved
	case !r.Sent:
		return StandingUnsent
	case tooSoon(r, v.Now) > 0:
		return StandingJustRefused
	case !v.Node && !r.Doubt && v.Now.After(r.ValidBefore.Add(deadAfter)):
		return StandingRefusalOver
	}
	return StandingRefused
}

// deadAfter is how long the window of a refused payment must be over before the payment counts
// as dead. It applies only if the chain cannot be asked.
const deadAfter = 10 * time.Minute

func standOwed(r Payment, now time.Time, live bool) Standing {
	wait := lookupIn(r, now)
	overdue := now.Sub(r.SettledAt) > OwedFor
	switch {
	case r.SendingBack != nil: // by whatever clock
		return StandingSendingBack
	case r.DueBack != "":
		return StandingDueBack
	case live:
		return StandingRunning
	case r.LeaseUntil.IsZero() && r.LastFault != nil && r.LastFault.Silence && silentEnough(r, now):
		return StandingSilent // a zero LeaseUntil shows that the last lookup was not cut off
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
	case !incomplete(r, now) || !now.Before(r.AnswerValidUntil):
		return StandingAnswered
	case live || r.LookupAt.Add(spacing(max(r.Lookups, 2))).After(now): // even after the first lookup, the pause is as long as after the second
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
	case lookupIn(r, now) > 0:
		return StandingUnkeptLater
	}
	return StandingUnkept
}

// PartsOwed returns the parts of an answer that the same payment can still get.
func PartsOwed(r Payment, now time.Time) []string {
	switch Stand(&r, View{Now: now}) {
	case StandingPartOwed, StandingPartLater:
		return r.Answer.Owed
	default:
		return nil
	}
}

// Ownership says whether another payment can be used for a purchase that already has an owner.
type Ownership int

// The kinds of owners.
const (
	OwnerBusy  Ownership = iota + 1 // an attempt to settle or answer it is under way
	OwnerDoubt                      // it may have been sent, and is not known to be paid or dead
	// OwnerDead: it never moved money and never will, it was never sent, or its amount is
	// refunded. The purchase can be made with another payment.
	OwnerDead
	OwnerAnswers // it is paid, and its answer is stored or owed
	// OwnerOver: it is paid, and its answer is no longer valid for the purchase, or is given
	// only at another endpoint.
	OwnerOver
)

// Ownership returns what r, the owner of a purchase, means for another payment for that
// purchase; nil means that the owner has no record. It does no I/O.
func (l *Ledger) Ownership(r *Payment, v View) Ownership {
	o := l.rules.Meanings[Stand(r, v)].Owner
	if o == OwnerWhileValid {
		o = OwnerOver
		if r.answerValidAt(v.arrived()) {
			o = OwnerAnswers
		}
	}
	if o == OwnerAnswers && !r.SoldAt(v.Endpoint) {
		return OwnerOver // the owner's answer stays owed
	}
	return o
}

// OwnerWhileValid means OwnerAnswers while the answer is valid for the purchase, and
// OwnerOver after that. Ledger.Ownership never returns it.
const OwnerWhileValid Ownership = -1

func (v View) arrived() time.Time {
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

// Case is the name for the situation of a payment in an operator's lists.
type Case string

// The cases of an operator's lists.
const (
	CaseUnderWay   Case = "under_way" // an attempt holds it, or has died too recently to tell more
	CaseInDoubt    Case = "in_doubt"  // it is not known whether it was paid
	CaseNotCharged Case = "not_charged"
	CaseRefused    Case = "refused"     // a facilitator says so, without proof
	CaseSuperseded Case = "superseded"  // nothing was paid: another payment is used for its purchase
	CaseAnswerOwed Case = "answer_owed" // paid; the same signature gets the answer
	CaseRefundDue  Case = "refund_due"  // paid, and the amount is to be sent back
	CaseAnswered   Case = "answered"
	CaseRefunded   Case = "refunded"
	CaseUnknown    Case = "unknown"
)

// Moved says whether a payment has moved money.
type Moved int

// The values of Moved.
const (
	MovedUnknown Moved = iota
	MovedNo            // no, as far as is known
	MovedYes
)

// Meaning says what a standing means to each party.
type Meaning struct {
	Claim ClaimResult // what a payer who repeats the payment gets: the result of the claim
	Owner Ownership   // what it means for another payment for the same purchase
	Case  Case        // what the operator sees
	Moved Moved       // what every answer tells the payer: its member charged
}

// Meaning returns the row of the table for a standing. If the claim is Held, the attempt sends
// a payment that is not known to be paid, and runs the lookup for one that is paid.
func (s Standing) Meaning() Meaning {
	switch s { // each row has Claim, Owner, Case and Moved, in this order
	case StandingMissing:
		return Meaning{Held, OwnerDead, CaseUnknown, MovedNo}

	case StandingInFlight:
		return Meaning{InFlight, OwnerBusy, CaseUnderWay, MovedUnknown}
	case StandingPerhapsUnsent: // Ledger.Sending tells the operator more
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
	case standings: // for the exhaustive linter
	}
	return Meaning{}
}
