package gameday

import "fmt"

// State is the state of an alarm.
type State string

// The states of an alarm, as CloudWatch names them.
const (
	OK           State = "OK"
	Firing       State = "ALARM"
	Insufficient State = "INSUFFICIENT_DATA"
)

// Source has the values of metrics by period.
type Source interface {
	// Values are the values of a metric in a period; unit is empty or the one
	// that they must have.
	Values(m Metric, unit string, period int) []float64
}

// lookBack is how many periods before the evaluated ones are asked for too, so
// that points which came are preferred to points which are missing. AWS does
// not document the number; its examples have two.
const lookBack = 2

// History is the state of an alarm after each of the periods from 0 on, if it
// begins as Insufficient.
func (a Alarm) History(src Source, periods int) ([]State, error) {
	out := make([]State, periods)
	state := Insufficient
	for i := range out {
		var err error
		if state, err = a.Evaluate(src, i, state); err != nil {
			return nil, err
		}
		out[i] = state
	}
	return out, nil
}

// Evaluate is the state of the alarm at the end of a period, when it has been
// in a state before.
func (a Alarm) Evaluate(src Source, period int, before State) (State, error) {
	points, err := a.points(src, period)
	if err != nil {
		return "", fmt.Errorf("alarm %s: %w", a.ID, err)
	}
	there, breaching, oldest := 0, 0, 0
	for i := len(points) - 1; i >= 0 && there < a.Periods; i-- {
		if isMissing(points[i]) {
			continue
		}
		there++
		if yes, _ := breaches(a.Comparison, points[i], a.Threshold); yes {
			breaching++
			oldest = len(points) - i
		}
	}
	return a.judge(there, breaching, oldest, before), nil
}

// judge decides from the points there are: how many, how many of them breach,
// and how many periods ago the oldest of those began. With as many points as
// the alarm looks at nothing is missing, however they lie.
func (a Alarm) judge(there, breaching, oldest int, before State) State {
	short := there < a.Periods
	if short && a.Missing == "breaching" {
		breaching += a.Periods - there
	}
	switch {
	case short && there == 0 && a.Missing == "missing":
		return Insufficient
	case short && a.Missing == "ignore" && there == breaching && breaching < a.Datapoints:
		return before
	case breaching >= a.Datapoints:
		return Firing
	case short && a.Missing == "missing" && there == breaching && oldest >= a.Datapoints:
		return Firing // every point there is has breached for long enough
	}
	return OK
}

// points is the compared series up to a period, oldest first.
func (a Alarm) points(src Source, period int) (series, error) {
	n := a.Periods + lookBack
	c := calculator{known: map[string]series{}, periods: n}
	for _, q := range a.Queries {
		if q.expression != nil {
			var err error
			if c.known[q.ID], err = c.eval(q.expression); err != nil {
				return nil, fmt.Errorf("query %s: %w", q.ID, err)
			}
			continue
		}
		s := make(series, n)
		for i := range s {
			var values []float64
			if at := period - n + 1 + i; at >= 0 {
				values = src.Values(q.Metric, q.unit, at)
			}
			s[i] = statistic(q.Statistic, values)
		}
		c.known[q.ID] = s
	}
	return c.known[a.returns], nil
}

// breaches compares a value with a threshold.
func breaches(operator string, v, threshold float64) (yes, known bool) {
	switch operator {
	case "GreaterThanThreshold":
		return v > threshold, true
	case "GreaterThanOrEqualToThreshold":
		return v >= threshold, true
	case "LessThanThreshold":
		return v < threshold, true
	case "LessThanOrEqualToThreshold":
		return v <= threshold, true
	}
	return false, false
}
