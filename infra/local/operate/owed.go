package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxOwed is how many payments of a kind are listed, half a kilobyte each; all are
// counted.
const maxOwed = 50_000

// listOwed prints every debt, money that came without a request, and what is in doubt, of
// each kind the longest untouched first.
func listOwed(ctx context.Context, o order) error {
	c, err := boot.ReadLocal(o.getenv)
	if err == nil && c.Ledger.Name != "" {
		err = checkTable(ctx, c.Ledger)
	}
	if err != nil {
		return err
	}
	return o.within(false, func(l opened) error {
		const owed, doubt, unasked, kinds = 0, 1, 2, 3
		var list [kinds][]payment
		var n [kinds]int
		add := func(kind int, p payment) {
			if n[kind]++; n[kind] <= maxOwed {
				list[kind] = append(list[kind], p)
			}
		}
		refunds := 0
		missed, err := l.Reconciler.Outstanding(ctx, func(r ledger.Payment) {
			switch {
			case r.InDoubt():
				add(doubt, l.paymentAs(r, inDoubt))
			case r.Unasked():
				add(unasked, l.paymentOf(ctx, r))
			default:
				if ledger.Spent(r, l.Reconciler.Now()) {
					refunds++
				}
				add(owed, l.paymentOf(ctx, r))
			}
		})
		all := slices.Concat(list[owed], list[unasked], list[doubt])
		more := n[owed] + n[doubt] + n[unasked] - len(all)
		if missed > 0 {
			fmt.Fprintf(o.notes, "%d records could not be read: the list is not whole\n", missed)
		}
		if more > 0 {
			fmt.Fprintf(o.notes, "%d more are not listed, those that were written last\n", more)
		}
		switch {
		case err != nil:
			return err
		case o.json:
			return printJSON(o.out, append([]payment{}, all...))
		case len(all) == 0:
			fmt.Fprintf(o.out, "nothing is owed, and nothing in doubt, in %s\n", l.name)
			return nil
		}
		printPayments(o.out, all)
		fmt.Fprintf(o.out, "\n%d owed in %s, refunds due: %d, in doubt: %d", n[owed], l.name, refunds, n[doubt])
		if n[unasked] > 0 {
			fmt.Fprintf(o.out, ", and without a request: %d, which are refunds too", n[unasked])
		}
		fmt.Fprintln(o.out)
		printRefunds(o.out, all)
		return nil
	})
}
