package x402

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Evidence says by the chain whether an authorization moved money to the payee. It
// only reads and is bounded by ctx. That an authorization is used does not prove a
// payment, because a cancelled one is used too.
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

// Verdict is what the chain says.
type Verdict int

const (
	// CannotTell: the chain was not reachable, is behind, or contradicts
	// itself. The zero value, so that a forgotten verdict proves nothing.
	CannotTell Verdict = iota
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

// String is the verdict as logs name it.
func (v Verdict) String() string {
	return [...]string{
		CannotTell: "cannot_tell", Paid: "paid", NeverPaid: "never_paid", StillOpen: "still_open", notAsked: "not_asked", noNode: "no_node",
	}[v]
}

// Finding is a verdict with its reason.
type Finding struct {
	Verdict     Verdict
	Transaction string // when Paid
	Reason      string // short, may be shown to the payer when NeverPaid
	Cause       error  // for the log
}

// QuestionOf is what to ask about a record. It is made from the record's key and
// the terms that the payment was judged by. Its error is ledger.ErrCorrupt.
func QuestionOf(r ledger.Record) (Question, error) {
	var terms Requirements
	if err := unmarshalTerms(r, &terms); err != nil {
		return Question{}, err
	}
	parts := strings.Split(r.Key, "|")
	if len(parts) != 4 || parts[0] != terms.Network || !strings.EqualFold(parts[1], terms.Asset) {
		return Question{}, fmt.Errorf("%w: the key is not that of a payment under the record's terms", ledger.ErrCorrupt)
	}
	q := Question{ValidBefore: r.ValidBefore, Since: r.CreatedAt, Sent: r.Sent, Transaction: r.Transaction}
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

func unmarshalTerms(r ledger.Record, terms *Requirements) error {
	if err := json.Unmarshal(r.Terms, terms); err != nil {
		return fmt.Errorf("%w: terms: %w", ledger.ErrCorrupt, err)
	}
	return nil
}
