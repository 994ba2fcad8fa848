package main

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// maxOwed limits how many payments of each kind are listed; each takes half a kilobyte of
// memory. All of them are counted.
const maxOwed = 50_000

// listOwed prints the debts, the money that came without a request, the payments in doubt, and
// the newest payments that were refused without proof that nothing was paid. Within each kind,
// the record that has been unchanged longest comes first.
func listOwed(ctx context.Context, o order) error {
	c, err := boot.ParseLocal(o.getenv)
	if err == nil && c.Ledger.Name != "" {
		err = o.checkTable(ctx, c.Ledger)
	}
	if err != nil {
		return err
	}
	return o.withLedger(false, func(l ledgerSession) error {
		outstanding, err := l.readOutstanding(ctx)
		if err == nil {
			err = l.readUnproven(ctx, &outstanding)
		}
		all := slices.Concat(outstanding.owed.payments, outstanding.unasked.payments, outstanding.inDoubt.payments, outstanding.refusals.newest)
		more := outstanding.owed.n + outstanding.inDoubt.n + outstanding.unasked.n - len(all)
		if outstanding.unreadable > 0 {
			fmt.Fprintf(o.notes, "%d records could not be read: the list is incomplete\n", outstanding.unreadable)
		}
		if more > 0 {
			fmt.Fprintf(o.notes, "%d more, the newest, are not listed\n", more)
		}
		switch {
		case err != nil:
			return err
		case o.json:
			return printJSON(o.out, append([]payment{}, all...))
		case len(all) == 0: // all would also have the newest refusals without proof, so there are none
			fmt.Fprintf(o.out, "nothing is owed and nothing is in doubt in %s\n", l.name)
			return nil
		}
		printPayments(o.out, all)
		fmt.Fprintf(o.out, "\n%d owed in %s, %d of them for more than an hour, refunds due: %d, in doubt: %d",
			outstanding.owed.n, l.name, outstanding.longOwed, outstanding.refunds, outstanding.inDoubt.n)
		if outstanding.unasked.n > 0 {
			fmt.Fprintf(o.out, ", paid without a request, also to be refunded: %d", outstanding.unasked.n)
		}
		fmt.Fprintln(o.out)
		if u := outstanding.refusals; u.n > 0 {
			fmt.Fprintf(o.out, "%s refused by the facilitator, %s in all, with no node to confirm that nothing was paid; the newest %d are listed\n",
				formatCount(u.n, "payment"), formatDollars(u.sum.String()), len(u.newest))
		}
		o.printRefunds(all)
		return nil
	})
}

// outstandingPayments has the payments that need attention.
type outstandingPayments struct {
	owed, inDoubt, unasked listing
	longOwed               int // the number of payments that have been owed for more than an hour
	refunds                int // the number of owed payments whose refund is due
	unreadable             int // the number of records that could not be read
	refusals               unprovenRefusals
}

// unprovenRefusals has the payments that a facilitator refused when no node could confirm that
// the money had not moved.
type unprovenRefusals struct {
	n      int
	sum    big.Int // the sum of their amounts in atomic units, for at most maxOwed of them
	newest []payment
}

// newestUnproven limits how many unproven refusals are listed.
const newestUnproven = 20

// readUnproven adds the refusals without proof to the outstanding payments that the caller has
// found.
func (l ledgerSession) readUnproven(ctx context.Context, outstanding *outstandingPayments) error {
	refusals := &outstanding.refusals
	n, err := l.Reconciler.Unproven(ctx, maxOwed, func(r ledger.Payment) {
		p := l.paymentOf(ctx, r)
		if amount, ok := parseAtomic(p.Amount); ok {
			refusals.sum.Add(&refusals.sum, amount)
		}
		refusals.newest = append(refusals.newest, p)
	})
	refusals.n = n
	refusals.newest = refusals.newest[max(0, len(refusals.newest)-newestUnproven):]
	return err
}

// listing has the payments of one kind that are to be listed, and the number of all payments
// of that kind.
type listing struct {
	payments []payment
	n        int
}

func (l *listing) add(p payment) {
	l.n++
	if l.n <= maxOwed {
		l.payments = append(l.payments, p)
	}
}

// readOutstanding reads all outstanding payments from the ledger. If reading fails, it returns
// the error and the payments that were found so far.
func (l ledgerSession) readOutstanding(ctx context.Context) (outstandingPayments, error) {
	var outstanding outstandingPayments
	missed, err := l.Reconciler.Outstanding(ctx, func(r ledger.Payment) {
		switch {
		case r.InDoubt():
			outstanding.inDoubt.add(l.paymentAs(r, inDoubt))
		case r.Unasked():
			outstanding.unasked.add(l.paymentOf(ctx, r))
		default:
			p := l.paymentOf(ctx, r)
			if p.RefundDue {
				outstanding.refunds++
			}
			if l.Reconciler.Now().Sub(r.SettledAt) > reconcile.LongOwed {
				outstanding.longOwed++
			}
			outstanding.owed.add(p)
		}
	})
	outstanding.unreadable = missed
	return outstanding, err
}
