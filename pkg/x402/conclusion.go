package x402

import "github.com/hostfacts/hostfacts/pkg/x402/ledger"

// facilitatorWord is what the facilitator's reply to a settlement comes to.
type facilitatorWord int

const (
	anyWord facilitatorWord = iota
	// wordMoved: it says that the money moved.
	wordMoved
	// wordNo: a refusal about the payer, given before any broadcast.
	wordNo
	// wordUsed: the authorization is used or cancelled, whoever did it.
	wordUsed
	// wordLate: the window is over, or ends now. Facilitators look at it before
	// they look at the nonce, so that it says nothing about an earlier transfer.
	wordLate
	// wordDoor: turned away for a reason that is the operator's affair.
	wordDoor
	// wordNone: provably not sent.
	wordNone
	// wordPast: not sent once more, because its window is over.
	wordPast
	// wordLost: sent, and nothing is known.
	wordLost
)

// sight is what the chain says.
type sight int

const (
	anySight sight = iota
	// notAsked: the word alone decides.
	notAsked
	// blind: it should be asked, and there is no view of the chain.
	blind
	sawPaid
	sawNever
	sawOpen
	sawNothing
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
	// replyUnsure is 503 settlement_uncertain.
	replyUnsure
)

// conclusion is one row of the conclusion table: what an attempt to settle
// comes to, given whether the payment was in doubt before.
type conclusion struct {
	word  facilitatorWord
	doubt doubtful
	sight sight
	event ledger.Event
	reply reply
}

type doubtful int

const (
	anyDoubt doubtful = iota
	noDoubt
	inDoubt
)

// asks says whether the chain is to be asked about a word: always in doubt,
// and always where the word does not exclude that the money has moved.
func asks(w facilitatorWord, d doubtful) bool {
	switch w {
	case wordMoved:
		return false
	case wordUsed, wordLate, wordPast, wordLost:
		return true
	case wordNo, wordDoor, wordNone, anyWord:
	}
	return d == inDoubt
}

// conclusions is the table. The first row that fits is taken; every combination
// has one.
func conclusions() []conclusion {
	return []conclusion{
		{wordMoved, anyDoubt, anySight, ledger.EventSettled, replyLookUp},

		// Evidence decides, whatever the facilitator said.
		{anyWord, anyDoubt, sawPaid, ledger.EventSettled, replyLookUp},
		{anyWord, anyDoubt, sawNever, ledger.EventDisproved, replyRefused},

		// Used, and the chain does not say by whom. Without a view of it a
		// payment that may have been sent counts as paid: turning away a payer
		// who has paid is worse than one answer to a payer who cancelled.
		{wordUsed, inDoubt, blind, ledger.EventSettled, replyLookUp},
		{wordUsed, noDoubt, blind, ledger.EventRefused, replyRefused},
		{wordUsed, anyDoubt, anySight, ledger.EventUncertain, replyUnsure},

		// The end of the window is no answer about what moved before it.
		{wordLate, noDoubt, blind, ledger.EventRefused, replyRefused},
		{wordLate, noDoubt, sawOpen, ledger.EventRefused, replyRefused},
		{wordLate, noDoubt, sawNothing, ledger.EventUncertain, replyUnsure},

		// A refusal says nothing about an earlier attempt that is in doubt.
		{wordNo, noDoubt, anySight, ledger.EventRefused, replyRefused},
		{wordNo, inDoubt, anySight, ledger.EventRefused, replyUnsure},
		{wordLate, inDoubt, anySight, ledger.EventRefused, replyUnsure},

		// The operator's affair: never the payer's fault, in doubt or not.
		{wordDoor, anyDoubt, anySight, ledger.EventTurnedAway, replyFault},
		{wordNone, anyDoubt, anySight, ledger.EventNotSent, replyFault},

		// Whatever an earlier attempt came to, it stands.
		{wordPast, anyDoubt, anySight, ledger.EventNotSent, replyUnsure},

		{wordLost, anyDoubt, anySight, ledger.EventUncertain, replyUnsure},
	}
}

// conclusionOf decides about an attempt to settle, free of I/O. It returns the zero
// conclusion for a combination that no row names, which is a bug.
func conclusionOf(w facilitatorWord, d doubtful, s sight) conclusion {
	for _, c := range conclusions() {
		if (c.word == anyWord || c.word == w) && (c.doubt == anyDoubt || c.doubt == d) && (c.sight == anySight || c.sight == s) {
			return c
		}
	}
	return conclusion{}
}
