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

// Facilitator verifies and settles payments. Both calls end when ctx ends. They return only
// when every HTTP request that they made has ended.
type Facilitator interface {
	// Settle moves the money, and reports how far the settlement got. It sends at most one
	// request, with one exception: after the answer settlement_pending, it sends one more
	// request, which has the same bytes.
	Settle(ctx context.Context, p Payload, r Requirements) Settlement
	// Verify checks a signature that cannot be verified locally, such as a contract wallet's.
	// It moves no money.
	Verify(ctx context.Context, p Payload, r Requirements) Verification
}

// Class is the outcome of a call to /settle.
type Class int

const (
	// Unknown means that the request may have reached the facilitator, and that it is not
	// known whether money moved. It is the zero value: if the code forgets to set a class, the
	// payment must count as in doubt.
	Unknown Class = iota
	// Moved means that the facilitator says that it settled the payment, and names a
	// transaction.
	Moved
	// Refused means that the facilitator refused the payment for a reason about the payer.
	// Facilitators give a reason about the payer only before they broadcast anything.
	Refused
	// TurnedAway means that the facilitator got the request but did not process it, for a
	// reason that the operator has to deal with (credentials, quota, configuration).
	TurnedAway
	// NotSent means that the request was certainly not sent.
	NotSent
	// NotResent means that the payment was deliberately not sent again, for example because
	// its window is over. Only Order.Send returns this class; no facilitator does.
	NotResent
)

// ReasonNonceUsed is the errorReason with which a facilitator says that an authorization is
// already used or cancelled on chain. This reason alone does not mean that the payment failed:
// the payment itself may have used the authorization.
const ReasonNonceUsed = "invalid_exact_evm_nonce_already_used"

// Settlement is the outcome of one call of Settle.
type Settlement struct {
	Class          Class
	Transaction    string // hash of the transaction; set if Class is Moved, and if Class is Unknown and a hash is known
	Payer, Network string
	Reason         string // the facilitator's errorReason, shortened and printable, or a reason of this server, such as "timeout"
	// The following three fields describe a Refused payment. NonceUsed means that the
	// authorization is already used or cancelled on chain, by anybody. BadSignature means that
	// the payment was refused for its signature. Expired means that the window is over by the
	// facilitator's clock. Facilitators check the window before the nonce, so Expired does not
	// say whether money has moved.
	NonceUsed, BadSignature, Expired bool
	// AboutPayer can be set if Class is TurnedAway or Unknown. It means that the reason is
	// nevertheless about the payer. This happens if a refusal comes with a transaction, or
	// with an HTTP status that the operator has to deal with. No other facilitator may then be
	// asked, just as after Refused.
	AboutPayer bool
	// NoDecision can be set if Class is Unknown. It means that the facilitator was silent,
	// broke off, or gave an answer that is not an x402 answer. A payer cannot cause any of
	// these.
	NoDecision bool
	Code       fault.Code // the code of the answer if Class is TurnedAway or NotSent
	Cause      error      // for the log; if it is a *fault.Error, its code and message may also be sent to the client
	// ExtensionResponses is what the facilitator says about extensions, reduced to what may be
	// logged. It is never sent to a client.
	ExtensionResponses map[string]string
}

// Verification is the outcome of one call of Verify.
type Verification struct {
	Valid  bool   // whether the facilitator said that the payment is valid
	Reason string // why the payment is not valid; shortened and printable
	// BadSignature means that the payment is not valid because the payer did not make the
	// signature. If BadSignature is false, Reason is about something else, such as the
	// balance. NonceUsed means that the payment is not valid because the authorization is used
	// or cancelled. That says nothing about the signature.
	BadSignature, NonceUsed bool
	// Fault is set if nothing was decided about the payer: the facilitator is unavailable,
	// unauthorized or misconfigured, or gave no reason why the payment is not valid.
	Fault *fault.Error
	// AboutPayer can be set if Fault is set. It means that the facilitator's reply gives a
	// reason about the payer, although the reply decides nothing.
	AboutPayer bool
}

// Evidence finds out from the chain whether an authorization moved money to the payee. Find
// only reads, and ends when ctx ends. Find must look for the transfer itself: a used
// authorization alone proves nothing, because the chain shows a cancelled authorization as
// used.
type Evidence interface {
	Find(ctx context.Context, q Question) Finding
}

// Question names an authorization and the transfer that it should have made.
type Question struct {
	Payer, Payee Address
	Nonce        [32]byte
	Value        *big.Int  // in atomic units; the transfer must have exactly this value
	ValidBefore  time.Time // when the authorization expires on chain
	// Since is when the payment was first claimed here. A transfer in a block that is older
	// than Since by more than a minute belongs to another request. If Sent is true, the limit
	// is ten minutes.
	Since time.Time
	// Sent means that the authorization may have been sent to the facilitator. A transfer was
	// then most likely made by that facilitator.
	Sent        bool
	Transaction string // the hash of a transaction that the facilitator named, or empty
}

// Fate is what became of the authorization of a Question, according to the chain.
type Fate int

const (
	// CannotTell means that the chain was not reachable, is behind, or contradicts itself. It
	// is the zero value: if the code forgets to set a fate, the fate must prove nothing.
	CannotTell Fate = iota
	// Paid means that, according to the latest block, the authorization was used, and its
	// transfer went to the payee with the right value.
	Paid
	// NeverPaid means that the authorization has moved no money to the payee for this record,
	// and never will. There are two cases. Either the authorization was cancelled, used for
	// another transfer, or used before it was claimed here. Or it is unused, and a safe block
	// is later than the end of its window.
	NeverPaid
	// StillOpen means that the authorization is unused and can still be executed.
	StillOpen
)

// Finding is a fate with its reason.
type Finding struct {
	Fate        Fate
	Transaction string // hash of the transfer; set if Fate is Paid
	Reason      string // a short text; it may be shown to the payer if Fate is NeverPaid
	Cause       error  // for the log
}

// Decides reports whether the chain proves that the payment was made or never will be.
func (f Finding) Decides() bool { return f.Fate == Paid || f.Fate == NeverPaid }

// QuestionOf returns the question about the payment of a record. The parts of the question
// come from the record: its key, its other fields, and the terms with which the payment was
// compared. The error is ledger.ErrCorrupt.
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
