package gameday

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	if want := (Metric{"Own/prod", "Errors", ""}); f.ID != "Errors" || f.LogGroup != "Log" || f.Metric != want {
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
