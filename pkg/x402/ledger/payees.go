package ledger

import (
	"cmp"
	"context"
	"errors"
	"math/big"
	"slices"
	"sync"
	"time"
)

// Sold lists the accounts to which buyers pay, or have paid, in one token. It covers all
// sellers that use this ledger. An account stays in the list as long as transfers to it have
// to be checked. So if a seller changes the payee, transfers to the former payee are still
// found.
type Sold struct {
	Row

	Payees []Payee `json:"payees"`
}

// Payee is an account that receives payments, or received them earlier.
type Payee struct {
	Address string `json:"address"` // in lower case
	// Until is the time of the last write of this entry, plus NotedFor. It is later than the
	// last payment to this account. Before Until, a payment of Cheapest or more needs no
	// write.
	Until time.Time `json:"until"`
	// Cheapest is the lowest amount of a payment to this account, in atomic units.
	Cheapest string `json:"cheapest"`
}

// Kind implements Record.
func (Sold) Kind() Kind { return KindSold }

// Status implements Record.
func (Sold) Status() string { return statusSold }

func (s Sold) withRow(row Row) Sold {
	s.Row = row
	return s
}

// maxPayees is how many payees a record can have. If one more is added, the payee who was paid
// longest ago is dropped.
const maxPayees = 1000

// SoldKey returns the key of the record that lists a token's payees. The network and the asset
// must be in lower case.
func SoldKey(network, asset string) string { return "payees|" + network + "|" + asset }

// Sold returns the payees of a token. The payee who was paid longest ago comes first.
func (l *Ledger) Sold(ctx context.Context, key string) ([]Payee, error) {
	r, err := fetch[Sold](ctx, l, key)
	if err != nil || r == nil {
		return nil, err
	}
	slices.SortFunc(r.Payees, func(p, q Payee) int { return cmp.Or(p.Until.Compare(q.Until), cmp.Compare(p.Address, q.Address)) })
	return r.Payees, nil
}

// Forget removes a payee from the record. If the payee's entry has changed since p was read,
// Forget leaves it. ErrConflict means that somebody else has written the record meanwhile.
func (l *Ledger) Forget(ctx context.Context, key string, p Payee) error {
	_, err := l.changeSold(ctx, key, func(all []Payee) []Payee {
		return slices.DeleteFunc(all, func(q Payee) bool { return q == p })
	})
	return err
}

// changeSold applies the function change to the recorded payees, writes the result, and
// returns it. If nothing has changed, it writes nothing.
func (l *Ledger) changeSold(ctx context.Context, key string, change func([]Payee) []Payee) ([]Payee, error) {
	old, err := fetch[Sold](ctx, l, key)
	if err != nil {
		return nil, err
	}
	if old == nil {
		made := Sold{Row: Row{Key: key}, Payees: change(nil)}
		_, _, err := create(ctx, l, made)
		return made.Payees, err
	}
	next := *old
	next.Payees = change(slices.Clone(old.Payees))
	if slices.Equal(next.Payees, old.Payees) {
		return next.Payees, nil
	}
	next.Version++
	next.WriteID = l.newID()
	next.UpdatedAt = l.now()
	_, err = put(ctx, l, next)
	return next.Payees, err
}

// NotedFor is how long an entry of a payee saves writes. During this time, a payment to the
// payee needs no write if the entry covers it (see covers).
const NotedFor = time.Hour

// Payees records to whom payments are made. It is safe for concurrent use.
type Payees struct {
	ledger *Ledger

	mu      sync.Mutex
	entries map[string]Payee // the payees that this process has read or written, by record key and address
}

// NewPayees returns a Payees that has not recorded any payee yet.
func NewPayees(l *Ledger) *Payees { return &Payees{ledger: l, entries: map[string]Payee{}} }

// Record makes sure that the token's record of payees has an entry that covers a payment made
// now. The amount is in atomic units. The network, the asset and the payee must be in lower
// case.
func (p *Payees) Record(ctx context.Context, network, asset, payee, amount string) error {
	key := SoldKey(network, asset)
	now := p.ledger.now()
	p.mu.Lock()
	had := p.entries[key+"|"+payee]
	p.mu.Unlock()
	if had.covers(amount, now) {
		return nil
	}
	var all []Payee
	var err error
	const tries = 3 // each conflict means that somebody else has just recorded a payee or a price
	for range tries {
		all, err = p.ledger.changeSold(ctx, key, func(all []Payee) []Payee { return withPayee(all, payee, amount, now) })
		if !errors.Is(err, ErrConflict) {
			break
		}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, payee := range all {
		p.entries[key+"|"+payee.Address] = payee
	}
	return nil
}

// covers reports whether the entry p needs no change for a payment of an amount at the time
// now: p.Until is later than now, and p.Cheapest is at most the amount.
func (p Payee) covers(amount string, now time.Time) bool {
	return p.Until.After(now) && lowerOf(p.Cheapest, amount) == p.Cheapest
}

// withPayee returns a list of payees with an entry that covers a payment of an amount to an
// address at the time now. If the given list has such an entry, withPayee returns that list
// unchanged. Otherwise it changes the list, and drops the payee who was paid longest ago if
// the list is full.
func withPayee(all []Payee, address, amount string, now time.Time) []Payee {
	at := slices.IndexFunc(all, func(p Payee) bool { return p.Address == address })
	if at >= 0 && all[at].covers(amount, now) {
		return all
	}
	p := Payee{Address: address, Until: now.Add(NotedFor).UTC(), Cheapest: amount}
	if at >= 0 {
		p.Cheapest = lowerOf(all[at].Cheapest, amount)
		all = slices.Delete(all, at, at+1)
	}
	if len(all) >= maxPayees {
		slices.SortFunc(all, func(p, q Payee) int { return p.Until.Compare(q.Until) })
		all = all[len(all)-maxPayees+1:]
	}
	return append(all, p)
}

// lowerOf returns the lower of two amounts. Text that is not a number counts as higher than
// any number.
func lowerOf(a, b string) string {
	x, okA := new(big.Int).SetString(a, 10)
	y, okB := new(big.Int).SetString(b, 10)
	if okA && (!okB || x.Cmp(y) <= 0) {
		return a
	}
	return b
}
