package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// MarshalJSON writes the amount as a text: no number of JSON holds every integer.
func (s sum) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count  int    `json:"count"`
		Amount string `json:"amount"`
	}{s.Count, s.amount.String()})
}

// text is the amount in units of the token and in atomic units.
func (s *sum) text() string { return fmt.Sprintf("%s\t(%s)", dollars(s.amount.String()), &s.amount) }

func (o opened) printBooks(out io.Writer, b *books) error {
	until, node := "the whole day", o.node
	switch {
	case !b.Compared:
		node = "not asked (RPC_URL): what follows is what the ledger says"
		if now := o.parts.Platform.Now(); now.Before(b.Until) {
			until = "up to " + minute(now)
		}
	case b.Until.Before(b.From.AddDate(0, 0, 1)):
		until = "up to " + minute(b.Until) + ", what is later is not safe on the chain yet"
	}
	fmt.Fprintf(out, "books   %s, UTC, %s\nledger  %s, %d records\nchain   %s\ntoken   %s on %s\npayee   %s\n\n",
		b.Day, until, b.Ledger, b.Records, node, b.Asset, b.Network, b.Payee)
	if err := b.printSums(out); err != nil {
		return err
	}
	b.printNotes(out)
	if err := b.printDifferences(out); err != nil {
		return err
	}
	fmt.Fprintln(out, b.total())
	return nil
}

// printSums prints what was received and what came of it, without what there is
// none of.
func (b *books) printSums(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tPAYMENTS\tAMOUNT\t(ATOMIC UNITS)")
	row := func(what string, s *sum) {
		if s.Count > 0 {
			fmt.Fprintf(w, "%s\t%d\t%s\n", what, s.Count, s.text())
		}
	}
	fmt.Fprintf(w, "received\t%d\t%s\n", b.Received.Count, b.Received.text())
	row("  answered", &b.Answered)
	for _, slug := range slices.Sorted(maps.Keys(b.Operations)) {
		row("    "+slug, b.Operations[slug])
	}
	row("  answer owed", &b.AnswerOwed)
	row("  refund due", &b.RefundDue)
	row("  refunded", &b.Refunded)
	row("  differing", &b.Differing)
	row("deposits", &b.Deposits)
	row("refunds made", &b.RefundsOut)
	row("in doubt", &b.InDoubt)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return nil
}

// printNotes says what is not in the sums.
func (b *books) printNotes(out io.Writer) {
	for _, r := range []row{
		{b.Elsewhere, "recorded on this day moved at another time: in the books of that day"},
		{b.Foreign, "recorded on this day under another network, token or payee: not compared"},
		{b.Unreadable, "of the whole ledger cannot be read"},
		{b.Unchecked, "could not be compared: the chain could not be asked about them"},
	} {
		if r.n > 0 {
			fmt.Fprintf(out, "%s %s\n", counted(r.n, "record"), r.what)
		}
	}
	if b.Elsewhere+b.Foreign+b.Unreadable+b.Unchecked > 0 {
		fmt.Fprintln(out)
	}
}

func (b *books) printDifferences(out io.Writer) error {
	if b.Count == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DIFFERENCE\tAT\tRECEIVED\tRECORDED\tSTATE\tREQUEST\tTRANSACTION\tKEY\tNOTE")
	for _, d := range b.Differences {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Kind.label(), minute(d.At), dollars(d.Received), dollars(d.Recorded),
			plain(d.Standing.label()), plain(d.Request), plain(d.Transaction), plain(d.Key), plain(d.Note))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := b.Count - len(b.Differences); more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
	fmt.Fprintln(out)
	return nil
}

// total is the last line.
func (b *books) total() string {
	what := "no differences"
	switch {
	case !b.Compared:
		what = "nothing was compared"
	case b.Count > 0:
		what = counted(b.Count, "difference")
	case b.Unchecked > 0:
		what = "no differences in what could be compared"
	}
	return fmt.Sprintf("total   %s sold for %s, %s received in %s; %s", counted(b.Answered.Count, "answer"), dollars(b.Answered.amount.String()),
		dollars(b.Received.amount.String()), counted(b.Received.Count, "payment"), what)
}

// label is a kind in words.
func (k kind) label() string { return strings.ReplaceAll(string(k), "_", " ") }
