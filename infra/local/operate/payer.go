package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// maxPayments is how many records of a payer are looked at.
	maxPayments = 10_000
	// maxAsked is how many of them the chain is asked about, and askTime what each
	// may take.
	maxAsked = 50
	askTime  = 10 * time.Second
)

// account is what there is of one payer, as -json prints it.
type account struct {
	Wallet   string    `json:"wallet"`
	Network  string    `json:"network"`
	Asset    string    `json:"asset"`
	Ledger   string    `json:"ledger"`
	Payments []payment `json:"payments"` // from the oldest on
	Missed   int       `json:"missed"`   // records that could not be read
	Cut      bool      `json:"cut"`      // there are more than are listed
	Verdict  string    `json:"verdict"`
}

// readWallet reads WALLET, in any letter case.
func readWallet(s string) (x402.Address, error) {
	a, err := x402.ParseAddress(strings.ToLower(strings.TrimSpace(s)))
	if err != nil {
		return a, fmt.Errorf("WALLET %.60q is no address: it is 0x and 40 hexadecimal digits", s)
	}
	return a, nil
}

// listPayer prints what there is of a payer, and what it comes to.
func (o opened) listPayer(ctx context.Context, out io.Writer, wallet x402.Address, asJSON bool) error {
	a := account{Wallet: wallet.Checksum(), Network: o.parts.Terms.Network, Asset: o.parts.Terms.Asset, Ledger: o.name, Payments: []payment{}}
	keys, err := o.payers.ByPayer(ctx, ledger.PayerPrefix(strings.ToLower(a.Network), strings.ToLower(a.Asset), wallet.String()), maxPayments+1)
	if err != nil {
		return fmt.Errorf("look up %s: %w", a.Wallet, err)
	}
	a.Cut = len(keys) > maxPayments
	var records []ledger.Record
	a.Missed, err = o.parts.Reconciler.Each(ctx, keys[:min(len(keys), maxPayments)], func(r ledger.Record) { records = append(records, r) })
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	slices.SortStableFunc(records, func(x, y ledger.Record) int { return x.CreatedAt.Compare(y.CreatedAt) })
	asked := 0
	for _, r := range records {
		p := o.paymentOf(ctx, r)
		if p.Standing == inDoubt && o.parts.Chain != nil && asked < maxAsked {
			asked++
			p.Chain = o.ask(ctx, r)
		}
		a.Payments = append(a.Payments, p)
	}
	a.Verdict = a.verdict()
	if asJSON {
		return printJSON(out, a)
	}
	return o.printAccount(out, a)
}

// ask asks the chain about a payment in doubt, as a run of the reconciler does.
func (o opened) ask(ctx context.Context, r ledger.Record) *evidence {
	q, err := x402.QuestionOf(r)
	if err != nil {
		return &evidence{Verdict: x402.CannotTell.String(), Reason: err.Error()}
	}
	q.Sent = true // what is open may have been sent
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	f := o.parts.Chain.Find(ctx, q)
	e := evidence{Verdict: f.Verdict.String(), Transaction: f.Transaction, Reason: f.Reason}
	if f.Cause != nil {
		e.Reason = f.Cause.Error()
	}
	return &e
}

func (o opened) printAccount(out io.Writer, a account) error {
	chain := o.node
	if o.parts.Chain == nil {
		chain = "not asked (RPC_URL)"
	}
	fmt.Fprintf(out, "payer   %s\nledger  %s\ntoken   %s on %s\nchain   %s\n\n", a.Wallet, a.Ledger, plain(a.Asset), plain(a.Network), chain)
	if len(a.Payments) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SINCE\tUPDATED\tSTATE\tAMOUNT\tREQUEST\tTRANSACTION\tNOTE")
		for _, p := range a.Payments {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", minute(p.Since), minute(p.Updated), p.Standing.label(), dollars(p.Amount),
				plain(p.Request), plain(p.Transaction), p.note())
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(out)
		printRefunds(out, a.Payments)
	}
	fmt.Fprintln(out, a.Verdict)
	return nil
}
