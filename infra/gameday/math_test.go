package gameday

import (
	"fmt"
	"go/parser"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// calculateText returns the value of an expression in a period, given the values of the series.
func calculateText(expression string, series map[string]float64) (float64, error) {
	n, err := parser.ParseExpr(expression)
	if err != nil {
		return 0, err
	}
	f := formula{values: map[string]number{}, quota: 1000}
	for id, v := range series {
		f.values[id] = number{value: v}
	}
	v, err := f.calculate(n)
	return v.value, err
}

func TestMath(t *testing.T) {
	t.Parallel()
	of := map[string]float64{"one": 1, "ten": 10, "zero": 0, "none": math.NaN()}
	n := math.NaN()
	for expression, want := range map[string]float64{
		"ten": 10, "none": n, "1.5e1": 15, "one + ten": 11, "ten - one - one": 8, "one + 2 * ten": 21, "one / ten": 0.1, "2 / 4 + one": 1.5,
		// If one of two series is missing, it counts as 0. With a scalar, the result is missing.
		"one + none": 1, "none + one": 1, "none - one": -1, "none + none": n, "none + 1": n, "1 + none": n, "none > 1": n,
		"one > none": 1, "none >= one": 0, "none >= none": n,
		// A division by 0 has no value.
		"ten / zero": n, "ten / none": n, "FILL(ten / zero, 7)": 7,
		"one > one": 0, "ten > one": 1, "one >= one": 1, "one >= ten": 0, "one + 10 > ten": 1, "ten > 2 && one > 0": 1, "ten > 2 && zero > 0": 0, "zero > 0 || one > 0": 1,
		"FILL(none, 2)": 2, "FILL(one, 2)": 1, "FILL(none,0) + FILL(one, 0)": 1, "FLOOR(ten / 4)": 2, "FLOOR(none)": n,
		"IF(one, ten)": 10, "IF(zero, ten)": n, "IF(none, ten)": n, "IF(one, ten, 5)": 10, "IF(zero, ten, 5)": 5, "IF(none, ten, 5)": n, "IF(one, none, 5)": 0,
		"IF(zero, ten, none)": n, "ten / SERVICE_QUOTA(ten)": 0.01, "SERVICE_QUOTA(none)": n,
	} {
		got, err := calculateText(expression, of)
		if !cmp.Equal(want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)) || err != nil {
			t.Errorf("%s: %v, %v; want %v", expression, got, err, want)
		}
	}
	// An unknown part makes the whole expression an error.
	for _, expression := range []string{
		"", "one +", "one ten", "one ^ 2", "-one", "one.b", `"text"`, "other", "RATE(one)", "FILL(one)", "FILL(one, ten)", "FILL(1, 2)", "IF(one)", "IF(1, one, ten)", "IF(one, one, one, one)", "FLOOR(1)", "SERVICE_QUOTA(5)", "other + one", "FLOOR(other)",
	} {
		if v, err := calculateText(expression, of); err == nil {
			t.Errorf("%q is %v", expression, v)
		}
	}
}

// TestDocumentedMath checks the examples of AWS's page "Using math expressions". Each text lists
// the values by period; - is a missing value.
func TestDocumentedMath(t *testing.T) {
	t.Parallel()
	comparisons := map[string]string{"metric1": "30 20 0 0", "metric2": "20 - 20 -"}
	choices := map[string]string{"metric1": "1 1 0 0 -", "metric2": "30 - 0 0 30", "metric3": "0 0 20 - 20"}
	for _, c := range []struct {
		series           map[string]string
		expression, want string
	}{
		{comparisons, "metric2 > metric1", "0 0 1 0"}, // means metric1 < metric2, but < is not supported
		{comparisons, "metric1 >= 30", "1 0 0 0"},
		{comparisons, "metric1 > 15 && metric2 > 15", "1 0 0 0"},
		{choices, "IF(metric1, metric2, metric3)", "30 0 20 - -"},
		{choices, "IF(metric1, 5, metric3)", "5 5 20 - -"},
		{choices, "IF(metric1, metric2, 5)", "30 0 5 5 -"},
	} {
		var got []string
		for at := range strings.Fields(c.series["metric1"]) {
			of := map[string]float64{}
			for id, values := range c.series {
				v, err := strconv.ParseFloat(strings.Fields(values)[at], 64)
				if err != nil {
					v = math.NaN()
				}
				of[id] = v
			}
			v, err := calculateText(c.expression, of)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.ReplaceAll(fmt.Sprint(v), "NaN", "-"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.expression, got, c.want)
		}
	}
}
