package gameday

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// series has a value for each period, oldest first.
type series []float64

// parse reads an expression of metric math. What this package knows of it is
// written as Go writes expressions, with the same precedence: numbers, the ids of
// queries, operators between two of them, and calls of FILL and IF.
func parse(expression string) (ast.Expr, error) {
	n, err := parser.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", expression, err)
	}
	return n, nil
}

// calculator evaluates metric math over the series of an alarm's queries.
type calculator struct {
	known   map[string]series
	periods int
}

func (c calculator) eval(n ast.Expr) (series, error) {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return c.eval(n.X)
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(n.Value, 64)
		return slices.Repeat(series{v}, c.periods), err
	case *ast.Ident:
		if s, ok := c.known[n.Name]; ok {
			return s, nil
		}
		return nil, fmt.Errorf("%s is not the id of a query before it", n.Name)
	case *ast.BinaryExpr:
		if _, known := apply(n.Op, 0, 0); !known {
			return nil, fmt.Errorf("operator %s is not known here", n.Op)
		}
		return c.each(func(parts []float64) float64 { return operate(n.Op, parts[0], parts[1]) }, n.X, n.Y)
	case *ast.CallExpr:
		return c.call(n)
	}
	return nil, fmt.Errorf("%T is not known here", n)
}

func (c calculator) call(n *ast.CallExpr) (series, error) {
	function, ok := n.Fun.(*ast.Ident)
	switch {
	case ok && function.Name == "FILL":
		if len(n.Args) != 2 {
			return nil, errors.New("FILL takes two arguments")
		}
		if _, ok := n.Args[1].(*ast.BasicLit); !ok {
			return nil, errors.New("FILL takes a number here")
		}
		return c.each(fill, n.Args...)
	case ok && function.Name == "IF":
		if len(n.Args) != 2 && len(n.Args) != 3 {
			return nil, errors.New("IF takes two or three arguments")
		}
		return c.each(choose, n.Args...)
	}
	return nil, fmt.Errorf("function %v is not known here", n.Fun)
}

// each evaluates the parts of an expression, and combines their values of each
// period.
func (c calculator) each(combine func(parts []float64) float64, parts ...ast.Expr) (series, error) {
	all := make([]series, len(parts))
	for i, part := range parts {
		var err error
		if all[i], err = c.eval(part); err != nil {
			return nil, err
		}
	}
	out := make(series, c.periods)
	for i := range out {
		var values []float64
		for _, s := range all {
			values = append(values, s[i])
		}
		out[i] = combine(values)
	}
	return out, nil
}

// fill puts a number where a value is missing.
func fill(parts []float64) float64 {
	if isMissing(parts[0]) {
		return parts[1]
	}
	return parts[0]
}

// choose is IF(condition, then, else); without else the result is missing.
func choose(parts []float64) float64 {
	parts = append(parts, missing())
	switch {
	case isMissing(parts[0]):
		return missing()
	case parts[0] != 0:
		return parts[1]
	}
	return parts[2]
}

// operate applies an operator. Where one side is missing, so is the result, and so
// it is of a division by zero.
func operate(op token.Token, x, y float64) float64 {
	if isMissing(x) || isMissing(y) || op == token.QUO && y == 0 {
		return missing()
	}
	v, _ := apply(op, x, y)
	return v
}

func apply(op token.Token, x, y float64) (v float64, known bool) {
	truth := map[bool]float64{true: 1}
	switch op.String() {
	case "+":
		return x + y, true
	case "-":
		return x - y, true
	case "*":
		return x * y, true
	case "/":
		return x / y, true
	case "<":
		return truth[x < y], true
	case ">":
		return truth[x > y], true
	case "<=":
		return truth[x <= y], true
	case ">=":
		return truth[x >= y], true
	}
	return 0, false
}
