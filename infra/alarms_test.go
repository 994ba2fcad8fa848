package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// wantedAlarms are the alarms that there must be, by logical id.
func wantedAlarms() []string {
	all := []string{
		"FacilitatorFaultsAlarm", "FacilitatorSlowAlarm", "LedgerFaultsAlarm", "FreeErrorsAlarm", "McpErrorsAlarm",
		"ReconcileOpenAlarm", "ReconcileOwedAlarm", "ReconcileRefundAlarm", "ReconcileFailingAlarm", "ReconcileSilentAlarm",
	}
	for _, o := range catalog.All() {
		kinds := []string{"Errors", "Latency", "Uncertain", "Owed"}
		if o.Slug == "ping" {
			kinds = kinds[:3] // it looks nothing up, so it owes nothing
		}
		for _, kind := range kinds {
			all = append(all, pascal(o.Slug)+kind+"Alarm")
		}
	}
	return all
}

// query is one metric of an alarm.
type query struct {
	Namespace, MetricName, Stat string
	Dimensions                  []struct {
		Name  string
		Value any
	}
}

// alarmProperties are those of AWS::CloudWatch::Alarm that are looked at.
type alarmProperties struct {
	AlarmName, AlarmDescription  string
	AlarmActions, OKActions      []any
	TreatMissingData             string
	Statistic, ExtendedStatistic string
	query
	Metrics []struct {
		ID, Expression string
		MetricStat     *struct {
			Metric query
			Stat   string
		}
	}
}

// queries are the metrics of an alarm, however it names them.
func (p alarmProperties) queries() []query {
	if p.Metrics == nil {
		p.Stat = p.Statistic + p.ExtendedStatistic
		return []query{p.query}
	}
	var all []query
	for _, m := range p.Metrics {
		if m.MetricStat != nil {
			q := m.MetricStat.Metric
			q.Stat = m.MetricStat.Stat
			all = append(all, q)
		}
	}
	return all
}

// alarmFaults is what is wrong with the alarms of a template.
func alarmFaults(d document) []string {
	var faults []string
	fault := func(id, format string, args ...any) { faults = append(faults, id+": "+fmt.Sprintf(format, args...)) }
	have := ofType(d, "AWS::CloudWatch::Alarm")
	for _, id := range wantedAlarms() {
		if !slices.Contains(have, id) {
			fault(id, "there is no such alarm")
		}
	}
	watched := map[string]bool{}
	for _, id := range have {
		if !slices.Contains(wantedAlarms(), id) {
			fault(id, "nobody asked for this alarm")
		}
		text, err := json.Marshal(properties(d, id))
		var p alarmProperties
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		if err != nil {
			fault(id, "%v", err)
			continue
		}
		checkAlarm(id, p, fault)
		for _, q := range p.queries() {
			checkQuery(d, id, q, fault)
			if q.Namespace == "AWS/Lambda" && q.MetricName == "Errors" {
				ref, _ := q.Dimensions[0].Value.(map[string]any)
				watched[fmt.Sprint(ref["Ref"])] = true
			}
		}
	}
	for _, id := range ofType(d, "AWS::Serverless::Function") {
		if !watched[id] {
			fault(id, "no alarm watches its errors")
		}
	}
	return faults
}

// checkAlarm looks at what every alarm has.
func checkAlarm(id string, p alarmProperties, fault func(id, format string, args ...any)) {
	if !strings.HasPrefix(p.AlarmName, defaultStack+"-") || pascal(strings.TrimPrefix(p.AlarmName, defaultStack+"-"))+"Alarm" != id {
		fault(id, "its name is %q", p.AlarmName)
	}
	means, anchor, ok := strings.Cut(p.AlarmDescription, " "+catalog.Runbook+"#alarm-")
	if !ok || !strings.HasSuffix(means, ".") || anchor == "" || !strings.HasSuffix(p.AlarmName, "-"+anchor) {
		fault(id, "its description does not say what it means and where to read on: %q", p.AlarmDescription)
	}
	topic := []any{map[string]any{"Ref": "Alarms"}}
	if !cmp.Equal(topic, p.AlarmActions) || !cmp.Equal(topic, p.OKActions) {
		fault(id, "it tells %v and %v, want the topic", p.AlarmActions, p.OKActions)
	}
	// What a silent run leaves unsaid must not end an alarm, and silence of
	// the runs is an alarm itself; anything else that does not happen is good.
	missing := missingGood
	switch id {
	case "ReconcileOpenAlarm", "ReconcileOwedAlarm", "ReconcileRefundAlarm":
		missing = missingIgnore
	case "ReconcileSilentAlarm":
		missing = missingBad
	}
	if p.TreatMissingData != missing {
		fault(id, "missing data is %q, want %q", p.TreatMissingData, missing)
	}
}

// checkQuery looks at one metric: that somebody writes it.
func checkQuery(d document, id string, q query, fault func(id, format string, args ...any)) {
	if !slices.Contains([]string{statSum, statMax, statP95}, q.Stat) {
		fault(id, "statistic %q", q.Stat)
	}
	switch {
	case q.Namespace == "AWS/Lambda":
		ref := map[string]any{}
		if len(q.Dimensions) == 1 && q.Dimensions[0].Name == "FunctionName" {
			ref, _ = q.Dimensions[0].Value.(map[string]any)
		}
		function, _ := ref["Ref"].(string)
		if !slices.Contains(ofType(d, "AWS::Serverless::Function"), function) {
			fault(id, "it watches function %q, which is not there", function)
		}
		if !slices.Contains([]string{"Errors", "Throttles"}, q.MetricName) {
			fault(id, "AWS/Lambda %s", q.MetricName)
		}
	case q.Namespace != service.Namespace(defaultStack):
		fault(id, "namespace %q", q.Namespace)
	case len(q.Dimensions) == 0:
	case len(q.Dimensions) != 1 || q.Dimensions[0].Name != service.DimensionOperation:
		fault(id, "dimensions %v", q.Dimensions)
	default:
		slug, _ := q.Dimensions[0].Value.(string)
		if _, ok := catalog.BySlug(slug); !ok || !strings.HasPrefix(id, pascal(slug)) {
			fault(id, "it watches operation %q", slug)
		}
	}
}

// TestAlarms: those of each operation, those of what they share, and none for
// what does not exist.
func TestAlarms(t *testing.T) {
	t.Parallel()
	for _, f := range alarmFaults(synthesized(t)) {
		t.Error(f)
	}
}

// TestAlarmThresholds: each bound lies where the alarm can go off before the
// time-out that it warns of.
func TestAlarmThresholds(t *testing.T) {
	t.Parallel()
	d := synthesized(t)
	for _, o := range catalog.All() {
		bound, _ := properties(d, pascal(o.Slug)+"LatencyAlarm")["Threshold"].(float64)
		limit := float64(o.Deadline.Milliseconds())
		if !owes(o) {
			limit = 13000 // what a settlement gets at least
		}
		if bound < limit/2 || bound > limit*3/4 {
			t.Errorf("%s: slow is %v ms, of %v ms", o.Slug, bound, limit)
		}
	}
	for _, id := range ofType(d, "AWS::CloudWatch::Alarm") {
		p := properties(d, id)
		if p["Period"] == nil && p["Metrics"] == nil || p["EvaluationPeriods"] == nil || p["Threshold"] == nil {
			t.Errorf("%s cannot be evaluated: %v", id, p)
		}
	}
}

// TestRemovalsAreNamed: what is taken away, a function, an alarm, an event or
// a folder, is missed by its name.
func TestRemovalsAreNamed(t *testing.T) {
	t.Parallel()
	whole := synthesized(t)
	copied := func() document {
		d := synthesized(t)
		d["Resources"] = maps.Clone(section(whole, "Resources"))
		return d
	}
	missed := func(what, name string, faults []string) {
		t.Helper()
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, name) }) {
			t.Errorf("%s is taken away, and the faults are %q", what, faults)
		}
	}
	for _, id := range wantedAlarms() {
		d := copied()
		delete(section(d, "Resources"), id)
		missed(id, id+": there is no such alarm", alarmFaults(d))
	}
	places := places(t)
	if faults := placeFaults(places); len(faults) != 0 {
		t.Fatal(faults)
	}
	for _, slug := range slugs() {
		d := copied()
		delete(section(d, "Resources"), logicalID(slug))
		missed(logicalID(slug), fmt.Sprintf("watches function %q, which is not there", logicalID(slug)), alarmFaults(d))
		for place := range places {
			less := maps.Clone(places)
			less[place] = slices.DeleteFunc(slices.Clone(less[place]), func(s string) bool { return s == slug })
			missed(slug+" of "+place, place+" lacks "+slug, placeFaults(less))
			more := maps.Clone(places)
			more[place] = append(slices.Clone(more[place]), slug+"-x")
			missed(slug+"-x in "+place, place+" has "+slug+"-x", placeFaults(more))
		}
	}
	// A function that is added and watched by nobody is found as well.
	d := copied()
	section(d, "Resources")["NewFunction"] = map[string]any{"Type": "AWS::Serverless::Function"}
	missed("an alarm for NewFunction", "NewFunction: no alarm watches its errors", alarmFaults(d))
}
