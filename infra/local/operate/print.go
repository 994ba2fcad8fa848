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

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// facts prints names and values in two columns.
func facts(out io.Writer, pairs ...string) { table(out, "", slices.Collect(slices.Chunk(pairs, 2))) }

// table prints rows below their heads, if there are any, and nothing without rows.
func table(out io.Writer, head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if head != "" {
		fmt.Fprintln(w, head)
	}
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // as with every other print: there is nobody to tell
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

// dollars is an amount of USDC (6 decimals) as a price; a text that is not an amount
// stays what it is.
func dollars(atomic string) string {
	n, err := x402.ParseUint256(atomic)
	if err != nil {
		return plain(atomic)
	}
	const decimals, cents = 6, 2
	s := new(big.Rat).SetFrac(n, big.NewInt(1_000_000)).FloatString(decimals)
	return "$" + s[:max(len(strings.TrimRight(s, "0")), len(s)-decimals+cents)]
}

// atomic reads an amount of a record: a positive number that a transfer can have.
func atomic(amount string) (*big.Int, bool) {
	n, err := x402.ParseUint256(amount)
	return n, err == nil && n.Sign() > 0
}

// counted is a number of things, each of which is called one.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
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
	return untrusted.Clip(s, most)
}

// words is a name of JSON in words.
func words[T ~string](s T) string { return strings.ReplaceAll(string(s), "_", " ") }
