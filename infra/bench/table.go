package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// row is one line of the table. A ratio or a figure is held to its target by a
// reader: a machine that is busy misses some.
type row struct {
	What   string `json:"what"`
	Ours   string `json:"ours"`
	Beside string `json:"beside,omitempty"` // what it is compared with, and its figure
	Ratio  string `json:"ratio,omitempty"`
	Target string `json:"target,omitempty"`
	Met    *bool  `json:"met,omitempty"`
	// README puts the row among those that the README shows.
	README bool `json:"readme,omitempty"`
}

// section is a part of the table.
type section struct {
	title string
	rows  []row
}

// held gives a row its target, and says whether it is met.
func (r row) held(target string, met bool) row {
	r.Target, r.Met = target, &met
	return r
}

func (r row) verdict() string {
	switch {
	case r.Met == nil:
		return r.Target
	case *r.Met:
		return r.Target + " ✓"
	}
	return r.Target + " missed"
}

const (
	heading = "| What | Ours | Beside | Ratio | Target |\n|---|---|---|---|---|\n"
	begins  = "<!-- make bench: begin -->\n"
	ends    = "<!-- make bench: end -->\n"
)

func (r row) markdown() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.What, r.Ours, r.Beside, r.Ratio, r.verdict())
}

// writeTable writes every section.
func writeTable(w io.Writer, machine string, all []section) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# What make bench printed\n\n%s\n", machine)
	for _, s := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s", s.title, heading)
		for _, r := range s.rows {
			b.WriteString(r.markdown())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// excerpt are the lines that the README shows.
func excerpt(all []section) string {
	var b strings.Builder
	b.WriteString(heading)
	for _, s := range all {
		for _, r := range s.rows {
			if r.README {
				b.WriteString(r.markdown())
			}
		}
	}
	return b.String()
}

// putExcerpt replaces what stands between the markers of a file.
func putExcerpt(file, lines string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begins)
	_, after, closed := strings.Cut(rest, ends)
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %q and %q", file, strings.TrimSpace(begins), strings.TrimSpace(ends))
	}
	return os.WriteFile(file, []byte(before+begins+lines+ends+after), 0o644) //nolint:gosec // a document
}

// readRows reads rows that another program has measured, a line of JSON each.
func readRows(file string) ([]row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []row
	for lines := json.NewDecoder(f); ; {
		var r row
		switch err := lines.Decode(&r); err {
		case nil:
			rows = append(rows, r)
		case io.EOF:
			return rows, nil
		default:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}
