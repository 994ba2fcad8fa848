package gameday

import (
	"slices"
	"strings"
)

// judge evaluates every alarm over the rounds. That one goes off which must is
// judged by everything that was printed and measured, and that one is quiet
// which must be, by what is left of it without what only the machine did.
func (c scenario) judge(w *world, alarms []Alarm, out *outcome) {
	w.Helper()
	late := w.series.lateLines("dynamo: ")
	own := without{w.series, func(v dated) bool {
		// A verdict that is not on record has a line of its own that says why.
		v.late = v.late || v.payer != "" && strings.Contains(late, v.payer)
		broken := v.round > 0 && v.round < out.mended
		return machines(v, c.stable || !broken, w.table.phases)
	}}
	rounds := w.series.now() + 1
	for _, a := range alarms {
		whole, err := a.History(w.series, rounds)
		if err != nil {
			w.Fatal(err)
		}
		history, err := a.History(own, rounds)
		if err != nil {
			w.Fatal(err)
		}
		if !slices.Contains(c.fires, name(a)) {
			whole = history
		}
		if slices.Contains(whole, Firing) {
			out.fired = append(out.fired, name(a))
		}
		c.judgeOne(w, name(a), history, out)
	}
	for _, f := range c.fires {
		if !slices.Contains(out.fired, f) {
			w.Errorf("alarm %s does not go off", f)
		}
	}
	for _, f := range c.lingers {
		if !slices.Contains(out.ending, f) {
			w.Errorf("alarm %s ends, although what it says is still true", f)
		}
	}
	out.failed = w.Failed()
}

// judgeOne looks at how one alarm was after each round.
func (c scenario) judgeOne(w *world, alarm string, history []State, out *outcome) {
	w.Helper()
	expected := slices.Contains(c.fires, alarm) || slices.Contains(c.may, alarm)
	if slices.Contains(history, Firing) && !expected {
		w.Errorf("alarm %s goes off, and nobody expects it: %v", alarm, history)
	}
	if history[0] == Firing {
		w.Errorf("alarm %s goes off while it is calm: %v", alarm, history)
	}
	switch history[len(history)-1] {
	case Firing:
		out.ending = append(out.ending, alarm)
		if !slices.Contains(c.lingers, alarm) {
			w.Errorf("alarm %s does not end after the mending", alarm)
		}
	case OK:
		out.quiet = append(out.quiet, alarm)
	case Insufficient:
	}
}
