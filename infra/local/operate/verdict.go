package main

import (
	"fmt"
	"math/big"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// tally is a number of payments, and what they add up to.
type tally struct {
	n       int
	sum     big.Int
	unknown int // without an amount that can be read
	first   payment
	until   time.Time // the latest time at which one can be asked for
}

func (t *tally) add(p payment) {
	if t.n++; t.n == 1 {
		t.first = p
	}
	if p.AskUntil.After(t.until) {
		t.until = p.AskUntil
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

// tallies are the payments of an account by what they mean.
type tallies struct {
	by          map[standing]*tally
	paid, owed  tally
	found, over tally // in doubt, and the chain says that they were paid, or never will be
	pending     tally // in doubt, and the chain says that they can still be paid
	doubt       tally // in doubt, and nobody knows
}

func (a account) tallies() *tallies {
	t := &tallies{by: map[standing]*tally{}}
	for _, p := range a.Payments {
		if t.by[p.Standing] == nil {
			t.by[p.Standing] = new(tally)
		}
		t.by[p.Standing].add(p)
		switch p.Standing {
		case answerOwed, refundDue:
			t.owed.add(p)
			t.paid.add(p)
		case answered, refunded:
			t.paid.add(p)
		case inDoubt:
			t.inDoubt(p)
		case underWay, refused, notCharged, superseded, unknown:
		}
	}
	return t
}

func (t *tallies) inDoubt(p payment) {
	verdict := x402.CannotTell.String()
	if p.Chain != nil {
		verdict = p.Chain.Verdict
	}
	switch verdict {
	case x402.Paid.String():
		t.found.add(p)
	case x402.NeverPaid.String():
		t.over.add(p)
	case x402.StillOpen.String():
		t.pending.add(p)
	default:
		t.doubt.add(p)
	}
}

func (t *tallies) of(s standing) *tally {
	if t.by[s] == nil {
		return new(tally)
	}
	return t.by[s]
}

// verdict is what it all comes to, in one sentence for whoever asked.
func (a account) verdict() string {
	t := a.tallies()
	sentence := a.Wallet + " " + t.summary(a)
	for _, clause := range append(t.owing(), t.open()...) {
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
func (t *tallies) summary(a account) string {
	if t.paid.n == 0 && len(a.Payments) == 0 && a.Missed == 0 {
		return "is not in this ledger: no payment from it on " + plain(a.Network) + " is known here (what is answered is kept for 35 days)"
	}
	if t.paid.n == 0 {
		return "has no payment that is known to have been made"
	}
	clauses := []string{fmt.Sprintf("has paid %s (%s)", counted(t.paid.n, "time"), t.paid.dollars())}
	if got := t.of(answered); got.n > 0 {
		clauses = append(clauses, "got "+counted(got.n, "answer"))
	}
	if back := t.of(refunded); back.n > 0 {
		clauses = append(clauses, fmt.Sprintf("was refunded %s (%s)", counted(back.n, "time"), back.dollars()))
	}
	if t.owed.n > 0 {
		what := fmt.Sprintf("is owed %d: %s", t.owed.n, request(t.owed.first))
		if t.owed.n > 1 {
			what += fmt.Sprintf(" and %d more", t.owed.n-1)
		}
		clauses = append(clauses, what)
	} else {
		clauses = append(clauses, "is owed nothing")
	}
	return enumerated(clauses)
}

func request(p payment) string {
	if p.Request == "" {
		return "a transfer without a request that is known"
	}
	return plain(p.Request)
}

// owing is how what is owed is had.
func (t *tallies) owing() []string {
	var clauses []string
	if can := t.of(answerOwed); can.n > 0 {
		clauses = append(clauses, plural(can.n, "the same signature, sent again, gets the answer until ",
			fmt.Sprintf("the same signatures, sent again, get %d answers, the last until ", can.n))+minute(can.until))
	}
	if due := t.of(refundDue); due.n > 0 {
		clauses = append(clauses, fmt.Sprintf("a refund of %s is due", due.dollars()))
	}
	return clauses
}

// open is what is not over, and what was refused.
func (t *tallies) open() []string {
	var clauses []string
	say := func(x *tally, format string) {
		if x.n > 0 {
			clauses = append(clauses, fmt.Sprintf(format, counted(x.n, "payment"), x.dollars(), plural(x.n, "is", "are"), plural(x.n, "was", "were")))
		}
	}
	say(&t.found, "%[1]s in doubt (%[2]s) %[4]s made, as the chain shows")
	say(&t.over, "%[1]s in doubt (%[2]s) %[4]s not made, as the chain shows, and cannot be made any more")
	say(&t.pending, "%[1]s in doubt (%[2]s) %[4]s not made so far and can still be made")
	say(&t.doubt, "it is not known whether %[1]s in doubt (%[2]s) %[4]s made")
	say(t.of(underWay), "%[1]s %[3]s under way just now")
	say(t.of(refused), "%[1]s (%[2]s) %[4]s refused by the facilitator, not proven")
	say(t.of(notCharged), "%[1]s %[4]s not charged")
	say(t.of(superseded), "%[1]s %[4]s not charged, because another payment answers the same purchase")
	say(t.of(unknown), "%[1]s %[3]s in a state that this version does not know")
	return clauses
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
