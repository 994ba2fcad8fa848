package gameday

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// print writes what came of a scenario.
func (o *outcome) print(to io.Writer) {
	line := func(what, text string) { fmt.Fprintf(to, "  %-9s %s\n", what, text) }
	first, last := map[string][]string{}, map[string][]string{}
	answered := 0
	for _, p := range o.payers {
		if len(p.seen) == 0 {
			continue
		}
		first[p.seen[0].String()] = append(first[p.seen[0].String()], p.op.Slug)
		if len(p.seen) > 1 {
			last[p.last().String()] = append(last[p.last().String()], p.op.Slug)
		}
		if p.answered() {
			answered++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(first)) {
		line("clients", text+"  "+names(first[text]))
	}
	if o.ready != 0 {
		line("/ready", fmt.Sprint(o.ready))
	}
	for _, text := range slices.Sorted(maps.Keys(last)) {
		line("in the end", text+"  "+names(last[text]))
	}
	line("alarms", cmp.Or(strings.Join(o.fired, ", "), "none"))
	if len(o.ending) > 0 {
		line("still on", strings.Join(o.ending, ", "))
	}
	refunds := 0
	for _, d := range o.left {
		if d.RefundDue {
			refunds++
		}
	}
	line("owed", fmt.Sprintf("%d while it was broken, %d in the end, refunds due: %d", len(o.owed), len(o.left), refunds))
	verdict := "nothing is lost"
	if o.failed {
		verdict = "FAILED"
	}
	if len(o.payers) > 0 {
		verdict += fmt.Sprintf(": %d payments, money moved %d times, %d answered, %d owed", len(o.payers), o.transfers, answered, len(o.left))
	}
	line("verdict", verdict)
}

// names counts slugs.
func names(slugs []string) string {
	count := map[string]int{}
	for _, s := range slugs {
		count[s]++
	}
	var out []string
	for _, op := range catalog.All() {
		if n := count[op.Slug]; n > 0 {
			out = append(out, fmt.Sprintf("%s ×%d", op.Slug, n))
		}
	}
	return "(" + strings.Join(out, ", ") + ")"
}
