package gameday

import (
	"strings"
	"testing"
)

const filterTemplate = `{"Resources":{"Errors":{"Type":"AWS::Logs::MetricFilter","Properties":{
	"LogGroupName":{"Ref":"Log"},"FilterPattern":"{ ($.status = \"5*\") && ($.error != \"-\") }",
	"MetricTransformations":[{"MetricNamespace":{"Fn::Sub":"Own/${AWS::StackName}"},"MetricName":"Errors","MetricValue":"1","Unit":"Count"}]}}}}`

// A filter finds the lines that it describes, and counts them under the stack's
// name.
func TestFilter(t *testing.T) {
	t.Parallel()
	filters, err := ReadFilters([]byte(filterTemplate), "prod")
	if err != nil || len(filters) != 1 {
		t.Fatalf("%v, %v", filters, err)
	}
	f := filters[0]
	if f.ID != "Errors" || f.LogGroup != "Log" || f.Metric != NewMetric("Own/prod", "Errors", nil) {
		t.Errorf("%+v", f)
	}
	for line, want := range map[string]bool{
		`{"status":"500","error":"timed out"}`: true,
		`{"status":"503","error":"x"}`:         true,
		`{"status":"503","error":"-"}`:         false,
		`{"status":"429","error":"x"}`:         false,
		`{"status":"503"}`:                     false,
		`{"status":503,"error":"x"}`:           false, // a text is wanted
		`no JSON`:                              false,
	} {
		s, found := f.Read([]byte(line))
		if found != want || found && (s.Value != 1 || s.Unit != "Count" || s.Metric != f.Metric) {
			t.Errorf("%s: %+v, %v", line, s, found)
		}
	}
}

// What this package does not know is an error, never a filter of less.
func TestFilterFaults(t *testing.T) {
	t.Parallel()
	for what, change := range map[string][2]string{
		"an or":              {"&&", "||"},
		"a number":           {`\"5*\"`, "500"},
		"a pattern of words": {`{ ($.status = \"5*\") && ($.error != \"-\") }`, "ERROR"},
		"another value":      {`"MetricValue":"1"`, `"MetricValue":"$.ms"`},
		"another log group":  {`{"Ref":"Log"}`, `{"Ref":""}`},
		"a default value":    {`"Unit":"Count"`, `"Unit":"Count","DefaultValue":0},{"MetricName":"More"`},
		"no namespace":       {`{"Fn::Sub":"Own/${AWS::StackName}"}`, `""`},
	} {
		broken := strings.Replace(filterTemplate, change[0], change[1], 1)
		if broken == filterTemplate {
			t.Fatalf("%s: nothing is changed", what)
		}
		if _, err := ReadFilters([]byte(broken), "prod"); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
