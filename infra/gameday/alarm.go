package gameday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"maps"
	"math"
	"slices"
	"strings"
)

// Alarm is an alarm as a template defines it.
type Alarm struct {
	ID, Name, Description string // logical id, AlarmName, AlarmDescription
	// Queries are in the order of the template; a plain alarm has one.
	Queries   []Query
	returns   string // id of the query that is compared
	below     bool   // it breaches below the threshold, not above
	threshold float64
	Period    int // seconds
	// Of the last Periods data points, Datapoints have to breach.
	Periods, Datapoints int
	Missing             string // TreatMissingData
	// Tells are the logical ids of the topics that are told when it begins, Resolves of
	// those that are told when it ends, and Lost of those that are told when data stop.
	Tells, Resolves, Lost []string
}

// Query is a metric with its statistic, or an expression over earlier ones.
type Query struct {
	ID         string
	Metric     Metric
	Statistic  string
	Expression string // as it is written, empty for a metric
	expression ast.Expr
}

// properties are those of AWS::CloudWatch::Alarm that are known here.
type properties struct {
	AlarmName, AlarmDescription, ComparisonOperator, TreatMissingData string
	MetricName, Namespace, Statistic, ExtendedStatistic               string

	Period, EvaluationPeriods, DatapointsToAlarm int
	Threshold                                    *float64
	AlarmActions, OKActions                      []string
	InsufficientDataActions                      []string
	Metrics                                      []dataQuery
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

// readAll reads the resources of a type, by logical id. Other resources that judge
// metrics are not known here.
func readAll[T any](doc []byte, stack, kind string, one func(id string, properties []byte) (T, error)) ([]T, error) {
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
	var faults []error
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		switch r := t.Resources[id]; r.Type {
		case kind:
			text, err := json.Marshal(plain(r.Properties, stack))
			var read T
			if err == nil {
				read, err = one(id, text)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", id, err))
			}
			all = append(all, read)
		case "AWS::CloudWatch::CompositeAlarm", "AWS::CloudWatch::AnomalyDetector":
			faults = append(faults, fmt.Errorf("%s is a %s, which is not known here", id, r.Type))
		}
	}
	return all, errors.Join(faults...)
}

// plain is a value of a template with the stack's name where texts have it, and the
// logical id where it is referred to.
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

// strictly decodes properties all of which have to be known.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func readAlarm(id string, text []byte) (Alarm, error) {
	var p properties
	if err := strictly(text, &p); err != nil {
		return Alarm{}, err
	}
	a := Alarm{
		ID: id, Name: p.AlarmName, Description: p.AlarmDescription, below: p.ComparisonOperator == "LessThanThreshold",
		Period: p.Period, Periods: p.EvaluationPeriods, Datapoints: p.DatapointsToAlarm,
		Missing: p.TreatMissingData, Tells: p.AlarmActions, Resolves: p.OKActions, Lost: p.InsufficientDataActions,
	}
	if p.Metrics == nil {
		one := dataQuery{ID: "m"}
		one.MetricStat.Metric.Namespace, one.MetricStat.Metric.MetricName = p.Namespace, p.MetricName
		one.MetricStat.Stat, one.MetricStat.Period = p.Statistic+p.ExtendedStatistic, p.Period
		p.Metrics = []dataQuery{one}
	} else if p.MetricName+p.Namespace+p.Statistic+p.ExtendedStatistic != "" || p.Period != 0 {
		return a, errors.New("it has Metrics and a metric besides")
	}
	faults := []error{a.query(p.Metrics)}
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(p.Threshold == nil, "it has no threshold")
	if p.Threshold != nil {
		a.threshold = *p.Threshold
	}
	fault(!a.below && p.ComparisonOperator != "GreaterThanThreshold", "comparison %q is not known here", p.ComparisonOperator)
	fault(!slices.Contains([]string{"notBreaching", "breaching", "ignore", "missing"}, a.Missing), "missing data %q is not known here", a.Missing)
	fault(a.Period < 10 || a.Datapoints < 1 || a.Datapoints > a.Periods, "%d of %d periods of %d s", a.Datapoints, a.Periods, a.Period)
	return a, errors.Join(faults...)
}

// query reads what the alarm looks at.
func (a *Alarm) query(all []dataQuery) error {
	known := map[string]float64{}
	for _, m := range all {
		stat := m.MetricStat
		q := Query{ID: m.ID, Metric: Metric{Namespace: stat.Metric.Namespace, Name: stat.Metric.MetricName}, Statistic: stat.Stat, Expression: m.Expression}
		for _, d := range stat.Metric.Dimensions {
			q.Metric.Of += d.Name + "=" + d.Value + ";"
		}
		var err error
		switch period := stat.Period; {
		case (m.Expression == "") == (q.Metric == Metric{}):
			err = errors.New("it must be a metric or an expression")
		case m.Expression != "":
			if q.expression, err = parser.ParseExpr(m.Expression); err == nil {
				_, err = calculate(q.expression, known)
			}
		case q.Metric.Namespace == "" || q.Metric.Name == "":
			err = errors.New("a metric without namespace or name")
		case statistics()[q.Statistic] == nil:
			err = fmt.Errorf("statistic %q is not known here", q.Statistic)
		case a.Period != 0 && period != a.Period:
			err = errors.New("its period differs from that of another query")
		default:
			a.Period = period
		}
		if err != nil {
			return fmt.Errorf("query %s: %w", m.ID, err)
		}
		if m.ReturnData == nil || *m.ReturnData {
			if a.returns != "" {
				return errors.New("two queries return data")
			}
			a.returns = m.ID
		}
		known[m.ID] = math.NaN()
		a.Queries = append(a.Queries, q)
	}
	if a.returns == "" {
		return errors.New("no query returns data")
	}
	return nil
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

// lookBack is how many periods before the evaluated ones are asked for too, so
// that points which came are preferred to points which are missing. AWS does
// not document the number; its examples have two.
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

// after is the state of the alarm at the end of a period, when it has been in a
// state before. With as many points as the alarm looks at nothing is missing,
// however they lie.
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
		if q.expression != nil {
			of[q.ID], _ = calculate(q.expression, of) // ReadAlarms knows the expression
		} else if period >= 0 {
			if values := src.Values(q.Metric, period); len(values) > 0 {
				of[q.ID] = statistics()[q.Statistic](values)
			}
		}
	}
	return of[a.returns]
}
