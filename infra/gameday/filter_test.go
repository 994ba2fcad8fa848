package gameday

import (
	"strings"
	"testing"
)

const filterTemplate = `{"Resources":{"Errors":{"Type":"AWS::Logs::MetricFilter","Properties":{
	"LogGroupName":{"Ref":"Log"},"FilterPattern":"{ ($.status = \"5*\") && ($.error != \"-\") }",
	"MetricTransformations":[{"MetricNamespace":{"Fn::Sub":"Own/${AWS::StackName}"},"MetricName":"Errors","MetricValue":"1","Unit":"Count"}]}}}}`

// TestFilter checks that a filter finds the lines that its pattern describes, and that a
// filter with an unknown part cannot be read.
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
		`{"status":503,"error":"x"}`:           false, // the pattern compares the status with a text, and this status is a number
		`no JSON`:                              false,
	} {
		if value, got := f.Finds([]byte(line)); got != want || got != (value == 1) {
			t.Errorf("%s: %v, %v", line, value, got)
		}
	}
	for _, change := range [][2]string{
		{"&&", "&"}, {`\"5*\"`, "/5/"}, {`($.status`, `$.status`}, {`\"-\")`, `\"-\"`}, {`{ ($.status = \"5*\") && ($.error != \"-\") }`, "ERROR"},
		{`"MetricValue":"1"`, `"MetricValue":"ms"`}, {`{"Ref":"Log"}`, `{"Ref":""}`}, {`{"Fn::Sub":"Own/${AWS::StackName}"}`, `""`},
		{`"Unit":"Count"`, `"Unit":"Count","DefaultValue":0`}, {`"Unit":"Count"`, `"Unit":"Count"},{"MetricName":"More"`},
	} {
		if _, err := ReadFilters([]byte(strings.Replace(filterTemplate, change[0], change[1], 1)), "prod"); err == nil {
			t.Errorf("%s is taken", change[1])
		}
	}
}

// TestFilterOfVersions checks a filter for lines that certain versions of functions log. The
// filter must find exactly these lines, and take its value from the line. The pattern has
// alternatives, comparisons of numbers, and texts that the template joins.
func TestFilterOfVersions(t *testing.T) {
	t.Parallel()
	const doc = `{"Resources":{"New":{"Type":"AWS::Logs::MetricFilter","Properties":{
		"LogGroupName":{"Ref":"Log"},"FilterPattern":{"Fn::Join":["",["{ ($.payer >= 0) && ($.broken = 1) && (",
			{"Fn::Join":["",["($.release = \"",{"Ref":"DnsFunction"},":",{"Fn::GetAtt":["DnsFunction","Version.Version"]},"\")"]]},
			" || ($.release = \"ping:7\")) }"]]},
		"MetricTransformations":[{"MetricNamespace":"Own","MetricName":{"Fn::Join":["-",["New",{"Fn::GetAtt":["DnsFunction","Version.Version"]}]]},"MetricValue":"$.payer"}]}}}}`
	filters, err := ReadFilters([]byte(doc), "prod")
	if err != nil || len(filters) != 1 || filters[0].Metric.Name != "New-DnsFunction.Version.Version" {
		t.Fatalf("%+v, %v", filters, err)
	}
	for line, want := range map[string]float64{
		`{"payer":5,"broken":1,"release":"ping:7"}`:                                  5,
		`{"payer":0,"broken":1,"release":"DnsFunction:DnsFunction.Version.Version"}`: 0,
		`{"payer":5,"broken":1,"release":"ping:8"}`:                                  -1,
		`{"payer":5,"broken":0,"release":"ping:7"}`:                                  -1,
		`{"broken":1,"release":"ping:7"}`:                                            -1,
		`{"payer":"5","broken":1,"release":"ping:7"}`:                                -1,
		`{"payer":5,"broken":1}`:                                                     -1,
	} {
		if value, yes := filters[0].Finds([]byte(line)); yes != (want >= 0) || yes && value != want {
			t.Errorf("%s: %v, %v", line, value, yes)
		}
	}
}
