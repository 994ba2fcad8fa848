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

// tally is a number of payments, and what they add up to.
type tally struct {
	n       int
	sum     big.Int
	unknown int // without an amount that can be read
	first   payment
	until   time.Time      // the latest time at which one can be asked for
	answers map[string]int // by what was answered
}

func (t *tally) add(p payment) {
	if t.n++; t.n == 1 {
		t.first, t.answers = p, map[string]int{}
	}
	if p.AskUntil.After(t.until) {
		t.until = p.AskUntil
	}
	if p.Answer != "" {
		t.answers[p.Answer]++
	}
	if n, ok := atomic(p.Amount); ok {
		t.sum.Add(&t.sum, n)
	} else {
		t.unknown++
	}
}

// dollars is the sum as a price.
func (t *tally) dollars() string {
	text := dollars(t.sum.String())
	if t.unknown > 0 {
		text += fmt.Sprintf(" and %s that cannot be read", counted(t.unknown, "amount"))
	}
	return text
}

// by tallies payments by a standing, or by several together.
func (a account) by(standings ...standing) *tally {
	t := new(tally)
	for _, p := range a.Payments {
		if slices.Contains(standings, p.Standing) {
			t.add(p)
		}
	}
	return t
}

// doubtful tallies payments in doubt by what the chain says of them.
func (a account) doubtful(v x402.Verdict) *tally {
	t := new(tally)
	for _, p := range a.Payments {
		said := x402.CannotTell.String()
		if p.Chain != nil {
			said = p.Chain.Verdict
		}
		if p.Standing == inDoubt && said == v.String() {
			t.add(p)
		}
	}
	return t
}

// verdict is what it all comes to, in one sentence for the person who asked.
func (a account) verdict() string {
	sentence := a.Wallet + " " + a.summary()
	for _, clause := range append(a.owing(), a.pending()...) {
		sentence += "; " + clause
	}
	switch {
	case a.Cut:
		sentence += "; this is about " + counted(len(a.Payments), "record") + " only, and there are more"
	case a.Missed > 0:
		sentence += fmt.Sprintf("; %s could not be read, so this may not be all", counted(a.Missed, "record"))
	}
	return sentence + "."
}

// summary is what was paid and what came of it.
func (a account) summary() string {
	paid, owed := a.by(answered, refunded, answerOwed, refundDue), a.by(answerOwed, refundDue)
	if paid.n == 0 && len(a.Payments) == 0 && a.Missed == 0 {
		return "is not in this ledger: no payment from it on " + plain(a.Network) + " is known here (what is answered is kept for 35 days)"
	}
	if paid.n == 0 {
		return "has no payment that is known to have been made"
	}
	clauses := []string{fmt.Sprintf("has paid %s (%s)", counted(paid.n, "time"), paid.dollars())}
	if got := a.by(answered); got.n > 0 {
		text := "got " + counted(got.n, "answer")
		var kinds []string
		for _, answer := range slices.Sorted(maps.Keys(got.answers)) {
			kinds = append(kinds, fmt.Sprintf("%d with %s", got.answers[answer], plain(answer)))
		}
		if len(kinds) > 0 {
			text += " (" + strings.Join(kinds, ", ") + ")"
		}
		clauses = append(clauses, text)
	}
	if back := a.by(refunded); back.n > 0 {
		clauses = append(clauses, fmt.Sprintf("was refunded %s (%s)", counted(back.n, "time"), back.dollars()))
	}
	what := "is owed nothing"
	if owed.n > 0 {
		what = fmt.Sprintf("is owed %d: %s", owed.n, owed.first.request())
	}
	if owed.n > 1 {
		what += fmt.Sprintf(" and %d more", owed.n-1)
	}
	return enumerated(append(clauses, what))
}

func (p payment) request() string {
	if p.Request == "" {
		return "a transfer without a request that is known"
	}
	return plain(p.Request)
}

// owing is how what is owed is had.
func (a account) owing() []string {
	var clauses []string
	if can := a.by(answerOwed); can.n > 0 {
		clauses = append(clauses, plural(can.n, "the same signature, sent again, gets the answer until ",
			fmt.Sprintf("the same signatures, sent again, get %d answers, the last until ", can.n))+minute(can.until))
	}
	if due := a.by(refundDue); due.n > 0 {
		clauses = append(clauses, fmt.Sprintf("a refund of %s is due", due.dollars()))
	}
	return clauses
}

// pending is what is not over, and what was refused.
func (a account) pending() []string {
	var clauses []string
	for _, c := range []struct {
		of   *tally
		says string // of their number, their sum, "is" and "was"
	}{
		{a.doubtful(x402.Paid), "%[1]s in doubt (%[2]s) %[4]s made, as the chain shows"},
		{a.doubtful(x402.NeverPaid), "%[1]s in doubt (%[2]s) %[4]s not made, as the chain shows, and cannot be made any more"},
		{a.doubtful(x402.StillOpen), "%[1]s in doubt (%[2]s) %[4]s not made so far and can still be made"},
		{a.doubtful(x402.CannotTell), "it is not known whether %[1]s in doubt (%[2]s) %[4]s made"},
		{a.by(underWay), "%[1]s %[3]s under way just now"},
		{a.by(refused), "%[1]s (%[2]s) %[4]s refused by the facilitator, not proven"},
		{a.by(notCharged), "%[1]s %[4]s not charged"},
		{a.by(superseded), "%[1]s %[4]s not charged, because another payment answers the same purchase"},
		{a.by(unknown), "%[1]s %[3]s in a state that this version does not know"},
	} {
		if c.of.n > 0 {
			clauses = append(clauses, fmt.Sprintf(c.says, counted(c.of.n, "payment"), c.of.dollars(), plural(c.of.n, "is", "are"), plural(c.of.n, "was", "were")))
		}
	}
	return clauses
}
