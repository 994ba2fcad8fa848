package main

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// tally counts payments and adds up their amounts.
type tally struct {
	n       int
	sum     big.Int
	unknown int // the number of payments without a readable amount
	first   payment
	due     time.Time      // the latest time at which a refund of one of the payments becomes due
	answers map[string]int // the number of payments by the answer, such as "404 not_found"
}

// tallyOf counts the payments that have one of the given standings and adds up their amounts.
// For a payment in doubt, the standing depends on the chain's evidence: see the function
// doubtWithFate.
func (a account) tallyOf(standings ...standing) *tally {
	t := &tally{answers: map[string]int{}}
	for _, p := range a.Payments {
		if p.Standing == inDoubt {
			p.Standing = doubtWithFate(x402.CannotTell)
			if p.Chain != nil {
				p.Standing = inDoubt + standing(p.Chain.Verdict)
			}
		}
		if !slices.Contains(standings, p.Standing) {
			continue
		}
		if t.n++; t.n == 1 {
			t.first = p
		}
		if p.DueAt.After(t.due) {
			t.due = p.DueAt
		}
		if p.Answer != "" {
			t.answers[p.Answer]++
		}
		if n, ok := parseAtomic(p.Amount); ok {
			t.sum.Add(&t.sum, n)
		} else {
			t.unknown++
		}
	}
	return t
}

// doubtWithFate returns the standing of a payment in doubt whose fate, according to the chain,
// is v. Only this file uses these standings, to count the payments in doubt by their fate.
func doubtWithFate(v x402.Fate) standing { return inDoubt + standing(v.String()) }

// formatSum returns the sum of the readable amounts as a price. If some amounts cannot be
// read, it also says how many.
func (t *tally) formatSum() string {
	text := formatDollars(t.sum.String())
	if t.unknown > 0 {
		text += fmt.Sprintf(" and %s that cannot be read", formatCount(t.unknown, "amount"))
	}
	return text
}

// verdict sums up an account in one sentence for the payer.
func (a account) verdict() string {
	clauses := []string{a.Wallet + " " + a.summary()}
	for _, c := range []struct {
		tally  *tally
		format string // a format string for the number of payments, their sum, "is" or "are", "was" or "were", and when a refund becomes due
	}{
		{a.tallyOf(answerOwed), "the same request, sent again, can get the answer, and a refund is due after %[5]s"},
		{a.tallyOf(refundDue), "a refund of %[2]s is due"},
		{a.tallyOf(doubtWithFate(x402.Paid)), "%[1]s in doubt (%[2]s) %[4]s made, as the chain shows"},
		{a.tallyOf(doubtWithFate(x402.NeverPaid)), "%[1]s in doubt (%[2]s) %[4]s not made, as the chain shows, and cannot be made any more"},
		{a.tallyOf(doubtWithFate(x402.StillOpen)), "%[1]s in doubt (%[2]s) %[4]s not made so far and can still be made"},
		{a.tallyOf(doubtWithFate(x402.CannotTell)), "it is not known whether %[1]s in doubt (%[2]s) %[4]s made"},
		{a.tallyOf(underWay), "%[1]s %[3]s under way"},
		{a.tallyOf(refused), "%[1]s (%[2]s) %[4]s refused by the facilitator, with no proof that nothing was paid"},
		{a.tallyOf(notCharged), "%[1]s %[4]s not charged"},
		{a.tallyOf(superseded), "%[1]s %[4]s not charged, because another payment answers the same purchase"},
		{a.tallyOf(unknown), "%[1]s %[3]s in a state that this version does not know"},
	} {
		is := "is"
		was := "was"
		if c.tally.n > 1 {
			is = "are"
			was = "were"
		}
		if c.tally.n > 0 {
			clauses = append(clauses, fmt.Sprintf(c.format, formatCount(c.tally.n, "payment"), c.tally.formatSum(), is, was, formatMinute(c.tally.due)))
		}
	}
	switch {
	case a.Cut:
		clauses = append(clauses, "this is about "+formatCount(len(a.Payments), "record")+" only, and there are more")
	case a.Missed > 0:
		clauses = append(clauses, formatCount(a.Missed, "record")+" could not be read, so there may be more")
	}
	return strings.Join(clauses, "; ") + "."
}

// summary returns a text about how much was paid, and about the outcomes of the payments.
func (a account) summary() string {
	paid := a.tallyOf(answered, refunded, answerOwed, refundDue)
	owed := a.tallyOf(answerOwed, refundDue)
	switch {
	case paid.n == 0 && len(a.Payments) == 0 && a.Missed == 0:
		return "is not in this ledger: no payment from it on " + cellText(a.Network) + " is known here (answered payments are kept for 35 days)"
	case paid.n == 0:
		return "has no payment that is known to have been made"
	}
	clauses := []string{fmt.Sprintf("has paid %s (%s)", formatCount(paid.n, "time"), paid.formatSum())}
	if got := a.tallyOf(answered); got.n > 0 {
		var kinds []string
		for _, answer := range slices.Sorted(maps.Keys(got.answers)) {
			kinds = append(kinds, fmt.Sprintf("%d with %s", got.answers[answer], cellText(answer)))
		}
		text := "got " + formatCount(got.n, "answer")
		if len(kinds) > 0 {
			text += " (" + strings.Join(kinds, ", ") + ")"
		}
		clauses = append(clauses, text)
	}
	if back := a.tallyOf(refunded); back.n > 0 {
		clauses = append(clauses, fmt.Sprintf("was refunded %s (%s)", formatCount(back.n, "time"), back.formatSum()))
	}
	what := "is owed nothing"
	if owed.n > 0 {
		what = fmt.Sprintf("is owed %d: %s", owed.n, owed.first.request())
	}
	if owed.n > 1 {
		what += fmt.Sprintf(" and %d more", owed.n-1)
	}
	return joinWithAnd(append(clauses, what))
}

func (p payment) request() string {
	if p.Request == "" {
		return "a transfer without a known request"
	}
	return cellText(p.Request)
}
