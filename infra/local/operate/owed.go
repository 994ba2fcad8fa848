package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxOwed is how many payments of a kind are listed, half a kilobyte each; all are
// counted.
const maxOwed = 50_000

// debts are payments of one kind, the longest untouched first.
type debts struct {
	list []payment
	n    int
}

func (d *debts) add(p payment) {
	if d.n++; d.n <= maxOwed {
		d.list = append(d.list, p)
	}
}

// listOwed prints every debt, money that came without a request, and what is in doubt.
func listOwed(ctx context.Context, o order) error {
	if err := o.checkSound(ctx); err != nil {
		return err
	}
	return o.within(false, func(l opened) error {
		var owed, unasked, doubt debts
		refunds := 0
		missed, err := l.Reconciler.Outstanding(ctx, x402.Lists{
			Owed: func(r ledger.Record, spent bool) {
				if spent {
					refunds++
				}
				owed.add(l.paymentOf(ctx, r))
			},
			Unasked: func(r ledger.Record) { unasked.add(l.paymentOf(ctx, r)) },
			Doubt:   func(r ledger.Record) { doubt.add(l.paymentAs(r, inDoubt)) },
		})
		if missed > 0 {
			fmt.Fprintf(o.notes, "%d records could not be read: the list is not whole\n", missed)
		}
		if err != nil {
			return err
		}
		if more := max(owed.n-maxOwed, 0) + max(unasked.n-maxOwed, 0) + max(doubt.n-maxOwed, 0); more > 0 {
			fmt.Fprintf(o.notes, "%d more are not listed, those that were written last\n", more)
		}
		all := slices.Concat(owed.list, unasked.list, doubt.list)
		switch {
		case o.json:
			return printJSON(o.out, append([]payment{}, all...))
		case len(all) == 0:
			fmt.Fprintf(o.out, "nothing is owed, and nothing in doubt, in %s\n", l.name)
			return nil
		}
		var rows [][]string
		for _, p := range slices.Concat(owed.list, doubt.list) {
			last := ""
			if p.LastError != nil {
				last = p.LastError.Code
			}
			rows = append(rows, []string{minute(p.Since), plain(p.Payer), dollars(p.Amount), p.owes(),
				fmt.Sprintf("%d of %d", p.Lookups, ledger.MaxLookups), plain(last), plain(p.Request), plain(p.Transaction)})
		}
		table(o.out, "SINCE\tPAYER\tAMOUNT\tOWED\tLOOKUPS\tLAST ERROR\tREQUEST\tTRANSACTION", rows)
		rows = nil
		for _, p := range unasked.list {
			rows = append(rows, []string{minute(p.Since), plain(p.Payer), dollars(p.Amount), p.owes(), plain(p.Transaction)})
		}
		table(o.out, "\nmoney without a request\nSINCE\tPAYER\tAMOUNT\tOWED\tTRANSACTION", rows)
		fmt.Fprintf(o.out, "\n%d owed in %s, refunds due: %d, in doubt: %d", owed.n, l.name, refunds, doubt.n)
		if unasked.n > 0 {
			fmt.Fprintf(o.out, ", and without a request: %d, which are refunds too", unasked.n)
		}
		fmt.Fprintln(o.out)
		l.printRefunds(all)
		return nil
	})
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
func (l opened) printRefunds(list []payment) {
	for _, p := range list {
		if _, ok := readKey(p.Key); ok && p.Standing == refundDue {
			fmt.Fprintf(l.out, "make refund KEY='%s'\n", p.Key)
		}
	}
}
