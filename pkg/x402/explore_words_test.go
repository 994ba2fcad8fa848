package x402_test

import (
	"math/rand/v2"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// facilitatorReply is the reply of a facilitator, together with what the facilitator does to
// the money.
type facilitatorReply int32

const (
	saysMoved          facilitatorReply = iota // a settlement: the money moves
	saysNothing                                // no answer, and the money does not move
	movesUnheard                               // no answer, and the money moves
	movesLater                                 // no answer, and the money may move later
	saysRefused                                // a true refusal for a reason about the payer
	refusesAndMoves                            // a false refusal: the money moves
	refusesAndWillMove                         // a false refusal: the money may move later
	refusesMoved                               // a false refusal: the money has moved before
	saysUsed                                   // a true refusal: the nonce is used
	saysExpired                                // a true refusal: the window is over
	saysSignature                              // a true refusal for the signature
	turnsAway                                  // a true reply that the request was not processed
	turnsAwayAndMoves                          // a false reply that the request was not processed: the money moves
	neverReached                               // no reply, because the request was not sent
)

func (w facilitatorReply) String() string {
	return [...]string{
		saysMoved: "settled", saysNothing: "no answer, nothing is done", movesUnheard: "no answer, the money moves", movesLater: "no answer, the money may move later",
		saysRefused: "refused", refusesAndMoves: "refused falsely, the money moves", refusesAndWillMove: "refused falsely, the money may move later",
		refusesMoved: "refused falsely, the money has moved", saysUsed: "refused, the nonce is used", saysExpired: "refused, the window is over",
		saysSignature: "refused for its signature", turnsAway: "turned away", turnsAwayAndMoves: "turned away falsely, the money moves", neverReached: "not reached",
	}[w]
}

// honestReplies returns the replies of a facilitator that does not lie. lyingReplies returns all
// other replies.
func honestReplies() []facilitatorReply {
	return []facilitatorReply{saysMoved, saysNothing, movesUnheard, movesLater, saysRefused, saysUsed, saysExpired, saysSignature, turnsAway, neverReached}
}

func lyingReplies() []facilitatorReply {
	return []facilitatorReply{refusesAndMoves, refusesAndWillMove, refusesMoved, turnsAwayAndMoves}
}

// settlement returns the Settlement that a process gets with this reply about an authorization.
func (w facilitatorReply) settlement(auth int) x402.Settlement {
	switch w {
	case saysMoved:
		return x402.Settlement{Class: x402.Moved, Transaction: transactionOf(auth)}
	case saysNothing, movesUnheard, movesLater:
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout", NoDecision: true}
	case saysUsed:
		return usedNonce()
	case saysExpired:
		return x402.Settlement{Class: x402.Refused, Reason: "expired", Expired: true}
	case saysSignature:
		return x402.Settlement{Class: x402.Refused, Reason: "signature", BadSignature: true}
	case turnsAway, turnsAwayAndMoves:
		return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized}
	case neverReached:
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}
	default:
		return declined()
	}
}

// isPossible reports whether a facilitator can give this reply at a certain time, and can then
// do to the money what the comment of the reply's constant says. The argument now is this
// time, c describes the authorization on the chain, and end is when the authorization's window
// ends.
func (w facilitatorReply) isPossible(c chainState, now, end time.Time) bool {
	executable := c.truth == truthUnused && now.Before(end)
	switch w {
	case saysMoved, movesUnheard, refusesAndMoves, turnsAwayAndMoves:
		return executable
	case movesLater, refusesAndWillMove:
		return executable && !c.pending
	case saysRefused, saysSignature:
		return executable
	case refusesMoved:
		return c.truth == truthMoved
	case saysUsed:
		return c.truth != truthUnused && now.Before(end)
	case saysExpired:
		return !now.Add(6 * time.Second).Before(end)
	default:
		return true
	}
}

// isFalse reports whether the reply is false.
func (w facilitatorReply) isFalse() bool {
	return w.movesMoney() && w != saysMoved && w != movesUnheard || w == refusesAndWillMove || w == refusesMoved
}

// isRefusal reports whether the reply is a refusal, true or false.
func (w facilitatorReply) isRefusal() bool {
	return w.settlement(0).Class == x402.Refused
}

// movesMoney reports whether the money moves when the facilitator gives this reply.
func (w facilitatorReply) movesMoney() bool {
	return w == saysMoved || w == movesUnheard || w == refusesAndMoves || w == turnsAwayAndMoves
}

// workEnd says how the work of a request ends.
type workEnd int32

const (
	workAnswers  workEnd = iota // with a whole answer
	workFails                   // with an error on our side; the answer is owed
	workSilent                  // with an error, because the target was silent; the answer is owed
	workOwes                    // with an answer of which a part is still owed
	workTooLarge                // with an answer that is too large to be kept
	workRefuses                 // with an error about the target, which is the answer
)

func (w workEnd) String() string {
	return [...]string{
		workAnswers: "an answer", workFails: "it fails on our side", workSilent: "the target is silent", workOwes: "an answer, a part is owed",
		workTooLarge: "an answer too large to keep", workRefuses: "an error that is the answer",
	}[w]
}

func (w workEnd) result(x *explorer) (x402.Reply, error) {
	switch w {
	case workFails:
		return x402.Reply{}, fault.New(fault.InternalError, nil)
	case workSilent:
		return x402.Reply{}, fault.Info{Code: "timeout", Status: 504, Class: fault.Owed, Retry: true}.New(nil).Silence()
	case workOwes:
		return x402.Reply{Body: []byte("a part"), Owed: []string{"part"}}, nil
	case workTooLarge:
		return x402.Reply{Body: x.largeAnswer}, nil
	case workRefuses:
		return x402.Reply{}, fault.Info{Code: "no_such_host", Status: 422, Class: fault.Answer}.New(nil)
	default:
		return x402.Reply{Body: []byte("whole")}, nil
	}
}

// newLargeAnswer returns an answer that is too large for a ledger because it cannot be
// compressed.
func newLargeAnswer() []byte {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, 40<<10)
	_, _ = r.Read(b)
	return b
}
