package main

import (
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/infra/local/bill"
)

// tone is the colour of an event, as the number in an ANSI escape sequence.
type tone string

const (
	plain tone = ""
	money tone = "33" // yellow
	bad   tone = "31" // red
	good  tone = "32" // green
	faint tone = "2"
	bold  tone = "1"
)

// mayHaveColours reports whether the output may have colours (https://no-color.org).
func mayHaveColours(out *os.File, getenv func(string) string) bool {
	info, err := out.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// The widths of the page, in characters: of the margin, of each of the two columns, and of the
// gap between the columns.
const (
	margin = 3
	column = 36
	gap    = 3
)

// cell is one line of one column, with its colour.
type cell struct {
	tone tone
	text string
}

// timeline prints two columns. An event of the right column is only recorded at first. An
// event of the left column is printed at once, with the recorded lines of the right column
// beside it.
type timeline struct {
	out     io.Writer
	colours bool

	mu           sync.Mutex
	number       string // the number of the current try; empty once that number is printed
	pendingRight []cell // lines of the right column that are not printed yet
}

// begin prints the introduction.
func (p *timeline) begin() {
	fmt.Fprint(p.out, `One answer costs 0.005 USDC of play money. The client signs another payment
whenever it gets no answer. For each seller, the facilitator fails once after
settling, the seller is killed once while it waits, and the network loses one
answer. Processes, signatures, waits and the ledger are real; the source is in
infra/demo. It takes about 40 seconds, and most of them are one wait.

`)
	p.printRow(cell{bold, "this service, with its ledger file"}, cell{bold, "a seller of 30 lines, with no ledger"})
	p.printRow(cell{faint, strings.Repeat("-", column)}, cell{faint, strings.Repeat("-", column)})
}

// try begins the nth try, whose number is printed beside its first event.
func (p *timeline) try(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number = fmt.Sprint(n)
}

// printLeft prints an event of the left column.
func (p *timeline) printLeft(t tone, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range wrapText(text) {
		p.printRow(cell{t, line}, p.takeRight())
	}
}

// recordRight records an event of the right column, to be printed later.
func (p *timeline) recordRight(t tone, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range wrapText(text) {
		p.pendingRight = append(p.pendingRight, cell{t, line})
	}
}

// takeRight removes the next line from pendingRight and returns it.
func (p *timeline) takeRight() cell {
	if len(p.pendingRight) == 0 {
		return cell{}
	}
	first := p.pendingRight[0]
	p.pendingRight = p.pendingRight[1:]
	return first
}

// end ends a try: it prints the recorded lines of the right column that are not printed yet,
// and then an empty line.
func (p *timeline) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pendingRight) > 0 {
		p.printRow(cell{}, p.takeRight())
	}
	fmt.Fprintln(p.out)
}

// printTotals prints the totals of both columns.
func (p *timeline) printTotals(with, without sums) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printRow(cell{faint, strings.Repeat("-", column)}, cell{faint, strings.Repeat("-", column)})
	p.printRow(with.cell(), without.cell())
}

// printVerdict prints what the client paid to each seller.
func (p *timeline) printVerdict(with, without sums) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "\nSame purchase, same failures: %s USDC paid with a ledger, %s without.\n",
		bill.Dollars(big.NewInt(with.paid)), bill.Dollars(big.NewInt(without.paid)))
}

// cell formats the sums for a column.
func (s sums) cell() cell {
	t := good
	if s.transfers != s.answers {
		t = bad
	}
	return cell{t, fmt.Sprintf("transfers %d, answers %d", s.transfers, s.answers)}
}

// printRow prints a line of both columns.
func (p *timeline) printRow(left, right cell) {
	number := fmt.Sprintf("%-*s", margin, p.number)
	p.number = ""
	between := strings.Repeat(" ", max(0, column-utf8.RuneCountInString(left.text))+gap)
	line := p.paint(cell{bold, number}) + p.paint(left) + between + p.paint(right)
	if !p.colours {
		line = strings.TrimRight(line, " ")
	}
	fmt.Fprintln(p.out, line)
}

// paint returns the text of a cell in the cell's colour.
func (p *timeline) paint(c cell) string {
	if !p.colours || c.tone == plain || strings.TrimSpace(c.text) == "" {
		return c.text
	}
	return "\x1b[" + string(c.tone) + "m" + c.text + "\x1b[0m"
}

// wrapText splits a text into lines that fit into a column. All lines except the first are
// indented.
func wrapText(text string) (lines []string) {
	const indent = "  "
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line+" "+word) > column:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
