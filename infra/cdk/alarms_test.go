package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/gameday"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// releaseAlarms returns the ids of the alarms of template.yaml that roll a release back. Each
// of them watches some of the functions.
func releaseAlarms(t *testing.T) (ids []string) {
	t.Helper()
	function := section(section(deployed.Template(), "Globals"), "Function")
	choice, _ := section(function, "DeploymentPreference")["Alarms"].(document)["Fn::If"].([]any)
	for _, ref := range choice[1].([]any) {
		ids = append(ids, ref.(document)["Ref"].(string))
	}
	return ids
}

func readAlarms(t *testing.T) []gameday.Alarm {
	t.Helper()
	return must(gameday.ReadAlarms(must(json.Marshal(exampleTemplate(t)))(t), defaultStack))(t)
}

// AWS quotas for an alarm. No linter checks them.
const (
	maxAlarmName   = 255
	maxDescription = 1024
	maxQueries     = 11    // ten metrics and an expression
	maxEvaluation  = 86400 // how many seconds an alarm may look back
)

// TestAlarms checks that each alarm links to its entry in the runbook, is within the quotas of
// AWS, and watches metrics that something writes. TestEnvelope checks which alarms there are
// and whom they notify.
func TestAlarms(t *testing.T) {
	t.Parallel()
	for _, a := range readAlarms(t) {
		name, own := strings.CutPrefix(a.Name, defaultStack+"-")
		if !own || sam.Pascal(name)+"Alarm" != a.ID || len(name) > maxAlarmName-len(defaultStack) {
			t.Errorf("the name of %s is %s", a.ID, a.Name)
		}
		means, anchor, ok := strings.Cut(a.Means, " "+catalog.Runbook+"#alarm-")
		if !ok || !strings.HasSuffix(means, ".") || anchor != strings.TrimRight(name, "-0123456789") || len(a.Means) > maxDescription {
			t.Errorf("%s does not say what it means and where to read on: %q", name, a.Means)
		}
		last := len(a.Queries) - 1
		if last >= maxQueries || a.Periods*a.Period > maxEvaluation {
			t.Errorf("%s has %d queries over %d periods of %d s", name, last+1, a.Periods, a.Period)
		}
		checkQueries(t, a)
	}
}

// checkQueries checks that an alarm queries metrics that something writes, and that it ignores
// percentiles of too few samples.
func checkQueries(t *testing.T, a gameday.Alarm) {
	t.Helper()
	// An alarm on a 95th percentile must require enough samples. Of two samples, the 95th
	// percentile is simply the slower one.
	few := !regexp.MustCompile(`IF\((FILL\()?n(, 0\))? >= 20, `).MatchString(a.Queries[len(a.Queries)-1].Expression)
	for _, q := range a.Queries {
		if q.Statistic == statP95 && few {
			t.Errorf("a percentile of %s counts few samples, too: %v", a.Name, a.Queries)
		}
		name, _, _ := strings.Cut(q.Metric.Name, "-")
		ours := q.Metric.Namespace == service.Namespace(defaultStack) && slices.Contains(append(writtenMetrics(), newMetrics()...), name)
		if q.Expression == "" && !ours && q.Metric.Namespace != "AWS/Lambda" {
			t.Errorf("nobody writes %v", q.Metric)
		}
	}
}

// writtenMetrics returns the names of the metrics that come from the functions' log lines and
// from the filter of the gateway's log.
func writtenMetrics() []string {
	return append(append(service.SettlementMetrics(), readyMetrics()...),
		service.MetricRequests, service.MetricChallenges, service.MetricAnswers, service.MetricReplayed, service.MetricOwed,
		service.MetricUncertain, service.MetricRateLimited, service.MetricOverloaded, service.MetricFaults, service.MetricFacilitator,
		service.MetricPrimaryFailed, service.MetricFallbackSettled, service.MetricFallbackFailed, service.MetricUsedAsPaid, service.MetricUnreceipted,
		service.MetricLedger, service.MetricListed, service.MetricUnlisted, service.MetricInternal, service.MetricSettle, service.MetricLookup,
		service.MetricOpen, service.MetricSettledLate, service.MetricRefusedLate, service.MetricStillOpen, service.MetricCannotTell,
		service.MetricLeft, service.MetricOwedUnclaimed, service.MetricRefundsDue, service.MetricReconcileFailed, metricGatewayErrors, service.MetricCertificateDays, service.MetricRefusedPayer, service.MetricSilentPayer,
		service.MetricJudged, service.MetricBroken, service.MetricRefused,
	)
}

// newMetrics returns the names of the metrics that the template's filters count in the log
// lines of the newest version of each function.
func newMetrics() []string {
	return []string{service.MetricNewJudged, service.MetricNewBroken, service.MetricNewUnanswered}
}

// TestRunbook checks that the link in each alarm leads to the alarm's entry in the runbook.
// The entry must have the alarm's name in bold before the alarm's meaning. The runbook must
// have no entry for an alarm that does not exist.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text := string(must(os.ReadFile("../RUNBOOK.md"))(t))
	var want, have []string
	for _, a := range readAlarms(t) {
		_, anchor, _ := strings.Cut(a.Means, catalog.Runbook+"#")
		want = append(want, anchor, strings.TrimPrefix(anchor, "alarm-"))
	}
	for _, m := range regexp.MustCompile(`(?m)^<a id="(alarm-[a-z-]+)"></a>\n\*\*([a-z-]+)\*\*: \S`).FindAllStringSubmatch(text, -1) {
		have = append(have, m[1], m[2])
	}
	slices.Sort(want)
	slices.Sort(have)
	want = slices.Compact(want) // several alarms of a release share an entry
	if d := cmp.Diff(want, have); d != "" || strings.Count(text, `id="alarm-`) != len(have)/2 {
		t.Errorf("entries of the runbook (-alarms +runbook):\n%s", d)
	}
	if !strings.HasSuffix(catalog.Runbook, "/infra/RUNBOOK.md") {
		t.Errorf("alarms link to %s", catalog.Runbook)
	}
}

// TestGatewayErrors checks that the metric GatewayErrors counts a line of the gateway's log if
// the status is 5xx and no function gave the answer. The metric must be in the stack's
// namespace.
func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	d := exampleTemplate(t)
	filters := must(gameday.ReadFilters(must(json.Marshal(d))(t), defaultStack))(t)
	filters = slices.DeleteFunc(filters, func(f gameday.Filter) bool { return f.LogGroup != idLog })
	f := filters[0]
	if want := (gameday.Metric{Namespace: service.Namespace(defaultStack), Name: metricGatewayErrors}); len(filters) != 1 || f.LogGroup != idLog || f.Metric != want {
		t.Errorf("filters %+v", filters)
	}
	format := fmt.Sprint(section(properties(d, idAPI), "AccessLogSettings")["Format"])
	for _, c := range []struct {
		status, failure string
		counts          bool
	}{{"503", "Rate Exceeded.", true}, {"500", "failed", true}, {"503", "-", false}, {"429", "x", false}} {
		line := strings.NewReplacer("$context.status", c.status, "$context.integrationErrorMessage", c.failure).Replace(format)
		if _, counts := f.Finds([]byte(line)); counts != c.counts {
			t.Errorf("%s: counts %v", line, !c.counts)
		}
	}
}

// List prices of CloudWatch in us-east-1, US dollars a month.
const (
	priceMetric    = 0.30 // for a custom metric with one combination of dimension values
	priceAlarm     = 0.10 // for each metric that an alarm evaluates
	priceDashboard = 3.00
)

// The number of calls in a month of normal use, and the price of a call according to the
// README's table. A test of pkg/service checks that table.
const (
	challenges, priceChallenge = 1_000_000, 2.52e-6
	paidCalls, pricePaid       = 100_000, 29.14e-6
)

// TestBudget checks the cost of a month in which nothing is wrong. The cost must be at least
// half of the budget, and less than the 80 % at which the budget notifies somebody. The
// calculated cost includes every metric and every alarm.
func TestBudget(t *testing.T) {
	t.Parallel()
	series := len(newMetrics())
	for _, name := range writtenMetrics() {
		total, operation := service.KeptBy(name)
		if total {
			series++
		}
		if operation {
			series += len(catalog.All()) + 1 // one for each operation and one for the tools
		}
	}
	billed := 0
	for _, a := range readAlarms(t) {
		for _, q := range a.Queries {
			if q.Metric.Name != "" {
				billed++
			}
		}
	}
	month := priceMetric*float64(series) + priceAlarm*float64(billed) + priceDashboard + challenges*priceChallenge + paidCalls*pricePaid
	if month > 0.8*defaultBudget || month < 0.5*defaultBudget {
		t.Errorf("an honest month costs $%.2f with %d series and %d metrics of alarms, the budget is $%d", month, series, billed, defaultBudget)
	}
}

// TestQuotas checks that the synthesized template, with everything that the app can add, uses
// at most half of each quota of AWS. The other half is left for CloudFormation's SAM
// transform, which adds a role for each function and a permission for each route.
func TestQuotas(t *testing.T) {
	t.Parallel()
	d := exampleTemplate(t)
	bytes, resources, parameters := len(must(json.Marshal(d))(t)), len(section(d, "Resources")), len(section(d, "Parameters"))
	if bytes > 1_000_000/2 || resources > 500/2 || parameters > 200/2 { // no linter checks these quotas
		t.Errorf("%d bytes, %d resources, %d parameters", bytes, resources, parameters)
	}
}
