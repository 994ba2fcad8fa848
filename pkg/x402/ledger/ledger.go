package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Ledger holds the rules, the clock and the lease. It is safe for concurrent
// use and for use by many processes over one store.
type Ledger struct {
	store Store
	now   func() time.Time
	newID func() string
	rules Rules
}

// New returns a Ledger over a store. newID returns a random write id, a different
// one on every call.
func New(store Store, now func() time.Time, newID func() string) *Ledger {
	return &Ledger{store: store, now: now, newID: newID, rules: NewRules()}
}

// Rules are the two tables that a Ledger goes by.
type Rules struct {
	Edges    []Edge
	Meanings []Meaning // by Standing
}

// NewRules returns the rules of every Ledger. Tests change one row of them, to see that it
// matters.
func NewRules() Rules {
	r := Rules{Edges: edges(), Meanings: make([]Meaning, standings)}
	for s := range standings {
		r.Meanings[s] = s.Meaning()
	}
	return r
}

// Under returns a Ledger over the same store that goes by other rules.
func (l *Ledger) Under(r Rules) *Ledger {
	other := *l
	other.rules = r
	return &other
}

// Submission is a signed authorization that was found to be valid, and the
// request that it came with.
type Submission struct {
	// These are as in the Record that a first claim makes of them.
	Key, AuthDigest, SigDigest, Request, Endpoint, Purchase, Token string

	Terms, Payload json.RawMessage
	ValidBefore    time.Time
	// Asks is the facilitator that the attempt asks first; empty where there is
	// only one.
	Asks string
	// MostLookups is how many lookups the seller allows for the payment; 0 is any number.
	MostLookups int
	// NoNode says that there is no node that could prove what a facilitator says.
	NoNode bool
	// Recovered says that the payer's own key made the signature. Everything
	// that a settlement publishes is recovered as well.
	Recovered bool
}

// Key names a payment. The nonce alone is not unique, and neither is the
// signature: a contract wallet has many for one authorization. All parts must
// be in lower case.
func Key(network, asset, payer, nonce string) string {
	return network + "|" + asset + "|" + payer + "|" + nonce
}

// PayerPrefix returns the prefix of the keys of a payer's payments. All parts must
// be in lower case.
func PayerPrefix(network, asset, payer string) string { return Key(network, asset, payer, "") }

// Proof is what a payment shows that names a record's authorization.
type Proof int

const (
	// Copied: anybody could have read it from the chain.
	Copied Proof = iota
	// SettlesOnly: it has the payer's signature, which a settlement publishes. It may be
	// repeated to settle the doubt about the record, and opens nothing.
	SettlesOnly
	// FromPayer: only the payer can have sent it.
	FromPayer
)

// Proof says what a payment shows that names a record's authorization. Its payer brings the
// retry token of the first claim, which no settlement publishes. A first claim without a token
// can be repeated by anybody who has the payer's key or the same signature: it opens
// everything until it may have been sent, and nothing from then on. A payment that names no
// purchase cannot be had with another signature, so that it opens everything until it is known
// that its money moved.
func (r Payment) Proof(p Submission) Proof {
	signed := p.Recovered || r.SigDigest == p.SigDigest
	switch {
	case r.Token != "" && p.Token == r.Token:
		return FromPayer
	case r.Token != "" || !signed || r.Paid():
		return Copied
	case r.Purchase == "" || !r.public():
		return FromPayer
	}
	return SettlesOnly
}

// public says that the signature may be on the chain, or with those who watch it.
func (r Payment) public() bool { return r.Sent || r.Doubt || r.State == Settling }

// ClaimResult is how a claim ended.
type ClaimResult int

const (
	// Held: the caller holds the lease and goes on. The record is settling
	// (settle first) or settled (look up at once).
	Held      ClaimResult = iota + 1
	InFlight              // another attempt holds the lease
	Answered              // the answer is stored; replay it
	Waiting               // the answer is owed, and it is too early for the next lookup
	Exhausted             // the seller allows no more lookups; what the last one said stands
	// SilenceAnswers: the silence of the target, which is to be stored, is the answer.
	SilenceAnswers
	GoesBack // the amount has to go back, or a refund was begun; nothing is looked up

	OtherRequest       // the authorization was used for another request, or at another endpoint
	OtherPurchase      // it was claimed with another key first, or without one
	OtherAuthorization // the payer signed something else with this nonce, or its money came unasked
	// Over: evidence proved that the authorization moves nothing for this
	// record, or the facilitator has just refused it, or the amount was sent
	// back. It is answered from the record.
	Over
	Replaced // another payment answers the purchase that this one was for
	Unproven // nothing shows that the sender of the repeated authorization is its payer
)

// Claim is the outcome of Ledger.Claim.
type Claim struct {
	Result ClaimResult
	Record Payment
	Hold   *Hold // when Held
	// SettlesOnly says that the payment may be sent to settle the doubt about it, and that
	// nothing is answered: see Proof.
	SettlesOnly bool
	// Wait is when to come back: after InFlight and Waiting, and after Over where
	// a facilitator has refused the payment a moment ago.
	Wait time.Duration
}

// Fetch reads the record of a payment. It returns nil for one that is missing or expired.
func (l *Ledger) Fetch(ctx context.Context, key string) (*Payment, error) {
	return fetch[Payment](ctx, l, key)
}

// fetch reads a record of one kind. One of another kind is ErrCorrupt.
func fetch[T Record](ctx context.Context, l *Ledger, key string) (*T, error) {
	stands, err := l.store.Fetch(ctx, key)
	if err != nil || stands == nil || l.expired(stands.Head()) {
		return nil, err
	}
	return of[T](stands)
}

// of returns a record as one of a kind.
func of[T Record](r Record) (*T, error) {
	t, ok := r.(T)
	if !ok {
		return nil, fmt.Errorf("%w: a %s is stored where a %s belongs", ErrCorrupt, r.Kind(), t.Kind())
	}
	return &t, nil
}

// expired compares the time itself, because stores delete late.
func (l *Ledger) expired(r Row) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(l.now())
}

// Sleeping says that a record is in doubt, or was abandoned, and that nobody
// holds it.
func (l *Ledger) Sleeping(r Payment) bool { return r.InDoubt() && leasePast(r, l.now()) }

// Unclaimed says that a record is paid, not answered, and nobody is looking up.
func (l *Ledger) Unclaimed(r Payment) bool { return r.Owed() && leasePast(r, l.now()) }

// Claim takes the lease of a payment until a point in time, or says why not.
// An error is a store that failed; nothing may be sent then.
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
	ask(&first, Change{asks: p.Asks})
	first, old, err := create(ctx, l, first)
	switch {
	case old == nil:
		return l.claimed(first, err, time.Time{})
	case old.AuthDigest != p.AuthDigest:
		return Claim{Result: OtherAuthorization, Record: *old}, nil
	}
	proof := old.Proof(p)
	switch {
	case proof == Copied:
		return Claim{Result: Unproven, Record: *old}, nil
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

// writable is a record that the ledger can give another row.
type writable[T any] interface {
	Record
	withRow(r Row) T
}

// create writes a record that is new under its key, also in the place of one that has
// expired. It returns the record as it is written and, with ErrConflict, the one that is in
// its way.
func create[T writable[T]](ctx context.Context, l *Ledger, r T) (made T, other *T, err error) {
	row := l.newRow(r.Head().Key)
	row.ExpiresAt = expiry(r, row.UpdatedAt)
	made = r.withRow(row)
	other, err = put(ctx, l, made)
	if other == nil || !l.expired((*other).Head()) {
		return made, other, err
	}
	row.Version = (*other).Head().Version + 1
	row.WriteID = l.newID()
	made = r.withRow(row)
	other, err = put(ctx, l, made)
	return made, other, err
}

// newRow is the row of a record that is new under its key.
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

// Apply writes what an event makes of a record over the version that was read, and
// returns it, also after an error of the store, when it may have been written.
// ErrConflict says that somebody else has written the record since, and ErrIllegal that
// the event cannot happen.
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

// put writes a record. ErrConflict says that it was not written, because the record that
// put returns is in its way; nil where that is gone.
func put[T Record](ctx context.Context, l *Ledger, r T) (other *T, err error) {
	stands, err := l.store.Put(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case stands == nil:
		return nil, ErrConflict
	case stands.Head().WriteID == r.Head().WriteID:
		return nil, nil
	}
	if other, err = of[T](stands); err != nil {
		return nil, err
	}
	return other, ErrConflict
}

// claimed is the outcome of a claim that wrote next. lookupAt is of the lookup before.
func (l *Ledger) claimed(next Payment, err error, lookupAt time.Time) (Claim, error) {
	switch {
	case errors.Is(err, ErrConflict):
		return l.inFlight(next), nil
	case err != nil:
		return Claim{}, err
	}
	return Claim{
		Result: Held,
		Record: next,
		Hold:   &Hold{ledger: l, record: next, lookupAt: lookupAt},
	}, nil
}

// Resume takes the lease of a payment that is on record, or says why not, like Claim. It is
// for a request of the same payer with another payment for the same purchase, which proves
// its right to this one. asks is as in Payment.
func (l *Ledger) Resume(ctx context.Context, old Payment, asks string, lease time.Time) (Claim, error) {
	now := l.now()
	c := Claim{Record: old, Result: l.rules.Meanings[Stand(&old, View{Now: now})].Claim}
	switch c.Result {
	case Held:
		next, err := l.Apply(ctx, old, EventClaim, Change{lease: lease, asks: asks})
		return l.claimed(next, err, old.LookupAt)
	case InFlight:
		return l.inFlight(old), nil
	case Over:
		c.Wait = tooSoon(old, now)
	case Waiting:
		c.Wait = lookupIn(old, now)
	default: // nothing to wait for
	}
	return c, nil
}

// inFlight tells a client to come back when the other attempt must be over,
// but soon at first: most attempts end long before their lease.
func (l *Ledger) inFlight(r Payment) Claim {
	const most = 5 * time.Second
	return Claim{
		Result: InFlight,
		Record: r,
		Wait:   min(max(r.LeaseUntil.Sub(l.now()), time.Second), most),
	}
}
