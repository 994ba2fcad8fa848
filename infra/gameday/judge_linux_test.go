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
	late := w.series.lateLines(atTable)
	own := without{w.series, func(v dated) bool {
		// A verdict that is not on record has a line of its own that says why.
		v.late = v.late || v.payer != "" && strings.Contains(late, v.payer)
		broken := v.round > 0 && v.round < out.mended
		return machines(v, c.stable || !broken, w.table.phases)
	}}
	rounds := w.series.now() + 1
	for _, a := range alarms {
		whole, history := a.History(w.series, rounds), a.History(own, rounds)
		fires := slices.Contains(c.fires, name(a))
		if fires && slices.Contains(whole, Firing) || slices.Contains(history, Firing) {
			out.fired = append(out.fired, name(a))
		}
		c.judgeOne(w, name(a), history, out)
	}
	for _, f := range c.fires {
		if !slices.Contains(out.fired, f) {
			w.Errorf("alarm %s does not go off", f)
		}
	}
	out.failed = w.Failed()
}

func (c scenario) judgeOne(w *world, alarm string, history []State, out *outcome) {
	w.Helper()
	if slices.Contains(history, Firing) && !slices.Contains(slices.Concat(c.fires, c.may), alarm) {
		w.Errorf("alarm %s goes off, and nobody expects it: %v", alarm, history)
	}
	if history[0] == Firing {
		w.Errorf("alarm %s goes off while it is calm: %v", alarm, history)
	}
	end := history[len(history)-1]
	if (end == Firing) != slices.Contains(c.lingers, alarm) {
		w.Errorf("alarm %s is %s after the mending", alarm, end)
	}
	switch end {
	case Firing:
		out.ending = append(out.ending, alarm)
	case OK:
		out.quiet = append(out.quiet, alarm)
	case Insufficient:
	}
}
