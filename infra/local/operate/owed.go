package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxOwed is how many payments of a kind are listed, half a kilobyte each; all are
// counted.
const maxOwed = 50_000

// debts are payments of one kind, the longest untouched first.
type debts struct {
	list  []payment
	n     int
	since string // when the first that is not listed was written last
}

func (d *debts) add(p payment) {
	if d.n++; d.n <= maxOwed {
		d.list = append(d.list, p)
	} else if d.since == "" {
		d.since = minute(p.Updated)
	}
}

// outstanding is everything that is owed or in doubt.
type outstanding struct {
	owed, unasked, doubt debts
	refunds              int // of owed
}

func (l *outstanding) all() []payment {
	return append(append(append([]payment{}, l.owed.list...), l.unasked.list...), l.doubt.list...)
}

// listOwed prints every debt, money that came without a request, and then what is in
// doubt.
func (o opened) listOwed(ctx context.Context, out io.Writer, asJSON bool) error {
	var l outstanding
	missed, err := o.parts.Reconciler.Outstanding(ctx, x402.Lists{
		Owed: func(r ledger.Record, spent bool) {
			if spent {
				l.refunds++
			}
			l.owed.add(o.paymentOf(ctx, r))
		},
		Unasked: func(r ledger.Record) { l.unasked.add(o.paymentOf(ctx, r)) },
		Doubt:   func(r ledger.Record) { l.doubt.add(o.paymentAs(r, inDoubt)) },
	})
	if missed > 0 {
		fmt.Fprintf(o.notes, "%d records could not be read: the list is not whole\n", missed)
	}
	if err != nil {
		return err
	}
	for what, d := range map[string]debts{"owed": l.owed, "without a request": l.unasked, "in doubt": l.doubt} {
		if more := d.n - len(d.list); more > 0 {
			fmt.Fprintf(o.notes, "%d more %s are not listed, those that were written last at %s or later\n", more, what, d.since)
		}
	}
	if asJSON {
		return printJSON(out, l.all())
	}
	return o.printOwed(out, l)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (o opened) printOwed(out io.Writer, l outstanding) error {
	if l.owed.n+l.unasked.n+l.doubt.n == 0 {
		fmt.Fprintf(out, "nothing is owed, and nothing in doubt, in %s\n", o.name)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if l.owed.n+l.doubt.n > 0 {
		fmt.Fprintln(w, "SINCE\tPAYER\tAMOUNT\tOWED\tLOOKUPS\tLAST ERROR\tREQUEST\tTRANSACTION")
	}
	for _, p := range append(append([]payment{}, l.owed.list...), l.doubt.list...) {
		last := "-"
		if p.LastError != nil {
			last = p.LastError.Code
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", minute(p.Since), plain(p.Payer), dollars(p.Amount), p.owes(),
			p.Lookups, ledger.MaxLookups, plain(last), plain(p.Request), plain(p.Transaction))
	}
	if l.unasked.n > 0 {
		fmt.Fprint(w, "\nmoney without a request\nSINCE\tPAYER\tAMOUNT\tOWED\tTRANSACTION\n")
	}
	for _, p := range l.unasked.list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", minute(p.Since), plain(p.Payer), dollars(p.Amount), p.owes(), plain(p.Transaction))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d owed in %s, refunds due: %d, in doubt: %d", l.owed.n, o.name, l.refunds, l.doubt.n)
	if l.unasked.n > 0 {
		fmt.Fprintf(out, ", and without a request: %d, which are refunds too", l.unasked.n)
	}
	fmt.Fprintln(out)
	printRefunds(out, l.all())
	return nil
}

// owes is what is owed of a payment that is owed or in doubt.
func (p payment) owes() string {
	switch p.Standing { //nolint:exhaustive // what is listed is owed or in doubt
	case refundDue:
		if b := p.SendingBack; b != nil {
			return "refund, begun " + minute(b.At) + " by " + plain(b.By)
		}
		return "refund"
	case inDoubt:
		return "IN DOUBT: " + plain(p.Reason)
	}
	return "answer, until " + minute(p.AskUntil)
}

// printRefunds says how to make the refunds that are due.
func printRefunds(out io.Writer, list []payment) {
	for _, p := range list {
		if _, ok := readKey(p.Key); ok && p.Standing == refundDue {
			fmt.Fprintf(out, "make refund KEY='%s'\n", p.Key)
		}
	}
}
