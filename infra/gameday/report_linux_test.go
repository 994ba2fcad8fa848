package gameday

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report prints what clients saw, what is owed and which alarms went off, scenario by
// scenario.
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
	seen, answered, refunds := map[string]map[string]int{}, 0, 0 // by what is seen and operation
	note := func(what string, s sight, slug string) {
		text := fmt.Sprintf("%-9s %s", what, s)
		if seen[text] == nil {
			seen[text] = map[string]int{}
		}
		seen[text][slug]++
	}
	for _, p := range o.payers {
		if len(p.seen) > 0 {
			note("clients", p.seen[0], p.op.Slug)
		}
		if len(p.seen) > 1 {
			note("in the end", p.last(), p.op.Slug)
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
	for _, text := range slices.Sorted(maps.Keys(seen)) {
		fmt.Printf("  %s  %v\n", text, strings.TrimPrefix(fmt.Sprint(seen[text]), "map"))
	}
	if o.ready != 0 {
		line("/ready", "%d", o.ready)
	}
	line("alarms", "%s; still on: %q", cmp.Or(strings.Join(o.fired, ", "), "none"), o.ending)
	line("owed", "%d while it was broken, %d in the end, refunds due: %d", len(o.owed), len(o.left), refunds)
	line("verdict", "%d payments, money moved %d times, %d answered, failed: %t", len(o.payers), o.transfers, answered, o.failed)
}
