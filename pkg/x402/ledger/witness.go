package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// testify writes proof of payment over whatever other writers have made of a
// record, unless it is known to be paid already. The lease of a live attempt is
// left to it. Money of a payment whose purchase another one has paid for is due
// back. what says what to write over a record. It returns the record that
// stands, nil when there is none, and whether this call wrote it.
func (l *Ledger) testify(ctx context.Context, key string, what func(Record) change) (*Record, bool, error) {
	const tries = 3 // against other writers; each of them is a verdict, and those end
	for range tries {
		r, err := l.store.Fetch(ctx, key)
		if err != nil || r == nil {
			return nil, false, err
		}
		if r.Paid() {
			return r, false, nil
		}
		c := what(*r)
		if r.Owner != "" && !c.spent {
			if c.spent, err = l.answered(ctx, *r); err != nil {
				return nil, false, err
			}
		}
		if !leasePast(*r, l.now()) {
			c.lease = r.LeaseUntil
		}
		switch next, err := l.apply(ctx, *r, EventSettled, c); {
		case err == nil:
			return &next, true, nil
		case !errors.Is(err, ErrConflict):
			return nil, false, err
		}
	}
	return nil, false, ErrConflict
}

// ClockSlack is how far a process's clock may be ahead of the chain's. A transfer
// that is older than the first claim of its payment by more than that was made
// for something else.
const ClockSlack = 10 * time.Minute

// Witness is money that the chain shows to have reached a payee.
type Witness struct {
	Key     string
	Receipt Receipt
	At      time.Time       // by the chain's clock
	Terms   json.RawMessage // of the transfer: asset, payee, amount
	// Of says whether the transfer is the one that a record is about.
	Of func(Record) bool
}

// Testimony is what a witness came to.
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
	r, err := l.store.Fetch(ctx, w.Key)
	if err != nil {
		return 0, fmt.Errorf("record a transfer: %w", err)
	}
	if r != nil && !l.expired(*r) && !w.Of(*r) {
		// The same nonce in another authorization: both cannot have moved
		// money, and the record that is there did not.
		w.Key += "|" + w.Receipt.Transaction
		r = nil
	}
	if r == nil || l.expired(*r) {
		return l.orphan(ctx, w, r)
	}
	stands, written, err := l.testify(ctx, w.Key, func(old Record) change {
		return change{receipt: &w.Receipt, spent: old.Disproved || w.At.Before(old.CreatedAt.Add(-ClockSlack))}
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("record a transfer: %w", err)
	case stands == nil:
		return 0, fmt.Errorf("record a transfer: %w", ErrConflict) // deleted meanwhile
	case !written:
		return Known, nil
	case Spent(*stands, l.now()):
		return RefundDue, nil
	}
	return Found, nil
}

// orphan makes a record for money that there was none for. old is one that has
// expired, or nil.
func (l *Ledger) orphan(ctx context.Context, w Witness, old *Record) (Testimony, error) {
	r := l.fresh(Record{
		Key: w.Key, State: Settled, Terms: w.Terms, Receipt: &w.Receipt, Transaction: w.Receipt.Transaction, Lookups: MaxLookups,
	})
	r.LookupAt, r.SettledAt = r.CreatedAt, r.CreatedAt
	if old != nil {
		r.Version = old.Version + 1
		if err := l.store.Replace(ctx, r); err != nil {
			return 0, fmt.Errorf("record a transfer: %w", err)
		}
		return RefundDue, nil
	}
	there, err := l.store.Create(ctx, r)
	switch {
	case err != nil:
		return 0, fmt.Errorf("record a transfer: %w", err)
	case there == nil:
		return RefundDue, nil
	case there.Receipt != nil && there.Receipt.Transaction == w.Receipt.Transaction:
		return Known, nil
	}
	return 0, fmt.Errorf("record a transfer: %w", ErrConflict) // claimed meanwhile
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
	if err != nil {
		return nil, false, fmt.Errorf("begin a refund: %w", err)
	}
	return &next, false, nil
}

// Refund closes a record whose refund is due, on the transaction that sent the
// amount back. ErrIllegal means that none is due.
func (l *Ledger) Refund(ctx context.Context, key, transaction string) (*Record, error) {
	return l.closeDebt(ctx, key, EventRefund, change{transaction: transaction}, func(r Record) bool {
		return r.State == Refunded && r.Refund == transaction
	})
}

// Attest closes a record whose refund is due as one that was answered, which a
// restored ledger has forgotten. reason says who has shown that. No answer is kept:
// the payer is told that the authorization was used. ErrIllegal means that no refund
// is due.
func (l *Ledger) Attest(ctx context.Context, key, reason string) (*Record, error) {
	return l.closeDebt(ctx, key, EventAttest, change{reason: reason}, Record.Attested)
}

// Attested says that a record was closed by Attest.
func (r Record) Attested() bool { return r.State == Redeemed && r.AnsweredAt.IsZero() }

// closeDebt applies an event that ends a debt, unless it was applied before.
func (l *Ledger) closeDebt(ctx context.Context, key string, event Event, c change, closed func(Record) bool) (*Record, error) {
	r, err := l.store.Fetch(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", event, err)
	case r == nil:
		return nil, fmt.Errorf("%s: %w: there is no record %s", event, ErrIllegal, key)
	case closed(*r):
		return r, nil
	}
	next, err := l.apply(ctx, *r, event, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", event, err)
	}
	return &next, nil
}

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
func (r Record) Paid() bool {
	return r.State == Settled || r.State == Redeemed || r.State == Refunded
}
