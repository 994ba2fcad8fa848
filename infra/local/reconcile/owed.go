package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// debt is a payment whose answer is owed, as -json prints it.
type debt struct {
	// Key is the record's, network|asset|payer|nonce: pk in a DynamoDB table.
	Key         string          `json:"key"`
	Payer       string          `json:"payer"`
	Amount      string          `json:"amount"` // atomic units
	Asset       string          `json:"asset"`
	Network     string          `json:"network"`
	Transaction string          `json:"transaction"`
	Request     string          `json:"request"`
	Since       time.Time       `json:"since"` // settlement
	Lookups     int             `json:"lookups"`
	LastError   *ledger.Failure `json:"last_error"`
	// RefundDue says that no lookup is left; otherwise the payer can still ask
	// again, until AskUntil.
	RefundDue bool      `json:"refund_due"`
	AskUntil  time.Time `json:"ask_until"`
	// KeptUntil is when the ledger forgets the debt.
	KeptUntil time.Time `json:"kept_until"`
}

// debtOf reads a record. The terms of a record that is listed here were good
// enough to be paid by; unreadable ones leave their fields empty.
func debtOf(r ledger.Record, spent bool) debt {
	var terms x402.Requirements
	_ = json.Unmarshal(r.Terms, &terms) // see above
	d := debt{
		Key: r.Key, Amount: terms.Amount, Asset: terms.Asset, Network: terms.Network, Transaction: r.Transaction, Request: r.Request,
		Since: r.SettledAt, Lookups: r.Lookups, LastError: r.LastFault, RefundDue: spent,
		AskUntil: r.SettledAt.Add(ledger.OwedFor), KeptUntil: r.ExpiresAt,
	}
	if r.Receipt != nil {
		d.Payer, d.Transaction = r.Receipt.Payer, r.Receipt.Transaction
	}
	return d
}

// listOwed prints every debt, the longest untouched first.
func (o opened) listOwed(ctx context.Context, out, notes io.Writer, asJSON bool) error {
	debts := []debt{}
	missed, err := o.deps.Reconciler().Owed(ctx, func(r ledger.Record, spent bool) { debts = append(debts, debtOf(r, spent)) })
	if missed > 0 {
		fmt.Fprintf(notes, "%d records could not be read: the list is not whole\n", missed)
	}
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(debts)
	}
	return printDebts(out, o.name, debts)
}

func printDebts(out io.Writer, ledgerName string, debts []debt) error {
	if len(debts) == 0 {
		fmt.Fprintf(out, "nothing is owed in %s\n", ledgerName)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SINCE\tPAYER\tAMOUNT\tOWED\tLOOKUPS\tLAST ERROR\tREQUEST\tTRANSACTION\tFORGOTTEN")
	refunds := 0
	for _, d := range debts {
		what := "answer, until " + minute(d.AskUntil)
		if d.RefundDue {
			what = "refund"
			refunds++
		}
		last := "-"
		if d.LastError != nil {
			last = d.LastError.Code
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\n", minute(d.Since), plain(d.Payer), dollars(d.Amount), what,
			d.Lookups, ledger.MaxLookups, plain(last), plain(d.Request), plain(d.Transaction), minute(d.KeptUntil))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d owed in %s, refunds due: %d\n", len(debts), ledgerName, refunds)
	return nil
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

// dollars is an amount of USDC (6 decimals) as a price; one that is no number
// stays what it is.
func dollars(atomic string) string {
	const decimals = 6
	if atomic == "" || strings.Trim(atomic, "0123456789") != "" {
		return plain(atomic)
	}
	padded := strings.Repeat("0", max(decimals+1-len(atomic), 0)) + atomic
	whole, part := padded[:len(padded)-decimals], strings.TrimRight(padded[len(padded)-decimals:], "0")
	return "$" + whole + "." + part + strings.Repeat("0", max(2-len(part), 0))
}

// plain is text from a record for a terminal: one cell, nothing that a
// terminal would act on, never empty.
func plain(s string) string {
	const most = 200
	var b strings.Builder
	for i, r := range s {
		if i >= most {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}
