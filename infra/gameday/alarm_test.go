package gameday

import (
	"fmt"
	"go/parser"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	if err != nil || len(alarms) != 2 || alarms[0].Name != "prod-errors" || fmt.Sprint(alarms[0].Tells) != "[Topic]" {
		t.Fatalf("%+v, %v", alarms, err)
	}
	plain, ratio := alarms[0], alarms[1]
	errorsOf, bad, all := Metric{"N/prod", "Errors", ""}, Metric{"N", "Bad", ""}, Metric{"N", "All", ""}
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
			t.Errorf("%s (-want +got):\n%s", c.alarm.Name, diff)
		}
	}
	// What is not known is not skipped.
	for old, changed := range map[string]string{
		`"Statistic": "Minimum"`: `"Statistic": "Median"`, `"Period": 60`: `"Period": 60, "ThresholdMetricId": "x"`, `"notBreaching"`: `"evaluate"`,
		`"LessThanThreshold"`: `"LessThanOrEqualToThreshold"`, `"DatapointsToAlarm": 2`: `"DatapointsToAlarm": 4`, `"MetricName": "Errors",`: ``,
		`"MetricName": "Errors"`: `"MetricName": {"Fn::GetAtt": ["A", "B"]}`, `"Period": 300, "Stat": "Sum"}},`: `"Period": 60, "Stat": "Sum"}},`,
		`"ReturnData": false, `: ``, `"Id": "some"`: `"Id": "some", "ReturnData": false`, `FILL(bad, 0)`: `100 * `, `AWS::DynamoDB::Table`: `AWS::CloudWatch::CompositeAlarm`,
	} {
		doc := strings.Replace(twoAlarms, old, changed, 1)
		if _, err := ReadAlarms([]byte(doc), "prod"); doc == twoAlarms || err == nil {
			t.Errorf("%s is taken", changed)
		}
	}
}

func TestMath(t *testing.T) {
	t.Parallel()
	calculated := func(expression string) (float64, error) {
		n, err := parser.ParseExpr(expression)
		if err != nil {
			return 0, err
		}
		return calculate(n, map[string]float64{"one": 1, "ten": 10, "zero": 0, "none": math.NaN()})
	}
	n := math.NaN()
	for expression, want := range map[string]float64{
		"ten": 10, "none": n, "1.5e1": 15, "one + ten": 11, "one + none": n, "none + one": n,
		"one > one": 0, "ten > one": 1, "one >= one": 1, "one >= ten": 0, "one > none": n, "none >= one": n, "one + 10 > ten": 1,
		"FILL(none, 2)": 2, "FILL(one, 2)": 1, "FILL(none,0) + FILL(one, 0)": 1,
		"IF(one, ten)": 10, "IF(zero, ten)": n, "IF(none, ten)": n, "IF(one, ten, 5)": 10, "IF(zero, ten, 5)": 5, "IF(none, ten, 5)": n, "IF(one, none, 5)": n,
	} {
		got, err := calculated(expression)
		if !cmp.Equal(want, got, cmpopts.EquateNaNs()) || err != nil {
			t.Errorf("%s: %v, %v; want %v", expression, got, err, want)
		}
	}
	// What is not known is an error, never less of an expression.
	for _, expression := range []string{
		"", "one +", "one ten", "one ^ 2", "-one", "one.b", `"text"`, "other", "RATE(one)", "FILL(one)", "FILL(one, ten)", "IF(one)", "IF(one, one, one, one)",
	} {
		if v, err := calculated(expression); err == nil {
			t.Errorf("%q is %v", expression, v)
		}
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	got := map[string]float64{}
	for name, of := range statistics() {
		got[name], got[name+" of one"] = of([]float64{4, 1, 3, 2}), of([]float64{7})
	}
	want := map[string]float64{
		"Sum": 10, "Minimum": 1, "Maximum": 4, "SampleCount": 4, "p95": 3.85,
		"Sum of one": 7, "Minimum of one": 7, "Maximum of one": 7, "SampleCount of one": 1, "p95 of one": 7,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
	for _, c := range []struct{ old, changed, says string }{
		{`"Requests":1,`, ``, "metric Requests"},
		{`"Requests":1,`, `"Requests":"1",`, "metric Requests"},
		{`"operation":"dns",`, ``, "dimension operation"},
		{`"operation":"dns",`, `"operation":"",`, "dimension operation"},
		{`"Timestamp":5`, `"Timestamp":0`, "no timestamp"},
		{`"Namespace":"N",`, ``, "without namespace"},
		{`{"time"`, `["time"`, "a line with _aws"},
	} {
		if _, _, err := ReadEMF([]byte(strings.Replace(line, c.old, c.changed, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.changed, err, c.says)
		}
	}
}

const filterTemplate = `{"Resources":{"Errors":{"Type":"AWS::Logs::MetricFilter","Properties":{
	"LogGroupName":{"Ref":"Log"},"FilterPattern":"{ ($.status = \"5*\") && ($.error != \"-\") }",
	"MetricTransformations":[{"MetricNamespace":{"Fn::Sub":"Own/${AWS::StackName}"},"MetricName":"Errors","MetricValue":"1","Unit":"Count"}]}}}}`

// A filter finds the lines that it describes, and what this package does not know of
// one is an error, never a filter of less.
func TestFilter(t *testing.T) {
	t.Parallel()
	filters, err := ReadFilters([]byte(filterTemplate), "prod")
	if err != nil || len(filters) != 1 {
		t.Fatalf("%v, %v", filters, err)
	}
	f := filters[0]
	if want := (Metric{"Own/prod", "Errors", ""}); f.LogGroup != "Log" || f.Metric != want {
		t.Errorf("%+v", f)
	}
	for line, want := range map[string]bool{
		`{"status":"500","error":"timed out"}`: true,
		`{"status":"503","error":"x"}`:         true,
		`{"status":"503","error":"-"}`:         false,
		`{"status":"429","error":"x"}`:         false,
		`{"status":"1500","error":"x"}`:        false,
		`{"status":"503"}`:                     false,
		`{"status":503,"error":"x"}`:           false, // a text is wanted
		`no JSON`:                              false,
	} {
		if got := f.Finds([]byte(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	for _, change := range [][2]string{
		{"&&", "||"}, {`\"5*\"`, "500"}, {`{ ($.status = \"5*\") && ($.error != \"-\") }`, "ERROR"},
		{`"MetricValue":"1"`, `"MetricValue":"$.ms"`}, {`{"Ref":"Log"}`, `{"Ref":""}`}, {`{"Fn::Sub":"Own/${AWS::StackName}"}`, `""`},
		{`"Unit":"Count"`, `"Unit":"Count","DefaultValue":0`}, {`"Unit":"Count"`, `"Unit":"Count"},{"MetricName":"More"`},
	} {
		if _, err := ReadFilters([]byte(strings.Replace(filterTemplate, change[0], change[1], 1)), "prod"); err == nil {
			t.Errorf("%s is taken", change[1])
		}
	}
}
