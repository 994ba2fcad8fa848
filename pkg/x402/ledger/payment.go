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

// State says what is true of a payment.
type State string

// The stored states; the package comment says what each is left by. Computed and never
// stored: abandoned (settling with its lease past) and expired (past ExpiresAt).
const (
	Settling  State = "settling"  // one attempt holds the lease and may be talking to the facilitator
	Uncertain State = "uncertain" // an attempt ended without learning whether money moved
	// Settled: proof of payment is stored, money has moved, and the answer is
	// still owed. While the lease is live its holder is looking up.
	Settled State = "settled"
	// Refused: nothing moved. A facilitator said so, or evidence proved it (then
	// Disproved is set). Without proof the signature stays valid until it expires,
	// and can still be paid, such as after a payer adds to a low balance.
	Refused  State = "refused"
	Redeemed State = "redeemed" // the answer is stored, or was given by an operator's word (EventAttest)
	Refunded State = "refunded" // money moved, no answer was given, and the operator has sent it back
	// Superseded: another payment answers the purchase that this one was made
	// for, and this one is never sent (again). Owner names the other.
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

	AuthDigest string `json:"auth_digest"` // of the authorization (EIP-712)
	// SigDigest is of the signature bytes that it was claimed with first.
	SigDigest string          `json:"sig_digest"`
	Request   string          `json:"request"` // fingerprint of the request that was paid for
	Terms     json.RawMessage `json:"terms"`   // the requirements it was compared with
	// Payload is the authorization with its signature as a facilitator is sent it, so
	// that every attempt sends the same bytes. It is kept until it is known whether money
	// moved.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Endpoint is where it was claimed: another one does not answer it. It is empty in
	// records of earlier releases, which are answered wherever their request is asked.
	Endpoint string `json:"endpoint,omitempty"`
	// Token is the hex SHA-256 of the retry token that it was claimed with first,
	// which a repeat must bring to be taken for its payer's. Empty where it came
	// without one.
	Token string `json:"token,omitempty"`
	// Purchase is the key of what is bought with it; empty when each payment is
	// a separate purchase.
	Purchase string `json:"purchase,omitempty"`
	// Owner is the key of the payment that answers the purchase in the place of
	// this one.
	Owner string `json:"owner,omitempty"`

	Attempt    int       `json:"attempt"` // claims so far, 1 is the first
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// Sent says that an attempt that has ended may have reached the facilitator. It is
	// never cleared. The attempt that holds the lease may have reached it, too.
	Sent bool `json:"sent,omitempty"`
	// Asked names the facilitators that may have been sent it, in their order, each
	// written before it is asked. A claim names the first of two, even if that one is
	// then left out. It is empty where there is only one facilitator.
	Asked []string `json:"asked,omitempty"`
	// RefusedBy is the first facilitator that refused it for a reason about the
	// payer. No other one is asked from then on.
	RefusedBy   string   `json:"refused_by,omitempty"`
	Doubt       bool     `json:"doubt,omitempty"` // a request may have reached the facilitator unanswered
	Transaction string   `json:"transaction,omitempty"`
	Receipt     *Receipt `json:"receipt,omitempty"` // proof of payment, once settled
	Reason      string   `json:"reason,omitempty"`  // why it was refused, is in doubt, or was closed as answered
	// Disproved says that evidence, and not only a facilitator, refused it: the
	// authorization has moved nothing for this record and never will.
	Disproved bool `json:"disproved,omitempty"`
	// NoNode says that there was no node when it was first claimed, so that a refusal of it
	// is not proven.
	NoNode bool `json:"no_node,omitempty"`
	// BadSignature says that a facilitator refused it for its signature last.
	BadSignature bool `json:"bad_signature,omitempty"`
	// Refusals is how often a facilitator refused it for a reason about the payer,
	// and RefusedAt when it did so last; zero once there was another attempt.
	Refusals  int       `json:"refusals,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
	Refund    string    `json:"refund,omitempty"` // transaction that sent the amount back
	// SendingBack says that an operator was told to send the amount back.
	SendingBack *SendingBack `json:"sending_back,omitempty"`
	// ClosedBy is the operator who closed it, as refunded or as answered; empty in records of
	// earlier releases.
	ClosedBy string `json:"closed_by,omitempty"`

	// DueBack says why no lookup can answer this payment, so that its amount has to go
	// back; empty where one can.
	DueBack DueBack `json:"due_back,omitempty"`

	Lookups   int       `json:"lookups,omitempty"`    // lookups begun since settlement
	Silent    int       `json:"silent,omitempty"`     // of those, how many met the silence of the target
	LookupAt  time.Time `json:"lookup_at,omitzero"`   // when the last one ended, or began if it has not
	LastFault *Failure  `json:"last_fault,omitempty"` // how the last one failed
	// MostLookups is how many lookups the seller allows for a payment; 0 is any number.
	MostLookups int     `json:"most_lookups,omitempty"`
	Answer      *Answer `json:"answer,omitempty"` // once redeemed

	ValidBefore time.Time `json:"valid_before"` // when the authorization expires on chain
	SettledAt   time.Time `json:"settled_at,omitzero"`
	AnsweredAt  time.Time `json:"answered_at,omitzero"` // when the answer was stored
	// StandsUntil is until when the answer stands for a purchase without a key:
	// another payment of the payer that arrives before is answered with it.
	StandsUntil time.Time `json:"stands_until,omitzero"`
}

// SoldAt says whether a payment is answered at an endpoint.
func (r Payment) SoldAt(endpoint string) bool { return r.Endpoint == endpoint || r.Endpoint == "" }

// Kind implements Record.
func (Payment) Kind() Kind { return KindPayment }

// Status implements Record.
func (r Payment) Status() string { return string(r.State) }

func (r Payment) withRow(row Row) Payment {
	r.Row = row
	return r
}

// InDoubt says that the outcome of a record is not known.
func (r Payment) InDoubt() bool { return r.State == Settling || r.State == Uncertain }

// Owed says that a record is paid and not answered.
func (r Payment) Owed() bool { return r.State == Settled }

// Paid says that money is known to have moved for a record.
func (r Payment) Paid() bool { return r.State == Settled || r.State == Redeemed || r.State == Refunded }

// Unasked says that a record is money that came without a request.
func (r Payment) Unasked() bool { return r.Owed() && r.DueBack == DueUnasked }

// Attested says that a record was closed by EventAttest.
func (r Payment) Attested() bool { return r.State == Redeemed && r.AnsweredAt.IsZero() }

// Unproven says that a payment was sent, and refused by a word that no node could confirm.
func (r Payment) Unproven() bool {
	return (r.State == Refused || r.State == Superseded) && r.NoNode && r.Sent && !r.Disproved
}

// Listed implements Record. A payment that is known to be paid is open when a lookup was
// under way as it was last written, also when that has died since. The time is the end of
// the lease while there is one, else that of the last write.
func (r Payment) Listed() (list string, at time.Time) {
	at = later(r.LeaseUntil, r.UpdatedAt)
	switch {
	case r.InDoubt():
		return ListOpen, at
	case r.Owed() && r.LeaseUntil.After(r.UpdatedAt):
		return ListOpen, at
	case r.Owed():
		return ListOwed, at
	case r.Unproven():
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

// Failure is a lookup that ended without an answer.
type Failure struct {
	Code    string `json:"code"`
	Status  int    `json:"status,omitempty"` // HTTP status; 0 in a record of a release before it was kept
	Message string `json:"message"`
	// Silence says that the target was silent, which is the answer after some such
	// lookups (see StandingSilent).
	Silence bool `json:"silence,omitempty"`
	// Pause is how long the next lookup has to wait where the work itself has said so;
	// 0 leaves that to the number of lookups.
	Pause time.Duration `json:"pause,omitempty"`
}

// DueBack is why the amount of a payment has to go back.
type DueBack string

// The reasons.
const (
	DueUnasked DueBack = "unasked" // it came without a request
	// DueElsewhere: another payment has paid for its purchase.
	DueElsewhere DueBack = "answered_otherwise"
	// DueLate: it was found after its payer had been told for good that it moves nothing,
	// or was made too long before its request to be meant for it.
	DueLate DueBack = "late"
)

// SendingBack is a refund that somebody has begun.
type SendingBack struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// Answer is the stored answer to a paid request.
type Answer struct {
	Status int `json:"status"` // HTTP status
	// Header are the headers that belong to the body; nil where it is JSON of this
	// service.
	Header map[string][]string `json:"header,omitempty"`
	// Encoding of Body: "gzip", or empty for plain.
	Encoding string `json:"encoding,omitempty"`
	// Stored is false when the body was larger than Ledger.MostKept; a repeat then runs the
	// lookup again.
	Stored bool `json:"stored"`
	// Owed names the parts of a bundle's answer that failed for a reason of
	// ours: a repeat runs the lookup again, as long as any is left.
	Owed []string `json:"owed,omitempty"`
	// Receipt is the signed receipt that it was given with, if any.
	Receipt string `json:"receipt,omitempty"`
	// Body is kept beside the JSON form of the record.
	Body []byte `json:"-"`
}

// LargestKept is the most that a Store may keep of the body of an answer, in bytes as it is
// stored, and LeastKept what every one of this module keeps.
const (
	LargestKept = 1 << 20
	LeastKept   = 32 << 10
)

// maxAnswer bounds an answer that is read from the ledger, in bytes as it was served.
const maxAnswer = 8 << 20

// compressors are kept because each takes 800 KB, which would be most of what
// a paid request allocates.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// leastCompressed is the length of a body, in bytes, below which gzip saves less than
// its header and its time are worth.
const leastCompressed = 256

// MostKept is how large an answer may be to be kept, in bytes of its compressed body. One
// that is larger is given once, and a repeat runs the lookup again, MostUnkept times in all.
func (l *Ledger) MostKept() int { return min(l.store.MostKept(), LargestKept) }

// NewAnswer prepares an answer for storing, compressed unless it is short. One that stays
// above MostKept, or is more than Plain reads, is kept without its body.
func (l *Ledger) NewAnswer(status int, body []byte) (Answer, error) {
	if len(body) < leastCompressed {
		return Answer{Status: status, Stored: true, Body: body}, nil
	}
	var compressed bytes.Buffer
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has nothing else
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

// Plain returns the answer's body as it was served. It fails when the body was not stored,
// and with ErrCorrupt when it cannot be read.
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
