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

// printFacts prints names and values in two columns.
func printFacts(out io.Writer, pairs ...string) {
	printTable(out, "", slices.Collect(slices.Chunk(pairs, 2)))
}

// printTable prints rows below their headings. Without rows it prints nothing.
func printTable(out io.Writer, head string, rows [][]string) {
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
	_ = w.Flush() // the error is ignored, like the errors of all other prints
}

// count is a number with a description of what is counted.
type count struct {
	n    int
	what string
}

// printCounts prints the counts that are not zero, each on an indented line.
func printCounts(out io.Writer, all ...count) {
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

// newProgressPrinter returns a function that prints a progress message, at most once a second.
func newProgressPrinter(notes io.Writer) func(format string, args ...any) {
	last := time.Now()
	return func(format string, args ...any) {
		if time.Since(last) >= time.Second {
			last = time.Now()
			fmt.Fprintf(notes, format+" ...\n", args...)
		}
	}
}

func formatMinute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

// formatDollars formats an amount of USDC (6 decimals) as a price. Text that is not an amount
// is not formatted, only made safe for a terminal.
func formatDollars(atomic string) string {
	n, err := x402.ParseUint256(atomic)
	if err != nil {
		return cellText(atomic)
	}
	const decimals, cents = 6, 2
	s := new(big.Rat).SetFrac(n, big.NewInt(1_000_000)).FloatString(decimals)
	return "$" + s[:max(len(strings.TrimRight(s, "0")), len(s)-decimals+cents)]
}

// parseAtomic parses the amount in a record. It reports whether the amount is positive and fits
// into the 256 bits that a transfer has for it.
func parseAtomic(amount string) (*big.Int, bool) {
	n, err := x402.ParseUint256(amount)
	return n, err == nil && n.Sign() > 0
}

// formatCount returns a number followed by a noun. The caller gives the noun in the singular.
// Unless the number is 1, formatCount adds an s.
func formatCount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// joinWithAnd joins a list with commas and "and", as in a sentence.
func joinWithAnd(list []string) string {
	if len(list) < 3 {
		return strings.Join(list, " and ")
	}
	return strings.Join(list[:len(list)-1], ", ") + ", and " + list[len(list)-1]
}

// cellText returns text from a record in a form that is safe for a terminal. The text fits into
// one cell of a table and is never empty.
func cellText(s string) string {
	const most = 200
	if s == "" {
		return "-"
	}
	return untrusted.Clip(s, most)
}

// spacedName returns a JSON name with spaces instead of underscores.
func spacedName[T ~string](s T) string { return strings.ReplaceAll(string(s), "_", " ") }
