package gameday

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// TestReadAlarms checks that alarms are read and evaluated as a template defines them, and that
// an unknown property or value is an error.
func TestReadAlarms(t *testing.T) {
	t.Parallel()
	alarms, err := ReadAlarms([]byte(twoAlarms), "prod")
	if err != nil || len(alarms) != 2 || alarms[0].Name != "prod-errors" || fmt.Sprint(alarms[0].Tells) != "[Topic]" {
		t.Fatalf("%+v, %v", alarms, err)
	}
	plain := alarms[0]
	ratio := alarms[1]
	errorsOf := Metric{"N/prod", "Errors", ""}
	bad := Metric{"N", "Bad", ""}
	all := Metric{"N", "All", ""}
	lost := plain
	lost.Missing = "missing"
	lost.Lost = []string{"Topic"}
	lost.Periods = 1
	lost.Datapoints = 1
	for _, c := range []struct {
		alarm Alarm
		src   recordedValues
		want  []State
	}{
		{lost, recordedValues{errorsOf: {nil, {2}}}, []State{Insufficient, OK, OK, OK, Firing}},
		{plain, recordedValues{errorsOf: {nil, {0, 3}, {1, 0, 1}, {1}, {2}}}, []State{OK, OK, Firing, Firing, OK}},
		{ratio, recordedValues{bad: {nil, {1, 1}, {1}, {1, 5}, {2}}, all: {{20}, {20}, {20}, {5}, {10}}}, []State{OK, Firing, OK, OK, Firing}},
	} {
		if diff := cmp.Diff(c.want, c.alarm.History(c.src, len(c.want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.alarm.Name, diff)
		}
	}
	// Each change makes the template one that ReadAlarms must refuse.
	for old, changed := range map[string]string{
		`"Statistic": "Minimum"`: `"Statistic": "Median"`, `"Period": 60`: `"Period": 60, "ThresholdMetricId": "x"`, `"notBreaching"`: `"evaluate"`,
		`"LessThanThreshold"`: `"LessThanOrEqualToThreshold"`, `"DatapointsToAlarm": 2`: `"DatapointsToAlarm": 4`, `"EvaluationPeriods": 3`: `"EvaluationPeriods": 3, "EvaluateLowSampleCountPercentile": "ignore"`, `"MetricName": "Errors",`: ``,
		`"MetricName": "Errors"`: `"MetricName": {"Fn::GetAtt": ["A", "B"]}`, `"Period": 300, "Stat": "Sum"}},`: `"Period": 60, "Stat": "Sum"}},`,
		`"ReturnData": false, `: ``, `"Id": "some"`: `"Id": "some", "ReturnData": false`, `FILL(bad, 0)`: `100 * `, `"Namespace": "N", "MetricName": "Bad"`: `"Namespace": "AWS/DynamoDB", "MetricName": "Bad"`, `AWS::DynamoDB::Table`: `AWS::CloudWatch::CompositeAlarm`,
	} {
		doc := strings.Replace(twoAlarms, old, changed, 1)
		if _, err := ReadAlarms([]byte(doc), "prod"); doc == twoAlarms || err == nil {
			t.Errorf("%s is taken", changed)
		}
	}
}

func TestReadEMF(t *testing.T) {
	t.Parallel()
	const line = `{"time":"x","operation":"dns","Requests":1,"LookupLatency":1.5,"_aws":{"Timestamp":5,"CloudWatchMetrics":[
		{"Namespace":"N","Dimensions":[[],["operation"]],"Metrics":[{"Name":"Requests","Unit":"Count"},{"Name":"LookupLatency","Unit":"Milliseconds"}]}]}}`
	got, at, err := ReadEMF([]byte(line))
	want := []Sample{{Metric{"N", "Requests", ""}, 1}, {Metric{"N", "LookupLatency", ""}, 1.5}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || at != 5 {
		t.Errorf("%v, at %d (-want +got):\n%s", err, at, diff)
	}
	for _, other := range []string{"", "panic: no JSON", `{"msg":"request"}`} {
		if got, _, err := ReadEMF([]byte(other)); got != nil || err != nil {
			t.Errorf("%s: %v, %v", other, got, err)
		}
	}
	for _, c := range []struct{ old, changed, wantErr string }{
		{`"Requests":1,`, ``, "metric Requests"},
		{`"Requests":1,`, `"Requests":"1",`, "metric Requests"},
		{`"operation":"dns",`, ``, "dimension operation"},
		{`"operation":"dns",`, `"operation":"",`, "dimension operation"},
		{`"Timestamp":5`, `"Timestamp":0`, "no timestamp"},
		{`"Namespace":"N",`, ``, "without namespace"},
		{`{"time"`, `["time"`, "a line with _aws"},
	} {
		if _, _, err := ReadEMF([]byte(strings.Replace(line, c.old, c.changed, 1))); err == nil || !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: %v; want %q", c.changed, err, c.wantErr)
		}
	}
}
