package gameday

import "slices"

// judge evaluates every alarm over the rounds.
func (c scenario) judge(w *world, alarms []Alarm, out *outcome) {
	w.Helper()
	rounds := w.series.now() + 1
	for _, a := range alarms {
		history := a.History(w.series, rounds)
		if slices.Contains(history, Firing) {
			out.fired = append(out.fired, name(a))
		}
		c.judgeOne(w, name(a), history, out)
	}
	for _, f := range c.fires {
		if !slices.Contains(out.fired, f) {
			w.Errorf("alarm %s does not go off", f)
		}
	}
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
