package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Kind is the kind of a record. It is stored with the record.
type Kind string

// The kinds of records.
const (
	KindPayment   Kind = "payment"
	KindPurchase  Kind = "purchase"
	KindCursor    Kind = "cursor"
	KindRepayment Kind = "repayment"
	KindSold      Kind = "sold"
)

// Record is what a store keeps under a key: a Payment, a Purchase, a Cursor, a Repayment or a
// Sold.
type Record interface {
	// Head returns the record's Row: the fields that every record has.
	Head() Row
	Kind() Kind
	// Status returns the state of a payment, and a fixed name for every other kind of record.
	// A store shows it to operators.
	Status() string
	// Listed returns the name of the Index list that contains the record, and the time by
	// which that list is sorted. The name is empty if no list contains the record.
	Listed() (list string, at time.Time)
}

// Row holds the fields that every record has.
type Row struct {
	Key       string    `json:"key"`
	Version   int64     `json:"version"`  // increases by 1 with every write; the fencing token
	WriteID   string    `json:"write_id"` // random, different on every write
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// ExpiresAt is when a store may delete the record; zero means never. The record of a
	// payment that is undecided, or whose answer is owed, never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Head implements Record.
func (r Row) Head() Row { return r }

// Listed implements Record. Only payments are in a list, and Payment has its own Listed.
func (r Row) Listed() (list string, at time.Time) { return "", r.UpdatedAt }

// Purchase is something that a payer wants to buy once. Its record names the owner, which is
// the payment that is used for this purchase. Before an attempt sends a payment, it opens the
// purchase, and sends the payment only if the payment is the owner. So a payer may sign
// several payments for one purchase, but only the owner can be sent. Another payment can
// become the owner only if Ownership is OwnerDead or OwnerOver. The owner's record says what
// became of the owner; the record of the purchase does not.
type Purchase struct {
	Row

	Owner      string `json:"owner"`       // key of the record of the owner, which is a Payment
	AuthDigest string `json:"auth_digest"` // digest of the owner's authorization
}

// Kind implements Record.
func (Purchase) Kind() Kind { return KindPurchase }

// Status implements Record.
func (Purchase) Status() string { return statusPurchase }

func (p Purchase) withRow(row Row) Purchase {
	p.Row = row
	return p
}

// Cursor says how far the chain was read for transfers of one token to one payee. A transfer
// without a record is a debt if its block is DebtsFrom or a later one. In an earlier block,
// such a transfer is no debt, because it may have been answered before the cursor was made.
type Cursor struct {
	Row

	Next      uint64 `json:"block,omitempty"` // the first block that was not read
	DebtsFrom uint64 `json:"debts_from,omitempty"`
}

// Kind implements Record.
func (Cursor) Kind() Kind { return KindCursor }

// Status implements Record.
func (Cursor) Status() string { return statusCursor }

func (c Cursor) withRow(row Row) Cursor {
	c.Row = row
	return c
}

// Repayment assigns a refund transfer to the debt that it pays.
type Repayment struct {
	Row

	Debt string `json:"owner"` // key of the payment that the transfer refunds
}

// Kind implements Record.
func (Repayment) Kind() Kind { return KindRepayment }

// Status implements Record.
func (Repayment) Status() string { return statusRepayment }

func (r Repayment) withRow(row Row) Repayment {
	r.Row = row
	return r
}

// These are the values of Status for records that are not payments. Releases without Kind know
// the kind of a record only by its status, so the status is stored in addition to Kind.
const (
	statusPurchase  = "bought"
	statusCursor    = "scanned"
	statusRepayment = "repaid"
	statusSold      = "sold"
)

// These are the largest sizes that a store accepts, in bytes: of a key, of a record without
// the body of its answer, and of that body.
const (
	maxKey      = 2048
	maxDocument = 399<<10 - maxKey
	maxBody     = LargestKept
)

// Marshal returns the stored form: the record as JSON, and the body of its answer separately.
// It fails for a record that is too large for a store or that Unmarshal would refuse. If such
// a record were stored, it would be lost, and with it the evidence of somebody's payment.
func Marshal(r Record) (doc, body []byte, err error) {
	if doc, body, err = marshal(r); err != nil {
		return nil, nil, fmt.Errorf("marshal ledger record: %w", err)
	}
	return doc, body, nil
}

func marshal(r Record) (doc, body []byte, err error) {
	head := r.Head()
	if err := head.check(head.Key); err != nil {
		return nil, nil, err
	}
	switch r := r.(type) {
	case Payment:
		if err := r.checkState(); err != nil {
			return nil, nil, err
		}
		if r.Answer != nil {
			body = r.Answer.Body
		}
		doc, err = json.Marshal(storedPayment{Payment: r, Kind: KindPayment})
	case Purchase:
		doc, err = json.Marshal(storedPurchase{r, storedMembers{KindPurchase, r.Status()}})
	case Cursor:
		doc, err = json.Marshal(storedCursor{r, storedMembers{KindCursor, r.Status()}})
	case Repayment:
		doc, err = json.Marshal(storedRepayment{r, storedMembers{KindRepayment, r.Status()}})
	case Sold:
		doc, err = json.Marshal(storedSold{r, storedMembers{KindSold, r.Status()}})
	default:
		err = fmt.Errorf("a %T is not a record", r)
	}
	if err == nil && (len(doc) > maxDocument || len(body) > maxBody) {
		err = fmt.Errorf("%d bytes with an answer of %d bytes are too many to be stored", len(doc), len(body))
	}
	return doc, body, err
}

// WithoutBody returns a record without the body of its answer, as a Page lists it.
func WithoutBody(r Record) Record {
	p, ok := r.(Payment)
	if !ok || p.Answer == nil {
		return r
	}
	answer := *p.Answer
	answer.Body = nil
	p.Answer = &answer
	return p
}

// storedMembers holds the members of the stored form that are not fields of a record.
type storedMembers struct {
	Kind   Kind   `json:"kind"`
	Status string `json:"state"`
}

type storedPayment struct {
	Payment

	Kind Kind `json:"kind"`
	// CutOff is the number of lookups that ended because their process ended. Only earlier
	// releases wrote it. In their records, an amount must be refunded if both CutOff and
	// Lookups have reached their limits.
	CutOff int `json:"cut_off,omitempty"`
}

// upgrade sets DueBack in a payment that was written by a release without Kind. Such a release
// stored no reason for a refund, so upgrade guesses the reason from other members. A payment
// without AuthDigest is money that came without a request: it gets DueUnasked. For any other
// refund, the release set Lookups and CutOff to their limits, mostly because another payment
// had been charged for the purchase. So a payment with both counts at their limits gets
// DueElsewhere, although the true reason may have been another one.
func (p *storedPayment) upgrade() {
	const mostLookups, mostCutOff = 5, 3
	switch {
	case p.Kind != "" || p.State != Settled:
	case p.AuthDigest == "":
		p.DueBack = DueUnasked
	case p.Lookups >= mostLookups && p.CutOff >= mostCutOff:
		p.DueBack = DueElsewhere
	}
}

type storedPurchase struct {
	Purchase
	storedMembers
}

type storedCursor struct {
	Cursor
	storedMembers
}

type storedRepayment struct {
	Repayment
	storedMembers
}

type storedSold struct {
	Sold
	storedMembers
}

// check returns an error if the row is not valid for a record stored under key.
func (r Row) check(key string) error {
	switch {
	case r.Key == "" || r.Version < 1 || r.WriteID == "":
		return errors.New("key, version or write id is missing")
	case r.Key != key:
		return errors.New("it belongs to another key")
	case len(key) > maxKey || !utf8.ValidString(key):
		return fmt.Errorf("a key has at most %d bytes of UTF-8, not %d bytes %.80q", maxKey, len(key), key)
	}
	return nil
}

func (r Payment) checkState() error {
	if !slices.Contains(States(), r.State) {
		return fmt.Errorf("unknown state %q", r.State)
	}
	return nil
}

// Unmarshal decodes the record that is stored under a key. It fails with ErrCorrupt unless
// Marshal could have written that record for that key.
func Unmarshal(key string, doc, body []byte) (Record, error) {
	r, err := unmarshal(doc, body)
	if err == nil {
		err = r.Head().check(key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return r, nil
}

func unmarshal(doc, body []byte) (Record, error) {
	// Decode the record as a payment first: most records are payments, and p.kind returns the
	// kind of any record.
	var p storedPayment
	if err := json.Unmarshal(doc, &p); err != nil {
		return nil, err
	}
	switch p.kind() {
	case KindPayment:
		if p.Answer != nil {
			p.Answer.Body = body
		}
		p.upgrade()
		return p.Payment, p.checkState()
	case KindPurchase:
		var r Purchase
		err := json.Unmarshal(doc, &r)
		return r, err
	case KindCursor:
		var r Cursor
		err := json.Unmarshal(doc, &r)
		return r, err
	case KindRepayment:
		var r Repayment
		err := json.Unmarshal(doc, &r)
		return r, err
	case KindSold:
		var r Sold
		err := json.Unmarshal(doc, &r)
		return r, err
	}
	return nil, fmt.Errorf("unknown kind %q", p.Kind)
}

// kind returns the kind of a stored record. Earlier releases stored no kind, and told the
// kinds apart by the state alone.
func (p storedPayment) kind() Kind {
	if p.Kind != "" {
		return p.Kind
	}
	switch p.State {
	case statusPurchase:
		return KindPurchase
	case statusCursor:
		return KindCursor
	case statusRepayment:
		return KindRepayment
	default:
		return KindPayment
	}
}
