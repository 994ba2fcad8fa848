package gameday

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is a source: the values of each metric by period.
type recorded map[Metric]map[int][]float64

func (r recorded) Values(m Metric, unit string, period int) []float64 {
	if unit != "" && unit != "Count" {
		return nil
	}
	return r[m][period]
}

// TestMissingData are the rows of AWS's tables "Configuring how CloudWatch
// alarms treat missing data": X breaches, 0 does not, - is missing, the newest
// is last. R is: the state is retained.
func TestMissingData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		points                               string
		of                                   int // of 3
		missing, ignore, breaching, notBreak string
	}{
		{"0 - X - X", 3, "OK", "OK", "OK", "OK"},
		{"0 - - - -", 3, "OK", "OK", "OK", "OK"},
		{"- - - - -", 3, "INSUFFICIENT_DATA", "R", "ALARM", "OK"},
		{"0 X X - X", 3, "ALARM", "ALARM", "ALARM", "ALARM"},
		{"- - X - -", 3, "ALARM", "R", "ALARM", "OK"},
		{"0 - X - X", 2, "ALARM", "ALARM", "ALARM", "ALARM"},
		{"0 0 X 0 X", 2, "ALARM", "ALARM", "ALARM", "ALARM"},
		{"0 - X - -", 2, "OK", "OK", "ALARM", "OK"},
		{"- - - - 0", 2, "OK", "OK", "ALARM", "OK"},
		{"- - - X -", 2, "ALARM", "R", "ALARM", "OK"},
		// A breach that is too new is premature.
		{"- - - - X", 3, "OK", "R", "ALARM", "OK"},
		{"X X X X X", 3, "ALARM", "ALARM", "ALARM", "ALARM"},
		{"X X X 0 0", 2, "OK", "OK", "OK", "OK"},
		{"X X 0 X 0", 2, "OK", "OK", "OK", "OK"},
	} {
		for treatment, want := range map[string]string{"missing": c.missing, "ignore": c.ignore, "breaching": c.breaching, "notBreaching": c.notBreak} {
			t.Run(fmt.Sprintf("%s, %d of 3, %s", c.points, c.of, treatment), func(t *testing.T) {
				t.Parallel()
				m := NewMetric("N", "M", nil)
				src := recorded{m: {}}
				for i, p := range strings.Fields(c.points) {
					if p != "-" {
						src[m][i] = []float64{map[string]float64{"X": 2, "0": 0}[p]}
					}
				}
				a := Alarm{
					ID: "A", Queries: []Query{{ID: "m", Metric: m, Statistic: "Sum"}}, returns: "m", Comparison: "GreaterThanThreshold",
					Threshold: 1, Period: 60, Periods: 3, Datapoints: c.of, Missing: treatment,
				}
				for _, before := range []State{OK, Firing, Insufficient} {
					wanted := State(want)
					if want == "R" {
						wanted = before
					}
					got, err := a.Evaluate(src, 4, before)
					if got != wanted || err != nil {
						t.Errorf("was %s: %s, %v; want %s", before, got, err, wanted)
					}
				}
			})
		}
	}
}

// TestHistory: two of three, and the state after each period.
func TestHistory(t *testing.T) {
	t.Parallel()
	m := NewMetric("N", "M", nil)
	src := recorded{m: {0: {0}, 1: {5}, 2: {5}, 3: {0}, 4: {0}, 5: {0}}}
	a := Alarm{
		ID: "A", Queries: []Query{{ID: "m", Metric: m, Statistic: "Sum"}}, returns: "m", Comparison: "GreaterThanOrEqualToThreshold",
		Threshold: 5, Period: 60, Periods: 3, Datapoints: 2, Missing: "notBreaching",
	}
	got, err := a.History(src, 6)
	if err != nil {
		t.Fatal(err)
	}
	want := []State{OK, OK, Firing, Firing, OK, OK}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComparison(t *testing.T) {
	t.Parallel()
	for operator, want := range map[string]string{ // of 1, 2 and 3 with 2
		"GreaterThanThreshold": "nny", "GreaterThanOrEqualToThreshold": "nyy",
		"LessThanThreshold": "ynn", "LessThanOrEqualToThreshold": "yyn",
	} {
		got := ""
		for v := 1.0; v <= 3; v++ {
			yes, known := breaches(operator, v, 2)
			got += map[bool]string{true: "y", false: "n"}[yes && known]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", operator, got, want)
		}
	}
	if _, known := breaches("LessThanLowerThreshold", 0, 0); known {
		t.Error("a comparison with a band is known")
	}
}

func TestStatistic(t *testing.T) {
	t.Parallel()
	values := []float64{4, 1, 3, 2}
	for name, want := range map[string]float64{
		"Sum": 10, "Average": 2.5, "Minimum": 1, "Maximum": 4, "SampleCount": 4, "p50": 2.5, "p100": 4, "p90": 3.7,
	} {
		if err := checkStatistic(name); err != nil {
			t.Error(err)
		}
		if got := statistic(name, values); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := statistic(name, nil); !isMissing(got) {
			t.Errorf("%s of nothing is %v", name, got)
		}
	}
	if got := statistic("p99", []float64{7}); got != 7 {
		t.Errorf("p99 of one value is %v", got)
	}
	for _, name := range []string{"", "sum", "p0", "p101", "pp", "tm99", "IQM"} {
		if checkStatistic(name) == nil {
			t.Errorf("statistic %q is known", name)
		}
	}
}
