package gameday

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// recordedValues is a Source. It has the values of each metric by period.
type recordedValues map[Metric][][]float64

func (r recordedValues) Values(m Metric, period int) []float64 {
	if period >= len(r[m]) {
		return nil
	}
	return r[m][period]
}

// TestMissingData checks the rows of the tables in AWS's page "Configuring how CloudWatch
// alarms treat missing data", for an evaluation range of five. It also checks the cases with
// recent breaching points, which the text below the tables describes. X is a breaching point, 0
// is a point that does not breach, and - is a missing point. The newest point is last. * means
// that the alarm keeps its state.
func TestMissingData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		points     string
		datapoints int // how many of 3 points must breach
		want       string
	}{
		{"0 - X - X", 3, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"0 - - - -", 3, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"- - - - -", 3, "missing INSUFFICIENT_DATA, ignore *, breaching ALARM, notBreaching OK"},
		{"0 X X - X", 3, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"- - X - -", 3, "missing ALARM, ignore *, breaching ALARM, notBreaching OK"},
		{"- - - X -", 3, "missing OK, ignore *, breaching ALARM, notBreaching OK"},
		{"- - - - X", 3, "missing OK, ignore *, breaching ALARM, notBreaching OK"},
		{"0 - X - X", 2, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"0 0 X 0 X", 2, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"0 - X - -", 2, "missing OK, ignore OK, breaching ALARM, notBreaching OK"},
		{"- - - - 0", 2, "missing OK, ignore OK, breaching ALARM, notBreaching OK"},
		{"- - - X -", 2, "missing ALARM, ignore *, breaching ALARM, notBreaching OK"},
		{"- - - X X", 2, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"X X X X X", 3, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"X X X 0 0", 2, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"X X 0 X 0", 2, "missing OK, ignore OK, breaching OK, notBreaching OK"},
	} {
		var points []float64
		for _, p := range strings.Fields(c.points) {
			points = append(points, pointOf(t, p))
		}
		slices.Reverse(points)
		for _, before := range []State{OK, Firing, Insufficient} {
			var got []string
			for _, treatment := range []string{"missing", "ignore", "breaching", "notBreaching"} {
				a := Alarm{threshold: 1, Periods: 3, Datapoints: c.datapoints, Missing: treatment}
				got = append(got, fmt.Sprint(treatment, " ", a.nextState(points, before)))
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "*", string(before)), strings.Join(got, ", ")); diff != "" {
				t.Errorf("%s, %d of 3, was %s (-want +got):\n%s", c.points, c.datapoints, before, diff)
			}
		}
	}
}

// alarmWith returns an alarm with the given properties that has one metric. It also returns the
// metric.
func alarmWith(t *testing.T, properties string) (Alarm, Metric) {
	t.Helper()
	doc := `{"Resources":{"A":{"Type":"AWS::CloudWatch::Alarm","Properties":{"Threshold":0,"ComparisonOperator":"GreaterThanThreshold",` + properties + `}}}}`
	alarms, err := ReadAlarms([]byte(doc), "prod")
	if err != nil || len(alarms) != 1 {
		t.Fatalf("%v, %v", alarms, err)
	}
	return alarms[0], alarms[0].Queries[0].Metric
}

const plainSum = `"Namespace":"N","MetricName":"M","Statistic":"Sum",`

// TestEveryMinute checks an alarm whose period is longer than a minute. The alarm must be
// evaluated at the end of every minute. If no newer value arrives, the last value must count
// until it leaves the evaluation range.
func TestEveryMinute(t *testing.T) {
	t.Parallel()
	a, m := alarmWith(t, plainSum+`"Period":300,"EvaluationPeriods":1,"DatapointsToAlarm":1,"TreatMissingData":"notBreaching"`)
	line := &Timeline{}
	line.Add(m, 150*time.Second, 1) // in minute 2
	for _, c := range []struct{ minutesLate, from, to int }{{0, 2, 16}, {2, 4, 16}, {5, 7, 16}} {
		line.Late = c.minutesLate
		history := a.Minutes(line, 20)
		first := slices.Index(history, Firing)
		last := len(history) - 1
		for last >= 0 && history[last] != Firing {
			last--
		}
		if first != c.from || last != c.to {
			t.Errorf("%d minutes late: it is on from minute %d to %d, want %d to %d: %v", c.minutesLate, first, last, c.from, c.to, history)
		}
	}
}

// TestFillHidesWhatIsLate checks that FILL hides values that arrive late. FILL fills the
// newest period before the values of this period have arrived. So an alarm never sees the
// values if it evaluates a single period of one minute. AWS's page on metric math describes
// this, and recommends alarms on M of N periods.
func TestFillHidesWhatIsLate(t *testing.T) {
	t.Parallel()
	const filled = `"Metrics":[{"Id":"m","ReturnData":false,"MetricStat":{"Stat":"Sum","Period":60,"Metric":{"Namespace":"N","MetricName":"M"}}},{"Id":"v","Expression":"FILL(m, 0)"}],`
	for _, c := range []struct {
		name, properties string
		minutesLate      int
		goesOff          bool
	}{
		{"at once", filled + `"EvaluationPeriods":1,"DatapointsToAlarm":1`, 0, true},
		{"late", filled + `"EvaluationPeriods":1,"DatapointsToAlarm":1`, 2, false},
		{"late, one of three", filled + `"EvaluationPeriods":3,"DatapointsToAlarm":1`, 2, true},
		{"late, without FILL", plainSum + `"Period":60,"EvaluationPeriods":1,"DatapointsToAlarm":1`, 2, true},
		{"late, over five minutes", strings.Replace(filled, "60", "300", 1) + `"EvaluationPeriods":1,"DatapointsToAlarm":1`, 2, true},
	} {
		a, m := alarmWith(t, c.properties+`,"TreatMissingData":"notBreaching"`)
		line := &Timeline{Late: c.minutesLate}
		for minute := range 20 {
			line.Add(m, time.Duration(minute)*time.Minute, 1)
		}
		if got := slices.Contains(a.Minutes(line, 20), Firing); got != c.goesOff {
			t.Errorf("%s: it goes off: %v", c.name, got)
		}
	}
}

// TestSilence checks when an alarm that notifies about missing data goes off: once the whole
// evaluation range is empty. This range is longer than the periods that the alarm evaluates.
// The alarm must not go off before there were any data.
func TestSilence(t *testing.T) {
	t.Parallel()
	for periods, want := range map[int]int{1: 15, 3: 25} {
		a, m := alarmWith(t, plainSum+fmt.Sprintf(`"Period":300,"EvaluationPeriods":%[1]d,"DatapointsToAlarm":%[1]d,"TreatMissingData":"missing","InsufficientDataActions":["T"]`, periods))
		a.breachesBelow = true
		line := &Timeline{}
		if slices.Contains(a.Minutes(line, 60), Firing) {
			t.Errorf("%d periods: it goes off before there were any data", periods)
		}
		const stops = 30
		for minute := 10; minute < stops; minute += 5 {
			line.Add(m, time.Duration(minute)*time.Minute, 1)
		}
		// The last value was measured in minute 25. Minutes count from 0, so this minute is the
		// 26th (stops - 4).
		if got := slices.Index(a.Minutes(line, 90), Firing) + 1 - (stops - 4); got != want {
			t.Errorf("%d periods of five minutes: it goes off %d minutes after the last value, want %d", periods, got, want)
		}
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	got := map[string]float64{}
	for name, of := range statistics() {
		got[name] = of([]float64{4, 1, 3, 2})
		got[name+" of one"] = of([]float64{7})
	}
	want := map[string]float64{
		"Sum": 10, "Minimum": 1, "Maximum": 4, "SampleCount": 4, "p95": 3.85,
		"Sum of one": 7, "Minimum of one": 7, "Maximum of one": 7, "SampleCount of one": 1, "p95 of one": 7,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// pointOf returns the data point for a symbol of the documentation: X for one that breaches, 0
// for one that does not, and - for a missing one.
func pointOf(t *testing.T, symbol string) float64 {
	t.Helper()
	switch symbol {
	case "X":
		return 2
	case "0":
		return 1
	case "-":
		return math.NaN()
	}
	t.Fatalf("%q is no data point", symbol)
	return 0
}
