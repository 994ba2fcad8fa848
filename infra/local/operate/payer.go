package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// maxPayments limits how many records of a payer are read.
	maxPayments = 10_000
	// maxAsked limits how many of these records are looked up on the chain, and askTime limits
	// the time for each.
	maxAsked = 50
	askTime  = 10 * time.Second
)

// account has the payments of one payer and a summary of them, as -json prints it.
type account struct {
	Wallet   string    `json:"wallet"`
	Network  string    `json:"network"`
	Asset    string    `json:"asset"`
	Ledger   string    `json:"ledger"`
	Payments []payment `json:"payments"` // oldest first
	Missed   int       `json:"missed"`   // the number of records that could not be read
	Cut      bool      `json:"cut"`      // there are more payments than are listed
	Verdict  string    `json:"verdict"`
}

// listPayer prints the payments of a payer and a summary of them. The payer's address may be
// in any letter case.
func listPayer(ctx context.Context, o order) error {
	wallet, err := x402.ParseAddress(strings.ToLower(strings.TrimSpace(o.args[0])))
	if err != nil {
		return fmt.Errorf("WALLET %.60q is not an address: give 0x and 40 hexadecimal digits", o.args[0])
	}
	return o.withLedger(false, func(l ledgerSession) error {
		a, err := l.account(ctx, wallet)
		switch {
		case err != nil:
			return err
		case o.json:
			return printJSON(o.out, a)
		}
		printFacts(
			o.out,
			"payer", a.Wallet,
			"ledger", a.Ledger,
			"token", cellText(a.Asset)+" on "+cellText(a.Network),
			"chain", l.node,
		)
		fmt.Fprintln(o.out)
		printPayments(o.out, a.Payments)
		if len(a.Payments) > 0 {
			fmt.Fprintln(o.out)
		}
		o.printRefunds(a.Payments)
		fmt.Fprintln(o.out, a.Verdict)
		return nil
	})
}

func (l ledgerSession) account(ctx context.Context, wallet x402.Address) (account, error) {
	a := account{
		Wallet:   wallet.Checksum(),
		Network:  l.Terms.Network,
		Asset:    l.Terms.Asset,
		Ledger:   l.name,
		Payments: []payment{},
	}
	prefix := ledger.PayerPrefix(strings.ToLower(a.Network), strings.ToLower(a.Asset), wallet.String())
	keys, err := l.keysOf(ctx, prefix)
	if err != nil {
		return a, fmt.Errorf("look up %s: %w", a.Wallet, err)
	}
	if len(keys) > maxPayments {
		a.Cut = true
		keys = keys[:maxPayments]
	}
	var records []ledger.Payment
	a.Missed, err = l.Reconciler.Each(ctx, keys, func(r ledger.Payment) {
		records = append(records, r)
	})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return a, err
	}
	slices.SortStableFunc(records, func(x, y ledger.Payment) int {
		return x.CreatedAt.Compare(y.CreatedAt)
	})
	asked := 0
	for _, r := range records {
		p := l.paymentOf(ctx, r)
		if p.Standing == inDoubt && l.Chain != nil && asked < maxAsked {
			asked++
			f := l.askChain(ctx, r)
			p.Chain = &evidence{
				Verdict:     f.Fate.String(),
				Transaction: f.Transaction,
				Reason:      f.Reason,
			}
			if f.Cause != nil {
				p.Chain.Reason = f.Cause.Error()
			}
		}
		a.Payments = append(a.Payments, p)
	}
	a.Verdict = a.verdict()
	return a, nil
}

// keysOf returns the keys in the ledger that begin with a prefix, even those of unreadable
// records. It stops when it has more than maxPayments.
func (l ledgerSession) keysOf(ctx context.Context, prefix string) (keys []string, err error) {
	said := newProgressPrinter(l.notes)
	for after, pages := "", 1; len(keys) <= maxPayments; pages++ {
		p, err := l.rows.Page(ctx, prefix, after, rowsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, r := range p.Records {
			keys = append(keys, r.Head().Key)
		}
		keys = append(keys, p.Corrupt...)
		if after = p.Next; after == "" {
			break
		}
		said("%d pages of the ledger read, %d records found", pages, len(keys))
	}
	slices.Sort(keys)
	return keys, nil
}

// askChain queries the chain about a record, as the reconciler does. Like the reconciler, it
// assumes that the payment was sent to the facilitator.
func (l ledgerSession) askChain(ctx context.Context, r ledger.Payment) x402.Finding {
	r.Sent = true
	q, err := x402.QuestionOf(r)
	if err != nil {
		return x402.Finding{Cause: err}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return l.Chain.Find(ctx, q)
}
