package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Ledger applies the rules to the records of a store. It is safe for concurrent use. Any
// number of processes may each use a Ledger with the same store.
type Ledger struct {
	store Store
	now   func() time.Time
	newID func() string
	rules Rules
}

// New returns a Ledger that keeps its records in a store. now returns the present time. newID
// must return a different random write id on every call.
func New(store Store, now func() time.Time, newID func() string) *Ledger {
	return &Ledger{store: store, now: now, newID: newID, rules: NewRules()}
}

// Rules holds the two tables that a Ledger follows.
type Rules struct {
	Edges    []Edge    // what may happen to a payment
	Meanings []Meaning // what a payment's situation means to each party; indexed by Standing
}

// NewRules returns the rules that every Ledger uses. Tests change single rows to check that
// each row matters.
func NewRules() Rules {
	r := Rules{Edges: edges(), Meanings: make([]Meaning, standings)}
	for s := range standings {
		r.Meanings[s] = s.Meaning()
	}
	return r
}

// Under returns a Ledger that uses the same store and the rules r.
func (l *Ledger) Under(r Rules) *Ledger {
	other := *l
	other.rules = r
	return &other
}

// Submission is a valid signed authorization together with the request that brought it.
type Submission struct {
	// The first claim copies these fields, and Terms, Payload and ValidBefore, into the
	// Payment that it creates. Payment explains each of them.
	Key, AuthDigest, SigDigest, Request, Endpoint, Purchase, Token string

	Terms, Payload json.RawMessage
	ValidBefore    time.Time
	// Asks is the name of the facilitator to which the attempt sends the payment first. It is
	// empty if only one facilitator is configured.
	Asks string
	// MostLookups is the largest number of lookups that the seller runs for the payment; 0
	// means no limit.
	MostLookups int
	// NoNode reports that the seller has no node with which to confirm a facilitator's reply.
	NoNode bool
	// Recovered reports that the signature was made with the payer's key. That alone does not
	// prove who sent the payment: a settlement publishes the signature.
	Recovered bool
}

// Key returns the key of a payment. The nonce alone cannot be the key: payers choose their
// nonces, so two payers may choose the same one. A signature cannot be the key either: a
// contract wallet can make many signatures for one authorization. All four parts must be in
// lower case.
func Key(network, asset, payer, nonce string) string {
	return network + "|" + asset + "|" + payer + "|" + nonce
}

// PayerPrefix returns the prefix that the keys of all payments of a payer share. All three
// parts must be in lower case.
func PayerPrefix(network, asset, payer string) string { return Key(network, asset, payer, "") }

// Proof says how well a Submission proves that its sender is the payer of the recorded
// authorization.
type Proof int

const (
	// Copied: the sender may be anybody, because the submission could have been read from the
	// chain.
	Copied Proof = iota
	// SettlesOnly: the submission has the payer's signature, which a settlement publishes. The
	// payment may be sent again to find out whether money moved, but the sender of the
	// submission does not get the answer.
	SettlesOnly
	// FromPayer: only the payer can have sent the submission.
	FromPayer
)

// Proof returns how well p proves that it comes from the payer. p is a later submission of the
// authorization in r.
//
// If the first claim had a retry token, the token decides, because no settlement publishes it.
// The result is FromPayer if p has the same token, and Copied otherwise.
//
// If the first claim had no token, the signature decides. The result is Copied unless p was
// signed with the payer's key or has the same signature as the first claim. If p has such a
// signature, the result is FromPayer until the payment may have been sent, SettlesOnly after
// that, and Copied once the payment is known to be paid. There is one exception: if the payment
// names no purchase, the payer cannot replace it with another signature. The result is then
// FromPayer until the payment is known to be paid.
func (r Payment) Proof(p Submission) Proof {
	signed := p.Recovered || r.SigDigest == p.SigDigest
	switch {
	case r.Token != "" && p.Token == r.Token:
		return FromPayer
	case r.Token != "" || !signed || r.Paid():
		return Copied
	case r.Purchase == "" || !r.isSignaturePublic():
		return FromPayer
	}
	return SettlesOnly
}

// isSignaturePublic reports whether the payment's signature may be on the chain, or may be
// known to somebody who watches for transactions.
func (r Payment) isSignaturePublic() bool { return r.Sent || r.Doubt || r.State == Settling }

// ClaimResult is the result of a claim: Held if the caller may continue, and otherwise the
// reason why not.
type ClaimResult int

const (
	// Held: the caller holds the lease and continues. If the record is Settling, the caller
	// first sends the payment; otherwise the caller runs the lookup at once.
	Held      ClaimResult = iota + 1
	InFlight              // another attempt holds the lease
	Answered              // the answer is stored, and the caller replays it
	Waiting               // the answer is owed, and it is too early for the next lookup
	Exhausted             // the seller runs no more lookups; the result of the last lookup is final
	// SilenceAnswers: the lookups found the target silent, and this silence is now the answer.
	// The caller must store that answer.
	SilenceAnswers
	GoesBack // the amount must be refunded, or a refund has begun; no lookup is run

	OtherRequest  // the authorization was claimed for another request or endpoint
	OtherPurchase // the first claim and this one do not name the same purchase
	// OtherAuthorization: the record under this key is not about this authorization. It is
	// about another authorization with the same nonce, or about money that came without a
	// request.
	OtherAuthorization
	// Over: there is nothing left to try, and the request is answered from the record. For
	// example, evidence proved that the payment moves no money, a facilitator has just refused
	// the payment, or the amount was sent back.
	Over
	Replaced // another payment was used for the purchase
	// UnknownSender: nothing proves that the sender of the repeated authorization is its payer.
	UnknownSender
)

// Claim is the outcome of Ledger.Claim or Ledger.Resume.
type Claim struct {
	Result ClaimResult
	// Record is the record of the payment as this claim read or wrote it. There is one
	// exception. If the stored record changed at the same moment, most likely because another
	// attempt took the lease, Result is InFlight and Record is what this claim tried to write.
	Record Payment
	Hold   *Hold // set if Result is Held
	// SettlesOnly reports that the payment may be sent to find out whether money moved, but
	// that the sender of this request must not get the answer: see Proof.
	SettlesOnly bool
	// Wait is how long the client should wait before it repeats the request. It is set with
	// InFlight and Waiting, and with Over if a facilitator has just refused the payment.
	Wait time.Duration
}

// Fetch reads the record of a payment. It returns nil if the record is missing or expired.
func (l *Ledger) Fetch(ctx context.Context, key string) (*Payment, error) {
	return fetch[Payment](ctx, l, key)
}

// fetch reads a record of kind T. It fails with ErrCorrupt if a record of another kind is
// stored under the key.
func fetch[T Record](ctx context.Context, l *Ledger, key string) (*T, error) {
	current, err := l.store.Fetch(ctx, key)
	if err != nil || current == nil || l.hasExpired(current.Head()) {
		return nil, err
	}
	return convertTo[T](current)
}

// convertTo converts a record to the kind T, or fails with ErrCorrupt.
func convertTo[T Record](r Record) (*T, error) {
	t, ok := r.(T)
	if !ok {
		return nil, fmt.Errorf("%w: a %s is stored where a %s belongs", ErrCorrupt, r.Kind(), t.Kind())
	}
	return &t, nil
}

// hasExpired reports whether a record has expired. The ledger checks this because stores
// delete expired records late.
func (l *Ledger) hasExpired(r Row) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(l.now())
}

// Sleeping reports whether a payment is uncertain or abandoned: its outcome is unknown, and no
// attempt holds its lease.
func (l *Ledger) Sleeping(r Payment) bool { return r.InDoubt() && leaseEnded(r, l.now()) }

// Unclaimed reports whether a payment is paid but not answered, and no attempt is looking up
// its answer.
func (l *Ledger) Unclaimed(r Payment) bool { return r.Owed() && leaseEnded(r, l.now()) }

// Claim takes the lease of the payment in a submission. lease is the time at which the lease
// ends. If Claim does not take the lease, the result says why. An error means that the store
// failed; the caller must then not send the payment.
func (l *Ledger) Claim(ctx context.Context, p Submission, lease time.Time) (Claim, error) {
	first := Payment{
		Row:         Row{Key: p.Key},
		State:       Settling,
		AuthDigest:  p.AuthDigest,
		SigDigest:   p.SigDigest,
		Request:     p.Request,
		Endpoint:    p.Endpoint,
		Terms:       p.Terms,
		Payload:     p.Payload,
		Token:       p.Token,
		Purchase:    p.Purchase,
		Attempt:     1,
		LeaseUntil:  lease,
		ValidBefore: p.ValidBefore,
		MostLookups: p.MostLookups,
		NoNode:      p.NoNode,
	}
	addAsked(&first, Change{askedNext: p.Asks})
	first, old, err := create(ctx, l, first)
	switch {
	case old == nil: // there was no earlier record; err is nil if first was written
		return l.claimOf(first, err, time.Time{})
	case old.AuthDigest != p.AuthDigest:
		return Claim{Result: OtherAuthorization, Record: *old}, nil
	}
	proof := old.Proof(p)
	switch {
	case proof == Copied:
		return Claim{Result: UnknownSender, Record: *old}, nil
	case proof == SettlesOnly:
		c, err := l.Resume(ctx, *old, p.Asks, lease)
		c.SettlesOnly = true
		return c, err
	case old.Request != p.Request, !old.SoldAt(p.Endpoint):
		return Claim{Result: OtherRequest, Record: *old}, nil
	case old.Purchase != p.Purchase:
		return Claim{Result: OtherPurchase, Record: *old}, nil
	}
	return l.Resume(ctx, *old, p.Asks, lease)
}

// writable is a kind of record whose Row the ledger can replace.
type writable[T any] interface {
	Record
	withRow(r Row) T
}

// create writes a new record under its key. If an expired record is stored there, create
// replaces it. made is the record that create has written or tried to write. With ErrConflict,
// other is the record that is stored under the key, or nil if that record has just been
// deleted.
func create[T writable[T]](ctx context.Context, l *Ledger, r T) (made T, other *T, err error) {
	row := l.newRow(r.Head().Key)
	row.ExpiresAt = expiry(r, row.UpdatedAt)
	made = r.withRow(row)
	other, err = put(ctx, l, made)
	if other == nil || !l.hasExpired((*other).Head()) {
		return made, other, err
	}
	row.Version = (*other).Head().Version + 1
	row.WriteID = l.newID()
	made = r.withRow(row)
	other, err = put(ctx, l, made)
	return made, other, err
}

// newRow returns the row of a new record under a key.
func (l *Ledger) newRow(key string) Row {
	now := l.now()
	return Row{
		Key:       key,
		Version:   1,
		WriteID:   l.newID(),
		CreatedAt: now,
		UpdatedAt: now,
	}
}

// Apply applies an event to the record r and writes the result in place of r. It returns the
// result. If the store fails, Apply returns both the result and the error, because the result
// may have been written. ErrConflict means that somebody else has written the record since r
// was read. ErrIllegal means that the event cannot happen in the state of r.
func (l *Ledger) Apply(ctx context.Context, r Payment, event Event, c Change) (Payment, error) {
	c.now = l.now()
	next, err := l.rules.step(r, event, c)
	if err != nil {
		return r, err
	}
	next.WriteID = l.newID()
	if _, err = put(ctx, l, next); err != nil {
		err = fmt.Errorf("%s: %w", event, err)
	}
	return next, err
}

// put writes a record. ErrConflict means that the record was not written, because another
// version is stored or the record has been deleted. other is then that other version, or nil.
func put[T Record](ctx context.Context, l *Ledger, r T) (other *T, err error) {
	current, err := l.store.Put(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case current == nil:
		return nil, ErrConflict
	case current.Head().WriteID == r.Head().WriteID:
		return nil, nil
	}
	if other, err = convertTo[T](current); err != nil {
		return nil, err
	}
	return other, ErrConflict
}

// claimOf returns the outcome of a claim. next is the record that the claim tried to write,
// and err is the error of that write. lookupAt is the time of the lookup before this claim. If
// err is ErrConflict, another attempt was faster. The lease of that attempt ends at about the
// same time as the lease in next, so claimOf uses next and does not read the stored record.
func (l *Ledger) claimOf(next Payment, err error, lookupAt time.Time) (Claim, error) {
	switch {
	case errors.Is(err, ErrConflict):
		return l.inFlightClaim(next), nil
	case err != nil:
		return Claim{}, err
	}
	return Claim{
		Result: Held,
		Record: next,
		Hold:   &Hold{ledger: l, record: next, lookupAt: lookupAt},
	}, nil
}

// Resume takes the lease of a recorded payment. If it does not, the result says why, as with
// Claim. Resume does not check who sent the request; its caller must do so. A request may
// bring a new payment for a purchase that another payment already owns. The caller then
// resumes that other payment. asks has the meaning of Submission.Asks. lease is the time at
// which the lease ends.
func (l *Ledger) Resume(ctx context.Context, old Payment, asks string, lease time.Time) (Claim, error) {
	now := l.now()
	c := Claim{Record: old, Result: l.rules.Meanings[Stand(&old, View{Now: now})].Claim}
	switch c.Result {
	case Held:
		next, err := l.Apply(ctx, old, EventClaim, Change{leaseUntil: lease, askedNext: asks})
		return l.claimOf(next, err, old.LookupAt)
	case InFlight:
		return l.inFlightClaim(old), nil
	case Over:
		c.Wait = resendWait(old, now)
	case Waiting:
		c.Wait = lookupWait(old, now)
	default: // a later repeat would change nothing, so there is no Wait
	}
	return c, nil
}

// inFlightClaim returns a Claim which says that another attempt holds the lease. r is a record
// with that lease. Wait tells the client to come back when the lease ends, but after 1 s at
// the earliest and 5 s at the latest, because most attempts end long before their lease.
func (l *Ledger) inFlightClaim(r Payment) Claim {
	const most = 5 * time.Second
	return Claim{
		Result: InFlight,
		Record: r,
		Wait:   min(max(r.LeaseUntil.Sub(l.now()), time.Second), most),
	}
}
