package x402

import "github.com/hostfacts/hostfacts/pkg/x402/ledger"

// The classes that the Gate adds to those of facilitators, for its own decisions.
const (
	used      Class = NotSent + 1 + iota // Refused with Settlement.NonceUsed
	expired                              // Refused with Settlement.Expired, or near the end of the window
	notResent                            // not sent again, because the window is over
	anyClass
)

// refused says that the facilitator gave a reason that is about the payer.
func (c Class) refused() bool { return c == Refused || c == used || c == expired }

// The verdicts that the Gate adds to those of Evidence.
const (
	notAsked Verdict = StillOpen + 1 + iota // the facilitator's reply decides alone
	noNode                                  // the chain has to be asked, and no node is configured
	anyVerdict
)

// doubt is what a record says of the attempts before this claim. In the table it
// is a set.
type doubt int

const (
	noDoubt    doubt = 1 << iota // none of them may have reached a facilitator
	sentBefore                   // one has, and its facilitator said that it did not settle
	inDoubt                      // one may have, and its outcome is not known
	anyDoubt   = noDoubt | sentBefore | inDoubt
)

func doubtOf(r ledger.Record) doubt {
	switch {
	case r.Doubt:
		return inDoubt
	case r.Sent:
		return sentBefore
	}
	return noDoubt
}

// reply is what a payer is told after an attempt to settle.
type reply int

const (
	replyLookUp  reply = iota + 1 // the answer of the work: the money has moved
	replyRefused                  // 402 with the reason
	replyFault                    // the facilitator_* code of a fault that is not the payer's
	replyUnsure                   // 503 settlement_uncertain
)

// conclusion is one row of the conclusion table: the event that is recorded and
// the answer that is given after an attempt to settle.
type conclusion struct {
	class Class
	doubt doubt
	chain Verdict
	event ledger.Event
	reply reply
}

// asksChain says whether the chain is to be asked after a reply: when the payment is
// in doubt, when the reply does not exclude that money has moved, and when a payment is
// refused that was sent before. The earlier reply may have been false, and a
// facilitator that has settled finds the balance too low for another transfer.
func asksChain(c Class, d doubt) bool {
	switch c {
	case Moved:
		return false
	case used, expired, notResent, Unknown:
		return true
	case Refused:
		return d != noDoubt
	default:
		return d == inDoubt
	}
}

// conclusionOf decides about an attempt to settle. It does no I/O. The first row that
// fits decides. It returns the zero conclusion for a combination that no row names,
// which is a bug.
func conclusionOf(class Class, d doubt, chain Verdict) conclusion {
	for _, c := range []conclusion{
		{Moved, anyDoubt, anyVerdict, ledger.EventSettled, replyLookUp},

		// Evidence decides, whatever the facilitator said.
		{anyClass, anyDoubt, Paid, ledger.EventSettled, replyLookUp},
		{anyClass, anyDoubt, NeverPaid, ledger.EventDisproved, replyRefused},

		// The authorization is used, and the chain does not say for what. Where no
		// node can be asked, a payment that was sent before counts as paid, whatever
		// was said of it then: refusing a payer who has paid is worse than answering
		// one who cancelled.
		{used, noDoubt, noNode, ledger.EventRefused, replyRefused},
		{used, anyDoubt, noNode, ledger.EventSettled, replyLookUp},
		{used, anyDoubt, anyVerdict, ledger.EventUncertain, replyUnsure},

		// The end of the window says nothing about what moved before it.
		{expired, noDoubt | sentBefore, CannotTell, ledger.EventUncertain, replyUnsure},
		{expired, noDoubt | sentBefore, anyVerdict, ledger.EventRefused, replyRefused},

		// A refusal says nothing about an earlier attempt that is in doubt. The
		// second one of a payment is answered only when the chain has been asked.
		{Refused, sentBefore, CannotTell, ledger.EventRefused, replyUnsure},
		{Refused, noDoubt | sentBefore, anyVerdict, ledger.EventRefused, replyRefused},
		{Refused, inDoubt, anyVerdict, ledger.EventRefused, replyUnsure},
		{expired, inDoubt, anyVerdict, ledger.EventRefused, replyUnsure},

		// A reason that the operator has to deal with is never the payer's fault,
		// with doubt or without.
		{TurnedAway, anyDoubt, anyVerdict, ledger.EventTurnedAway, replyFault},
		{NotSent, anyDoubt, anyVerdict, ledger.EventNotSent, replyFault},

		// Nothing was sent this time: the doubt of the earlier attempt remains.
		{notResent, anyDoubt, anyVerdict, ledger.EventNotSent, replyUnsure},

		{Unknown, anyDoubt, anyVerdict, ledger.EventUncertain, replyUnsure},
	} {
		if (c.class == anyClass || c.class == class) && c.doubt&d != 0 && (c.chain == anyVerdict || c.chain == chain) {
			return c
		}
	}
	return conclusion{}
}
