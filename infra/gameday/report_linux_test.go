package gameday

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

func report(list []scenario, outcomes []*outcome, alarms int) {
	fired := map[string]bool{}
	for i, c := range list {
		o := outcomes[i]
		if o == nil {
			fmt.Printf("\n%s: not played to its end\n", c.name)
			continue
		}
		fmt.Printf("\n%s\n", strings.ToUpper(c.name[:1])+c.name[1:])
		o.print()
		for _, a := range o.fired {
			fired[a] = true
		}
	}
	fmt.Printf("\n%d of %d alarms went off\n\n", len(fired), alarms)
}

func (o *outcome) print() {
	line := func(what, format string, args ...any) { fmt.Printf("  %-9s %s\n", what, fmt.Sprintf(format, args...)) }
	first, last := map[string][]string{}, map[string][]string{}
	answered, refunds := 0, 0
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
	for _, d := range o.left {
		if d.RefundDue {
			refunds++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(first)) {
		line("clients", "%s  %s", text, names(first[text]))
	}
	if o.ready != 0 {
		line("/ready", "%d", o.ready)
	}
	for _, text := range slices.Sorted(maps.Keys(last)) {
		line("in the end", "%s  %s", text, names(last[text]))
	}
	line("alarms", "%s", cmp.Or(strings.Join(o.fired, ", "), "none"))
	if len(o.ending) > 0 {
		line("still on", "%s", strings.Join(o.ending, ", "))
	}
	line("owed", "%d while it was broken, %d in the end, refunds due: %d", len(o.owed), len(o.left), refunds)
	verdict := map[bool]string{true: "FAILED", false: "nothing is lost"}[o.failed]
	line("verdict", "%s: %d payments, money moved %d times, %d answered, %d owed", verdict, len(o.payers), o.transfers, answered, len(o.left))
}

func names(slugs []string) string {
	var out []string
	for _, op := range catalog.All() {
		if n := len(slugs) - len(slices.DeleteFunc(slices.Clone(slugs), func(s string) bool { return s == op.Slug })); n > 0 {
			out = append(out, fmt.Sprintf("%s ×%d", op.Slug, n))
		}
	}
	return "(" + strings.Join(out, ", ") + ")"
}
