package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
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

	// These are not of a payment.
	Bought  State = "bought"  // of a Purchase
	Scanned State = "scanned" // of a Cursor
	Repaid  State = "repaid"  // of a transfer that paid a payment back, its Owner (see Reserve)
)

// States lists every stored state.
func States() []State {
	return []State{Settling, Uncertain, Settled, Refused, Redeemed, Superseded, Bought, Refunded, Scanned, Repaid}
}

// Payment is everything the ledger knows about one signed authorization. Its
// JSON form is what the stores keep; Answer.Body is kept beside it.
type Payment struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`  // +1 on every write; the fencing token
	WriteID string `json:"write_id"` // random, different on every write
	State   State  `json:"state"`

	AuthDigest string `json:"auth_digest"` // of the authorization (EIP-712)
	// SigDigest is of the signature bytes that it was claimed with first.
	SigDigest string          `json:"sig_digest"`
	Request   string          `json:"request"` // fingerprint of the request that was paid for
	Terms     json.RawMessage `json:"terms"`   // the requirements it was judged by
	// Payload is the authorization with its signature as a facilitator is sent it, so
	// that every attempt sends the same bytes. It is kept until it is known whether money
	// moved.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Token is the hex SHA-256 of the retry token that it was claimed with first,
	// which a repeat must bring to be taken for its payer's. Empty where it came
	// without one.
	Token string `json:"token,omitempty"`
	// Purchase is the key of what is bought with it; empty when each payment is
	// a separate purchase.
	Purchase string `json:"purchase,omitempty"`
	// Owner is the key of the payment that a purchase is made with, or that
	// answers the purchase in the place of this one.
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
	// BadSignature says that a facilitator refused it for its signature last.
	BadSignature bool `json:"bad_signature,omitempty"`
	// Refusals is how often a facilitator refused it for a reason about the payer,
	// and RefusedAt when it did so last; zero once there was another attempt.
	Refusals  int       `json:"refusals,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
	Refund    string    `json:"refund,omitempty"` // transaction that sent the amount back
	// SendingBack says that an operator was told to send the amount back.
	SendingBack *SendingBack `json:"sending_back,omitempty"`
	// Next and DebtsFrom are of a cursor: the first block that was not read, and the
	// one from which on a transfer without a record is a debt.
	Next      uint64 `json:"block,omitempty"`
	DebtsFrom uint64 `json:"debts_from,omitempty"`

	Lookups   int       `json:"lookups,omitempty"`    // lookups begun since settlement, less those that CutOff counts
	CutOff    int       `json:"cut_off,omitempty"`    // of all, those that ended with their process; they use none up
	LookupAt  time.Time `json:"lookup_at,omitzero"`   // when the last one began
	LastFault *Failure  `json:"last_fault,omitempty"` // how the last one failed
	Answer    *Answer   `json:"answer,omitempty"`     // once redeemed

	ValidBefore time.Time `json:"valid_before"` // when the authorization expires on chain
	CreatedAt   time.Time `json:"created_at"`   // first claim
	UpdatedAt   time.Time `json:"updated_at"`
	SettledAt   time.Time `json:"settled_at,omitzero"`
	AnsweredAt  time.Time `json:"answered_at,omitzero"` // when the answer was stored
	// StandsUntil is until when the answer stands for a purchase without a key:
	// another payment of the payer that arrives before is answered with it.
	StandsUntil time.Time `json:"stands_until,omitzero"`
	// ExpiresAt is when the row may be deleted; zero for one that is undecided
	// or owed, which is kept until that ends.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// InDoubt says that the outcome of a record is not known.
func (r Payment) InDoubt() bool { return r.State == Settling || r.State == Uncertain }

// Owed says that a record is paid and not answered.
func (r Payment) Owed() bool { return r.State == Settled }

// Paid says that money is known to have moved for a record.
func (r Payment) Paid() bool { return r.State == Settled || r.State == Redeemed || r.State == Refunded }

// Unasked says that a record is money that came without a request.
func (r Payment) Unasked() bool { return r.Owed() && r.AuthDigest == "" }

// Attested says that a record was closed by EventAttest.
func (r Payment) Attested() bool { return r.State == Redeemed && r.AnsweredAt.IsZero() }

// ListedIn is the list of an Index that a record belongs in; empty for none. A paid one
// is open when a lookup was under way as it was last written, also when that has died since.
func (r Payment) ListedIn() string {
	switch {
	case r.InDoubt(), r.Owed() && r.LeaseUntil.After(r.UpdatedAt):
		return ListOpen
	case r.Owed():
		return ListOwed
	}
	return ""
}

// ListedAt returns the time by which an Index sorts: the end of the lease while there
// is one, else the last write.
func (r Payment) ListedAt() time.Time { return later(r.LeaseUntil, r.UpdatedAt) }

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
	// Silence says that the target was silent, which is the answer once no lookup
	// is left (see SilenceStands).
	Silence bool `json:"silence,omitempty"`
}

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
	// Stored is false when the body was too large to keep; a repeat then runs
	// the lookup again.
	Stored bool `json:"stored"`
	// Owed names the parts of a bundle's answer that failed for a reason of
	// ours: a repeat runs the lookup again, as long as any is left.
	Owed []string `json:"owed,omitempty"`
	// Receipt is the signed receipt that it was given with, if any.
	Receipt string `json:"receipt,omitempty"`
	// Body is kept beside the JSON form of the record.
	Body []byte `json:"-"`
}

// What a store takes of a key and of a record, in bytes: what fits into an item of DynamoDB
// beside its other attributes.
const (
	maxKey    = 2048
	maxRecord = 399 << 10
)

// Marshal returns the stored form: the record as JSON, and the body of its answer
// separately. It fails for a record that a store cannot take or that Unmarshal would not
// read: stored, it could no longer answer for somebody's money.
func (r Payment) Marshal() (doc, body []byte, err error) {
	if err = r.check(r.Key); err == nil {
		doc, err = json.Marshal(r)
	}
	if r.Answer != nil {
		body = r.Answer.Body
	}
	if n := len(r.Key) + len(doc) + len(body); err == nil && n > maxRecord {
		err = fmt.Errorf("%d bytes are too many to be stored", n)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("marshal ledger record: %w", err)
	}
	return doc, body, nil
}

// check says what is wrong with the members that every record under a key has.
func (r Payment) check(key string) error {
	switch {
	case r.Key == "" || r.Version < 1 || r.WriteID == "":
		return errors.New("key, version or write id is missing")
	case r.Key != key:
		return errors.New("it belongs to another key")
	case len(key) > maxKey || !utf8.ValidString(key):
		return fmt.Errorf("a key has at most %d bytes of UTF-8, not %d bytes %.80q", maxKey, len(key), key)
	case !slices.Contains(States(), r.State):
		return fmt.Errorf("unknown state %q", r.State)
	}
	return nil
}

// Unmarshal reads what is stored under a key. Anything that is not a record that this
// code could have written there is ErrCorrupt.
func Unmarshal(key string, doc, body []byte) (*Payment, error) {
	var r Payment
	err := json.Unmarshal(doc, &r)
	if err == nil {
		err = r.check(key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if r.Answer != nil {
		r.Answer.Body = body
	}
	return &r, nil
}

// MaxStored bounds a stored answer, compressed, in bytes. DynamoDB charges a write
// unit per KB, and what is not stored is looked up again.
const MaxStored = 32 << 10

// maxAnswer bounds an answer that is read from the ledger, in bytes.
const maxAnswer = 8 << 20

// compressors are kept because each takes 800 KB, which would be most of what
// a paid request allocates.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// leastCompressed is the length of a body, in bytes, below which gzip saves less than
// its header and its time are worth.
const leastCompressed = 256

// NewAnswer prepares an answer for storing, compressed unless it is short. One that
// stays above MaxStored, or is more than Plain reads, is kept without its body; a repeat
// then runs the lookup again.
func NewAnswer(status int, body []byte) (Answer, error) {
	if len(body) < leastCompressed {
		return Answer{Status: status, Stored: true, Body: body}, nil
	}
	var b bytes.Buffer
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer compressors.Put(z)
	z.Reset(&b)
	_, err := z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil {
		return Answer{}, fmt.Errorf("compress answer: %w", err)
	}
	a := Answer{Status: status, Encoding: "gzip"}
	if b.Len() <= MaxStored && len(body) <= maxAnswer {
		a.Stored, a.Body = true, b.Bytes()
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
