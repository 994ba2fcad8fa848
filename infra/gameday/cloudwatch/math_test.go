package cloudwatch

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
	known := map[string]series{"a": {1, n, 3}, "b": {10, 20, 0}, "none": {n, n, n}, "e": {7, 7, 7}}
	queries := []Query{{ID: "a"}, {ID: "b"}, {ID: "none"}, {ID: "e", expression: number(7)}}
	for expression, want := range map[string]series{
		"a":                           {1, n, 3},
		"2":                           {2, 2, 2},
		"a + b":                       {11, n, 3},
		"b-a-1":                       {8, n, -4},
		"1 + 2 * 3":                   {7, 7, 7},
		"(1 + 2) * 3":                 {9, 9, 9},
		"8/4/2":                       {1, 1, 1},
		"-a * -2":                     {2, n, 6},
		"a / b":                       {0.1, n, n}, // by zero: nothing
		"100*(a/b)":                   {10, n, n},
		"FILL(a, 0)":                  {1, 0, 3},
		"FILL(a, REPEAT)":             {1, 1, 3},
		"FILL(none, REPEAT)":          {n, n, n},
		"FILL(a,0) + FILL(none, 0)":   {1, 0, 3},
		"SUM([a, b, none])":           {11, 20, 3},
		"SUM([none, none])":           {n, n, n},
		"SUM(FILL([a, b], 5))":        {11, 25, 3},
		"MAX([a, b])":                 {10, 20, 3},
		"MIN([a, b])":                 {1, 20, 0},
		"AVG([a, b])":                 {5.5, 20, 1.5},
		"SUM(a)":                      {4, 4, 4},
		"MAX(b) - MIN(b)":             {20, 20, 20},
		"SUM(METRICS())":              {11, 20, 3},
		`SUM(METRICS("b"))`:           {10, 20, 0},
		"a > 1":                       {0, n, 1},
		"b >= 10":                     {1, 1, 0},
		"b < 10":                      {0, 0, 1},
		"b <= 10":                     {1, 0, 1},
		"b == 20":                     {0, 1, 0},
		"b != 20":                     {1, 0, 1},
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
		c := &calculator{queries: queries, known: known, periods: 3}
		v, err := c.eval(parsed)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got, err := c.series(v)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-12)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", expression, err, diff)
		}
	}
}

func TestBadMath(t *testing.T) {
	t.Parallel()
	known := map[string]series{"a": {1}}
	for expression, says := range map[string]string{
		"":                  "not expected",
		"a +":               "not expected",
		"(a":                `")" is missing`,
		"[a":                `"]" is missing`,
		"a b":               "not expected",
		"a ^ 2":             "not expected",
		"1.2.3":             "",
		"b":                 "not the id",
		"RATE(a)":           "not known",
		"SUM(a, a)":         "one argument",
		"FILL(a)":           "two arguments",
		"FILL(a, LINEAR)":   "not the id",
		"FILL(a, a)":        "a number or REPEAT",
		"IF(a)":             "two or three",
		"[a] + 1":           "array",
		"METRICS(a)":        "one text",
		"FILL([a, b], 0)":   "not the id",
		`"text"`:            "no value",
		"IF([a], 1, 2)":     "array",
		"SUM([METRICS()]) ": "",
	} {
		parsed, err := parse(expression)
		if err == nil {
			c := &calculator{known: known, periods: 1}
			_, err = c.eval(parsed)
		}
		if says == "" {
			continue // must not panic
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q", expression, err, says)
		}
	}
}
