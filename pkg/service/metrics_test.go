package service_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// emf returns the metrics of a log line, read as CloudWatch reads them. It checks that each
// metric appears once, with its unit and its dimensions. Latencies differ from run to run, so
// emf returns 1 for each latency of a millisecond or more.
func emf(t *testing.T, line map[string]any, namespace string, single [][]string, begun time.Time) map[string]float64 {
	t.Helper()
	var doc struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	if err := json.Unmarshal(testbed.Must(json.Marshal(line["_aws"])), &doc); err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(doc.Timestamp)
	if at.Before(begun.Truncate(time.Millisecond)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("timestamp %s of a request at %s", at, begun)
	}
	got := map[string]float64{}
	for _, directive := range doc.CloudWatchMetrics {
		checkEqual(t, "namespace", directive.Namespace, namespace)
		for _, m := range directive.Metrics {
			want := dimensionsOf(m.Name, single)
			if d := cmp.Diff(want, directive.Dimensions, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("dimensions of %s: %s", m.Name, d)
			}
			if _, twice := got[m.Name]; twice {
				t.Errorf("%s is twice in the line", m.Name)
			}
			got[m.Name] = valueOf(t, line, m.Name, m.Unit)
		}
	}
	for key, value := range line {
		_, directed := got[key]
		_, dimension := value.(string)
		if !directed && !dimension && unicode.IsUpper(rune(key[0])) {
			t.Errorf("%s is in the line and not in a directive", key)
		}
	}
	return got
}

// dimensionsOf returns the dimensions under which a metric is published. single holds the
// dimensions of a metric that is kept by operation.
func dimensionsOf(metric string, single [][]string) [][]string {
	var all [][]string
	total, operation := service.KeptBy(metric)
	if total {
		all = append(all, nil)
	}
	if operation {
		all = append(all, single...)
	}
	return all
}

// valueOf returns the value of a metric in a log line. For a latency of a millisecond or more
// it returns 1. The line must also have each latency under a name for people, such as
// settle_ms.
func valueOf(t *testing.T, line map[string]any, name, unit string) float64 {
	t.Helper()
	v, ok := line[name].(float64)
	want := "Count"
	if phase, timed := strings.CutSuffix(name, "Latency"); timed {
		checkEqual(t, name, line[strings.ToLower(phase)+"_ms"], any(v))
		want = "Milliseconds"
		v = min(v, 1)
	}
	if !ok || unit != want {
		t.Errorf("%s is %v %s", name, line[name], unit)
	}
	return v
}

// wantMetrics returns the metrics that the log line of the request must have.
func (c request) wantMetrics(line map[string]any) map[string]float64 {
	counts := map[string]float64{"Requests": 1}
	if c.status >= 500 {
		counts["Faults"] = 1
	}
	for name := range strings.FieldsSeq(c.metrics) {
		counts[name] = 1
	}
	number := line["payer_unanswered"] // if the payment has no readable payer, accept any number
	if payer, ok := line["payer"].(string); ok {
		number = float64(testbed.Must(strconv.ParseInt(payer[len(payer)-6:], 16, 64)))
	}
	paid := counts["Challenges"] == 0 && counts["RateLimited"] == 0
	broken := slices.ContainsFunc([]string{"FacilitatorFaults", "LedgerFaults", "InternalErrors"}, func(n string) bool { return counts[n] > 0 })
	refused := !broken && paid && (c.status == 402 || counts["Uncertain"] > 0 && !c.silent)
	if refused && !c.notJudged {
		counts["RefusedPayer"] = number.(float64)
	}
	if c.silent {
		counts["SilentPayer"] = number.(float64)
	}
	// Every payment that a release has begun to process counts towards rolling the release
	// back.
	if c.notJudged || !paid {
		return counts
	}
	counts["Payments"] = 1
	if broken || c.silent {
		counts["PaymentsBroken"] = 1
	}
	if refused {
		counts["PaymentsRefused"] = 1
	}
	return counts
}

// checkFilterMembers checks the members that the template's filters read from a log line.
// Their values must agree with the line's metrics.
func (c request) checkFilterMembers(t *testing.T, line map[string]any, counts map[string]float64) {
	t.Helper()
	release, number := any("dns-function:7"), line["payer_unanswered"]
	if counts["Payments"] == 0 {
		release = nil
	}
	unanswered := counts["PaymentsBroken"]+counts["PaymentsRefused"] > 0
	if line["release"] != release || unanswered != (number != nil) {
		t.Errorf("release %v, unanswered payer %v, with %v", line["release"], number, counts)
	}
	for _, name := range []string{"RefusedPayer", "SilentPayer"} {
		if want, ok := counts[name]; ok && want != number && !c.notJudged {
			t.Errorf("%s is %v, the payer's number %v", name, want, number)
		}
	}
}

// TestMetricsAtEveryLevel checks that a line with metrics is written whatever the log level,
// and that other lines are not.
func TestMetricsAtEveryLevel(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.level.Set(slog.LevelError)
	s.get("/health", "")
	s.lineOf(s.get(dnsPath, "").Header.Get("X-Request-Id"))
	checkEqual(t, "lines", strings.Count(s.log.String(), "\n"), 1)
	// The alarms and the dashboard use the metrics of these names.
	checkEqual(t, "settlements", strings.Join(service.SettlementMetrics(), " "),
		"SettlementSettled SettlementRefused SettlementTurnedAway SettlementNotSent SettlementUnknown")
}
