package main

import (
	"encoding/json"
	"fmt"
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
}

type section struct {
	title string
	rows  []row
}

func (s *section) add(what, ours string, values ...any) *row {
	s.rows = append(s.rows, row{What: what, Ours: fmt.Sprintf(ours, values...)})
	return &s.rows[len(s.rows)-1]
}

func (r *row) held(target string, met bool) { r.Target, r.Met = target, &met }

const heading = "| What | Ours | Beside | Ratio | Target |\n|---|---|---|---|---|\n"

func (r row) markdown() string {
	verdict := r.Target
	if r.Met != nil {
		verdict += map[bool]string{true: " ✓", false: " missed"}[*r.Met]
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.What, r.Ours, r.Beside, r.Ratio, verdict)
}

func markdown(machine string, all []section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What make bench printed\n\n%s\n", machine)
	for _, s := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s", s.title, heading)
		for _, r := range s.rows {
			b.WriteString(r.markdown())
		}
	}
	return b.String()
}

func readRows(file string) (rows []row) {
	for line := range strings.Lines(string(must(os.ReadFile(file)))) {
		var r row
		check(json.Unmarshal([]byte(line), &r))
		rows = append(rows, r)
	}
	return rows
}
