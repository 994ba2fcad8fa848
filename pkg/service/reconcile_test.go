package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// chainView is an Evidence of a function.
type chainView func(ctx context.Context, q x402.Question) x402.Finding

func (f chainView) Find(ctx context.Context, q x402.Question) x402.Finding { return f(ctx, q) }

// brokenIndex is an Index that fails.
type brokenIndex struct{ error }

func (x brokenIndex) Open(context.Context, time.Time, int) ([]string, error) { return nil, x.error }
func (x brokenIndex) Owed(context.Context, int) ([]string, error)            { return nil, x.error }

func reconcileTerms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

// reconcileDeps are those of the scheduled function, over a ledger with two
// payments in doubt and a refund that is due.
func reconcileDeps(t *testing.T, log *bytes.Buffer) service.Deps {
	t.Helper()
	memory := new(ledgertest.Memory)
	var ids atomic.Int64
	d := service.Deps{
		Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelError + 1})), Now: time.Now,
		Terms: reconcileTerms(), Index: memory,
		Ledger: ledger.New(memory, time.Now, func() string { return "w" + string(rune('0'+ids.Add(1))) }),
	}
	doc, err := json.Marshal(reconcileTerms().Requirements("5000"))
	if err != nil {
		t.Fatal(err)
	}
	for i, nonce := range []string{"01", "02", "03"} {
		c, err := d.Ledger.Claim(t.Context(), ledger.Payment{
			Key:        ledger.Key("eip155:8453", strings.ToLower(d.Terms.Asset), "0x857b06519e91e3a54538791bdbb0e22373e36b66", "0x"+strings.Repeat("0", 62)+nonce),
			AuthDigest: nonce, SigDigest: nonce, Request: "GET /a", Terms: doc, ValidBefore: time.Now().Add(5 * time.Minute),
		}, time.Now().Add(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			err = c.Hold.Uncertain(t.Context(), "timeout", "")
		} else {
			err = c.Hold.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(25 * time.Hour) // the time for lookups is over
	return d
}

// line is the one line that a run leaves.
func line(t *testing.T, log *bytes.Buffer) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	var m map[string]any
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &m) != nil {
		t.Fatalf("the log is not one JSON line:\n%s", log)
	}
	return m
}

// A run ends in time for its verdict and its line, which is written whatever
// the level of the log.
func TestReconcile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := reconcileDeps(t, &log)
		var until []time.Duration
		d.Evidence = chainView(func(ctx context.Context, q x402.Question) x402.Finding {
			end, _ := ctx.Deadline()
			until = append(until, time.Until(end))
			if q.Nonce[31] == 1 {
				time.Sleep(time.Second)
				return x402.Finding{Verdict: x402.Paid, Transaction: "0x2"}
			}
			<-ctx.Done() // until the chain's budget, or the run's end
			return x402.Finding{Cause: ctx.Err()}
		})
		const timeout = 15 * time.Second // 5 s to work with, 3.75 s of them for the chain
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		begun := time.Now()
		if err := service.Reconcile(d)(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 3750*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if diff := cmp.Diff([]time.Duration{3750 * time.Millisecond, 2750 * time.Millisecond}, until); diff != "" {
			t.Errorf("time to ask the chain in (-want +got):\n%s", diff)
		}
		got := line(t, &log)
		want := map[string]any{
			"time": begun.Add(3750 * time.Millisecond).Format(time.RFC3339Nano), "level": "INFO", "msg": "reconcile",
			"listed": 2.0, "settled_late": 1.0, "refused_late": 0.0, "still_open": 0.0, "cannot_tell": 0.0, "skipped": 0.0, "failed": 0.0,
			"left": 1.0, "open": 2.0, "owed": 2.0, "exhausted": 1.0, "uncounted": 0.0, "evidence": true, "ms": 3750.0,
			"Open": 2.0, "SettledLate": 1.0, "RefusedLate": 0.0, "StillOpen": 0.0, "CannotTell": 0.0, "Left": 1.0,
			"OwedUnclaimed": 2.0, "RefundsDue": 1.0, "ReconcileFailed": 0.0,
		}
		metrics := got["_aws"]
		delete(got, "_aws")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
		var defined []any
		for _, name := range []string{
			service.MetricOpen, service.MetricSettledLate, service.MetricRefusedLate, service.MetricStillOpen, service.MetricCannotTell,
			service.MetricLeft, service.MetricOwedUnclaimed, service.MetricRefundsDue, service.MetricReconcileFailed,
		} {
			defined = append(defined, map[string]any{"Name": name, "Unit": "Count"})
		}
		emf := map[string]any{
			"Timestamp":         float64(time.Now().UnixMilli()),
			"CloudWatchMetrics": []any{map[string]any{"Namespace": "Hostfacts", "Dimensions": []any{[]any{}}, "Metrics": defined}},
		}
		if diff := cmp.Diff(any(emf), metrics); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// Without evidence a run counts, and says that it had none.
func TestReconcileWithoutEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		if err := service.Reconcile(reconcileDeps(t, &log))(t.Context()); err != nil {
			t.Error(err)
		}
		got := line(t, &log)
		if got["evidence"] != false || got["CannotTell"] != 2.0 || got["Open"] != 2.0 || got["RefundsDue"] != 1.0 {
			t.Errorf("%v", got)
		}
	})
}

// A run that failed is an error of the invocation, leaves its line, and counts
// as nothing but a failure: half a count would end an alarm.
func TestReconcileFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := reconcileDeps(t, &log)
		down := errors.New("throttled")
		d.Index = brokenIndex{down}
		if err := service.Reconcile(d)(t.Context()); !errors.Is(err, down) {
			t.Errorf("%v, want %v", err, down)
		}
		got := line(t, &log)
		if got["level"] != "ERROR" || got["ReconcileFailed"] != 1.0 || !strings.Contains(got["error"].(string), "throttled") {
			t.Errorf("%v", got)
		}
		for name := range got {
			if name[0] >= 'A' && name[0] <= 'Z' && name != "ReconcileFailed" {
				t.Errorf("%s is there", name)
			}
		}
	})
}

// A corrupt record is no error of the invocation; its metric says it.
func TestReconcileCorrupt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := reconcileDeps(t, &log)
		c, err := d.Ledger.Claim(t.Context(), ledger.Payment{Key: "strange", AuthDigest: "a", Terms: json.RawMessage("{}")}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Hold.Uncertain(t.Context(), "timeout", ""); err != nil {
			t.Fatal(err)
		}
		if err := service.Reconcile(d)(t.Context()); err != nil {
			t.Error(err)
		}
		if got := line(t, &log); got["ReconcileFailed"] != 1.0 || got["failed"] != 1.0 || got["level"] != "INFO" {
			t.Errorf("%v", got)
		}
	})
}

// /ready names a missing view of the chain, and stays ready.
func TestReadyWithoutEvidence(t *testing.T) {
	t.Parallel()
	d := service.Deps{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Terms: reconcileTerms(),
		Origin: func(*http.Request) string { return "https://api.example.com" }, RequestID: func(*http.Request) string { return "r" },
	}
	watched := d
	watched.Evidence = chainView(nil)
	for name, c := range map[string]struct {
		deps service.Deps
		want string
	}{"without": {d, "warning"}, "with": {watched, ""}} {
		w := httptest.NewRecorder()
		service.Health(c.deps).ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
		var got struct {
			Status string
			Checks map[string]struct{ Status, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != 200 || got.Status != "ready" || got.Checks["chain"].Status != c.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if c.want != "" && !strings.Contains(got.Checks["chain"].Message, "RPC_URL") {
			t.Errorf("%s: %s does not say what to set", name, w.Body)
		}
	}
}
