package service_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestRequests holds each kind of request to its answer over HTTP and over MCP, and
// to its metrics: each is there once, with its unit, in one directive of
// CloudWatch's, and none besides.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range append(quietRequests(), settledRequests()...) {
		for _, tool := range []bool{false, true} {
			if tool && c.httpOnly {
				continue
			}
			t.Run(fmt.Sprint(c.name, " over ", way{tool: tool}), func(t *testing.T) {
				t.Parallel()
				c.run(way{newShop(t, ticking, c.change), tool})
			})
		}
	}
}

func (c request) run(w way) {
	ask := c.ask
	if ask == nil {
		header := w.sign("example.com")
		ask = func(w way) answer { return w.ask("example.com", header) }
	}
	if c.before != nil {
		c.before(w.shop)
	}
	begun := time.Now()
	a := ask(w)
	w.expect(a, c.status, c.code, c.charged)
	if a.replayed != c.replayed || strings.Contains(a.text, "bug") {
		w.Errorf("replayed %v: %s", a.replayed, a.text)
	}
	w.settled(c.settles)
	// What a bug ends has no other headers than those that it had by then.
	varies := "Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey
	if !w.tool && c.code != "internal_error" && a.vary != varies {
		w.Errorf("a cache may give one client the answer of another: Vary %q, want %q", a.vary, varies)
	}
	line := w.lineOf(a.id)
	if amount, paid := line["amount"], line["payer"] != nil; paid != (amount == "5000") || !paid && amount != nil {
		w.Errorf("amount %v in %v", amount, line)
	}
	want := map[string]any{"msg": "request", "operation": "dns", "status": float64(c.status), "tool": nil, "transport": nil}
	single := [][]string{{"operation"}}
	if w.tool {
		want["tool"], want["transport"] = lookupTool, "mcp"
		single = append(single, []string{"transport"})
	}
	maps.Copy(want, c.line)
	for key, value := range want {
		if value == anything && line[key] != nil {
			continue
		}
		if d := cmp.Diff(value, line[key]); d != "" {
			w.Errorf("%s: %s", key, d)
		}
	}
	counts := map[string]float64{"Requests": 1}
	if c.status >= 500 {
		counts["Faults"] = 1
	}
	for name := range strings.FieldsSeq(c.counts) {
		counts[name] = 1
	}
	// A release is judged by what is not a payer's fault, of every payment that is taken up.
	if slices.ContainsFunc([]string{"FacilitatorFaults", "LedgerFaults", "InternalErrors", "Uncertain"}, func(n string) bool { return counts[n] > 0 }) {
		counts["VersionFaults"] = 1
	} else if line["payer"] != nil && c.status != 402 {
		counts["VersionFaults"] = -0.05
	}
	if line["settlement"] == "refused" && c.status == 402 { // it may be paid, by the chain
		payer := line["payer"].(string)
		counts["RefusedPayer"] = float64(must(strconv.ParseInt(payer[len(payer)-6:], 16, 64)))
	}
	if d := cmp.Diff(counts, emf(w.T, line, "Hostfacts/prod", single, begun)); d != "" {
		w.Errorf("metrics (-want +got):\n%s", d)
	}
	w.showsNothing()
}

// emf reads the metrics of a line as CloudWatch does: each is there once, with its unit and
// the dimensions that it is kept by. A latency of a millisecond or more is 1, whatever it is.
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
	if err := json.Unmarshal(must(json.Marshal(line["_aws"])), &doc); err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(doc.Timestamp)
	if at.Before(begun.Truncate(time.Millisecond)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("timestamp %s of a request at %s", at, begun)
	}
	got := map[string]float64{}
	for _, directive := range doc.CloudWatchMetrics {
		same(t, "namespace", directive.Namespace, namespace)
		for _, m := range directive.Metrics {
			want := [][]string{}
			total, operation := service.KeptBy(m.Name)
			if total {
				want = append(want, nil)
			}
			if operation {
				want = append(want, single...)
			}
			if m.Name == service.MetricVersion {
				want = [][]string{{"FunctionName", "ExecutedVersion"}}
				same(t, "what runs", fmt.Sprint(line["FunctionName"], line["ExecutedVersion"]), "dns-function7")
			}
			if d := cmp.Diff(want, directive.Dimensions, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("dimensions of %s: %s", m.Name, d)
			}
			v, ok := line[m.Name].(float64)
			unit := "Count"
			if phase, ok := strings.CutSuffix(m.Name, "Latency"); ok {
				same(t, m.Name, line[strings.ToLower(phase)+"_ms"], any(v))
				unit, v = "Milliseconds", min(v, 1)
			}
			if _, twice := got[m.Name]; !ok || twice || m.Unit != unit {
				t.Errorf("%s is %v %s, and twice in the line: %t", m.Name, line[m.Name], m.Unit, twice)
			}
			got[m.Name] = v
		}
	}
	for key := range line {
		_, there := got[key]
		if _, dimension := line[key].(string); !dimension && key[0] >= 'A' && key[0] <= 'Z' && !there {
			t.Errorf("%s is in the line and not in a directive", key)
		}
	}
	return got
}

// What has metrics is written whatever the level of the log, and nothing else is.
func TestMetricsAtEveryLevel(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.level.Set(slog.LevelError)
	s.get("/health", "")
	s.lineOfReply(s.get(dnsPath, ""))
	same(t, "lines", strings.Count(s.log.String(), "\n"), 1)
	// The alarms and the dashboard are made of these.
	same(t, "settlements", strings.Join(service.SettlementMetrics(), " "),
		"SettlementSettled SettlementRefused SettlementTurnedAway SettlementNotSent SettlementUnknown")
}
