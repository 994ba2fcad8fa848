package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// listOwed prints every debt, and then what is in doubt, each the longest
// untouched first.
func (o opened) listOwed(ctx context.Context, out io.Writer, asJSON bool) error {
	list, doubts := []payment{}, []payment(nil)
	missed, err := o.parts.Reconciler.Outstanding(ctx,
		func(r ledger.Record, _ bool) { list = append(list, o.paymentOf(r)) },
		func(r ledger.Record) { doubts = append(doubts, o.paymentOf(r)) })
	if missed > 0 {
		fmt.Fprintf(o.notes, "%d records could not be read: the list is not whole\n", missed)
	}
	if err != nil {
		return err
	}
	list = append(list, doubts...)
	if asJSON {
		return printJSON(out, list)
	}
	return o.printOwed(out, list)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (o opened) printOwed(out io.Writer, list []payment) error {
	if len(list) == 0 {
		fmt.Fprintf(out, "nothing is owed, and nothing in doubt, in %s\n", o.name)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SINCE\tPAYER\tAMOUNT\tOWED\tLOOKUPS\tLAST ERROR\tREQUEST\tTRANSACTION")
	doubts, refunds := 0, 0
	for _, p := range list {
		what := "answer, until " + minute(p.AskUntil)
		switch p.Standing { //nolint:exhaustive // what is listed is owed or in doubt
		case refundDue:
			what = "refund"
			refunds++
		case inDoubt:
			what = "IN DOUBT: " + plain(p.Reason)
			doubts++
		}
		last := "-"
		if p.LastError != nil {
			last = p.LastError.Code
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", minute(p.Since), plain(p.Payer), dollars(p.Amount), what,
			p.Lookups, ledger.MaxLookups, plain(last), plain(p.Request), plain(p.Transaction))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d owed in %s, refunds due: %d, in doubt: %d\n", len(list)-doubts, o.name, refunds, doubts)
	printRefunds(out, list)
	return nil
}

// printRefunds says how to make the refunds that are due.
func printRefunds(out io.Writer, list []payment) {
	for _, p := range list {
		if _, ok := readKey(p.Key); ok && p.Standing == refundDue {
			fmt.Fprintf(out, "make refund KEY='%s'\n", p.Key)
		}
	}
}
