package gameday

import (
	"math"
	"slices"
	"time"
)

// State is the state of an alarm, as CloudWatch names it.
type State string

// The states of an alarm.
const (
	OK           State = "OK"
	Firing       State = "ALARM"
	Insufficient State = "INSUFFICIENT_DATA"
)

// LeastExtra is how many data points CloudWatch fetches in addition to those that an alarm
// evaluates. With these points, CloudWatch can use older points in place of missing ones. The
// documentation says that the number depends on the period; in all of its examples the number
// is two.
const LeastExtra = 2

// Source returns the values of a metric in a period.
type Source interface {
	Values(m Metric, period int) []float64
}

// History returns the state of an alarm after each period. Periods are numbered from 0. At
// first an alarm is Insufficient. If an alarm notifies about missing data, it becomes Firing
// when no more data come.
func (a Alarm) History(src Source, periods int) []State {
	return a.states(periods, func(now int) []float64 {
		points := make([]float64, 0, a.Periods+a.Extra)
		for at := now; len(points) < cap(points); at-- {
			points = append(points, a.value(func(m Metric) []float64 {
				if at < 0 {
					return nil
				}
				return src.Values(m, at)
			}))
		}
		return points
	})
}

// Timeline holds the values of metrics by the minute in which they were measured. Minutes are
// numbered from 0.
type Timeline struct {
	// Late is how many minutes pass from the end of a minute until CloudWatch has its
	// values.
	Late   int
	values map[Metric]map[int][]float64
}

// Add adds a value of a metric. The time of the measurement counts from the beginning of the
// timeline.
func (t *Timeline) Add(m Metric, at time.Duration, value float64) {
	if t.values == nil {
		t.values = map[Metric]map[int][]float64{}
	}
	if t.values[m] == nil {
		t.values[m] = map[int][]float64{}
	}
	minute := int(math.Floor(at.Minutes()))
	t.values[m][minute] = append(t.values[m][minute], value)
}

// valuesBetween returns the values that were measured in a range of minutes. The first minute
// belongs to the range, and the last does not. It leaves out values that CloudWatch does not
// have yet at the beginning of the current minute.
func (t *Timeline) valuesBetween(m Metric, from, to, now int) (values []float64) {
	for minute := from; minute < min(to, now-t.Late); minute++ {
		values = append(values, t.values[m][minute]...)
	}
	return values
}

// Minutes returns the state of an alarm at the end of each minute. If the period of an alarm
// is a minute or longer, CloudWatch evaluates the alarm every minute, over periods that end
// with that minute. An alarm begins as Insufficient. An alarm that notifies about missing data
// is Firing once there are no more data.
func (a Alarm) Minutes(t *Timeline, minutes int) []State {
	long := a.Period / 60
	return a.states(minutes, func(minute int) []float64 {
		end := minute + 1
		points := make([]float64, 0, a.Periods+a.Extra)
		for to := end; len(points) < cap(points); to -= long {
			points = append(points, a.value(func(m Metric) []float64 { return t.valuesBetween(m, to-long, to, end) }))
		}
		return points
	})
}

// states evaluates an alarm several times, and returns its state after each evaluation. The
// callback returns the data points of the evaluation range, newest first.
func (a Alarm) states(times int, points func(now int) []float64) []State {
	history := make([]State, times)
	state := Insufficient
	known := false
	for now := range history {
		state = a.nextState(points(now), state)
		known = known || state != Insufficient
		history[now] = state
		if known && state == Insufficient && len(a.Lost) > 0 {
			history[now] = Firing
		}
	}
	return history
}

// nextState returns the next state of an alarm. The given points are those of the evaluation
// range, newest first, and the given state is the previous one. The alarm evaluates the newest
// a.Periods points that exist, and skips the gaps between them. Points count as missing only if
// fewer than a.Periods points exist.
func (a Alarm) nextState(points []float64, before State) State {
	existing := 0
	breaching := 0
	oldest := 0
	for age, v := range points {
		if math.IsNaN(v) || existing == a.Periods {
			continue
		}
		existing++
		oldest = age + 1
		if v < a.threshold && a.breachesBelow || v > a.threshold && !a.breachesBelow {
			breaching++
		}
	}
	lacks := a.Periods - existing
	if a.Missing == "breaching" {
		breaching += lacks
	}
	undecided := lacks > 0 && breaching == existing && breaching < a.Datapoints
	switch {
	case breaching >= a.Datapoints:
		return Firing
	case undecided && a.Missing == "ignore":
		return before
	case undecided && a.Missing == "missing" && existing == 0:
		return Insufficient
	case undecided && a.Missing == "missing" && oldest >= a.Datapoints:
		// All existing points breach, and at least one of them is not in the newest
		// a.Datapoints-1 periods.
		return Firing
	}
	return OK
}

// value returns the value that the alarm compares with its threshold in one period, or NaN if
// there is none. The callback returns the values of a metric in that period.
func (a Alarm) value(values func(Metric) []float64) float64 {
	f := formula{values: map[string]number{}, quota: a.Quota}
	for _, q := range a.Queries {
		f.values[q.ID] = missingPoint()
		if q.parsed != nil {
			f.values[q.ID], _ = f.calculate(q.parsed) // ReadAlarms has checked the expression
		} else if v := values(q.Metric); len(v) > 0 {
			f.values[q.ID] = number{value: statistics()[q.Statistic](v)}
		}
	}
	return f.values[a.resultID].value
}

// statistics returns the supported statistics by name. Each needs at least one value.
func statistics() map[string]func(values []float64) float64 {
	return map[string]func(values []float64) float64{
		"Minimum": slices.Min[[]float64], "Maximum": slices.Max[[]float64],
		"SampleCount": func(values []float64) float64 { return float64(len(values)) },
		"Sum": func(values []float64) (sum float64) {
			for _, v := range values {
				sum += v
			}
			return sum
		},
		// The percentile is interpolated between the two nearest values.
		"p95": func(values []float64) float64 {
			sorted := slices.Sorted(slices.Values(values))
			low, part := math.Modf(0.95 * float64(len(sorted)-1))
			return sorted[int(low)] + part*(sorted[min(int(low)+1, len(sorted)-1)]-sorted[int(low)])
		},
	}
}
