package service_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestMetrics holds each kind of request to its metrics: each is there once,
// with its unit, in one directive of CloudWatch's, and none besides.
func TestMetrics(t *testing.T) {
	t.Parallel()
	for _, c := range append(quietRequests(), settledRequests()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServiceWith(t, c.rate, c.cap, func(d *parts) {
				ticking(d)
				if c.change != nil {
					c.change(d)
				}
			})
			if c.before != nil {
				c.before(t, s)
			}
			begun := time.Now()
			var r x402test.Reply
			if c.do == nil {
				r = s.buy(t, s.url+dnsPath)
			} else {
				r = c.do(t, s)
			}
			if r.Status != c.status {
				t.Errorf("status %d, want %d: %.300s", r.Status, c.status, r.Body)
			}
			line := s.line(t)
			got := emf(t, line, "Hostfacts", begun)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("metrics (-want +got):\n%s", d)
			}
			if line["operation"] != "dns" || line["status"] != float64(c.status) {
				t.Errorf("the line is of operation %v and status %v", line["operation"], line["status"])
			}
			for key, want := range c.line {
				if d := cmp.Diff(want, line[key]); d != "" {
					t.Errorf("%s: %s", key, d)
				}
			}
		})
	}
}

// emf reads the metrics of a line as CloudWatch does.
func emf(t *testing.T, line map[string]any, namespace string, begun time.Time) values {
	t.Helper()
	raw := must(json.Marshal(line["_aws"]))
	var doc struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.CloudWatchMetrics) != 1 {
		t.Fatalf("%d directives: %s", len(doc.CloudWatchMetrics), raw)
	}
	if at := time.UnixMilli(doc.Timestamp); at.Before(begun.Truncate(time.Millisecond)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("timestamp %s of a request at %s", at, begun)
	}
	directive := doc.CloudWatchMetrics[0]
	if directive.Namespace != namespace {
		t.Errorf("namespace %q, want %q", directive.Namespace, namespace)
	}
	if d := cmp.Diff([][]string{{}, {"operation"}}, directive.Dimensions); d != "" {
		t.Errorf("dimensions: %s", d)
	}
	got := values{}
	for _, m := range directive.Metrics {
		v, ok := line[m.Name].(float64)
		switch {
		case !ok || got[m.Name] != "":
			t.Errorf("%s is %v, and twice in the directive: %t", m.Name, line[m.Name], got[m.Name] != "")
		case m.Unit == "Milliseconds" && v >= 1 && v < 60_000:
			got[m.Name] = aTime
		default:
			got[m.Name] = strings.TrimSuffix(jsonOf(v), ".0") + " " + m.Unit
		}
	}
	for key := range line {
		if key[0] >= 'A' && key[0] <= 'Z' && got[key] == "" {
			t.Errorf("%s is in the line and not in the directive", key)
		}
	}
	return got
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestMetricsOfAStack: a deployment's metrics are told apart by its name, and
// are written whatever the level of the log.
func TestMetricsOfAStack(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s := newServiceWith(t, 0, 0, func(d *parts) {
		ticking(d)
		d.Stack = "prod"
		d.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	begun := time.Now()
	s.get(t, dnsPath, "")
	s.get(t, "/health", "")
	var line map[string]any
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil { // one line
		t.Fatalf("%v: %q", err, log.String())
	}
	if d := cmp.Diff(asked().and("Challenges"), emf(t, line, "Hostfacts/prod", begun)); d != "" {
		t.Error(d)
	}
}

// The alarms and the dashboard are made of these.
func TestSettlementMetrics(t *testing.T) {
	t.Parallel()
	want := []string{"SettlementSettled", "SettlementRefused", "SettlementTurnedAway", "SettlementNotSent", "SettlementUnknown"}
	if d := cmp.Diff(want, service.SettlementMetrics()); d != "" {
		t.Error(d)
	}
}
