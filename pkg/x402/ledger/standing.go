package ledger

import "time"

// Standing is where a payment stands. Everybody who classifies a record calls Stand, and then
// the table Meaning: the payer who repeats the payment, another payment of the same
// purchase, the operator, and the documents.
type Standing int

// The standings of a payment.
const (
	StandingMissing Standing = iota // there is no record, or none any more

	// Whether money has moved is not known.

	StandingInFlight  // an attempt holds the lease
	StandingAbandoned // an attempt has died with the lease, and is not known to have sent anything
	StandingInDoubt   // it may have been sent, and nobody holds it

	// No money has moved, as far as is known.

	StandingUnsent // it was never sent
	// StandingJustRefused: a facilitator refused it a moment ago, and is not asked again
	// yet, since asking costs us and not the sender.
	StandingJustRefused
	StandingRefused // a facilitator or its operator refused it; it can still be paid
	// StandingRefusalOver: a facilitator refused it, its window has been over for a while,
	// and there is no node that could tell whether money has moved all the same.
	StandingRefusalOver
	StandingDisproved  // evidence shows that it moves no money
	StandingSuperseded // another payment answers its purchase, and this one was never sent
	// StandingSupersededSent: another payment answers its purchase. A facilitator refused
	// this one before, which is not proven.
	StandingSupersededSent

	// Money has moved, and the answer is owed.

	StandingRunning      // an attempt looks up
	StandingOwed         // the next lookup may begin
	StandingOwedLater    // it is too early for the next lookup
	StandingOverdue      // the next lookup may begin, and the answer has been owed for a day
	StandingOverdueLater // it is too early, and the answer has been owed for a day
	StandingSilent       // the silence of the target is the answer, and is not stored yet
	StandingExhausted    // the seller allows no more lookups
	StandingDueBack      // no lookup can answer it: see DueBack
	StandingSendingBack  // a refund was begun

	// Money has moved, and the answer was given.

	StandingAnswered    // the answer is stored, and nothing is owed beside it
	StandingPartOwed    // a part of the stored answer is owed, and the next lookup may begin
	StandingPartLater   // a part is owed, and it is too early, or an attempt looks it up
	StandingUnkept      // the answer was too large to be stored; it may be looked up again
	StandingUnkeptLater // it was too large, and it is too early
	StandingUnkeptRuns  // it was too large, and an attempt looks it up
	StandingAnswerGone  // it is not kept any more, or was never, and no lookup is left
	StandingAttested    // an operator has shown that it was answered

	StandingRefunded // the operator has sent the amount back

	standings // how many there are
)

// Standings yields every standing.
func Standings(yield func(Standing) bool) {
	for s := range standings {
		if !yield(s) {
			return
		}
	}
}

// View is what a record is looked at with.
type View struct {
	Now time.Time
	// Arrived is when the request came for which the record is looked at; zero is Now.
	Arrived time.Time
	// Node says that the chain can be asked.
	Node bool
	// Endpoint is where the request came.
	Endpoint string
}

// Stand says where a payment stands; nil is one without a record. It does no I/O.
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
			return StandingAbandoned
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

// deadAfter is how long after its window a refused payment counts as dead where the chain
// cannot be asked.
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
	case r.LeaseUntil.IsZero() && r.LastFault != nil && r.LastFault.Silence && silenceStands(r, now):
		return StandingSilent // the last lookup ran to its end
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
	case !incomplete(r, now) || !now.Before(r.StandsUntil):
		return StandingAnswered
	case live || r.LookupAt.Add(spacing(max(r.Lookups, 2))).After(now): // as if one had been used already
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

// PartsOwed returns the parts of an answer that the same payment can still have.
func PartsOwed(r Payment, now time.Time) []string {
	switch Stand(&r, View{Now: now}) {
	case StandingPartOwed, StandingPartLater:
		return r.Answer.Owed
	default:
		return nil
	}
}

// Ownership is what the payment that owns a purchase means for another payment of the
// same purchase.
type Ownership int

// The kinds of owners.
const (
	OwnerBusy  Ownership = iota + 1 // an attempt on it is under way
	OwnerDoubt                      // it may have been sent, and is not known to be paid or dead
	// OwnerDead: it never moved money and never will, it was never sent, or its amount goes
	// back. The purchase can be made with another payment.
	OwnerDead
	OwnerAnswers // it is paid, and has an answer or owes one
	// OwnerOver: it is paid, and its answer does not stand for the purchase any more, or is
	// given at another endpoint only.
	OwnerOver
)

// Ownership says what a payment, which owns a purchase, means for another payment of that
// purchase; nil is one without a record. It does no I/O.
func (l *Ledger) Ownership(r *Payment, v View) Ownership {
	o := l.rules.Meanings[Stand(r, v)].Owner
	if o == OwnerWhileItStands {
		o = OwnerOver
		if r.standsAt(v.arrived()) {
			o = OwnerAnswers
		}
	}
	if o == OwnerAnswers && !r.SoldAt(v.Endpoint) {
		return OwnerOver // its debt, if it has one, stays a debt
	}
	return o
}

// OwnerWhileItStands is OwnerAnswers for as long as the answer stands for the purchase, and
// then OwnerOver. Ledger.Ownership never returns it.
const OwnerWhileItStands Ownership = -1

func (v View) arrived() time.Time {
	if v.Arrived.IsZero() {
		return v.Now
	}
	return v.Arrived
}

// standsAt says whether the answer of a payment stands for its purchase at a time.
func (r Payment) standsAt(at time.Time) bool {
	if Named(r.Purchase) {
		return at.Before(r.AnsweredAt.Add(KeptFor))
	}
	return at.Before(r.StandsUntil)
}

// Case is how an operator's lists name a payment.
type Case string

// The cases.
const (
	CaseUnderWay   Case = "under_way" // an attempt holds it, or did, and it is too early to tell
	CaseInDoubt    Case = "in_doubt"  // it is not known whether it was paid
	CaseNotCharged Case = "not_charged"
	CaseRefused    Case = "refused"     // by a facilitator's word, which is not proven
	CaseSuperseded Case = "superseded"  // nothing was paid: another payment answers its purchase
	CaseAnswerOwed Case = "answer_owed" // paid; the same signature gets the answer
	CaseRefundDue  Case = "refund_due"  // paid, and to be sent back
	CaseAnswered   Case = "answered"
	CaseRefunded   Case = "refunded"
	CaseUnknown    Case = "unknown"
)

// Moved says whether money has moved for a payment.
type Moved int

// The values of Moved.
const (
	MovedUnknown Moved = iota
	MovedNo            // not as far as is known
	MovedYes
)

// Meaning is what a standing means.
type Meaning struct {
	Claim ClaimResult // for the payer who repeats the payment: what its claim finds
	Owner Ownership   // for another payment of the same purchase
	Case  Case        // for the operator
	Moved Moved       // for the payer, in every answer: charged
}

// Meaning is the row of the table for a standing. A claim that is Held of a payment that is
// not known to be paid sends it, and of one that is paid looks up.
func (s Standing) Meaning() Meaning {
	switch s {
	case StandingMissing:
		return Meaning{Held, OwnerDead, CaseUnknown, MovedNo}

	case StandingInFlight:
		return Meaning{InFlight, OwnerBusy, CaseUnderWay, MovedUnknown}
	case StandingAbandoned: // Sending says more to the operator
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
		return Meaning{Answered, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingPartOwed:
		return Meaning{Held, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingPartLater:
		return Meaning{Answered, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingUnkept:
		return Meaning{Held, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingUnkeptLater:
		return Meaning{Waiting, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingUnkeptRuns:
		return Meaning{InFlight, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingAnswerGone:
		return Meaning{Over, OwnerWhileItStands, CaseAnswered, MovedYes}
	case StandingAttested:
		return Meaning{Over, OwnerWhileItStands, CaseAnswered, MovedYes}

	case StandingRefunded:
		return Meaning{Over, OwnerDead, CaseRefunded, MovedYes}
	case standings:
	}
	return Meaning{}
}
