package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// facts prints names and values in two columns.
func facts(out io.Writer, pairs ...string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for pair := range slices.Chunk(pairs, 2) {
		fmt.Fprintln(w, strings.Join(pair, "\t"))
	}
	_ = w.Flush() // as with every other print: there is nobody to tell
}

// table prints rows below their heads, and nothing without rows.
func table(out io.Writer, head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
}

// count is a number of things, in words.
type count struct {
	n    int
	what string
}

// counts prints, indented, those that are not zero.
func counts(out io.Writer, all ...count) {
	for _, c := range all {
		if c.n > 0 {
			fmt.Fprintf(out, "           %d %s\n", c.n, c.what)
		}
	}
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// progress returns a function that notes how far a reading is, once a second at most.
func progress(notes io.Writer) func(format string, args ...any) {
	last := time.Now()
	return func(format string, args ...any) {
		if time.Since(last) >= time.Second {
			last = time.Now()
			fmt.Fprintf(notes, format+" ...\n", args...)
		}
	}
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// dollars is an amount of USDC (6 decimals) as a price; a text that is not a number
// stays what it is.
func dollars(atomic string) string {
	const decimals = 6
	if atomic == "" || strings.Trim(atomic, "0123456789") != "" {
		return plain(atomic)
	}
	padded := strings.Repeat("0", max(decimals+1-len(atomic), 0)) + atomic
	whole, part := padded[:len(padded)-decimals], strings.TrimRight(padded[len(padded)-decimals:], "0")
	return "$" + whole + "." + part + strings.Repeat("0", max(2-len(part), 0))
}

// atomic reads an amount of a record: a positive number that a transfer can have.
func atomic(amount string) (*big.Int, bool) {
	const mostBits, mostDigits = 256, 78
	if amount == "" || len(amount) > mostDigits || amount[0] == '0' || strings.Trim(amount, "0123456789") != "" {
		return nil, false
	}
	n, ok := new(big.Int).SetString(amount, 10)
	return n, ok && n.BitLen() <= mostBits
}

// counted is a number of things, each of which is called one.
func counted(n int, one string) string { return fmt.Sprintf("%d %s", n, plural(n, one, one+"s")) }

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// enumerated is a list in a sentence.
func enumerated(list []string) string {
	if len(list) < 3 {
		return strings.Join(list, " and ")
	}
	return strings.Join(list[:len(list)-1], ", ") + ", and " + list[len(list)-1]
}

// plain is text from a record for a terminal: one cell, never empty.
func plain(s string) string {
	const most = 200
	if s == "" {
		return "-"
	}
	return printable.Clip(s, most)
}

// words is a name of JSON in words.
func words[T ~string](s T) string { return strings.ReplaceAll(string(s), "_", " ") }
