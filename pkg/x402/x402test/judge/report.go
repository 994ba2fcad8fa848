package judge

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// RowResult is the result of one row: a Case for each purchase, or why the row was not played.
type RowResult struct {
	Row       string `json:"row"`
	What      string `json:"what"`
	NotPlayed string `json:"not_played,omitempty"` // why the row was not played
	Cases     []Case `json:"cases,omitempty"`
}

// Report is the result of a test of a seller.
type Report struct {
	Seed     uint64      `json:"seed"`
	Price    string      `json:"price"`
	Promises []Promise   `json:"promises"`
	Rows     []RowResult `json:"rows"`
}

// Broken returns a line for each case whose verdict is Broken.
func (r *Report) Broken() []string {
	var all []string
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			if c.Verdict == Broken {
				all = append(all, fmt.Sprintf("%s, %s: %s (%s)", row.Row, c.Way, c.Why, c.By))
			}
		}
	}
	return all
}

// Count returns how many cases have the given verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			if c.Verdict == v {
				n++
			}
		}
	}
	return n
}

// ways returns the ways that were played, in the order of allWays.
func (r *Report) ways() []Way {
	var all []Way
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			if !slices.Contains(all, c.Way) {
				all = append(all, c.Way)
			}
		}
	}
	order := allWays()
	slices.SortStableFunc(all, func(a, b Way) int { return place(order, a) - place(order, b) })
	return all
}

// place returns the position of a way in the given order. A way that is not in the order, such
// as that of an outsider, comes last.
func place(order []Way, w Way) int {
	at := slices.Index(order, w)
	if at < 0 {
		return len(order)
	}
	return at
}

// caseOf returns the case of a way in this row, or nil if the row was not played in this way.
func (r *RowResult) caseOf(w Way) *Case {
	for i := range r.Cases {
		if r.Cases[i].Way == w {
			return &r.Cases[i]
		}
	}
	return nil
}

// cell returns a short text for a case: transfers, answers, and what went wrong.
func (c *Case) cell() string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf("%d/%d", c.Transfers, c.Answers)
	if c.Stranger > 0 {
		text += fmt.Sprintf(" +%d stranger", c.Stranger)
	}
	if c.Another > 0 {
		text += fmt.Sprintf(" +%d other", c.Another)
	}
	switch c.Verdict {
	case Broken:
		text += " BROKEN"
	case NotPromised:
		text += " not promised"
	case Held:
	}
	return text
}

const legend = "Each cell is the number of transfers on the chain and of answers that the payer got."

// promiseSentence returns a sentence with the seller's promises.
func (r *Report) promiseSentence() string {
	if len(r.Promises) == 0 {
		return "The seller promises nothing beyond the protocol."
	}
	return "The seller promises: " + strings.Join(names(r.Promises), ", ") + "."
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	ways := r.ways()
	fmt.Fprintf(table, "row\t%s\twhat happens\n", strings.Join(names(ways), "\t"))
	for _, row := range r.Rows {
		fmt.Fprint(table, row.Row)
		for _, way := range ways {
			fmt.Fprintf(table, "\t%s", row.caseOf(way).cell())
		}
		fmt.Fprintf(table, "\t%s\n", row.summary())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s %s\n", legend, r.promiseSentence())
	for _, one := range r.failures() {
		fmt.Fprintf(w, "  %-12s  %s, %s: %s\n", one.verdict, one.row, strings.Join(names(one.ways), ", "), one.reason)
	}
	_, err := fmt.Fprintf(w, "%d held, %d broken, %d not promised\n", r.Count(Held), r.Count(Broken), r.Count(NotPromised))
	return err
}

// failureGroup is a group of cases of one row that failed for the same reason.
type failureGroup struct {
	verdict     Verdict
	row, reason string
	ways        []Way
}

// failures returns all cases that failed. Cases of one row that failed for the same reason
// form one group.
func (r *Report) failures() []failureGroup {
	var all []failureGroup
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			if c.Verdict == Held {
				continue
			}
			reason := fmt.Sprintf("%s; it said last: %s", c.Why, c.Said)
			if c.Verdict == Broken {
				reason = fmt.Sprintf("%s, against %s; it said last: %s", c.Why, c.By, c.Said)
			}
			same := func(one failureGroup) bool {
				return one.row == row.Row && one.verdict == c.Verdict && one.reason == reason
			}
			at := slices.IndexFunc(all, same)
			if at < 0 {
				at = len(all)
				all = append(all, failureGroup{verdict: c.Verdict, row: row.Row, reason: reason})
			}
			all[at].ways = append(all[at].ways, c.Way)
		}
	}
	return all
}

// summary returns what happens in the row, or why it was not played.
func (r *RowResult) summary() string {
	if r.NotPlayed != "" {
		return "not played: " + r.NotPlayed
	}
	return r.What
}

// WriteMarkdown writes the report as a Markdown table.
func (r *Report) WriteMarkdown(w io.Writer) error {
	ways := r.ways()
	fmt.Fprintf(w, "%s %s\n\n| What happens |", legend, r.promiseSentence())
	for _, way := range ways {
		fmt.Fprintf(w, " %s |", way)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(ways)))
	for _, row := range r.Rows {
		fmt.Fprintf(w, "| `%s`: %s |", row.Row, row.summary())
		for _, way := range ways {
			cell := strings.Replace(row.caseOf(way).cell(), "BROKEN", "**broken**", 1)
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "\n%d held, %d broken, %d not promised\n", r.Count(Held), r.Count(Broken), r.Count(NotPromised))
	return err
}

// WriteJSON writes the whole report, including the steps of every case.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteSteps writes what happened in each case.
func (r *Report) WriteSteps(w io.Writer) error {
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			fmt.Fprintf(w, "%s, %s: %s\n", row.Row, c.Way.summary(), c.cell())
			for _, step := range c.Steps {
				fmt.Fprintf(w, "  %s\n", step)
			}
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
