package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ClockSlack is how far a process's clock may be ahead of the chain's. A transfer
// that is older than the first claim of its payment by more than that was made
// for something else.
const ClockSlack = 10 * time.Minute

// Witness is money that the chain shows to have reached a payee.
type Witness struct {
	Key     string
	Receipt Receipt
	At      time.Time       // by the chain's clock; zero of what a facilitator has just said
	Terms   json.RawMessage // of the transfer: asset, payee, amount
	// Of says whether the transfer is the one that a record is about.
	Of func(Record) bool
}

// Testimony is what a witness concludes.
type Testimony int

const (
	// Known: the record was known to be paid, or refunded.
	Known Testimony = iota + 1
	// Found: the record was not known to be paid, and its answer is owed now.
	Found
	// RefundDue: there was no record of it, or one whose payer had been told for
	// good that nothing moves, because the transfer was older than the request.
	// The record says now that the amount must go back.
	RefundDue
)

// Testify records money that was seen on the chain, also where a facilitator or
// evidence said that none would move. Money of which there is no record gets
// one, paid, without a request and without a lookup: a refund is due. It may be
// called again for the same transfer.
func (l *Ledger) Testify(ctx context.Context, w Witness) (Testimony, error) {
	r, written, err := l.testify(ctx, w)
	switch {
	case err != nil:
		return 0, err
	case !written:
		return Known, nil
	case Spent(*r, l.now()):
		return RefundDue, nil
	}
	return Found, nil
}

// testify writes proof of payment over whatever other writers have made of a record,
// unless it is known to be paid already. Money of a payment whose purchase another one
// has paid for is due back. testify returns the record that stands, and whether this call
// wrote it.
func (l *Ledger) testify(ctx context.Context, w Witness) (r *Record, written bool, err error) {
	const tries = 3 // against other writers; each of them is a verdict, and those end
	for range tries {
		if r, err = l.store.Fetch(ctx, w.Key); err != nil {
			return nil, false, err
		}
		gone := r == nil || l.expired(*r)
		if !gone && w.Of != nil && !w.Of(*r) {
			// The same nonce in another authorization: both cannot have moved
			// money, and the record that is there did not.
			w.Key, w.Of = w.Key+"|"+w.Receipt.Transaction, nil
			continue
		}
		if !gone && r.Paid() {
			return r, false, nil
		}
		if gone {
			r, err = l.orphan(ctx, w, r)
		} else {
			r, err = l.prove(ctx, w, *r)
		}
		if !errors.Is(err, ErrConflict) {
			return r, true, err
		}
	}
	return nil, false, ErrConflict
}

// prove writes that a record is paid, over the version that was read. The lease of a live
// attempt is left to it.
func (l *Ledger) prove(ctx context.Context, w Witness, r Record) (*Record, error) {
	c := change{receipt: &w.Receipt, spent: !w.At.IsZero() && (r.Disproved || w.At.Before(r.CreatedAt.Add(-ClockSlack)))}
	if r.Owner != "" && !c.spent {
		var err error
		if c.spent, err = l.answered(ctx, r); err != nil {
			return nil, err
		}
	}
	if !leasePast(r, l.now()) {
		c.lease = r.LeaseUntil
	}
	next, err := l.apply(ctx, r, EventSettled, c)
	return &next, err
}

// orphan makes a record for money that there was none for. old is one that has
// expired, or nil.
func (l *Ledger) orphan(ctx context.Context, w Witness, old *Record) (*Record, error) {
	r := l.fresh(Record{
		Key: w.Key, State: Settled, Terms: w.Terms, Receipt: &w.Receipt, Transaction: w.Receipt.Transaction, Lookups: MaxLookups,
	})
	r.LookupAt, r.SettledAt = r.CreatedAt, r.CreatedAt
	if old != nil {
		r.Version = old.Version + 1
	}
	_, err := l.put(ctx, r)
	return &r, err
}

// SendBack writes who is about to send the amount of a refund back, before anybody is
// told what to send. It returns the record as it stands, and whether somebody else, or
// the same operator before, has begun: then nothing is written. ErrIllegal means that
// no refund is due.
func (l *Ledger) SendBack(ctx context.Context, r Record, operator string) (stands *Record, begun bool, err error) {
	if r.SendingBack != nil {
		return &r, true, nil
	}
	next, err := l.apply(ctx, r, EventSendBack, change{operator: operator})
	return &next, false, err
}

// Refund closes a record whose refund is due, on the transaction that sent the
// amount back. ErrIllegal means that none is due.
func (l *Ledger) Refund(ctx context.Context, key, transaction string) (*Record, error) {
	return l.closeDebt(ctx, key, EventRefund, change{transaction: transaction})
}

// Attest closes a record whose refund is due as one that was answered, which a
// restored ledger has forgotten. reason says who has shown that. No answer is kept:
// the payer is told that the authorization was used. ErrIllegal means that no refund
// is due.
func (l *Ledger) Attest(ctx context.Context, key, reason string) (*Record, error) {
	return l.closeDebt(ctx, key, EventAttest, change{reason: reason})
}

// closeDebt applies an event that ends a debt.
func (l *Ledger) closeDebt(ctx context.Context, key string, event Event, c change) (*Record, error) {
	r, err := l.store.Fetch(ctx, key)
	if err == nil && r == nil {
		err = fmt.Errorf("%s: %w: there is no record %s", event, ErrIllegal, key)
	}
	if err != nil {
		return nil, err
	}
	next, err := l.apply(ctx, *r, event, c)
	return &next, err
}

// Attested says that a record was closed by Attest.
func (r Record) Attested() bool { return r.State == Redeemed && r.AnsweredAt.IsZero() }

// Vouches says whether a payment that names a record's authorization comes from
// its payer: it brings the retry token of the first claim, which no settlement
// publishes as it does the authorization and its signature. A first claim that came
// without a token may be repeated until it is known that its money moved, by anybody
// who has the payer's key or the very signature.
func (r Record) Vouches(p Payment) bool {
	if r.Token != "" {
		return p.Token == r.Token
	}
	return (p.Recovered || r.SigDigest == p.SigDigest) && !r.Paid()
}

// Paid says that money is known to have moved for a record.
func (r Record) Paid() bool { return r.State == Settled || r.State == Redeemed || r.State == Refunded }
