package main

import (
	"encoding/json"
	"testing"
)

// Quotas of AWS that no tool on this machine knows.
const (
	maxTemplate    = 1_000_000 // bytes, from a bucket
	maxResources   = 500
	maxParameters  = 200
	maxAlarmName   = 255
	maxDescription = 1024
	maxQueries     = 10    // metrics in one alarm
	maxEvaluation  = 86400 // seconds that an alarm looks back, with periods below an hour
)

// TestQuotas: what is synthesized, with everything that the app can add, is far
// enough within what AWS takes for the functions to become what the transform
// makes of them: a role each, and a permission for each route.
func TestQuotas(t *testing.T) {
	t.Parallel()
	d := synthesized(t)
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(text); n > maxTemplate/2 {
		t.Errorf("the template has %d bytes", n)
	}
	if n := len(section(d, "Resources")); n > maxResources/2 {
		t.Errorf("%d resources", n)
	}
	if n := len(section(d, "Parameters")); n > maxParameters/2 {
		t.Errorf("%d parameters", n)
	}
	for _, id := range ofType(d, "AWS::CloudWatch::Alarm") {
		p, _ := inStack(properties(d, id)).(map[string]any)
		name, _ := p["AlarmName"].(string)
		description, _ := p["AlarmDescription"].(string)
		if name == "" || len(name) > maxAlarmName || description == "" || len(description) > maxDescription {
			t.Errorf("%s: name of %d bytes, description of %d", id, len(name), len(description))
		}
		queries, _ := p["Metrics"].([]any)
		if len(queries) > maxQueries {
			t.Errorf("%s: %d metrics", id, len(queries))
		}
		period, _ := p["Period"].(float64)
		for _, q := range queries {
			stat, _ := q.(map[string]any)["MetricStat"].(map[string]any)
			if one, ok := stat["Period"].(float64); ok {
				period = max(period, one)
			}
		}
		periods, _ := p["EvaluationPeriods"].(float64)
		if period == 0 || periods == 0 || period*periods > maxEvaluation {
			t.Errorf("%s looks back %v periods of %v s", id, periods, period)
		}
	}
}
