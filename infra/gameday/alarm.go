package gameday

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Alarm is an alarm as a template defines it.
type Alarm struct {
	ID      string  // logical
	Name    string  // AlarmName
	Means   string  // AlarmDescription
	Queries []Query // in the order of the template; a plain alarm has one
	returns string  // id of the query that is compared

	below     bool // it breaches below the threshold, not above
	threshold float64
	// Of the last Periods data points, Datapoints have to breach. Period is in seconds.
	Period, Periods, Datapoints int
	Missing                     string // TreatMissingData
	// Tells are the logical ids of the topics that are told when it begins, and Lost of
	// those that are told when data stop.
	Tells, Lost []string
}

// Query is a metric with its statistic, or an expression over earlier ones.
type Query struct {
	ID         string
	Metric     Metric
	Statistic  string
	Expression string   // empty for a metric
	parsed     ast.Expr // nil for a metric
}

// properties are those of AWS::CloudWatch::Alarm that are known here.
type properties struct {
	AlarmName, AlarmDescription, ComparisonOperator, TreatMissingData string
	MetricName, Namespace, Statistic                                  string

	Period, EvaluationPeriods, DatapointsToAlarm     int
	Threshold                                        float64
	AlarmActions, OKActions, InsufficientDataActions []string
	Metrics                                          []dataQuery
}

type dataQuery struct {
	ID         string `json:"Id"`
	Expression string
	ReturnData *bool // true when it is absent
	MetricStat struct {
		Metric struct {
			MetricName, Namespace string
			Dimensions            []struct{ Name, Value string }
		}
		Period int
		Stat   string
	}
}

// ReadAlarms returns every alarm of a template, by logical id, as a stack of that
// name has them.
func ReadAlarms(doc []byte, stack string) ([]Alarm, error) {
	return readAll(doc, stack, "AWS::CloudWatch::Alarm", readAlarm)
}

// readAll reads the resources of a type, by logical id, all of whose properties have to be
// known. Other resources that judge metrics are not known here.
func readAll[P, T any](doc []byte, stack, kind string, one func(id string, p P) (T, error)) ([]T, error) {
	var t struct {
		Resources map[string]struct {
			Type       string
			Properties any
		}
	}
	if err := json.Unmarshal(doc, &t); err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var all []T
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		r := t.Resources[id]
		if r.Type == "AWS::CloudWatch::CompositeAlarm" || r.Type == "AWS::CloudWatch::AnomalyDetector" {
			return nil, fmt.Errorf("%s is a %s, which is not known here", id, r.Type)
		}
		if r.Type != kind {
			continue
		}
		text, err := json.Marshal(plain(r.Properties, stack))
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		var p P
		var read T
		if err = cmp.Or(err, d.Decode(&p)); err == nil {
			read, err = one(id, p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		all = append(all, read)
	}
	return all, nil
}

// plain is a value of a template with the stack's name and logical ids in their places.
func plain(v any, stack string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			v[name] = plain(part, stack)
		}
		if text, ok := v["Fn::Sub"].(string); ok {
			return strings.ReplaceAll(text, "${AWS::StackName}", stack)
		}
		if id, ok := v["Ref"].(string); ok {
			return id
		}
		if at, ok := v["Fn::GetAtt"].([]any); ok && len(at) == 2 && at[1] == "Version.Version" {
			return fmt.Sprint(at[0], ".", at[1])
		}
	case []any:
		for i, part := range v {
			v[i] = plain(part, stack)
		}
	}
	return v
}

func readAlarm(id string, p properties) (Alarm, error) {
	if p.Metrics == nil {
		one := dataQuery{ID: "m"}
		one.MetricStat.Metric.Namespace, one.MetricStat.Metric.MetricName = p.Namespace, p.MetricName
		one.MetricStat.Stat, one.MetricStat.Period = p.Statistic, p.Period
		p.Metrics = []dataQuery{one}
	}
	a := Alarm{
		ID: id, Name: p.AlarmName, Means: p.AlarmDescription, below: p.ComparisonOperator == "LessThanThreshold", threshold: p.Threshold,
		Period: p.Metrics[0].MetricStat.Period, Periods: p.EvaluationPeriods, Datapoints: p.DatapointsToAlarm,
		Missing: p.TreatMissingData, Tells: p.AlarmActions, Lost: p.InsufficientDataActions,
	}
	known := map[string]float64{}
	for _, m := range p.Metrics {
		stat := m.MetricStat
		q := Query{ID: m.ID, Metric: Metric{Namespace: stat.Metric.Namespace, Name: stat.Metric.MetricName}, Statistic: stat.Stat, Expression: m.Expression}
		for _, d := range stat.Metric.Dimensions {
			q.Metric.Of += d.Name + "=" + d.Value + ";"
		}
		if m.Expression != "" {
			var err error
			if q.parsed, err = parser.ParseExpr(m.Expression); err == nil {
				_, err = calculate(q.parsed, known)
			}
			if err != nil {
				return a, fmt.Errorf("query %s: %w", m.ID, err)
			}
		} else if q.Metric.Namespace == "" || q.Metric.Name == "" || statistics()[q.Statistic] == nil || stat.Period != a.Period {
			return a, fmt.Errorf("query %s is not known here: %+v", m.ID, stat)
		}
		if m.ReturnData == nil || *m.ReturnData {
			a.returns += m.ID
		}
		known[m.ID] = math.NaN()
		a.Queries = append(a.Queries, q)
	}
	_, one := known[a.returns]
	compares := a.below || p.ComparisonOperator == "GreaterThanThreshold"
	if !one || !compares || !slices.Contains([]string{"notBreaching", "breaching", "ignore", "missing"}, a.Missing) || a.Datapoints < 1 || a.Datapoints > a.Periods {
		return a, fmt.Errorf("not known here: %+v", p)
	}
	return a, nil
}

// State is the state of an alarm, as CloudWatch names it.
type State string

// The states of an alarm.
const (
	OK           State = "OK"
	Firing       State = "ALARM"
	Insufficient State = "INSUFFICIENT_DATA"
)

// Source has the values of metrics by period.
type Source interface {
	Values(m Metric, period int) []float64
}

// lookBack is how many earlier periods are asked for too, so that points which came are preferred.
// AWS does not document the number; its examples have two.
const lookBack = 2

// History is the state of an alarm after each of the periods from 0 on, if it
// begins as Insufficient. An alarm that tells of data which stop is Firing then.
func (a Alarm) History(src Source, periods int) []State {
	history, state, known := make([]State, periods), Insufficient, false
	for now := range history {
		state = a.after(src, now, state)
		known = known || state != Insufficient
		history[now] = state
		if known && state == Insufficient && len(a.Lost) > 0 {
			history[now] = Firing
		}
	}
	return history
}

// after is the state of the alarm at the end of a period. With as many points as it looks at nothing
// is missing, however they lie.
func (a Alarm) after(src Source, period int, before State) State {
	there, breaching := 0, 0
	for at := period; at > period-a.Periods-lookBack && there < a.Periods; at-- {
		v := a.value(src, at)
		if math.IsNaN(v) {
			continue
		}
		there++
		if v < a.threshold && a.below || v > a.threshold && !a.below {
			breaching++
		}
	}
	if a.Missing == "breaching" {
		breaching += a.Periods - there
	}
	switch {
	case a.Missing == "missing" && there == 0:
		return Insufficient
	case breaching >= a.Datapoints, a.Missing == "missing" && there < a.Periods && there == breaching:
		return Firing
	case a.Missing == "ignore" && there < a.Periods && there == breaching:
		return before
	}
	return OK
}

// value is what the alarm compares in a period, NaN where it is missing.
func (a Alarm) value(src Source, period int) float64 {
	of := map[string]float64{}
	for _, q := range a.Queries {
		of[q.ID] = math.NaN()
		if q.parsed != nil {
			of[q.ID], _ = calculate(q.parsed, of) // ReadAlarms knows the expression
		} else if period >= 0 {
			if values := src.Values(q.Metric, period); len(values) > 0 {
				of[q.ID] = statistics()[q.Statistic](values)
			}
		}
	}
	return of[a.returns]
}

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

// apply applies an operator or a function. What is missing on one side of an operator, in a
// condition or in the value that it chooses, is missing in the result.
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
