package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// reconcileOnce checks every payment in doubt once, as the scheduled function does every few
// minutes, and prints the results.
func reconcileOnce(ctx context.Context, o order) error {
	return o.withLedger(true, func(l ledgerSession) error {
		begun := l.Platform.Now()
		s, err := l.Reconciler.Run(ctx)
		printFacts(o.out, "ledger", l.name, "evidence", l.node)
		o.printSummary(s, l.Chain != nil)
		fmt.Fprintf(o.out, "took       %s\n", l.Platform.Now().Sub(begun).Round(time.Millisecond))
		return err
	})
}

func (o order) printSummary(s reconcile.Summary, scanned bool) {
	out := o.out
	fmt.Fprintf(out, "in doubt   %d of %d listed\n", s.Open, s.Listed)
	printCounts(out, count{s.SettledLate, "found paid"}, count{s.RefusedLate, "found never paid"}, count{s.StillOpen, "can still be paid"},
		count{s.CannotTell, "no evidence"}, count{s.Undue, "too early to tell whether they were sent"},
		count{s.Skipped, "decided or held meanwhile"}, count{s.Failed, "failed"}, count{s.Left, "not reached"})
	if scanned {
		fmt.Fprintf(out, "received   %d transfers since the last run\n", s.Received)
		printCounts(out, count{s.Deposits, "not a payment: without a signed authorization, or below the cheapest price"},
			count{s.Found, "for a payment that was recorded as unpaid: the answer is owed now"},
			count{s.Unasked, "without a request: a refund is due"},
			count{s.Unmatched, "too old to be recorded, or with a broken record: look for the answer by hand"})
		if s.Unread {
			fmt.Fprintln(out, "           the chain could not be read to its end: the next run continues")
		}
	}
	fmt.Fprintf(out, "owed       %d, %d of them for more than an hour, refunds due: %d (%s lists them)\n", s.Owed, s.OwedLong, s.RefundsDue, o.invocation.Command("owed"))
	printCounts(out, count{s.Silent, "closed: the target's silence is the answer"},
		count{s.Unproven, "refused, with no node to confirm that nothing was paid"}, count{s.Uncounted, "not counted"})
	if s.Swept > 0 {
		fmt.Fprintf(out, "swept      %d expired records\n", s.Swept)
	}
	if s.Unfinished {
		fmt.Fprintln(out, "           the ledger's lists of open and owed payments were not read to the end, so these counts are too low")
	}
}
