package gameday

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is a source: the values of each metric by period.
type recorded map[Metric][][]float64

func (r recorded) Values(m Metric, period int) []float64 {
	if period >= len(r[m]) {
		return nil
	}
	return r[m][period]
}

// TestMissingData are the rows of AWS's tables "Configuring how CloudWatch alarms
// treat missing data": X breaches, 0 does not, - is missing, the newest is last. * is: the state is retained.
func TestMissingData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		points string
		of     int // of 3
		want   string
	}{
		{"0 - X - X", 3, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"0 - - - -", 3, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"- - - - -", 3, "missing INSUFFICIENT_DATA, ignore *, breaching ALARM, notBreaching OK"},
		{"0 X X - X", 3, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"- - X - -", 3, "missing ALARM, ignore *, breaching ALARM, notBreaching OK"},
		{"0 - X - X", 2, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"0 0 X 0 X", 2, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"0 - X - -", 2, "missing OK, ignore OK, breaching ALARM, notBreaching OK"},
		{"- - - - 0", 2, "missing OK, ignore OK, breaching ALARM, notBreaching OK"},
		{"- - - X -", 2, "missing ALARM, ignore *, breaching ALARM, notBreaching OK"},
		{"- - - - X", 3, "missing ALARM, ignore *, breaching ALARM, notBreaching OK"},
		{"X X X X X", 3, "missing ALARM, ignore ALARM, breaching ALARM, notBreaching ALARM"},
		{"X X X 0 0", 2, "missing OK, ignore OK, breaching OK, notBreaching OK"},
		{"X X 0 X 0", 2, "missing OK, ignore OK, breaching OK, notBreaching OK"},
	} {
		m := Metric{"N", "M", ""}
		src := recorded{}
		for _, p := range strings.Fields(c.points) {
			src[m] = append(src[m], map[string][]float64{"X": {2}, "0": {1}}[p])
		}
		for _, before := range []State{OK, Firing, Insufficient} {
			var got []string
			for _, treatment := range []string{"missing", "ignore", "breaching", "notBreaching"} {
				a := Alarm{Queries: []Query{{ID: "m", Metric: m, Statistic: "Sum"}}, returns: "m", threshold: 1, Periods: 3, Datapoints: c.of, Missing: treatment}
				got = append(got, fmt.Sprint(treatment, " ", a.after(src, 4, before)))
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "*", string(before)), strings.Join(got, ", ")); diff != "" {
				t.Errorf("%s, %d of 3, was %s (-want +got):\n%s", c.points, c.of, before, diff)
			}
		}
	}
}

const twoAlarms = `{"Resources": {
"Table": {"Type": "AWS::DynamoDB::Table"},
"Plain": {"Type": "AWS::CloudWatch::Alarm", "Properties": {
	"AlarmDescription": "failed, see #errors", "AlarmName": {"Fn::Sub": "${AWS::StackName}-errors"},
	"AlarmActions": [{"Ref": "Topic"}], "OKActions": [{"Ref": "Other"}], "Namespace": {"Fn::Sub": "N/${AWS::StackName}"}, "MetricName": "Errors",
	"Statistic": "Minimum", "Period": 60, "EvaluationPeriods": 3, "DatapointsToAlarm": 2, "Threshold": 1,
	"ComparisonOperator": "LessThanThreshold", "TreatMissingData": "notBreaching"}},
"Ratio": {"Type": "AWS::CloudWatch::Alarm", "Properties": {
	"AlarmDescription": "too many",
	"Metrics": [
		{"Id": "bad", "ReturnData": false, "MetricStat": {"Metric": {"Namespace": "N", "MetricName": "Bad"}, "Period": 300, "Stat": "Sum"}},
		{"Id": "all", "ReturnData": false, "MetricStat": {"Metric": {"Namespace": "N", "MetricName": "All"}, "Period": 300, "Stat": "Sum"}},
		{"Id": "some", "Expression": "IF(all >= 10, FILL(bad, 0), 0)"}],
	"EvaluationPeriods": 1, "DatapointsToAlarm": 1, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "ignore"}}
}}`

// TestReadAlarms: each is what its definition says, and is judged by it.
func TestReadAlarms(t *testing.T) {
	t.Parallel()
	alarms, err := ReadAlarms([]byte(twoAlarms), "prod")
	if err != nil || len(alarms) != 2 {
		t.Fatalf("%d alarms, %v", len(alarms), err)
	}
	plain, ratio := alarms[0], alarms[1]
	errorsOf := Metric{"N/prod", "Errors", ""}
	if got, want := fmt.Sprint(plain), fmt.Sprint(Alarm{
		ID: "Plain", Name: "prod-errors", Description: "failed, see #errors", Queries: []Query{{ID: "m", Metric: errorsOf, Statistic: "Minimum"}},
		returns: "m", below: true, threshold: 1, Period: 60, Periods: 3, Datapoints: 2, Missing: "notBreaching", Tells: []string{"Topic"}, Resolves: []string{"Other"},
	}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if ratio.ID != "Ratio" || ratio.Period != 300 || ratio.Queries[2].Expression != "IF(all >= 10, FILL(bad, 0), 0)" {
		t.Errorf("%+v", ratio)
	}
	bad, all := Metric{"N", "Bad", ""}, Metric{"N", "All", ""}
	lost := plain
	lost.Missing, lost.Lost, lost.Periods, lost.Datapoints = "missing", []string{"Topic"}, 1, 1
	for _, c := range []struct {
		alarm Alarm
		src   recorded
		want  []State
	}{
		{lost, recorded{errorsOf: {nil, {2}}}, []State{Insufficient, OK, OK, OK, Firing}},
		{plain, recorded{errorsOf: {nil, {0, 3}, {1, 0, 1}, {1}, {2}}}, []State{OK, OK, Firing, Firing, OK}},
		{ratio, recorded{bad: {nil, {1, 1}, {1}, {1, 5}, {2}}, all: {{20}, {20}, {20}, {5}, {10}}}, []State{OK, Firing, OK, OK, Firing}},
	} {
		if diff := cmp.Diff(c.want, c.alarm.History(c.src, len(c.want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.alarm.ID, diff)
		}
	}
}

// TestBadAlarms: what is not known is not skipped.
func TestBadAlarms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, changed, says string }{
		{`"Statistic": "Minimum"`, `"Statistic": "Median"`, `statistic "Median"`},
		{`"Period": 60`, `"Period": 60, "ThresholdMetricId": "x"`, "ThresholdMetricId"},
		{`"Threshold": 1,`, ``, "no threshold"},
		{`"LessThanThreshold"`, `"LessThanOrEqualToThreshold"`, "LessThanOrEqualToThreshold"},
		{`"DatapointsToAlarm": 2`, `"DatapointsToAlarm": 4`, "4 of 3"},
		{`"notBreaching"`, `"evaluate"`, `"evaluate"`},
		{`"MetricName": "Errors"`, `"MetricName": {"Fn::GetAtt": ["A", "B"]}`, "MetricName"},
		{`"MetricName": "Errors",`, ``, "without namespace or name"},
		{`"Metrics": [`, `"Statistic": "Sum", "Metrics": [`, "a metric besides"},
		{`"Period": 300, "Stat": "Sum"}}`, `"Period": 60, "Stat": "Sum"}}`, "its period differs"},
		{`"ReturnData": false, `, ``, "two queries return data"},
		{`"Id": "some"`, `"Id": "some", "ReturnData": false`, "no query returns data"},
		{`FILL(bad, 0)`, `100 * `, "expected operand"},
		{`"Expression": "IF(all >= 10, FILL(bad, 0), 0)"`, `"Expression": ""`, "a metric or an expression"},
		{`AWS::DynamoDB::Table`, `AWS::CloudWatch::CompositeAlarm`, "CompositeAlarm"},
	} {
		changed := strings.Replace(twoAlarms, c.old, c.changed, 1)
		if changed == twoAlarms {
			t.Errorf("%q is not in the template", c.old)
		}
		t.Run(c.says, func(t *testing.T) {
			if _, err := ReadAlarms([]byte(changed), "prod"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v; want %q", c.changed, err, c.says)
			}
		})
	}
}
