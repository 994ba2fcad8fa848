package gameday

import (
	"fmt"
	"go/ast"
	"math"
	"strconv"
)

// number is a value of metric math in one period. It is either a scalar or a point of a series;
// a missing point is NaN.
type number struct {
	value  float64
	scalar bool
}

// missingPoint returns a missing point of a series.
func missingPoint() number { return number{value: math.NaN()} }

func (n number) isMissing() bool { return math.IsNaN(n.value) }

// formula calculates expressions of metric math in one period. It supports numbers, the ids of
// queries, operators, and some functions. Such expressions have the syntax and the precedence of
// Go expressions, so Go's parser can read them.
type formula struct {
	values map[string]number // the values of the queries, by id
	quota  float64           // the value of SERVICE_QUOTA; 0 if there is none
}

func (f formula) calculate(n ast.Expr) (number, error) {
	switch n := n.(type) {
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(n.Value, 64)
		return number{v, true}, err
	case *ast.Ident:
		if v, ok := f.values[n.Name]; ok {
			return v, nil
		}
		return missingPoint(), fmt.Errorf("%s is not the id of a query before it", n.Name)
	case *ast.ParenExpr:
		return f.calculate(n.X)
	case *ast.BinaryExpr:
		v, err := f.calculateAll(n.X, n.Y)
		if err != nil {
			return missingPoint(), err
		}
		return operate(n.Op.String(), v[0], v[1])
	case *ast.CallExpr:
		v, err := f.calculateAll(n.Args...)
		if err != nil {
			return missingPoint(), err
		}
		return f.applyFunction(fmt.Sprint(n.Fun), v)
	}
	return missingPoint(), fmt.Errorf("%T is not known here", n)
}

// calculateAll returns the value of each of the expressions.
func (f formula) calculateAll(parts ...ast.Expr) ([]number, error) {
	var values []number
	for _, part := range parts {
		v, err := f.calculate(part)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// operate applies an operator. If only one of two series is missing, the missing one counts as
// 0. If both are missing, or if one operand is missing and the other is a scalar, the result
// is missing. A division by 0 gives no value.
func operate(name string, a, b number) (number, error) {
	operators := map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b }, "-": func(a, b float64) float64 { return a - b },
		"*": func(a, b float64) float64 { return a * b }, "/": quotient,
		">": func(a, b float64) float64 { return truth(a > b) }, ">=": func(a, b float64) float64 { return truth(a >= b) },
		"&&": func(a, b float64) float64 { return truth(a != 0 && b != 0) }, "||": func(a, b float64) float64 { return truth(a != 0 || b != 0) },
	}
	apply, ok := operators[name]
	switch {
	case !ok:
		return missingPoint(), fmt.Errorf("%s is not known here", name)
	case a.isMissing() && (b.isMissing() || b.scalar), b.isMissing() && a.scalar:
		return missingPoint(), nil
	case a.isMissing():
		a.value = 0
	case b.isMissing():
		b.value = 0
	}
	return number{apply(a.value, b.value), a.scalar && b.scalar}, nil
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// applyFunction applies one of the supported functions of metric math.
func (f formula) applyFunction(name string, v []number) (number, error) {
	switch {
	case name == "FILL" && len(v) == 2 && !v[0].scalar && v[1].scalar:
		if v[0].isMissing() {
			return number{value: v[1].value}, nil
		}
		return v[0], nil
	case name == "IF" && len(v) == 2 && !v[0].scalar:
		return choose(v[0], v[1], missingPoint()), nil
	case name == "IF" && len(v) == 3 && !v[0].scalar:
		return choose(v[0], v[1], v[2]), nil
	case name == "FLOOR" && len(v) == 1 && !v[0].scalar:
		return number{value: math.Floor(v[0].value)}, nil
	case name == "SERVICE_QUOTA" && len(v) == 1 && !v[0].scalar:
		if f.quota == 0 || v[0].isMissing() {
			return missingPoint(), nil
		}
		return number{value: f.quota}, nil
	}
	return missingPoint(), fmt.Errorf("%s is not known here with %d of this kind", name, len(v))
}

// choose returns the result of IF. If the condition is missing, the result is missing. If the
// condition is true, the result is the second argument of IF, or 0 if that argument is
// missing. If the condition is false, the result is the third argument, even if that argument
// is missing.
func choose(condition, yes, no number) number {
	v := number{value: no.value}
	if condition.isMissing() {
		return missingPoint()
	}
	if condition.value != 0 {
		v.value = yes.value
		if yes.isMissing() {
			v.value = 0
		}
	}
	return v
}
