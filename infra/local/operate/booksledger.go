package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// readLedger reads every record once, and compares those that say that money moved.
func (a *audit) readLedger(ctx context.Context) error {
	said := time.Now()
	for after := ""; ; {
		p, err := a.rows.Page(ctx, after, rowsAtOnce)
		if err != nil {
			return err
		}
		a.Records += len(p.Records) + len(p.Corrupt)
		a.Unreadable += len(p.Corrupt)
		for _, r := range p.Records {
			if err := a.record(ctx, r); err != nil {
				return err
			}
		}
		if p.Next == "" {
			return nil
		}
		after = p.Next
		if time.Since(said) >= time.Second {
			said = time.Now()
			fmt.Fprintf(a.notes, "%d records read ...\n", a.Records)
		}
	}
}

// recorded is what a record says of its payment.
type recorded struct {
	spend
	amount *big.Int
	payee  string
	// transaction is the part of the key that says which transfer it is about,
	// where another record has its nonce.
	transaction string
}

// recordedOf reads a record under the terms of these books; ok is false for every
// other.
func (a *audit) recordedOf(r ledger.Record) (p recorded, ok bool) {
	key, transaction, _ := splitKey(r.Key)
	if !strings.HasPrefix(key, a.prefix) {
		return p, false
	}
	parts := strings.Split(key, "|")
	if len(parts) != 4 {
		return p, false
	}
	from, err := x402.ParseAddress(parts[2])
	nonce, bad := hex.DecodeString(strings.TrimPrefix(parts[3], "0x"))
	if err != nil || bad != nil || len(nonce) != len(p.nonce) {
		return p, false
	}
	var terms x402.Requirements
	if json.Unmarshal(r.Terms, &terms) != nil {
		return p, false
	}
	p = recorded{spend: spend{from, [32]byte(nonce)}, payee: terms.PayTo, transaction: transaction}
	p.amount, ok = atomic(terms.Amount)
	return p, ok
}

// of says whether a transfer is the one of a record.
func (a *audit) of(p recorded, m *movement) bool {
	return p.amount.Cmp(m.value) == 0 && strings.EqualFold(p.payee, a.payee.String())
}

// record compares one record.
func (a *audit) record(ctx context.Context, r ledger.Record) error {
	if !r.Paid() && !r.Open() {
		return nil
	}
	p, ok := a.recordedOf(r)
	switch {
	case r.Open():
		if ok && a.within(r.CreatedAt) && a.standingOf(ctx, r) == inDoubt {
			a.InDoubt.add(p.amount)
		}
		return nil
	case !ok:
		if a.within(r.SettledAt) {
			a.Foreign++
		}
		return nil
	}
	if r.State == ledger.Refunded && a.within(r.UpdatedAt) {
		if err := a.refunded(ctx, r, p); err != nil {
			return err
		}
	}
	if !a.Compared {
		if a.within(r.SettledAt) {
			a.Received.add(p.amount)
			a.count(a.standingOf(ctx, r), p.amount, r.Request)
		}
		return nil
	}
	m := a.moved[p.spend]
	switch {
	case m == nil || p.transaction != "" && p.transaction != m.transaction():
		return a.unmoved(ctx, r, p)
	case a.of(p, m):
		a.match(ctx, m, r)
	case len(a.mismatched) < maxDifferences:
		a.mismatched = append(a.mismatched, r)
	default:
		a.Unchecked++
	}
	return nil
}

// match counts a transfer with its record.
func (a *audit) match(ctx context.Context, m *movement, r ledger.Record) {
	if m.matched {
		return // read twice, while it was written
	}
	m.matched = true
	if a.within(m.at) {
		a.count(a.standingOf(ctx, r), m.value, r.Request)
	}
}

// unmoved deals with a record that says paid, and whose transfer is not among those
// that were read: it moved at another time, or never.
func (a *audit) unmoved(ctx context.Context, r ledger.Record, p recorded) error {
	switch {
	case !a.within(r.SettledAt):
		return nil // it is in the books of another day
	case !strings.EqualFold(p.payee, a.payee.String()):
		a.Foreign++
		return nil
	case a.asked >= maxQuestions:
		a.Unchecked++
		return nil
	}
	a.asked++
	f, err := a.ask(ctx, r)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	switch f.Verdict {
	case x402.Paid:
		a.Elsewhere++
	case x402.NeverPaid, x402.StillOpen:
		a.claimed(ctx, r, p, f.Reason)
	case x402.CannotTell:
		if a.Unchecked++; a.Unchecked == 1 {
			fmt.Fprintf(a.notes, "%s: %v\n", r.Key, f.Cause)
		}
	}
	return nil
}

// claimed is the difference of a record that says paid although no money came.
func (a *audit) claimed(ctx context.Context, r ledger.Record, p recorded, note string) {
	d := a.differenceOf(ctx, noTransfer, r, p.amount)
	if r.State == ledger.Redeemed {
		d.Kind = gift
	}
	d.Note = note
	a.differ(d)
}

func (a *audit) differenceOf(ctx context.Context, k kind, r ledger.Record, amount *big.Int) difference {
	p := a.paymentOf(ctx, r)
	d := difference{Kind: k, Key: r.Key, Payer: p.Payer, Standing: p.Standing, Transaction: p.Transaction, Request: r.Request, At: p.Since}
	if amount != nil {
		d.Recorded = amount.String()
	}
	return d
}

// refunded counts a refund, and asks the chain for its transaction.
func (a *audit) refunded(ctx context.Context, r ledger.Record, p recorded) error {
	a.RefundsOut.add(p.amount)
	if !a.Compared {
		return nil
	}
	if a.asked++; a.asked > maxQuestions {
		a.Unchecked++
		return nil
	}
	list, err := a.parts.Chain.Received(ctx, r.Refund, p.from)
	sent := slices.ContainsFunc(list, func(t x402.Transfer) bool { return t.From != p.from && t.Value.Cmp(p.amount) == 0 })
	switch {
	case sent:
		return nil
	case err == nil || errors.Is(err, chain.ErrUnknownTransaction) || errors.Is(err, chain.ErrFailedTransaction):
		d := a.differenceOf(ctx, noRefund, r, p.amount)
		d.Transaction, d.At = r.Refund, r.UpdatedAt
		a.differ(d)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if a.Unchecked++; a.Unchecked == 1 {
		fmt.Fprintf(a.notes, "%s: %v\n", r.Key, err)
	}
	return nil
}

// settle looks up what is left when all was read: records whose transfer says
// something else, and transfers without a record.
func (a *audit) settle(ctx context.Context) error {
	for _, r := range a.mismatched {
		p, _ := a.recordedOf(r)
		m := a.moved[p.spend]
		switch {
		case m.matched: // by a record of its own, so that this one has no transfer
			if a.within(r.SettledAt) {
				a.claimed(ctx, r, p, "its nonce was used for another transfer")
			}
		case a.within(m.at):
			d := a.differenceOf(ctx, otherAmount, r, p.amount)
			d.Received, d.Transaction, d.At = m.value.String(), m.transaction(), m.at
			if p.amount.Cmp(m.value) == 0 {
				d.Note = "the record names another payee: " + p.payee
			}
			m.matched = true
			a.Differing.add(m.value)
			a.differ(d)
		}
	}
	var left []spend
	for s, m := range a.moved {
		if !m.matched && a.within(m.at) {
			left = append(left, s)
		}
	}
	slices.SortFunc(left, func(x, y spend) int {
		return cmp.Or(a.moved[x].at.Compare(a.moved[y].at), bytes.Compare(x.nonce[:], y.nonce[:]))
	})
	for _, s := range left {
		if err := a.unrecorded(ctx, s, a.moved[s]); err != nil {
			return err
		}
	}
	return nil
}

// unrecorded looks for the record of a transfer once more, because what was read
// may be older than the record.
func (a *audit) unrecorded(ctx context.Context, s spend, m *movement) error {
	key := ledger.Key(strings.ToLower(a.Network), a.asset, s.from.String(), "0x"+hex.EncodeToString(s.nonce[:]))
	d := difference{
		Kind: noRecord, Key: key, Payer: s.from.Checksum(), Received: m.value.String(), Transaction: m.transaction(), At: m.at,
	}
	known := false // it is that of a payment on record
	for _, k := range []string{key, key + "|" + m.transaction()} {
		r, err := a.parts.Ledger.Fetch(ctx, k)
		switch {
		case errors.Is(err, ledger.ErrCorrupt):
			d.Kind, d.Key, d.Note, known = unreadable, k, err.Error(), true
			continue
		case err != nil:
			return err
		case r == nil:
			continue
		}
		p, ok := a.recordedOf(*r)
		its := ok && a.of(p, m)
		known = known || its
		if its && r.Paid() {
			a.match(ctx, m, *r)
			return nil
		}
		q := a.paymentOf(ctx, *r)
		d.Kind, d.Standing, d.Request, d.Note, d.Recorded = unpaidRecord, q.Standing, r.Request, r.Reason, q.Amount
	}
	if !known && m.value.Cmp(catalog.Cheapest()) < 0 { // as for reconcile, which makes no debt of it
		a.Received.remove(m.value)
		a.Deposits.add(m.value)
		return nil
	}
	a.Differing.add(m.value)
	a.differ(d)
	return nil
}
