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
		return a, fmt.Errorf("WALLET %.60q is not an address: that is 0x and 40 hexadecimal digits", s)
	}
	return a, nil
}

// listPayer prints what there is of a payer, and what it comes to.
func listPayer(ctx context.Context, o order) error {
	wallet, err := readWallet(o.args[0])
	if err != nil {
		return err
	}
	return o.within(false, func(l opened) error {
		a, err := l.account(ctx, wallet)
		switch {
		case err != nil:
			return err
		case o.json:
			return printJSON(o.out, a)
		}
		l.printAccount(a)
		return nil
	})
}

func (l opened) account(ctx context.Context, wallet x402.Address) (account, error) {
	a := account{Wallet: wallet.Checksum(), Network: l.Terms.Network, Asset: l.Terms.Asset, Ledger: l.name, Payments: []payment{}}
	keys, err := l.payers.ByPayer(ctx, ledger.PayerPrefix(strings.ToLower(a.Network), strings.ToLower(a.Asset), wallet.String()), maxPayments+1)
	if err != nil {
		return a, fmt.Errorf("look up %s: %w", a.Wallet, err)
	}
	a.Cut = len(keys) > maxPayments
	var records []ledger.Record
	a.Missed, err = l.Reconciler.Each(ctx, keys[:min(len(keys), maxPayments)], func(r ledger.Record) { records = append(records, r) })
	if err := errors.Join(err, ctx.Err()); err != nil {
		return a, err
	}
	slices.SortStableFunc(records, func(x, y ledger.Record) int { return x.CreatedAt.Compare(y.CreatedAt) })
	asked := 0
	for _, r := range records {
		p := l.paymentOf(ctx, r)
		if p.Standing == inDoubt && l.Chain != nil && asked < maxAsked {
			asked++
			p.Chain = l.ask(ctx, r)
		}
		a.Payments = append(a.Payments, p)
	}
	a.Verdict = a.verdict()
	return a, nil
}

// ask asks the chain about a payment in doubt, as a run of the reconciler does.
func (l opened) ask(ctx context.Context, r ledger.Record) *evidence {
	q, err := x402.QuestionOf(r)
	if err != nil {
		return &evidence{Verdict: x402.CannotTell.String(), Reason: err.Error()}
	}
	q.Sent = true // what is open may have been sent
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	f := l.Chain.Find(ctx, q)
	e := evidence{Verdict: f.Verdict.String(), Transaction: f.Transaction, Reason: f.Reason}
	if f.Cause != nil {
		e.Reason = f.Cause.Error()
	}
	return &e
}

func (l opened) printAccount(a account) {
	facts(l.out, "payer", a.Wallet, "ledger", a.Ledger, "token", plain(a.Asset)+" on "+plain(a.Network), "chain", l.node)
	var rows [][]string
	for _, p := range a.Payments {
		rows = append(rows, []string{minute(p.Since), minute(p.Updated), words(p.Standing), dollars(p.Amount), plain(p.Request), plain(p.Transaction), p.note()})
	}
	fmt.Fprintln(l.out)
	table(l.out, "SINCE\tUPDATED\tSTATE\tAMOUNT\tREQUEST\tTRANSACTION\tNOTE", rows)
	if len(rows) > 0 {
		fmt.Fprintln(l.out)
	}
	l.printRefunds(a.Payments)
	fmt.Fprintln(l.out, a.Verdict)
}
