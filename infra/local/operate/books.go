package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// oldestDay is the age of the oldest day whose books can be made. Answered payments are
	// deleted after 35 days.
	oldestDay = 34 * 24 * time.Hour
	// maxTransfers limits how many transfers of a day are kept in memory. Each takes half a
	// kilobyte.
	maxTransfers = 1_000_000
	// maxDifferences limits how many differences are listed. All of them are counted.
	maxDifferences = 1000
	// maxQuestions limits how many records are looked up on the chain one by one.
	maxQuestions = 1000
	// maxTries limits how often the same blocks are requested. The pause before the next try
	// grows by one second with each try, because nodes limit how often they can be called.
	maxTries = 4
	// rowsAtOnce is the largest number of rows that one request to the ledger reads.
	rowsAtOnce = 500
)

// errDifferences means that the books show differences between the ledger and the chain.
var errDifferences = errors.New("the ledger and the chain differ")

// errIncomplete means that some records or transfers could not be compared.
var errIncomplete = errors.New("the books are incomplete")

// books compare the ledger and the chain for one day. A payment belongs in the books of the
// day on which its money moved, by the chain's clock.
type books struct {
	Day      string    `json:"day"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"` // the end of the day, or the time of the safe block if that is earlier
	Network  string    `json:"network"`
	Asset    string    `json:"asset"`
	Payee    string    `json:"payee"`
	Ledger   string    `json:"ledger"`
	Received sum       `json:"received"` // payments that moved money on this day
	// The outcomes of the payments in Received. Each payment counts in exactly one of these sums.
	Answered   sum `json:"answered"`
	AnswerOwed sum `json:"answer_owed"`
	RefundDue  sum `json:"refund_due"`
	Refunded   sum `json:"refunded"`
	Differing  sum `json:"differing"` // transfers that the ledger lacks or records differently; they are listed in Differences

	Operations map[string]*sum `json:"operations"` // the sum Answered, split by the path of the request
	// Deposits are transfers without an authorization. A transfer with an authorization is also
	// a deposit if it has no record and is below the lowest price.
	Deposits   sum `json:"deposits"`
	RefundsOut sum `json:"refunds_made"` // payments whose refund was closed on this day; the payments may be of any day
	InDoubt    sum `json:"in_doubt"`     // payments that were first recorded on this day and are still in doubt

	Records     int          `json:"records_read"`
	Unreadable  int          `json:"records_unreadable"`
	Elsewhere   int          `json:"other_days"`  // records of this day whose money moved on another day
	Foreign     int          `json:"other_terms"` // records for another network, token or payee
	Unchecked   int          `json:"unchecked"`   // records that could not be compared
	Count       int          `json:"difference_count"`
	Differences []difference `json:"differences"` // at most maxDifferences of them
}

// sum holds the number of some payments, and the sum of their amounts in atomic units.
type sum struct {
	Count  int
	amount big.Int
}

func (s *sum) add(amount *big.Int) {
	s.Count++
	s.amount.Add(&s.amount, amount)
}

// MarshalJSON writes the amount as a string, because a JSON number cannot hold every integer.
func (s sum) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count  int    `json:"count"`
		Amount string `json:"amount"`
	}{s.Count, s.amount.String()})
}

// kind says in what way the ledger and the chain differ on a payment.
type kind string

const (
	// noRecord means that money came and the ledger has no record of it.
	noRecord kind = "transfer_without_record"
	// unpaidRecord means that money came and the record does not say so.
	unpaidRecord kind = "transfer_not_recorded"
	// unreadable means that money came and the record cannot be read.
	unreadable kind = "record_unreadable"
	// noTransfer means that the record says paid, no money came, and no answer was given.
	noTransfer kind = "settled_without_transfer"
	// gift means that the record says paid, no money came, and the answer was given.
	gift kind = "answered_unpaid"
	// otherAmount means that money came, but the amount or the payee is not the record's.
	otherAmount kind = "amounts_differ"
	// noRefund means that the record says refunded, but the transaction that the record names
	// did not send the amount to the payer.
	noRefund kind = "refund_without_transfer"
)

// difference is a payment on which the ledger and the chain differ.
type difference struct {
	Kind        kind      `json:"kind"`
	Key         string    `json:"key"`
	Payer       string    `json:"payer"`
	Standing    standing  `json:"standing,omitempty"` // what the record means for its payer
	Received    string    `json:"received,omitempty"` // the amount on the chain, in atomic units
	Recorded    string    `json:"recorded,omitempty"` // the amount in the ledger, in atomic units
	Transaction string    `json:"transaction,omitempty"`
	Request     string    `json:"request,omitempty"`
	At          time.Time `json:"at"`
	Note        string    `json:"note,omitempty"`
}

func (b *books) addDifference(d difference) {
	b.Count++
	if len(b.Differences) < maxDifferences {
		b.Differences = append(b.Differences, d)
	}
}

// parseDay parses DAY. The day must have begun, and must not be older than oldestDay.
func parseDay(s string, now time.Time) (time.Time, error) {
	day, err := time.Parse(time.DateOnly, strings.TrimSpace(s))
	switch {
	case err != nil:
		return day, fmt.Errorf("DAY %.40q is not a day: write 2026-11-20, in UTC", s)
	case day.After(now):
		return day, fmt.Errorf("DAY %s has not begun: days are UTC, and it is now %s", day.Format(time.DateOnly), formatMinute(now))
	case now.Sub(day) > oldestDay:
		return day, fmt.Errorf("DAY %s is too long ago: answered payments are deleted after 35 days, so the books of a day can be made for 34", day.Format(time.DateOnly))
	}
	return day, nil
}

// listBooks prints the books of a day. After printing, it returns errIncomplete if something
// could not be compared, or errDifferences if the ledger and the chain differ.
func listBooks(ctx context.Context, o order) error {
	day, err := parseDay(o.args[0], o.now())
	if err != nil {
		return err
	}
	return o.withLedger(true, func(l ledgerSession) error { return l.books(ctx, day) })
}

func (l ledgerSession) books(ctx context.Context, day time.Time) error {
	b, err := l.booksOf(ctx, day)
	switch {
	case err != nil:
		return fmt.Errorf("the books of %s: %w", day.Format(time.DateOnly), err)
	case l.json:
		err = printJSON(l.out, b)
	default:
		l.printBooks(b)
	}
	switch {
	case err != nil:
		return err
	case b.Unchecked > 0:
		return fmt.Errorf("%w: %s could not be compared", errIncomplete, formatCount(b.Unchecked, "record"))
	case b.Count > 0:
		return errDifferences
	}
	return nil
}

// covers reports whether a time lies in the period that the books cover.
func (b *books) covers(t time.Time) bool { return !t.Before(b.From) && t.Before(b.Until) }

// addOutcome adds a payment to the sum of its outcome.
func (b *books) addOutcome(s standing, amount *big.Int, request string) {
	all := map[standing]*sum{
		answered:   &b.Answered,
		answerOwed: &b.AnswerOwed,
		refundDue:  &b.RefundDue,
		refunded:   &b.Refunded,
	}
	if all[s] == nil {
		return // the payment is not known to be paid
	}
	all[s].add(amount)
	if s == answered {
		_, target, _ := strings.Cut(request, " ")
		path, _, _ := strings.Cut(target, "?")
		if b.Operations[path] == nil {
			b.Operations[path] = new(sum)
		}
		b.Operations[path].add(amount)
	}
}

func (l ledgerSession) printBooks(b *books) {
	until := "the whole day"
	if b.Until.Before(b.From.AddDate(0, 0, 1)) {
		until = "up to " + formatMinute(b.Until) + "; later blocks of the chain are not safe yet"
	}
	printFacts(
		l.out,
		"books", b.Day+", UTC, "+until,
		"ledger", fmt.Sprintf("%s, %d records", b.Ledger, b.Records),
		"chain", l.node,
		"token", b.Asset+" on "+b.Network,
		"payee", b.Payee,
	)
	var rows [][]string
	row := func(what string, s *sum) {
		if s.Count == 0 && s != &b.Received {
			return
		}
		amount := s.amount.String()
		rows = append(rows, []string{
			what,
			strconv.Itoa(s.Count),
			formatDollars(amount),
			"(" + amount + ")",
		})
	}
	row("received", &b.Received)
	row("  answered", &b.Answered)
	for _, path := range slices.Sorted(maps.Keys(b.Operations)) {
		row("    "+cellText(path), b.Operations[path])
	}
	row("  answer owed", &b.AnswerOwed)
	row("  refund due", &b.RefundDue)
	row("  refunded", &b.Refunded)
	row("  differing", &b.Differing)
	row("deposits", &b.Deposits)
	row("refunds made", &b.RefundsOut)
	row("in doubt", &b.InDoubt)
	printTable(l.out, "\n\tPAYMENTS\tAMOUNT\t(ATOMIC UNITS)", rows)
	fmt.Fprintln(l.out)
	printCounts(
		l.out,
		count{b.Elsewhere, "recorded on this day but paid on another: in the books of that day"},
		count{b.Foreign, "recorded on this day under another network, token or payee: not compared"},
		count{b.Unreadable, "unreadable, in the whole ledger"},
		count{b.Unchecked, "could not be compared: the chain did not answer"},
	)
	rows = nil
	for _, d := range b.Differences {
		rows = append(rows, []string{
			spacedName(d.Kind),
			formatMinute(d.At),
			formatDollars(d.Received),
			formatDollars(d.Recorded),
			cellText(spacedName(d.Standing)),
			cellText(d.Request),
			cellText(d.Transaction),
			cellText(d.Key),
			cellText(d.Note),
		})
	}
	printTable(l.out, "DIFFERENCE\tAT\tRECEIVED\tRECORDED\tSTATE\tREQUEST\tTRANSACTION\tKEY\tNOTE", rows)
	if more := b.Count - len(b.Differences); more > 0 {
		fmt.Fprintf(l.out, "and %d more\n", more)
	}
	what := "no differences"
	switch {
	case b.Count > 0:
		what = formatCount(b.Count, "difference")
	case b.Unchecked > 0:
		what = "no differences in what could be compared"
	}
	fmt.Fprintf(l.out, "total   %s sold for %s, %s received in %s; %s\n", formatCount(b.Answered.Count, "answer"), formatDollars(b.Answered.amount.String()),
		formatDollars(b.Received.amount.String()), formatCount(b.Received.Count, "payment"), what)
}
