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

// wantedAlarms are the alarms that there must be, by logical id, and whether
// somebody is woken.
func wantedAlarms() map[string]bool {
	return map[string]bool{
		"ErrorsAlarm": true, "FacilitatorFaultsAlarm": true, "LedgerFaultsAlarm": true, // of the template
		"UncertainAlarm": true, "ResolversAlarm": true, "ReconcileSilentAlarm": true,
		"LatencyAlarm": false, "FacilitatorSlowAlarm": false, "OwedAlarm": false, "OverloadedAlarm": false, "ChainAlarm": false,
		"ReconcileOpenAlarm": false, "ReconcileRefundAlarm": false, "ReconcileFailingAlarm": false,
	}
}

// customersCan are the alarms that a customer can set off, by asking about hosts and
// domains that are dead or by asking for much at once.
func customersCan() []string {
	return []string{"LatencyAlarm", "OwedAlarm", "OverloadedAlarm", "ReconcileRefundAlarm"}
}

// query is one metric of an alarm.
type query struct {
	Namespace, MetricName, Stat string
	Period                      float64
	Dimensions                  []any
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
			Period float64
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
			q.Stat, q.Period = m.MetricStat.Stat, m.MetricStat.Period
			all = append(all, q)
		}
	}
	return all
}

// expression is that of an alarm on metric math.
func (p alarmProperties) expression() string {
	for _, m := range p.Metrics {
		if m.Expression != "" {
			return m.Expression
		}
	}
	return ""
}

// inStack is a value of a template with the texts that have the stack's name in them
// as they are in the stack.
func inStack(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["Fn::Sub"].(string); ok && len(v) == 1 {
			return strings.ReplaceAll(text, "${AWS::StackName}", defaultStack)
		}
		out := map[string]any{}
		for name, part := range v {
			out[name] = inStack(part)
		}
		return out
	case []any:
		var out []any
		for _, part := range v {
			out = append(out, inStack(part))
		}
		return out
	}
	return v
}

// readAlarm reads an alarm of a template.
func readAlarm(d document, id string) (p alarmProperties, err error) {
	text, err := json.Marshal(inStack(properties(d, id)))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// alarmFaults is what is wrong with the alarms of a template.
func alarmFaults(d document) []string {
	var faults []string
	fault := func(id, format string, args ...any) { faults = append(faults, id+": "+fmt.Sprintf(format, args...)) }
	have := ofType(d, "AWS::CloudWatch::Alarm")
	for _, id := range slices.Sorted(maps.Keys(wantedAlarms())) {
		if !slices.Contains(have, id) {
			fault(id, "there is no such alarm")
		}
	}
	if n := len(have); n > maxAlarms {
		fault("alarms", "there are %d, want %d at most", n, maxAlarms)
	}
	for _, id := range have {
		page, wanted := wantedAlarms()[id]
		if !wanted {
			fault(id, "nobody asked for this alarm")
		}
		p, err := readAlarm(d, id)
		if err != nil {
			fault(id, "%v", err)
			continue
		}
		checkAlarm(id, p, page, fault)
		for _, q := range p.queries() {
			checkQuery(d, id, q, fault)
		}
	}
	return faults
}

// checkAlarm looks at what every alarm has.
func checkAlarm(id string, p alarmProperties, page bool, fault func(id, format string, args ...any)) {
	name, own := strings.CutPrefix(p.AlarmName, defaultStack+"-")
	if !own || pascal(name)+"Alarm" != id {
		fault(id, "its name is %q", p.AlarmName)
	}
	means, anchor, ok := strings.Cut(p.AlarmDescription, " "+catalog.Runbook+"#alarm-")
	if !ok || !strings.HasSuffix(means, ".") || anchor != name {
		fault(id, "its description does not say what it means and where to read on: %q", p.AlarmDescription)
	}
	topic := []any{map[string]any{"Ref": "Tickets"}}
	if page {
		topic = []any{map[string]any{"Ref": "Alarms"}}
	}
	if !cmp.Equal(topic, p.AlarmActions) || !cmp.Equal(topic, p.OKActions) {
		fault(id, "it tells %v and %v, want %v", p.AlarmActions, p.OKActions, topic)
	}
	// What a run that failed leaves unsaid must not end an alarm, and silence of
	// the runs is an alarm itself; anything else that does not happen is good.
	missing := missingGood
	switch id {
	case "ReconcileOpenAlarm", "ReconcileRefundAlarm":
		missing = missingIgnore
	case "ReconcileSilentAlarm":
		missing = missingBad
	}
	if p.TreatMissingData != missing {
		fault(id, "missing data is %q, want %q", p.TreatMissingData, missing)
	}
	for _, q := range p.queries() {
		if slices.Contains(customersCan(), id) && (page || q.Period < day) {
			fault(id, "customers can set it off: want a ticket a day at most, not a period of %v s", q.Period)
		}
		// A percentile of two calls is the slower one of them.
		if q.Stat == statP95 && !strings.HasPrefix(p.expression(), "IF(n >= ") {
			fault(id, "its percentile counts few samples, too: %q", p.expression())
		}
	}
}

// writtenMetrics are those that somebody writes: the functions' lines, and the
// filter of the gateway's log.
func writtenMetrics() []string {
	return append(append(service.SettlementMetrics(), readyMetrics()...),
		service.MetricRequests, service.MetricChallenges, service.MetricAnswers, service.MetricReplayed, service.MetricOwed,
		service.MetricUncertain, service.MetricRateLimited, service.MetricOverloaded, service.MetricFaults, service.MetricFacilitator,
		service.MetricPrimaryFailed, service.MetricFallbackSettled, service.MetricFallbackFailed,
		service.MetricLedger, service.MetricListed, service.MetricUnlisted, service.MetricInternal, service.MetricSettle, service.MetricLookup,
		service.MetricOpen, service.MetricSettledLate, service.MetricRefusedLate, service.MetricStillOpen, service.MetricCannotTell,
		service.MetricLeft, service.MetricOwedUnclaimed, service.MetricRefundsDue, service.MetricReconcileFailed, metricGatewayErrors,
	)
}

// checkQuery looks at one metric: that somebody writes it.
func checkQuery(d document, id string, q query, fault func(id, format string, args ...any)) {
	if !slices.Contains([]string{statSum, statMin, statMax, statCount, statP95}, q.Stat) {
		fault(id, "statistic %q", q.Stat)
	}
	if q.Namespace != service.Namespace(defaultStack) || len(q.Dimensions) != 0 {
		fault(id, "namespace %q, dimensions %v", q.Namespace, q.Dimensions)
	}
	if !slices.Contains(writtenMetrics(), q.MetricName) {
		fault(id, "nobody writes %s", q.MetricName)
	}
	if q.MetricName == metricGatewayErrors && properties(d, metricGatewayErrors) == nil {
		fault(id, "no filter counts %s", q.MetricName)
	}
}

// TestAlarms: one for each cause, 20 at most, and none for what does not exist.
func TestAlarms(t *testing.T) {
	t.Parallel()
	for _, f := range alarmFaults(synthesized(t)) {
		t.Error(f)
	}
}

// TestGatewayErrors: the filter counts, in the gateway's log and under the stack's
// name, 5xx answers that no function gave.
func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	d := written(t, nil)
	type m = map[string]any
	want := m{
		"LogGroupName": m{"Ref": idLog}, "FilterPattern": `{ ($.status = "5*") && ($.integration_error != "-") }`,
		"MetricTransformations": []any{m{
			"MetricNamespace": service.Namespace(defaultStack), "MetricName": metricGatewayErrors, "MetricValue": "1", "Unit": "Count",
		}},
	}
	if diff := cmp.Diff(any(want), inStack(properties(d, metricGatewayErrors))); diff != "" {
		t.Errorf("filter (-want +template):\n%s", diff)
	}
	log, _ := properties(d, idAPI)["AccessLogSettings"].(m)
	format, _ := log["Format"].(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil {
		t.Fatal(err)
	}
	for member, variable := range map[string]string{"status": "$context.status", "integration_error": "$context.integrationErrorMessage"} {
		if line[member] != variable {
			t.Errorf("%s of the log is %q, want %q", member, line[member], variable)
		}
	}
}

// TestAlarmThresholds: each bound lies where the alarm can go off before the
// time-out that it warns of.
func TestAlarmThresholds(t *testing.T) {
	t.Parallel()
	d := synthesized(t)
	for id, limit := range map[string]float64{
		"LatencyAlarm":         float64(deadlineOfTools().Milliseconds()),
		"FacilitatorSlowAlarm": 13000, // what a settlement gets at least
	} {
		if bound, _ := properties(d, id)["Threshold"].(float64); bound < limit/2 || bound > limit*3/4 {
			t.Errorf("%s: slow is %v ms, of %v ms", id, bound, limit)
		}
	}
	for _, id := range ofType(d, "AWS::CloudWatch::Alarm") {
		p := properties(d, id)
		if p["Period"] == nil && p["Metrics"] == nil || p["EvaluationPeriods"] == nil || p["Threshold"] == nil {
			t.Errorf("%s cannot be evaluated: %v", id, p)
		}
	}
}

// TestRemovalsAreNamed: what is taken away, an alarm, a function, an event or a
// folder, is missed by its name.
func TestRemovalsAreNamed(t *testing.T) {
	t.Parallel()
	whole := synthesized(t)
	missed := func(what, name string, faults []string) {
		t.Helper()
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, name) }) {
			t.Errorf("%s is taken away, and the faults are %q", what, faults)
		}
	}
	for id := range wantedAlarms() {
		d := synthesized(t)
		d["Resources"] = maps.Clone(section(whole, "Resources"))
		delete(section(d, "Resources"), id)
		missed(id, id+": there is no such alarm", alarmFaults(d))
	}
	places := places(t)
	if faults := placeFaults(places); len(faults) != 0 {
		t.Fatal(faults)
	}
	for _, slug := range slugs() {
		for place := range places {
			less := maps.Clone(places)
			less[place] = slices.DeleteFunc(slices.Clone(less[place]), func(s string) bool { return s == slug })
			missed(slug+" of "+place, place+" lacks "+slug, placeFaults(less))
			more := maps.Clone(places)
			more[place] = append(slices.Clone(more[place]), slug+"-x")
			missed(slug+"-x in "+place, place+" has "+slug+"-x", placeFaults(more))
		}
	}
}

// TestAlarmFaultsAreFound: an alarm that wakes somebody for what a customer can do,
// and one on a percentile of few samples, are found.
func TestAlarmFaultsAreFound(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(d document){
		"OwedAlarm: customers can set it off":       func(d document) { properties(d, "OwedAlarm")["Period"] = 900 },
		"OwedAlarm: it tells":                       func(d document) { properties(d, "OwedAlarm")["AlarmActions"] = []any{map[string]any{"Ref": "Alarms"}} },
		"LatencyAlarm: its percentile counts few":   func(d document) { lastQuery(d, "LatencyAlarm")["Expression"] = "p95" },
		"UncertainAlarm: missing data":              func(d document) { properties(d, "UncertainAlarm")["TreatMissingData"] = missingBad },
		"ResolversAlarm: nobody writes":             func(d document) { properties(d, "ResolversAlarm")["MetricName"] = "ReadyResolver" },
		"ResolversAlarm: namespace":                 func(d document) { properties(d, "ResolversAlarm")["Namespace"] = "Hostfacts" },
		"ErrorsAlarm: its name":                     func(d document) { properties(d, "ErrorsAlarm")["AlarmName"] = "errors" },
		"ErrorsAlarm: its description does not say": func(d document) { properties(d, "ErrorsAlarm")["AlarmDescription"] = "It failed." },
	} {
		d := synthesized(t)
		change(d)
		if faults := alarmFaults(d); !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, what) }) {
			t.Errorf("%s...: the faults are %q", what, faults)
		}
	}
}

// lastQuery is the last metric or expression of an alarm on metric math.
func lastQuery(d document, id string) map[string]any {
	all, _ := properties(d, id)["Metrics"].([]any)
	last, _ := all[len(all)-1].(map[string]any)
	return last
}
