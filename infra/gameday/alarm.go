package gameday

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"maps"
	"slices"
	"strings"
)

// Alarm is an alarm as a template defines it.
type Alarm struct {
	ID       string  // the alarm's logical id in the template
	Name     string  // the property AlarmName
	Means    string  // the property AlarmDescription
	Queries  []Query // the metrics and expressions, in the order of the template; a plain alarm has one metric
	resultID string  // the id of the query whose value is compared with the threshold

	breachesBelow bool // whether values below the threshold breach; otherwise values above the threshold breach
	threshold     float64
	// The alarm goes off if at least Datapoints of the last Periods data points breach. Period
	// is the length of a period in seconds.
	Period, Periods, Datapoints int
	// Extra is how many data points CloudWatch fetches in addition to those of the last
	// Periods periods. All fetched data points together are the evaluation range. ReadAlarms
	// sets Extra to LeastExtra.
	Extra int
	// Quota is the value of SERVICE_QUOTA in the alarm's expressions; 0 means none.
	Quota   float64
	Missing string // the property TreatMissingData
	// Tells has the logical ids of the topics that are notified when the alarm goes off. Lost
	// has the ids of the topics that are notified when there are no more data.
	Tells, Lost []string
}

// Query is a metric with a statistic, or an expression over earlier queries.
type Query struct {
	ID         string
	Metric     Metric
	Statistic  string
	Expression string   // empty for a metric
	parsed     ast.Expr // nil for a metric
}

// properties are the properties of AWS::CloudWatch::Alarm that this package knows.
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
	ReturnData *bool // absent means true
	MetricStat struct {
		Metric struct {
			MetricName, Namespace string
			Dimensions            []struct{ Name, Value string }
		}
		Period int
		Stat   string
	}
}

// ReadAlarms returns the alarms of a template, sorted by logical id. It replaces references to
// AWS::StackName with the given name.
func ReadAlarms(doc []byte, stack string) ([]Alarm, error) {
	return readAll(doc, stack, "AWS::CloudWatch::Alarm", readAlarm)
}

// readAll reads the resources of one type, sorted by logical id. It returns an error for an
// unknown property, and for resources of other types that evaluate metrics.
func readAll[P, T any](doc []byte, stack, kind string, readOne func(id string, p P) (T, error)) ([]T, error) {
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
		text, err := json.Marshal(resolveIntrinsics(r.Properties, stack))
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		var p P
		var read T
		if err = cmp.Or(err, d.Decode(&p)); err == nil {
			read, err = readOne(id, p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		all = append(all, read)
	}
	return all, nil
}

// resolveIntrinsics returns a value of a template without intrinsic functions. It fills in the
// stack's name, and replaces references to resources with the resources' logical ids.
func resolveIntrinsics(v any, stack string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			v[name] = resolveIntrinsics(part, stack)
		}
		if text, ok := v["Fn::Sub"].(string); ok {
			return strings.ReplaceAll(text, "${AWS::StackName}", stack)
		}
		if id, ok := v["Ref"].(string); ok {
			return id
		}
		if join, ok := v["Fn::Join"].([]any); ok && len(join) == 2 {
			return joinTexts(join)
		}
		if at, ok := v["Fn::GetAtt"].([]any); ok && len(at) == 2 && at[1] == "Version.Version" {
			return fmt.Sprint(at[0], ".", at[1])
		}
	case []any:
		for i, part := range v {
			v[i] = resolveIntrinsics(part, stack)
		}
	}
	return v
}

// joinTexts returns the result of Fn::Join. If a part is not a text, it returns the arguments
// unchanged.
func joinTexts(join []any) any {
	separator, _ := join[0].(string)
	parts, _ := join[1].([]any)
	var texts []string
	for _, part := range parts {
		text, ok := part.(string)
		if !ok {
			return join
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, separator)
}

func readAlarm(id string, p properties) (Alarm, error) {
	if p.Metrics == nil {
		one := dataQuery{ID: "m"}
		one.MetricStat.Metric.Namespace = p.Namespace
		one.MetricStat.Metric.MetricName = p.MetricName
		one.MetricStat.Stat = p.Statistic
		one.MetricStat.Period = p.Period
		p.Metrics = []dataQuery{one}
	}
	a := Alarm{
		ID: id, Name: p.AlarmName, Means: p.AlarmDescription, breachesBelow: p.ComparisonOperator == "LessThanThreshold", threshold: p.Threshold,
		Period: p.Metrics[0].MetricStat.Period, Periods: p.EvaluationPeriods, Datapoints: p.DatapointsToAlarm,
		Missing: p.TreatMissingData, Tells: p.AlarmActions, Lost: p.InsufficientDataActions, Extra: LeastExtra,
	}
	earlierQueries := map[string]number{}
	for _, m := range p.Metrics {
		q, err := readQuery(m, a.Period, earlierQueries)
		if err != nil {
			return a, err
		}
		if m.ReturnData == nil || *m.ReturnData {
			a.resultID += m.ID
		}
		earlierQueries[m.ID] = missingPoint()
		a.Queries = append(a.Queries, q)
	}
	_, hasResult := earlierQueries[a.resultID]
	if !hasResult {
		return a, fmt.Errorf("it does not compare one query: %+v", p)
	}
	return a, a.check(p)
}

// check returns an error if this package cannot evaluate an alarm: if a property has a value
// that is not supported, or if a metric is one of DynamoDB's.
func (a Alarm) check(p properties) error {
	compares := a.breachesBelow || p.ComparisonOperator == "GreaterThanThreshold"
	treats := slices.Contains([]string{"notBreaching", "breaching", "ignore", "missing"}, a.Missing)
	if !compares || !treats || a.Datapoints < 1 || a.Datapoints > a.Periods {
		return fmt.Errorf("not known here: %+v", p)
	}
	if slices.ContainsFunc(a.Queries, func(q Query) bool { return q.Metric.Namespace == "AWS/DynamoDB" }) {
		return errors.New("alarms on metrics of DynamoDB treat missing data in another way, which is not known here")
	}
	return nil
}

// readQuery reads a metric or an expression of an alarm. An expression may use only earlier
// queries. The keys of earlierQueries are the ids of these queries.
func readQuery(m dataQuery, period int, earlierQueries map[string]number) (Query, error) {
	stat := m.MetricStat
	q := Query{ID: m.ID, Metric: Metric{Namespace: stat.Metric.Namespace, Name: stat.Metric.MetricName}, Statistic: stat.Stat, Expression: m.Expression}
	for _, d := range stat.Metric.Dimensions {
		q.Metric.Dimensions += d.Name + "=" + d.Value + ";"
	}
	if m.Expression == "" {
		if q.Metric.Namespace == "" || q.Metric.Name == "" || statistics()[q.Statistic] == nil || stat.Period != period {
			return q, fmt.Errorf("query %s is not known here: %+v", m.ID, stat)
		}
		return q, nil
	}
	var err error
	if q.parsed, err = parser.ParseExpr(m.Expression); err == nil {
		_, err = formula{values: earlierQueries}.calculate(q.parsed)
	}
	if err != nil {
		return q, fmt.Errorf("query %s: %w", m.ID, err)
	}
	return q, nil
}
