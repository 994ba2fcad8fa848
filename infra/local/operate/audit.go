package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// audit compares the ledger with the chain for one day, and makes the books of that day. It
// first reads all transfers of the day, then all records, and matches each record with its
// transfer in memory. It looks up unmatched records and transfers one by one.
type audit struct {
	ledgerSession
	*books
	asset, payee x402.Address
	movements    map[string]*movement // the transfers that were read, by keyOf
	mismatched   []recordedPayment    // records that contradict their transfer
	queries      int
}

// movement is a transfer made by an authorization.
type movement struct {
	reconcile.Transfer
	matched bool // a record of the transfer was found
}

func (l ledgerSession) booksOf(ctx context.Context, day time.Time) (*books, error) {
	if l.Chain == nil {
		return nil, errors.New("RPC_URL names no node: the books need one, because they compare the ledger with the chain")
	}
	t := l.Terms
	payee, _ := x402.ParseAddress(t.PayTo) // the configuration contains only valid addresses
	asset, _ := x402.ParseAddress(t.Asset)
	a := &audit{
		ledgerSession: l,
		payee:         payee,
		asset:         asset,
		movements:     map[string]*movement{},
		books: &books{
			Day:         day.Format(time.DateOnly),
			From:        day,
			Until:       day.AddDate(0, 0, 1),
			Network:     t.Network,
			Asset:       asset.Checksum(),
			Payee:       payee.Checksum(),
			Ledger:      l.name,
			Operations:  map[string]*sum{},
			Differences: []difference{},
		},
	}
	for _, step := range []func(context.Context) error{a.readChain, a.readLedger, a.resolveUnmatched} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return a.books, nil
}

// readChain reads the transfers to the payee on the day and some minutes before and after it.
// The extra minutes allow for clocks that differ.
func (a *audit) readChain(ctx context.Context) error {
	from, errFrom := a.Chain.BlockAt(ctx, a.From.Add(-ledger.ClockSlack))
	end, errEnd := a.Chain.BlockAt(ctx, a.Until.Add(ledger.ClockSlack))
	if err := errors.Join(errFrom, errEnd); err != nil {
		return err
	}
	said := newProgressPrinter(a.notes)
	for next := from; ; {
		batch, err := a.transfers(ctx, next)
		if err != nil {
			return err
		}
		// The block times are whole seconds, so one second is added to include the safe block.
		if end := batch.SafeTime.Add(time.Second); end.Before(a.Until) {
			a.Until = end
		}
		for _, t := range batch.Transfers {
			switch {
			case t.Block >= end:
			case t.Authorized && t.Value.Sign() > 0:
				a.movements[a.keyOf(t)] = &movement{Transfer: t}
			case a.covers(t.Time):
				a.Deposits.add(t.Value)
			}
		}
		switch {
		case batch.Next >= end || batch.Done():
			if !a.Until.After(a.From) {
				return fmt.Errorf("the chain has no safe block of this day yet; the newest is of %s", formatMinute(a.Until))
			}
			return nil
		case len(a.movements) > maxTransfers:
			return fmt.Errorf("this day has more than %d transfers, the most this command can hold", maxTransfers)
		}
		next = batch.Next
		said("block %d of %d to %d read, %d transfers", next, from, end, len(a.movements))
	}
}

// transfers reads a batch of transfers. If the node fails, transfers tries again.
func (a *audit) transfers(ctx context.Context, from uint64) (reconcile.Batch, error) {
	for try := 1; ; try++ {
		b, err := a.Chain.Transfers(ctx, a.payee, from)
		if err == nil || try == maxTries {
			return b, err
		}
		fmt.Fprintf(a.notes, "%v: asking again\n", err)
		select {
		case <-ctx.Done():
			return b, ctx.Err()
		case <-time.After(time.Duration(try) * time.Second):
		}
	}
}

// readLedger reads all records of the ledger, and compares each payment with the transfers
// that were read.
func (a *audit) readLedger(ctx context.Context) error {
	said := newProgressPrinter(a.notes)
	for after := ""; ; {
		p, err := a.rows.Page(ctx, "", after, rowsAtOnce)
		if err != nil {
			return err
		}
		a.Records += len(p.Records) + len(p.Corrupt)
		a.Unreadable += len(p.Corrupt)
		for _, r := range p.Records {
			p, ok := r.(ledger.Payment)
			if !ok {
				continue
			}
			if err := a.compareRecord(ctx, p); err != nil {
				return err
			}
		}
		if p.Next == "" {
			return nil
		}
		after = p.Next
		said("%d records read", a.Records)
	}
}

// keyOf returns the key of the authorization that made a transfer.
func (a *audit) keyOf(t reconcile.Transfer) string {
	return ledger.Key(strings.ToLower(a.Network), a.asset.String(), t.From.String(), fmt.Sprintf("0x%x", t.Nonce))
}

// recordedPayment is a ledger record with the details of its payment.
type recordedPayment struct {
	ledger.Payment
	debtKey
	amount *big.Int
	payee  string
}

// parseRecord parses a record. It reports false if it cannot parse the record, or if the record
// is for another network or token than these books.
func (a *audit) parseRecord(r ledger.Payment) (p recordedPayment, ok bool) {
	key, ok := parseKey(r.Key)
	var terms x402.Requirements
	if !ok || key.network != strings.ToLower(a.Network) || key.asset != a.asset || json.Unmarshal(r.Terms, &terms) != nil {
		return p, false
	}
	p = recordedPayment{Payment: r, debtKey: key, payee: terms.PayTo}
	p.amount, ok = parseAtomic(terms.Amount)
	return p, ok
}

// recordAgrees reports whether the record p has the amount and the payee of the transfer m.
func (a *audit) recordAgrees(p recordedPayment, m *movement) bool {
	return p.amount.Cmp(m.Value) == 0 && strings.EqualFold(p.payee, a.payee.String())
}

// compareRecord compares one record with the chain.
func (a *audit) compareRecord(ctx context.Context, r ledger.Payment) error {
	p, ok := a.parseRecord(r)
	switch {
	case r.InDoubt():
		if ok && a.covers(r.CreatedAt) && a.standingOf(ctx, r) == inDoubt {
			a.InDoubt.add(p.amount)
		}
		return nil
	case !r.Paid():
		return nil
	case !ok:
		if a.covers(r.SettledAt) {
			a.Foreign++
		}
		return nil
	}
	if r.State == ledger.Refunded && a.covers(r.UpdatedAt) {
		a.checkRefund(ctx, p)
	}
	m := a.movements[p.authorization]
	switch {
	case m == nil || p.paymentTx != "" && p.paymentTx != m.Transaction:
		a.checkWithoutTransfer(ctx, p)
	case a.recordAgrees(p, m):
		a.markMatched(ctx, m, r)
	case len(a.mismatched) < maxDifferences:
		a.mismatched = append(a.mismatched, p)
	default:
		a.Unchecked++
	}
	return ctx.Err()
}

// markMatched marks a transfer as matched. A transfer of this day is counted, but only once.
func (a *audit) markMatched(ctx context.Context, m *movement, r ledger.Payment) {
	if !m.matched && a.covers(m.Time) { // a record that changes during the reading may be read twice
		a.Received.add(m.Value)
		a.addOutcome(a.standingOf(ctx, r), m.Value, r.Request)
	}
	m.matched = true
}

// startQuery counts a query of the chain. It returns false above maxQuestions queries.
func (a *audit) startQuery() bool {
	a.queries++
	if a.queries > maxQuestions {
		a.Unchecked++
	}
	return a.queries <= maxQuestions
}

// countUnanswered counts a record if the chain gave no answer, and prints the first error.
func (a *audit) countUnanswered(p recordedPayment, why error) {
	if a.Unchecked++; a.Unchecked == 1 {
		fmt.Fprintf(a.notes, "%s: %v\n", p.key, why)
	}
}

// checkWithoutTransfer handles a record of a paid payment whose transfer is not among the
// transfers that were read: the transfer happened at another time, or never.
func (a *audit) checkWithoutTransfer(ctx context.Context, p recordedPayment) {
	switch {
	case !a.covers(p.SettledAt): // the payment belongs in the books of another day
		return
	case !strings.EqualFold(p.payee, a.payee.String()):
		a.Foreign++
		return
	case !a.startQuery():
		return
	}
	asked := p.Payment
	asked.Key = p.authorization
	if p.AuthDigest == "" { // the money came without a request: the record was made only after the transfer
		asked.ValidBefore = p.CreatedAt
		asked.CreatedAt = p.CreatedAt.Add(-oldestDay)
	}
	if p.Receipt != nil {
		asked.Transaction = p.Receipt.Transaction
	}
	switch f := a.askChain(ctx, asked); f.Fate {
	case x402.Paid:
		a.Elsewhere++
	case x402.NeverPaid, x402.StillOpen:
		a.addUnpaidClaim(ctx, p, f.Reason)
	case x402.CannotTell:
		a.countUnanswered(p, f.Cause)
	}
}

// addUnpaidClaim adds a difference for a record that claims a payment for which no money came.
func (a *audit) addUnpaidClaim(ctx context.Context, p recordedPayment, note string) {
	d := a.differenceOf(ctx, noTransfer, p)
	if p.State == ledger.Redeemed {
		d.Kind = gift
	}
	d.Note = note
	a.addDifference(d)
}

func (a *audit) differenceOf(ctx context.Context, k kind, p recordedPayment) difference {
	q := a.paymentOf(ctx, p.Payment)
	return difference{
		Kind:        k,
		Key:         p.key,
		Payer:       q.Payer,
		Standing:    q.Standing,
		Recorded:    p.amount.String(),
		Transaction: q.Transaction,
		Request:     q.Request,
		At:          q.Since,
	}
}

// checkRefund counts a refund, and adds a difference if the refund is not on the chain.
func (a *audit) checkRefund(ctx context.Context, p recordedPayment) {
	a.RefundsOut.add(p.amount)
	if !a.startQuery() {
		return
	}
	list, err := a.Chain.Received(ctx, p.Refund, p.payer)
	switch {
	case slices.ContainsFunc(list, func(t reconcile.Transfer) bool { return t.From != p.payer && t.Value.Cmp(p.amount) == 0 }):
	case err == nil || errors.Is(err, chain.ErrUnknownTransaction) || errors.Is(err, chain.ErrFailedTransaction):
		d := a.differenceOf(ctx, noRefund, p)
		d.Transaction = p.Refund
		d.At = p.UpdatedAt
		a.addDifference(d)
	default:
		a.countUnanswered(p, err)
	}
}

// resolveUnmatched handles the records and transfers that are unmatched after everything was
// read: records that contradict their transfer, and transfers without a record.
func (a *audit) resolveUnmatched(ctx context.Context) error {
	for _, p := range a.mismatched {
		m := a.movements[p.authorization]
		switch {
		case m.matched: // the transfer belongs to another record, so p has no transfer
			if a.covers(p.SettledAt) {
				a.addUnpaidClaim(ctx, p, "its nonce was used for another transfer")
			}
		case a.covers(m.Time):
			d := a.differenceOf(ctx, otherAmount, p)
			if p.amount.Cmp(m.Value) == 0 {
				d.Note = "the record names another payee: " + p.payee
			}
			a.addMismatch(m, d)
		}
	}
	unmatched := slices.DeleteFunc(slices.Collect(maps.Values(a.movements)), func(m *movement) bool { return m.matched || !a.covers(m.Time) })
	slices.SortFunc(unmatched, func(x, y *movement) int { return cmp.Or(x.Time.Compare(y.Time), bytes.Compare(x.Nonce[:], y.Nonce[:])) })
	for _, m := range unmatched {
		if err := a.resolveUnrecorded(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// addMismatch adds a difference for a transfer that the ledger lacks or records differently.
func (a *audit) addMismatch(m *movement, d difference) {
	m.matched = true
	a.Received.add(m.Value)
	a.Differing.add(m.Value)
	d.Received = m.Value.String()
	d.Transaction = m.Transaction
	d.At = m.Time
	a.addDifference(d)
}

// resolveUnrecorded looks again for the record of a transfer, because the record may have been
// written meanwhile. If there is none, the transfer is a deposit or a difference.
func (a *audit) resolveUnrecorded(ctx context.Context, m *movement) error {
	key := a.keyOf(m.Transfer)
	d := difference{Kind: noRecord, Key: key, Payer: m.From.Checksum()}
	isRecorded := false // whether the transfer belongs to a payment on record
	for _, k := range []string{key, key + "|" + m.Transaction} {
		r, err := a.ledgerSession.Ledger.Fetch(ctx, k)
		switch {
		case errors.Is(err, ledger.ErrCorrupt):
			d.Kind = unreadable
			d.Key = k
			d.Note = err.Error()
			isRecorded = true
			continue
		case err != nil:
			return err
		case r == nil:
			continue
		}
		p, ok := a.parseRecord(*r)
		isItsRecord := ok && a.recordAgrees(p, m)
		isRecorded = isRecorded || isItsRecord
		if isItsRecord && r.Paid() {
			a.markMatched(ctx, m, *r)
			return nil
		}
		q := a.paymentOf(ctx, *r)
		d.Kind = unpaidRecord
		d.Standing = q.Standing
		d.Request = r.Request
		d.Note = r.Reason
		d.Recorded = q.Amount
	}
	if !isRecorded && m.Value.Cmp(a.Cheapest) < 0 { // the command reconcile also treats this transfer as a deposit, not as a debt
		a.Deposits.add(m.Value)
		return nil
	}
	a.addMismatch(m, d)
	return nil
}
