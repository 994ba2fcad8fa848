package gameday

import (
	"go/parser"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func calculated(expression string) (float64, error) {
	n, err := parser.ParseExpr(expression)
	if err != nil {
		return 0, err
	}
	return calculate(n, map[string]float64{"one": 1, "ten": 10, "zero": 0, "none": math.NaN()})
}

func TestMath(t *testing.T) {
	t.Parallel()
	n := math.NaN()
	for expression, want := range map[string]float64{
		"ten": 10, "none": n, "1.5e1": 15, "one + ten": 11, "one + none": n, "none + one": n,
		"one > one": 0, "ten > one": 1, "one >= one": 1, "one >= ten": 0, "one > none": n, "none >= one": n, "one + 10 > ten": 1,
		"FILL(none, 2)": 2, "FILL(one, 2)": 1, "FILL(none,0) + FILL(one, 0)": 1,
		"IF(one, ten)": 10, "IF(zero, ten)": n, "IF(none, ten)": n, "IF(one, ten, 5)": 10, "IF(zero, ten, 5)": 5, "IF(none, ten, 5)": n, "IF(one, none, 5)": n,
	} {
		got, err := calculated(expression)
		if !cmp.Equal(want, got, cmpopts.EquateNaNs()) || err != nil {
			t.Errorf("%s: %v, %v; want %v", expression, got, err, want)
		}
	}
}

// What is not known is an error, never less of an expression.
func TestBadMath(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"", "one +", "one ten", "one ^ 2", "-one", "one.b", `"text"`, "other", "RATE(one)", "FILL(one)", "FILL(one, ten)", "IF(one)", "IF(one, one, one, one)",
	} {
		if v, err := calculated(expression); err == nil {
			t.Errorf("%q is %v", expression, v)
		}
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	got := map[string]float64{}
	for name, of := range statistics() {
		got[name], got[name+" of one"] = of([]float64{4, 1, 3, 2}), of([]float64{7})
	}
	want := map[string]float64{
		"Sum": 10, "Minimum": 1, "Maximum": 4, "SampleCount": 4, "p95": 3.85,
		"Sum of one": 7, "Minimum of one": 7, "Maximum of one": 7, "SampleCount of one": 1, "p95 of one": 7,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
