package gameday

import (
	"fmt"
	"go/ast"
	"math"
	"slices"
	"strconv"
)

// statistics are those that are known here, of one value at least.
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
		// It lies between the two nearest values.
		"p95": func(values []float64) float64 {
			sorted := slices.Sorted(slices.Values(values))
			low, part := math.Modf(0.95 * float64(len(sorted)-1))
			return sorted[int(low)] + part*(sorted[min(int(low)+1, len(sorted)-1)]-sorted[int(low)])
		},
	}
}

// calculate is an expression of metric math in one period, in which queries have the
// values that are given; NaN is a missing one. What is known of metric math here is
// written as Go writes expressions, with the same precedence: numbers, the ids of
// queries, some operators, FILL with a number, and IF.
func calculate(n ast.Expr, of map[string]float64) (float64, error) {
	switch n := n.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(n.Value, 64)
	case *ast.Ident:
		if v, ok := of[n.Name]; ok {
			return v, nil
		}
		return 0, fmt.Errorf("%s is not the id of a query before it", n.Name)
	case *ast.ParenExpr:
		return calculate(n.X, of)
	case *ast.BinaryExpr:
		return apply(n.Op.String(), of, n.X, n.Y)
	case *ast.CallExpr:
		return apply(fmt.Sprint(n.Fun), of, n.Args...)
	}
	return 0, fmt.Errorf("%T is not known here", n)
}

// apply applies an operator or a function. Where one side of an operator is missing,
// so is the result, and so it is of IF without its condition, or without the value
// that it chooses.
func apply(name string, of map[string]float64, parts ...ast.Expr) (float64, error) {
	var v []float64
	for _, part := range parts {
		value, err := calculate(part, of)
		if err != nil {
			return 0, err
		}
		v = append(v, value)
	}
	truth := map[bool]float64{true: 1}
	switch {
	case name == "+":
		return v[0] + v[1], nil
	case (name == ">" || name == ">=") && math.IsNaN(v[0]+v[1]):
		return math.NaN(), nil
	case name == ">":
		return truth[v[0] > v[1]], nil
	case name == ">=":
		return truth[v[0] >= v[1]], nil
	case name == "FILL" && len(v) == 2:
		if _, number := parts[1].(*ast.BasicLit); !number {
			break
		}
		if math.IsNaN(v[0]) {
			return v[1], nil
		}
		return v[0], nil
	case name == "IF" && (len(v) == 2 || len(v) == 3):
		v = append(v, math.NaN())
		switch {
		case math.IsNaN(v[0]):
			return v[0], nil
		case v[0] != 0:
			return v[1], nil
		}
		return v[2], nil
	}
	return 0, fmt.Errorf("%s is not known here with %d of this kind", name, len(v))
}
