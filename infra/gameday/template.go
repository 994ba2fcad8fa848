package gameday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// Alarm is an alarm as a template defines it.
type Alarm struct {
	ID          string // logical id
	Name        string // AlarmName, empty when CloudFormation makes one
	Description string
	// Queries are in the order of the template; a plain alarm has one.
	Queries    []Query
	returns    string // id of the query that is compared
	Comparison string
	Threshold  float64
	Period     int // seconds
	// Of the last Periods data points, Datapoints have to breach.
	Periods, Datapoints int
	Missing             string // TreatMissingData
	// Tells are the logical ids of the topics that are told when it begins, and
	// Resolves of those that are told when it ends.
	Tells, Resolves []string
}

// Query is a metric with its statistic, or an expression over earlier ones.
type Query struct {
	ID         string
	Metric     Metric
	Statistic  string
	Expression string // as it is written, empty for a metric
	unit       string
	expression ast.Expr
}

// template is what is read of a CloudFormation template.
type template struct {
	Resources map[string]struct {
		Type       string
		Properties json.RawMessage
	}
}

// properties are those of AWS::CloudWatch::Alarm.
type properties struct {
	AlarmName, AlarmDescription        json.RawMessage
	MetricName, Namespace              string
	Dimensions                         []dimension
	Statistic, ExtendedStatistic, Unit string
	Period                             int
	Metrics                            []dataQuery
	EvaluationPeriods                  int
	DatapointsToAlarm                  int
	Threshold                          *float64
	ComparisonOperator                 string
	TreatMissingData                   string

	ActionsEnabled                                   *bool
	AlarmActions, OKActions, InsufficientDataActions []json.RawMessage
	Tags                                             json.RawMessage
}

type dimension struct {
	Name  string
	Value json.RawMessage
}

type dataQuery struct {
	ID         string `json:"Id"`
	Expression string
	Label      string
	Period     int
	ReturnData *bool
	MetricStat *struct {
		Metric struct {
			MetricName, Namespace string
			Dimensions            []dimension
		}
		Period     int
		Stat, Unit string
	}
}

// ReadAlarms returns every alarm of a template, by logical id, as a stack of that
// name has them. A dimension that is a reference has the logical id that it refers
// to as its value.
func ReadAlarms(doc []byte, stack string) ([]Alarm, error) {
	t, err := read(doc, stack)
	if err != nil {
		return nil, err
	}
	var alarms []Alarm
	var faults []error
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		r := t.Resources[id]
		switch {
		case r.Type == "AWS::CloudWatch::Alarm":
			a, err := readAlarm(id, r.Properties)
			if err != nil {
				faults = append(faults, fmt.Errorf("alarm %s: %w", id, err))
			}
			alarms = append(alarms, a)
		case strings.HasPrefix(r.Type, "AWS::CloudWatch::") && strings.HasSuffix(r.Type, "Alarm"), r.Type == "AWS::CloudWatch::AnomalyDetector":
			faults = append(faults, fmt.Errorf("%s is a %s, which is not known here", id, r.Type))
		}
	}
	return alarms, errors.Join(faults...)
}

// read reads a template, with the stack's name where texts have it.
func read(doc []byte, stack string) (template, error) {
	var t template
	if err := json.Unmarshal(doc, &t); err != nil {
		return t, fmt.Errorf("read template: %w", err)
	}
	for id, r := range t.Resources {
		var v any
		if err := json.Unmarshal(r.Properties, &v); r.Properties != nil && err != nil {
			return t, fmt.Errorf("read template: %s: %w", id, err)
		}
		text, err := json.Marshal(named(v, stack))
		if err != nil {
			return t, fmt.Errorf("read template: %s: %w", id, err)
		}
		r.Properties = text
		t.Resources[id] = r
	}
	return t, nil
}

// named is a value with Fn::Sub of the stack's name, and of nothing else, resolved.
func named(v any, stack string) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["Fn::Sub"].(string); ok && len(v) == 1 {
			if text = strings.ReplaceAll(text, "${AWS::StackName}", stack); !strings.Contains(text, "${") {
				return text
			}
		}
		for name, part := range v {
			v[name] = named(part, stack)
		}
	case []any:
		for i, part := range v {
			v[i] = named(part, stack)
		}
	}
	return v
}

func readAlarm(id string, raw json.RawMessage) (Alarm, error) {
	var p properties
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Alarm{}, err
	}
	a := Alarm{
		ID: id, Name: say(p.AlarmName), Description: say(p.AlarmDescription),
		Comparison: p.ComparisonOperator, Periods: p.EvaluationPeriods, Datapoints: p.DatapointsToAlarm,
		Missing: p.TreatMissingData,
	}
	a.Tells, a.Resolves = topics(p.AlarmActions), topics(p.OKActions)
	if a.Datapoints == 0 {
		a.Datapoints = a.Periods
	}
	if a.Missing == "" {
		a.Missing = "missing"
	}
	if p.Threshold == nil {
		return a, errors.New("it has no threshold")
	}
	a.Threshold = *p.Threshold
	err := a.plain(p)
	if p.Metrics != nil {
		err = a.math(p)
	}
	return a, errors.Join(err, a.check())
}

// topics are the logical ids of those that actions refer to.
func topics(actions []json.RawMessage) (ids []string) {
	for _, action := range actions {
		ids = append(ids, strings.Trim(say(action), "${}"))
	}
	return ids
}

// plain reads an alarm on one metric.
func (a *Alarm) plain(p properties) error {
	q := Query{ID: "m", Statistic: p.Statistic + p.ExtendedStatistic, unit: p.Unit}
	var err error
	q.Metric, err = metricOf(p.Namespace, p.MetricName, p.Dimensions)
	a.Queries, a.returns, a.Period = []Query{q}, q.ID, p.Period
	return errors.Join(err, checkStatistic(q.Statistic))
}

// math reads an alarm on an expression, or on one metric in the same form.
func (a *Alarm) math(p properties) error {
	if p.MetricName != "" || p.Statistic != "" || p.ExtendedStatistic != "" || p.Period != 0 {
		return errors.New("it has Metrics and a metric of its own")
	}
	a.Queries, a.returns, a.Period = nil, "", 0
	var faults []error
	for _, m := range p.Metrics {
		q := Query{ID: m.ID, Expression: m.Expression}
		var err error
		period := m.Period
		switch {
		case m.Expression != "" && m.MetricStat == nil:
			q.expression, err = parse(m.Expression)
		case m.Expression == "" && m.MetricStat != nil:
			s := m.MetricStat
			q.Statistic, q.unit, period = s.Stat, s.Unit, s.Period
			q.Metric, err = metricOf(s.Metric.Namespace, s.Metric.MetricName, s.Metric.Dimensions)
			err = errors.Join(err, checkStatistic(s.Stat))
		default:
			err = errors.New("it must be a metric or an expression")
		}
		if err == nil && period != 0 && a.Period != 0 && period != a.Period {
			err = errors.New("its period differs from that of another query")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("query %s: %w", m.ID, err))
		}
		if period != 0 {
			a.Period = period
		}
		if m.ReturnData == nil || *m.ReturnData {
			if a.returns != "" {
				faults = append(faults, errors.New("two queries return data"))
			}
			a.returns = m.ID
		}
		a.Queries = append(a.Queries, q)
	}
	return errors.Join(faults...)
}

// check is what CloudWatch checks, and what this package asks for.
func (a *Alarm) check() error {
	var faults []error
	if _, ok := breaches(a.Comparison, 0, 0); !ok {
		faults = append(faults, fmt.Errorf("comparison %q is not known here", a.Comparison))
	}
	if !slices.Contains([]string{"missing", "notBreaching", "breaching", "ignore"}, a.Missing) {
		faults = append(faults, fmt.Errorf("missing data %q is not known here", a.Missing))
	}
	if a.Period < 10 || a.Periods < 1 || a.Datapoints < 1 || a.Datapoints > a.Periods {
		faults = append(faults, fmt.Errorf("%d of %d periods of %d s cannot be evaluated", a.Datapoints, a.Periods, a.Period))
	}
	if a.returns == "" {
		faults = append(faults, errors.New("no query returns data"))
	}
	return errors.Join(faults...)
}

func metricOf(namespace, name string, dimensions []dimension) (Metric, error) {
	if namespace == "" || name == "" {
		return Metric{}, errors.New("a metric without namespace or name")
	}
	values := map[string]string{}
	for _, d := range dimensions {
		var plain string
		var reference struct{ Ref string }
		switch {
		case json.Unmarshal(d.Value, &plain) == nil && plain != "":
			values[d.Name] = plain
		case json.Unmarshal(d.Value, &reference) == nil && reference.Ref != "":
			values[d.Name] = reference.Ref
		default:
			return Metric{}, fmt.Errorf("dimension %s is neither a text nor a reference: %s", d.Name, d.Value)
		}
	}
	return NewMetric(namespace, name, values), nil
}

// say is a text of a template for people: what is only known at deployment
// stands as ${...}.
func say(raw json.RawMessage) string {
	var plain string
	if len(raw) == 0 || json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var f struct {
		Ref  string
		Sub  json.RawMessage   `json:"Fn::Sub"`
		Join []json.RawMessage `json:"Fn::Join"`
	}
	if json.Unmarshal(raw, &f) != nil {
		return string(raw)
	}
	var parts []json.RawMessage
	switch {
	case f.Ref != "":
		return "${" + f.Ref + "}"
	case f.Sub != nil:
		return say(f.Sub)
	case len(f.Join) == 2 && json.Unmarshal(f.Join[1], &parts) == nil:
		words := make([]string, len(parts))
		for i, part := range parts {
			words[i] = say(part)
		}
		return strings.Join(words, say(f.Join[0]))
	}
	return string(raw)
}
