package x402

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Facilitator verifies and settles payments. Both calls are bounded by ctx and
// return only when every request that they made has ended.
type Facilitator interface {
	// Settle has the money moved, and says how far it got. The implementation
	// repeats no request, with one exception: a settlement_pending answer is
	// followed by one byte-identical request.
	Settle(ctx context.Context, p Payload, r Requirements) Settlement
	// Verify is about a signature that cannot be verified locally (a contract
	// wallet). It moves no money.
	Verify(ctx context.Context, p Payload, r Requirements) Verification
}

// Class is the outcome of a call to /settle.
type Class int

const (
	// Unknown: the request may have reached the facilitator, and whether money moved is
	// not known. The zero value, so that forgetting to set a class is safe.
	Unknown Class = iota
	// Moved: the facilitator says that it settled, with a transaction.
	Moved
	// Refused: the facilitator gave a reason that is about the payer, and that
	// is known to be given before anything is broadcast.
	Refused
	// TurnedAway: the facilitator was sent the request, and did not process it for a
	// reason that the operator has to deal with (credentials, quota, configuration).
	TurnedAway
	// NotSent: the request provably was not sent.
	NotSent
	// NotResent: the payment was not sent again, because its window is over. No facilitator
	// says that: it comes from Order.Send.
	NotResent
)

// ReasonNonceUsed is the errorReason of a facilitator for an authorization that is
// already used or cancelled on chain. It is not a refusal by itself.
const ReasonNonceUsed = "invalid_exact_evm_nonce_already_used"

// Settlement is the outcome of one call of Settle.
type Settlement struct {
	Class          Class
	Transaction    string // when Moved, and when Unknown with a known hash
	Payer, Network string
	Reason         string // the facilitator's errorReason, bounded and printable, or ours, such as "timeout"
	// Of Refused: NonceUsed says that the authorization is already used or cancelled on
	// chain, by anybody; BadSignature that it was refused for its signature; Expired that
	// its window is over by the facilitator's clock, which facilitators look at before
	// the nonce, so that it says nothing about what has moved.
	NonceUsed, BadSignature, Expired bool
	// AboutPayer says of TurnedAway and Unknown that the reason is nevertheless about the
	// payer: a refusal with a status that the operator has to deal with, or with a
	// transaction. As after Refused, no other facilitator may be asked then.
	AboutPayer bool
	// NoDecision says of Unknown that the facilitator was silent, broke off, or gave an
	// answer that is not one of x402. A payer cannot cause that.
	NoDecision bool
	Code       fault.Code // to answer when Class is TurnedAway or NotSent
	Cause      error      // for the log
	// ExtensionResponses is what the facilitator says about extensions, reduced
	// to the fields that may be logged. It is never sent to a client.
	ExtensionResponses map[string]string
}

// Verification is the outcome of one call of Verify.
type Verification struct {
	Valid  bool   // only when the facilitator said so
	Reason string // why not, bounded and printable
	// BadSignature: not valid, because the signature is not the payer's; otherwise Reason
	// is about something else, such as the balance. NonceUsed: because the authorization
	// is used or cancelled, which says nothing about the signature.
	BadSignature, NonceUsed bool
	// Fault is set when nothing was decided about the payer: the facilitator
	// is unavailable, unauthorized or misconfigured, or did not say why not.
	Fault *fault.Error
	// AboutPayer says that the reason behind Fault is about the payer all the same.
	AboutPayer bool
}

// Evidence finds out from the chain whether an authorization moved money to the payee.
// Find only reads, and is bounded by ctx. That an authorization is used does not prove a
// payment, because a cancelled one counts as used, too.
type Evidence interface {
	Find(ctx context.Context, q Question) Finding
}

// Question names an authorization and the transfer that it should have made.
type Question struct {
	Payer, Payee Address
	Nonce        [32]byte
	Value        *big.Int  // atomic units, exactly
	ValidBefore  time.Time // when the authorization expires on chain
	// Since is when the payment was first claimed here. A transfer in a block that
	// is more than a minute older (ten when Sent) belongs to another request.
	Since time.Time
	// Sent says that the authorization may have been sent to the facilitator, so
	// that a transfer most likely comes from that.
	Sent        bool
	Transaction string // a hash that the facilitator named, or empty
}

// Fate is what became of the authorization of a Question, as the chain has it.
type Fate int

const (
	// CannotTell: the chain was not reachable, is behind, or contradicts
	// itself. The zero value, so that a fate that nobody set proves nothing.
	CannotTell Fate = iota
	// Paid: the authorization was used, and its own transfer went to the payee
	// with the right value, at the latest head.
	Paid
	// NeverPaid: it has moved no money to the payee for this record and never
	// will. It was cancelled, used for another transfer, used before it was
	// claimed, or it is unused and a safe block is past its end.
	NeverPaid
	// StillOpen: it is unused and can still execute.
	StillOpen
)

// Finding is a fate with its reason.
type Finding struct {
	Fate        Fate
	Transaction string // when Paid
	Reason      string // short, may be shown to the payer when NeverPaid
	Cause       error  // for the log
}

// Decides says that the chain proves that the payment was made, or never will be.
func (f Finding) Decides() bool { return f.Fate == Paid || f.Fate == NeverPaid }

// QuestionOf returns the question about a record, from its key and the terms that the
// payment was compared with. Its error is ledger.ErrCorrupt.
func QuestionOf(r ledger.Payment) (Question, error) {
	terms, err := TermsOf(r)
	if err != nil {
		return Question{}, err
	}
	parts := strings.Split(r.Key, "|")
	if len(parts) != 4 || parts[0] != terms.Network || !strings.EqualFold(parts[1], terms.Asset) {
		return Question{}, fmt.Errorf("%w: the key is not that of a payment under the record's terms", ledger.ErrCorrupt)
	}
	q := Question{
		ValidBefore: r.ValidBefore,
		Since:       r.CreatedAt,
		Sent:        r.Sent,
		Transaction: r.Transaction,
	}
	var bad [4]error
	q.Payer, bad[0] = ParseAddress(parts[2])
	q.Payee, bad[1] = ParseAddress(terms.PayTo)
	q.Value, bad[2] = ParseUint256(terms.Amount)
	q.Nonce, bad[3] = parseNonce(parts[3])
	if err := errors.Join(bad[:]...); err != nil {
		return Question{}, fmt.Errorf("%w: %w", ledger.ErrCorrupt, err)
	}
	return q, nil
}
