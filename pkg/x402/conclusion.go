package x402

import "github.com/hostfacts/hostfacts/pkg/x402/ledger"

// facilitatorWord classifies the facilitator's reply to a settlement.
type facilitatorWord int

const (
	anyWord facilitatorWord = iota
	// wordMoved: it says that the money moved.
	wordMoved
	// wordRefused: a refusal about the payer, given before any broadcast.
	wordRefused
	// wordUsed: the authorization is used or cancelled, whoever did it.
	wordUsed
	// wordExpired: the authorization's window is over, or ends now. Facilitators
	// check the window before the nonce, so this says nothing about an earlier
	// transfer.
	wordExpired
	// wordTurnedAway: turned away for a reason that the operator has to deal with, such
	// as credentials or a quota.
	wordTurnedAway
	// wordNotSent: the request provably was not sent.
	wordNotSent
	// wordNotResent: not sent again, because its window is over.
	wordNotResent
	// wordUnknown: it may have been sent, and the outcome is not known.
	wordUnknown
)

// chainAnswer is the chain's answer about an authorization.
type chainAnswer int

const (
	anyChain chainAnswer = iota
	// chainNotAsked: the facilitator's reply decides alone.
	chainNotAsked
	// chainMissing: it has to be asked, and no node is configured.
	chainMissing
	chainPaid
	chainNeverPaid
	chainStillOpen
	chainCannotTell
)

// reply is what a payer is told after a settlement was tried.
type reply int

const (
	// replyLookUp runs the work: the money has moved.
	replyLookUp reply = iota + 1
	// replyRefused is 402 with the reason.
	replyRefused
	// replyFault is the facilitator_* code of a fault that is not the payer's.
	replyFault
	// replyUnsure is 503 settlement_uncertain: it is not known whether money
	// moved.
	replyUnsure
)

// conclusion is one row of the conclusion table: the event that is recorded and
// the answer that is given after an attempt to settle.
type conclusion struct {
	word  facilitatorWord
	doubt doubtful
	chain chainAnswer
	event ledger.Event
	reply reply
}

// doubtful is what a record says of the attempts before this claim.
type doubtful int

const (
	anyDoubt doubtful = iota
	// noDoubt: none of them may have reached a facilitator.
	noDoubt
	// sentBefore: one has, and its facilitator said that it did not settle.
	sentBefore
	// inDoubt: one may have, and what came of it is not known.
	inDoubt
	// undoubted is noDoubt or sentBefore, in the table only.
	undoubted
)

// covers says whether a row for d is about a payment that is in e.
func (d doubtful) covers(e doubtful) bool {
	return d == anyDoubt || d == e || d == undoubted && e != inDoubt
}

// asks says whether the chain is to be asked after a reply: when the payment is in
// doubt, when the reply does not exclude that money has moved, and when a payment is
// refused that was sent before. The earlier word may have been false, and a
// facilitator that has settled finds the balance too low for another transfer.
func asks(w facilitatorWord, d doubtful) bool {
	switch w {
	case wordMoved:
		return false
	case wordUsed, wordExpired, wordNotResent, wordUnknown:
		return true
	case wordRefused:
		return d != noDoubt
	case wordTurnedAway, wordNotSent, anyWord:
	}
	return d == inDoubt
}

// conclusions is the table. The first row that fits decides; every combination
// has one.
func conclusions() []conclusion {
	return []conclusion{
		{wordMoved, anyDoubt, anyChain, ledger.EventSettled, replyLookUp},

		// Evidence decides, whatever the facilitator said.
		{anyWord, anyDoubt, chainPaid, ledger.EventSettled, replyLookUp},
		{anyWord, anyDoubt, chainNeverPaid, ledger.EventDisproved, replyRefused},

		// The authorization is used, and the chain does not say for what. Where no
		// node can be asked, a payment that was sent before counts as paid, whatever
		// was said of it then: refusing a payer who has paid is worse than answering
		// one who cancelled.
		{wordUsed, noDoubt, chainMissing, ledger.EventRefused, replyRefused},
		{wordUsed, anyDoubt, chainMissing, ledger.EventSettled, replyLookUp},
		{wordUsed, anyDoubt, anyChain, ledger.EventUncertain, replyUnsure},

		// The end of the window says nothing about what moved before it.
		{wordExpired, undoubted, chainMissing, ledger.EventRefused, replyRefused},
		{wordExpired, undoubted, chainStillOpen, ledger.EventRefused, replyRefused},
		{wordExpired, undoubted, chainCannotTell, ledger.EventUncertain, replyUnsure},

		// A refusal says nothing about an earlier attempt that is in doubt. The
		// second one of a payment is answered only when the chain has been asked.
		{wordRefused, sentBefore, chainCannotTell, ledger.EventRefused, replyUnsure},
		{wordRefused, undoubted, anyChain, ledger.EventRefused, replyRefused},
		{wordRefused, inDoubt, anyChain, ledger.EventRefused, replyUnsure},
		{wordExpired, inDoubt, anyChain, ledger.EventRefused, replyUnsure},

		// A reason that the operator has to deal with is never the payer's fault,
		// with doubt or without.
		{wordTurnedAway, anyDoubt, anyChain, ledger.EventTurnedAway, replyFault},
		{wordNotSent, anyDoubt, anyChain, ledger.EventNotSent, replyFault},

		// Nothing was sent this time: the doubt of the earlier attempt remains.
		{wordNotResent, anyDoubt, anyChain, ledger.EventNotSent, replyUnsure},

		{wordUnknown, anyDoubt, anyChain, ledger.EventUncertain, replyUnsure},
	}
}

// conclusionOf decides about an attempt to settle, free of I/O. It returns the zero
// conclusion for a combination that no row names, which is a bug.
func conclusionOf(w facilitatorWord, d doubtful, s chainAnswer) conclusion {
	for _, c := range conclusions() {
		if (c.word == anyWord || c.word == w) && c.doubt.covers(d) && (c.chain == anyChain || c.chain == s) {
			return c
		}
	}
	return conclusion{}
}
