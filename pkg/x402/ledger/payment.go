package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// State is the state of a payment.
type State string

// The stored states. The diagram in the package comment shows the main events that end each
// state; the function edges has all events. Two more states are computed and never stored:
// abandoned (settling, and the lease has ended) and expired (ExpiresAt has passed).
const (
	Settling  State = "settling"  // an attempt holds the lease and may have sent the payment to the facilitator
	Uncertain State = "uncertain" // an attempt ended and does not know whether money moved
	// Settled: proof of payment is stored, money has moved, and the answer or a refund is
	// still owed. If an attempt holds a valid lease, that attempt is running the lookup.
	Settled State = "settled"
	// Refused: no money has moved, as far as is known. A facilitator refused the payment, or
	// did not process it, or never got it; or evidence proved that no money moved (then
	// Disproved is set). Without such proof, the authorization can still move money until it
	// expires, for example once the payer's balance is high enough.
	Refused  State = "refused"
	Redeemed State = "redeemed" // the answer is stored, or an operator says that it was given (EventAttest)
	Refunded State = "refunded" // money moved, no answer was given, and the operator has sent it back
	// Superseded: another payment, named by Owner, is used for the same purchase. This payment
	// is not sent, or not sent again.
	Superseded State = "superseded"
)

// States lists every stored state.
func States() []State {
	return []State{Settling, Uncertain, Settled, Refused, Redeemed, Superseded, Refunded}
}

// Payment is everything the ledger knows about one signed authorization.
type Payment struct {
	Row

	State State `json:"state"`

	AuthDigest string `json:"auth_digest"` // digest of the authorization (EIP-712)
	// SigDigest is the digest of the signature bytes of the first claim.
	SigDigest string          `json:"sig_digest"`
	Request   string          `json:"request"` // fingerprint of the request that was paid for
	Terms     json.RawMessage `json:"terms"`   // the payment requirements against which the payment was checked
	// Payload is the authorization with its signature, as it is sent to a facilitator. It is
	// stored so that every attempt sends the same bytes. It is deleted once it is known
	// whether money moved, or once another payment is used for the purchase.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Endpoint is the endpoint at which the payment was claimed. Other endpoints do not answer
	// the payment. It is empty in records of earlier releases, whose payments any endpoint may
	// answer.
	Endpoint string `json:"endpoint,omitempty"`
	// Token is the hex SHA-256 of the retry token of the first claim. A repeat of the payment
	// must bring that token to prove that it comes from the payer. If the first claim brought
	// no token, Token is empty.
	Token string `json:"token,omitempty"`
	// Purchase is the key of the Purchase that the payment is for. It is empty if no other
	// payment can be for the same purchase.
	Purchase string `json:"purchase,omitempty"`
	// Owner is the key of the payment that is used for the purchase instead of this one.
	Owner string `json:"owner,omitempty"`

	Attempt    int       `json:"attempt"` // number of claims so far; 1 after the first
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// Sent says that the facilitator may have received the payment in an attempt that has
	// ended. Sent is never cleared. It says nothing about the attempt that holds the lease
	// now.
	Sent bool `json:"sent,omitempty"`
	// Asked lists the facilitators that may have received the payment, in the order in which
	// it was sent to them. Each name is written before the payment is sent. If two
	// facilitators are configured, a claim adds the name of the first even if that facilitator
	// is then skipped. If only one is configured, the list is empty.
	Asked []string `json:"asked,omitempty"`
	// RefusedBy is the first facilitator that refused the payment for a reason about the
	// payer. From then on the payment is sent to no other facilitator.
	RefusedBy   string   `json:"refused_by,omitempty"`
	Doubt       bool     `json:"doubt,omitempty"` // a facilitator may have received the payment, and the outcome is unknown
	Transaction string   `json:"transaction,omitempty"`
	Receipt     *Receipt `json:"receipt,omitempty"` // proof of payment, once settled
	Reason      string   `json:"reason,omitempty"`  // why the payment was refused, is in doubt or was closed as answered
	// Disproved says that this payment has moved no money and never will. Evidence has shown
	// this; a facilitator's reply alone is not enough.
	Disproved bool `json:"disproved,omitempty"`
	// NoNode says that the seller had no node when the payment was first claimed, so a refusal
	// could not be confirmed on the chain.
	NoNode bool `json:"no_node,omitempty"`
	// BadSignature says that the last refusal of the payment was because of its signature.
	BadSignature bool `json:"bad_signature,omitempty"`
	// Refusals is how often a facilitator refused the payment for a reason about the payer.
	// RefusedAt is the time of the last such refusal; it is zero again once another attempt
	// has begun.
	Refusals  int       `json:"refusals,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
	Refund    string    `json:"refund,omitempty"` // hash of the transaction that sent the amount back
	// SendingBack is the refund that an operator has begun, or nil.
	SendingBack *SendingBack `json:"sending_back,omitempty"`
	// ClosedBy is the operator who closed the payment as refunded or as answered. It is empty
	// in records of earlier releases.
	ClosedBy string `json:"closed_by,omitempty"`

	// DueBack says why the amount of this payment must be refunded. It is empty if a lookup
	// can answer the payment.
	DueBack DueBack `json:"due_back,omitempty"`

	Lookups   int       `json:"lookups,omitempty"`    // number of lookups that count towards MostLookups; setValidity may set it back to 1
	Silent    int       `json:"silent,omitempty"`     // number of lookups that ended because the target was silent
	LookupAt  time.Time `json:"lookup_at,omitzero"`   // when the last lookup ended or, if it has not ended, began
	LastFault *Failure  `json:"last_fault,omitempty"` // how the last lookup failed; nil after an answer
	// MostLookups is the largest number of lookups that the seller runs for the payment; 0
	// means no limit.
	MostLookups int     `json:"most_lookups,omitempty"`
	Answer      *Answer `json:"answer,omitempty"` // set once redeemed

	ValidBefore time.Time `json:"valid_before"` // when the authorization expires on chain
	SettledAt   time.Time `json:"settled_at,omitzero"`
	// AnsweredAt is when the answer was stored or, if it is too large to be stored, first
	// given.
	AnsweredAt time.Time `json:"answered_at,omitzero"`
	// AnswerValidUntil is when the answer stops being valid for its purchase. If another
	// payment of the same payer for that purchase arrives before then, it gets the same
	// answer. If the payer has named the purchase with a key, KeptFor decides instead.
	AnswerValidUntil time.Time `json:"stands_until,omitzero"`
}

// SoldAt reports whether an endpoint may answer a payment.
func (r Payment) SoldAt(endpoint string) bool { return r.Endpoint == endpoint || r.Endpoint == "" }

// Kind implements Record.
func (Payment) Kind() Kind { return KindPayment }

// Status implements Record.
func (r Payment) Status() string { return string(r.State) }

func (r Payment) withRow(row Row) Payment {
	r.Row = row
	return r
}

// InDoubt reports whether the outcome of a payment is unknown.
func (r Payment) InDoubt() bool { return r.State == Settling || r.State == Uncertain }

// Owed reports whether a payment is paid and not answered.
func (r Payment) Owed() bool { return r.State == Settled }

// Paid reports whether money is known to have moved for a payment.
func (r Payment) Paid() bool { return r.State == Settled || r.State == Redeemed || r.State == Refunded }

// Unasked reports whether the record is about money that came without a request and has not
// been sent back.
func (r Payment) Unasked() bool { return r.Owed() && r.DueBack == DueUnasked }

// Attested reports whether EventAttest closed the record.
func (r Payment) Attested() bool { return r.State == Redeemed && r.AnsweredAt.IsZero() }

// RefusalUnproven reports whether a payment was sent and then refused, and no node could
// confirm the refusal.
func (r Payment) RefusalUnproven() bool {
	return (r.State == Refused || r.State == Superseded) && r.NoNode && r.Sent && !r.Disproved
}

// Listed implements Record. A payment that is known to be paid is in ListOpen if a lookup was
// running at the last write, even if its process has ended since. The time is the end of the
// lease or the time of the last write, whichever is later.
func (r Payment) Listed() (list string, at time.Time) {
	at = laterOf(r.LeaseUntil, r.UpdatedAt)
	switch {
	case r.InDoubt():
		return ListOpen, at
	case r.Owed() && r.LeaseUntil.After(r.UpdatedAt):
		return ListOpen, at
	case r.Owed():
		return ListOwed, at
	case r.RefusalUnproven():
		return ListUnproven, at
	}
	return "", at
}

// Receipt is proof that money moved.
type Receipt struct {
	Transaction string `json:"transaction"`
	Payer       string `json:"payer"`
	Network     string `json:"network"`
}

// Failure describes a lookup that ended without an answer.
type Failure struct {
	Code    string `json:"code"`
	Status  int    `json:"status,omitempty"` // HTTP status; 0 in records of early releases
	Message string `json:"message"`
	// Silence says that the lookup ended because the target was silent. After several such
	// lookups, the silence is the final answer (see StandingSilent).
	Silence bool `json:"silence,omitempty"`
	// Pause is how long the next lookup has to wait. If it is 0, the failed lookup set no
	// pause, and the pause depends on the number of lookups.
	Pause time.Duration `json:"pause,omitempty"`
}

// DueBack is the reason why the amount of a payment must be refunded.
type DueBack string

// A payment whose amount must be refunded has one of these reasons.
const (
	DueUnasked DueBack = "unasked" // the money came without a request
	// DueElsewhere: another payment was charged for the same purchase. Early releases stored
	// no reason. A debt from such a release may therefore get this reason (see upgrade).
	DueElsewhere DueBack = "answered_otherwise"
	// DueLate: the transfer was found after its payer had been told that the payment was
	// finally refused. Or the transfer is older than the request, and so was made for
	// something else.
	DueLate DueBack = "late"
)

// SendingBack records which operator has begun a refund, and when.
type SendingBack struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// Answer is the stored answer to a paid request.
type Answer struct {
	Status int `json:"status"` // HTTP status
	// Header holds the headers that belong to the body. It is nil if this service made the
	// body, which is then JSON.
	Header map[string][]string `json:"header,omitempty"`
	// Encoding is the encoding of Body: "gzip", or empty if it is not compressed.
	Encoding string `json:"encoding,omitempty"`
	// Stored is false if the body was too large to be kept (see NewAnswer). A repeat of the
	// request then runs the lookup again.
	Stored bool `json:"stored"`
	// Owed names the parts of a bundle's answer that failed for a reason on the seller's side.
	// As long as there are such parts, a repeat of the request runs the lookup again.
	Owed []string `json:"owed,omitempty"`
	// Receipt is the signed receipt that was sent with the answer, if any.
	Receipt string `json:"receipt,omitempty"`
	// Body is the body of the answer, encoded as Encoding says. It is stored separately from
	// the JSON form of the record.
	Body []byte `json:"-"`
}

// LargestKept and LeastKept are bounds of Store.MostKept, in bytes of the stored body of an
// answer. No Store may keep a body that is larger than LargestKept. Every Store of this module
// can keep a body that is no larger than LeastKept.
const (
	LargestKept = 1 << 20
	LeastKept   = 32 << 10
)

// maxAnswer is the length of the longest body that Plain returns, in bytes after
// decompression.
const maxAnswer = 8 << 20

// compressors keeps gzip writers for reuse, because each of them takes 800 KB. A new gzip
// writer for each paid request would be most of the memory that the request allocates.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// leastCompressed is the length of the shortest body that is compressed, in bytes. For a
// shorter body, gzip would save too little.
const leastCompressed = 256

// MostKept returns the size of the largest answer that is kept, in bytes of the compressed
// body. A larger answer is given once, and a repeat of the request runs the lookup again, for
// at most MostUnkept lookups in all.
func (l *Ledger) MostKept() int { return min(l.store.MostKept(), LargestKept) }

// NewAnswer makes an answer that can be stored. It compresses the body, unless the body is
// short. If the compressed body is larger than MostKept, or if the body is longer than Plain
// can return, the answer has no body and Stored is false.
func (l *Ledger) NewAnswer(status int, body []byte) (Answer, error) {
	if len(body) < leastCompressed {
		return Answer{Status: status, Stored: true, Body: body}, nil
	}
	var compressed bytes.Buffer
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool contains only this type
	defer compressors.Put(z)
	z.Reset(&compressed)
	_, writeErr := z.Write(body)
	if err := errors.Join(writeErr, z.Close()); err != nil {
		return Answer{}, fmt.Errorf("compress answer: %w", err)
	}
	a := Answer{Status: status, Encoding: "gzip"}
	if compressed.Len() <= l.MostKept() && len(body) <= maxAnswer {
		a.Stored = true
		a.Body = compressed.Bytes()
	}
	return a, nil
}

// Plain returns the answer's body as it was served. It returns an error if the body was not
// stored, and ErrCorrupt if the body cannot be read.
func (a Answer) Plain() ([]byte, error) {
	if !a.Stored {
		return nil, errors.New("ledger: the answer's body was not stored")
	}
	if a.Encoding == "" {
		return a.Body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Body))
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(z, maxAnswer+1))
	}
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stored answer: %w", ErrCorrupt, err)
	}
	return body, nil
}
