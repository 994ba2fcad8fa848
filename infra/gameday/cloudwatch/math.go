package cloudwatch

import (
	"fmt"
	"strings"
)

// series has a value for each period, oldest first.
type series []float64

// What an expression comes to is a series, a float64 (one value for all
// periods), or a []series.
type value any

// calculator evaluates metric math over the series of an alarm's queries.
type calculator struct {
	queries []Query
	known   map[string]series
	periods int
}

func (c *calculator) eval(n node) (value, error) {
	switch n := n.(type) {
	case number:
		return float64(n), nil
	case word:
		s, ok := c.known[string(n)]
		if !ok {
			return nil, fmt.Errorf("%s is not the id of a query before it", n)
		}
		return s, nil
	case negative:
		return c.combine("-", number(0), n.of)
	case binary:
		return c.combine(n.op, n.left, n.right)
	case list:
		return c.array(n)
	case call:
		return c.call(n)
	}
	return nil, fmt.Errorf("%v has no value", n)
}

func (c *calculator) array(items list) (value, error) {
	var all []series
	for _, item := range items {
		v, err := c.eval(item)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case []series:
			all = append(all, v...)
		default:
			s, err := c.series(v)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// series spreads a value over the periods.
func (c *calculator) series(v value) (series, error) {
	switch v := v.(type) {
	case series:
		return v, nil
	case float64:
		s := make(series, c.periods)
		for i := range s {
			s[i] = v
		}
		return s, nil
	}
	return nil, fmt.Errorf("an array cannot be used here")
}

// combine applies an operator period by period. Where one side is missing, so
// is the result.
func (c *calculator) combine(op string, left, right node) (value, error) {
	l, err := c.eval(left)
	if err != nil {
		return nil, err
	}
	r, err := c.eval(right)
	if err != nil {
		return nil, err
	}
	if x, ok := l.(float64); ok {
		if y, ok := r.(float64); ok {
			return apply(op, x, y), nil
		}
	}
	a, err := c.series(l)
	if err != nil {
		return nil, err
	}
	b, err := c.series(r)
	if err != nil {
		return nil, err
	}
	out := make(series, c.periods)
	for i := range out {
		out[i] = apply(op, a[i], b[i])
	}
	return out, nil
}

func apply(op string, x, y float64) float64 {
	if isMissing(x) || isMissing(y) {
		return missing()
	}
	truth := false
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			return missing()
		}
		return x / y
	case "<":
		truth = x < y
	case ">":
		truth = x > y
	case "<=":
		truth = x <= y
	case ">=":
		truth = x >= y
	case "==":
		truth = x == y
	case "!=":
		truth = x != y
	}
	if truth {
		return 1
	}
	return 0
}

func (c *calculator) call(n call) (value, error) {
	switch n.name {
	case "SUM", "MAX", "MIN", "AVG":
		return c.aggregate(n)
	case "FILL":
		return c.fill(n)
	case "IF":
		return c.choose(n)
	case "METRICS":
		return c.metrics(n)
	}
	return nil, fmt.Errorf("function %s is not known here", n.name)
}

// aggregate is a series out of an array, whose missing values do not count, or
// one number out of a series.
func (c *calculator) aggregate(n call) (value, error) {
	if len(n.args) != 1 {
		return nil, fmt.Errorf("%s takes one argument", n.name)
	}
	statisticOf := map[string]string{"SUM": "Sum", "MAX": "Maximum", "MIN": "Minimum", "AVG": "Average"}[n.name]
	v, err := c.eval(n.args[0])
	if err != nil {
		return nil, err
	}
	all, isArray := v.([]series)
	if !isArray {
		s, err := c.series(v)
		return statistic(statisticOf, present(s)), err
	}
	out := make(series, c.periods)
	for i := range out {
		column := make(series, len(all))
		for k, s := range all {
			column[k] = s[i]
		}
		out[i] = statistic(statisticOf, present(column))
	}
	return out, nil
}

func present(s series) []float64 {
	var out []float64
	for _, v := range s {
		if !isMissing(v) {
			out = append(out, v)
		}
	}
	return out
}

// fill puts a value where one is missing: a number, or with REPEAT the one
// before it.
func (c *calculator) fill(n call) (value, error) {
	if len(n.args) != 2 {
		return nil, fmt.Errorf("FILL takes two arguments")
	}
	v, err := c.eval(n.args[0])
	if err != nil {
		return nil, err
	}
	repeat := n.args[1] == word("REPEAT")
	with := missing()
	if !repeat {
		x, err := c.eval(n.args[1])
		if err != nil {
			return nil, err
		}
		constant, ok := x.(float64)
		if !ok {
			return nil, fmt.Errorf("FILL takes a number or REPEAT here")
		}
		with = constant
	}
	filled := func(s series) series {
		out, last := make(series, len(s)), with
		for i, x := range s {
			if isMissing(x) {
				x = last
			}
			if repeat {
				last = x
			}
			out[i] = x
		}
		return out
	}
	if all, ok := v.([]series); ok {
		out := make([]series, len(all))
		for i, s := range all {
			out[i] = filled(s)
		}
		return out, nil
	}
	s, err := c.series(v)
	if err != nil {
		return nil, err
	}
	return filled(s), nil
}

// choose is IF(condition, then, else); without else the result is missing.
func (c *calculator) choose(n call) (value, error) {
	if len(n.args) != 2 && len(n.args) != 3 {
		return nil, fmt.Errorf("IF takes two or three arguments")
	}
	parts := make([]series, 3)
	for i, arg := range n.args {
		v, err := c.eval(arg)
		if err != nil {
			return nil, err
		}
		if parts[i], err = c.series(v); err != nil {
			return nil, err
		}
	}
	if parts[2] == nil {
		parts[2], _ = c.series(missing())
	}
	out := make(series, c.periods)
	for i, condition := range parts[0] {
		switch {
		case isMissing(condition):
			out[i] = missing()
		case condition != 0:
			out[i] = parts[1][i]
		default:
			out[i] = parts[2][i]
		}
	}
	return out, nil
}

// metrics are all queries of metrics, or those whose id contains a text.
func (c *calculator) metrics(n call) (value, error) {
	part := text("")
	if len(n.args) > 0 {
		var ok bool
		if part, ok = n.args[0].(text); !ok || len(n.args) > 1 {
			return nil, fmt.Errorf("METRICS takes one text or nothing")
		}
	}
	var all []series
	for _, q := range c.queries {
		if q.expression == nil && strings.Contains(q.ID, string(part)) {
			all = append(all, c.known[q.ID])
		}
	}
	return all, nil
}
