package gameday

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestMath(t *testing.T) {
	t.Parallel()
	n := math.NaN()
	c := calculator{known: map[string]series{"a": {1, n, 3}, "b": {10, 20, 0}, "none": {n, n, n}, "e": {7, 7, 7}}, periods: 3}
	for expression, want := range map[string]series{
		"a":                           {1, n, 3},
		"2":                           {2, 2, 2},
		"a + b":                       {11, n, 3},
		"b-a-1":                       {8, n, -4},
		"1 + 2 * 3":                   {7, 7, 7},
		"(1 + 2) * 3":                 {9, 9, 9},
		"8/4/2":                       {1, 1, 1},
		"a / b":                       {0.1, n, n}, // by zero: nothing
		"100*(a/b)":                   {10, n, n},
		"FILL(a, 0)":                  {1, 0, 3},
		"FILL(a,0) + FILL(none, 0)":   {1, 0, 3},
		"a > 1":                       {0, n, 1},
		"b >= 10":                     {1, 1, 0},
		"b < 10":                      {0, 0, 1},
		"b <= 10":                     {1, 0, 1},
		"b + 10 > 2 * b":              {0, 0, 1},
		"IF(b >= 10, b, 0)":           {10, 20, 0},
		"IF(b > 10, 1)":               {n, 1, n},
		"IF(a, b, 0)":                 {10, n, 0},
		"IF(FILL(a,0) > 0, a/b*2, 0)": {0.2, 0, n},
		"e * 2":                       {14, 14, 14},
		"1.5e1":                       {15, 15, 15},
	} {
		parsed, err := parse(expression)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := c.eval(parsed)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-12)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", expression, err, diff)
		}
	}
}

// What is not known is an error, never less of an expression.
func TestBadMath(t *testing.T) {
	t.Parallel()
	for expression, says := range map[string]string{
		"":                 "expected operand",
		"a +":              "expected operand",
		"(a":               "expected ')'",
		"[a]":              "expected",
		"a b":              "expected",
		"a ^ 2":            "operator ^",
		"1.2.3":            "expected",
		"b":                "not the id",
		"RATE(a)":          "RATE is not known",
		"SUM([a, a])":      "expected",
		"FILL(a)":          "two arguments",
		"FILL(a, REPEAT)":  "a number",
		"FILL(a, a)":       "a number",
		"FILL(b, 0)":       "not the id",
		"IF(a)":            "two or three",
		"IF(a, a, a, a)":   "two or three",
		"METRICS()":        "METRICS is not known",
		`"text"`:           "invalid syntax",
		"-a":               "UnaryExpr",
		"a.b":              "SelectorExpr",
		"a[0](1)":          "not known",
		"func() {}":        "FuncLit",
		"a == 1 || a == 2": "operator ||",
	} {
		parsed, err := parse(expression)
		if err == nil {
			_, err = calculator{known: map[string]series{"a": {1}}, periods: 1}.eval(parsed)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q", expression, err, says)
		}
	}
}
