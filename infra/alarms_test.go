package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/gameday"
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

// readAlarms reads the alarms of a template.
func readAlarms(d document) ([]gameday.Alarm, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return gameday.ReadAlarms(text, defaultStack)
}

// metrics are the metrics of an alarm, and expression what it makes of them.
func metrics(a gameday.Alarm) (list []gameday.Query, expression string) {
	for _, q := range a.Queries {
		if q.Expression == "" {
			list = append(list, q)
		} else if expression == "" {
			expression = q.Expression
		}
	}
	return list, expression
}

// alarmFaults is what is wrong with the alarms of a template.
func alarmFaults(d document) []string {
	var faults []string
	fault := func(id, format string, args ...any) { faults = append(faults, id+": "+fmt.Sprintf(format, args...)) }
	have, err := readAlarms(d)
	if err != nil {
		fault("alarms", "%v", err)
	}
	for _, id := range slices.Sorted(maps.Keys(wantedAlarms())) {
		if !slices.ContainsFunc(have, func(a gameday.Alarm) bool { return a.ID == id }) {
			fault(id, "there is no such alarm")
		}
	}
	if n := len(have); n > maxAlarms {
		fault("alarms", "there are %d, want %d at most", n, maxAlarms)
	}
	for _, a := range have {
		page, wanted := wantedAlarms()[a.ID]
		if !wanted {
			fault(a.ID, "nobody asked for this alarm")
		}
		checkAlarm(a, page, fault)
		list, _ := metrics(a)
		for _, q := range list {
			checkQuery(d, a.ID, q, fault)
		}
	}
	return faults
}

// checkAlarm looks at what every alarm has.
func checkAlarm(a gameday.Alarm, page bool, fault func(id, format string, args ...any)) {
	id := a.ID
	name, own := strings.CutPrefix(a.Name, defaultStack+"-")
	if !own || pascal(name)+"Alarm" != id {
		fault(id, "its name is %q", a.Name)
	}
	means, anchor, ok := strings.Cut(a.Description, " "+catalog.Runbook+"#alarm-")
	if !ok || !strings.HasSuffix(means, ".") || anchor != name {
		fault(id, "its description does not say what it means and where to read on: %q", a.Description)
	}
	topic := []string{"Tickets"}
	if page {
		topic = []string{"Alarms"}
	}
	if !slices.Equal(topic, a.Tells) || !slices.Equal(topic, a.Resolves) {
		fault(id, "it tells %v and %v, want %v", a.Tells, a.Resolves, topic)
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
	if a.Missing != missing {
		fault(id, "missing data is %q, want %q", a.Missing, missing)
	}
	if slices.Contains(customersCan(), id) && (page || a.Period < day) {
		fault(id, "customers can set it off: want a ticket a day at most, not a period of %v s", a.Period)
	}
	list, expression := metrics(a)
	for _, q := range list {
		// A percentile of two calls is the slower one of them.
		if q.Statistic == statP95 && !strings.HasPrefix(expression, "IF(n >= ") {
			fault(id, "its percentile counts few samples, too: %q", expression)
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
func checkQuery(d document, id string, q gameday.Query, fault func(id, format string, args ...any)) {
	if !slices.Contains([]string{statSum, statMin, statMax, statCount, statP95}, q.Statistic) {
		fault(id, "statistic %q", q.Statistic)
	}
	name := q.Metric.Name
	if q.Metric != gameday.NewMetric(service.Namespace(defaultStack), name, nil) {
		fault(id, "namespace and dimensions are those of %v", q.Metric)
	}
	if !slices.Contains(writtenMetrics(), name) {
		fault(id, "nobody writes %s", name)
	}
	if name == metricGatewayErrors && properties(d, metricGatewayErrors) == nil {
		fault(id, "no filter counts %s", name)
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
}
