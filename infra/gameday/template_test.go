package gameday

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoAlarms = `{"Resources": {
"Table": {"Type": "AWS::DynamoDB::Table", "Properties": {}},
"Plain": {"Type": "AWS::CloudWatch::Alarm", "Properties": {
	"AlarmDescription": {"Fn::Join": ["", ["failed, see ", {"Ref": "Docs"}, "#errors"]]},
	"AlarmName": {"Fn::Sub": "${Stack}-errors"},
	"AlarmActions": [{"Ref": "Topic"}], "ActionsEnabled": true,
	"Namespace": "AWS/Lambda", "MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": {"Ref": "DnsFunction"}}],
	"Statistic": "Sum", "Period": 60, "EvaluationPeriods": 3, "DatapointsToAlarm": 2, "Threshold": 1,
	"ComparisonOperator": "GreaterThanOrEqualToThreshold", "TreatMissingData": "notBreaching"}},
"Ratio": {"Type": "AWS::CloudWatch::Alarm", "Properties": {
	"AlarmDescription": "too many",
	"Metrics": [
		{"Id": "bad", "ReturnData": false, "MetricStat": {"Metric": {"Namespace": "N", "MetricName": "Bad", "Dimensions": [{"Name": "operation", "Value": "dns"}]}, "Period": 300, "Stat": "Sum"}},
		{"Id": "all", "ReturnData": false, "MetricStat": {"Metric": {"Namespace": "N", "MetricName": "All"}, "Period": 300, "Stat": "Sum", "Unit": "Count"}},
		{"Id": "rate", "Label": "rate", "Expression": "IF(all >= 10, 100 * FILL(bad, 0) / all, 0)"}],
	"EvaluationPeriods": 1, "Threshold": 5, "ComparisonOperator": "GreaterThanThreshold"}}
}}`

func TestReadAlarms(t *testing.T) {
	t.Parallel()
	alarms, err := ReadAlarms([]byte(twoAlarms), "prod")
	if err != nil || len(alarms) != 2 {
		t.Fatalf("%d alarms, %v", len(alarms), err)
	}
	plain, ratio := alarms[0], alarms[1]
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"id", plain.ID, "Plain"},
		{"name", plain.Name, "${Stack}-errors"},
		{"description", plain.Description, "failed, see ${Docs}#errors"},
		{"metric", plain.Queries[0].Metric, NewMetric("AWS/Lambda", "Errors", map[string]string{"FunctionName": "DnsFunction"})},
		{"M of N", []int{plain.Datapoints, plain.Periods, plain.Period}, []int{2, 3, 60}},
		{"missing", plain.Missing, "notBreaching"},
		{"default M", []int{ratio.Datapoints, ratio.Periods, ratio.Period}, []int{1, 1, 300}},
		{"default missing", ratio.Missing, "missing"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	errorsOf := NewMetric("AWS/Lambda", "Errors", map[string]string{"FunctionName": "DnsFunction"})
	history(t, plain, recorded{errorsOf: {1: {1}, 2: {0, 1, 1}, 3: {0}, 4: {0}}}, OK, OK, Firing, Firing, OK)
	bad, all := NewMetric("N", "Bad", map[string]string{"operation": "dns"}), NewMetric("N", "All", nil)
	history(t, ratio, recorded{
		bad: {1: {1, 1}, 2: {1}, 3: {1}}, all: {0: {20}, 1: {20}, 2: {20}, 3: {5}},
	}, OK, Firing, OK, OK)
}

func history(t *testing.T, a Alarm, src Source, want ...State) {
	t.Helper()
	got, err := a.History(src, len(want))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", a.ID, err, diff)
	}
}

// TestBadAlarms: what is not known is not skipped.
func TestBadAlarms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, changed, says string }{
		{`"Statistic": "Sum"`, `"Statistic": "Median"`, `statistic "Median"`},
		{`"Period": 60`, `"Period": 60, "ThresholdMetricId": "x"`, "ThresholdMetricId"},
		{`"Threshold": 1,`, ``, "no threshold"},
		{`"Period": 60`, `"Period": 60, "EvaluateLowSampleCountPercentile": "ignore"`, "EvaluateLowSampleCountPercentile"},
		{`"GreaterThanOrEqualToThreshold"`, `"GreaterThanUpperThreshold"`, "GreaterThanUpperThreshold"},
		{`"DatapointsToAlarm": 2`, `"DatapointsToAlarm": 4`, "4 of 3"},
		{`"notBreaching"`, `"good"`, `"good"`},
		{`{"Ref": "DnsFunction"}`, `{"Fn::GetAtt": ["DnsFunction", "Arn"]}`, "FunctionName"},
		{`"Namespace": "AWS/Lambda", `, ``, "without namespace"},
		{`"Metrics": [`, `"Statistic": "Sum", "Metrics": [`, "a metric of its own"},
		{`"Label": "rate"`, `"Label": "rate", "AccountId": "1"`, "AccountId"},
		{`"Period": 300, "Stat": "Sum"}}`, `"Period": 60, "Stat": "Sum"}}`, "its period differs"},
		{`"ReturnData": false, `, ``, "two queries return data"},
		{`100 * FILL(bad, 0)`, `100 * `, "expected operand"},
		{`"Expression": "IF(all >= 10, 100 * FILL(bad, 0) / all, 0)"`, `"Label": ""`, "a metric or an expression"},
		{`AWS::DynamoDB::Table`, `AWS::CloudWatch::CompositeAlarm`, "CompositeAlarm"},
		{`{"Resources"`, `"Resources"`, "read template"},
	} {
		changed := strings.Replace(twoAlarms, c.old, c.changed, 1)
		if changed == twoAlarms {
			t.Errorf("%q is not in the template", c.old)
		}
		if _, err := ReadAlarms([]byte(changed), "prod"); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.changed, err, c.says)
		}
	}
}

// TestUnknownQuery is found when the alarm is judged.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	alarms, err := ReadAlarms([]byte(strings.Replace(twoAlarms, "/ all, 0)", "/ every, 0)", 1)), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alarms[1].History(recorded{}, 1); err == nil || !strings.Contains(err.Error(), "every") {
		t.Errorf("%v", err)
	}
}

func TestReadEMF(t *testing.T) {
	t.Parallel()
	const line = `{"time":"x","operation":"dns","Requests":1,"LookupLatency":1.5,"_aws":{"Timestamp":5,"CloudWatchMetrics":[
		{"Namespace":"N","Dimensions":[[],["operation"]],"Metrics":[{"Name":"Requests","Unit":"Count"},{"Name":"LookupLatency","Unit":"Milliseconds"}]}]}}`
	dns := map[string]string{"operation": "dns"}
	got, at, err := ReadEMF([]byte(line))
	want := []Sample{
		{NewMetric("N", "Requests", nil), "Count", 1}, {NewMetric("N", "LookupLatency", nil), "Milliseconds", 1.5},
		{NewMetric("N", "Requests", dns), "Count", 1}, {NewMetric("N", "LookupLatency", dns), "Milliseconds", 1.5},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || at != 5 {
		t.Errorf("%v, at %d (-want +got):\n%s", err, at, diff)
	}
	for _, other := range []string{"", "panic: no JSON", `{"msg":"request"}`} {
		if got, _, err := ReadEMF([]byte(other)); got != nil || err != nil {
			t.Errorf("%s: %v, %v", other, got, err)
		}
	}
	for _, c := range []struct{ old, changed, says string }{
		{`"Requests":1,`, ``, "metric Requests"},
		{`"Requests":1,`, `"Requests":"1",`, "metric Requests"},
		{`"operation":"dns",`, ``, "dimension operation"},
		{`"operation":"dns",`, `"operation":"",`, "dimension operation"},
		{`"Timestamp":5`, `"Timestamp":0`, "no timestamp"},
		{`"Namespace":"N",`, ``, "without namespace"},
		{`{"time"`, `["time"`, "no JSON object"},
	} {
		if _, _, err := ReadEMF([]byte(strings.Replace(line, c.old, c.changed, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.changed, err, c.says)
		}
	}
}
