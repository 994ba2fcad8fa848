package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
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

func testTerms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

// reconcileParts are those of the scheduled function, over a ledger with two
// payments in doubt and a refund that is due.
func reconcileParts(t *testing.T, log *bytes.Buffer) parts {
	t.Helper()
	memory := new(ledgertest.Memory)
	var ids atomic.Int64
	d := parts{
		Platform: platform(), Offering: service.Offering{Terms: testTerms()}, Index: memory,
		Ledger: ledger.New(memory, time.Now, func() string { return "w" + string(rune('0'+ids.Add(1))) }),
	}
	d.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	doc := must(json.Marshal(testTerms().Requirements("5000")))
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
		d := reconcileParts(t, &log)
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
		if err := d.reconcile(ctx); err != nil {
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
			"left": 1.0, "open": 2.0, "owed": 2.0, "exhausted": 1.0, "uncounted": 0.0,
			"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": false,
			"evidence": true, "ms": 3750.0,
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

// received is a Scanner that reads the same once.
type received struct {
	transfers []x402.Transfer
	err       error
}

func (r received) Transfers(_ context.Context, _ x402.Address, from uint64) (x402.Batch, error) {
	return x402.Batch{Transfers: r.transfers, Next: from + 1, Safe: from}, r.err
}
func (r received) BlockAt(context.Context, time.Time) (uint64, error) { return 7, nil }
func (r received) SafeBlock(context.Context) (uint64, error)          { return 7, nil }

// A run says what has come in, and what it was for. A node that is down is no
// error of the invocation.
func TestReconcileReceived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		payer := must(x402.ParseAddress("0x857b06519e91e3a54538791bdbb0e22373e36b66"))
		payee := must(x402.ParseAddress(testTerms().PayTo))
		for name, c := range map[string]struct {
			err  error
			want map[string]any
		}{
			"read": {nil, map[string]any{
				"received": 7.0, "deposits": 3.0, "found": 1.0, "unasked": 1.0, "unmatched": 1.0, "unread": false, "owed": 3.0, "exhausted": 2.0,
			}},
			"down": {errors.New("down"), map[string]any{
				"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": true, "owed": 1.0, "exhausted": 1.0,
			}},
		} {
			var log bytes.Buffer
			d := reconcileParts(t, &log)
			transfer := func(nonce byte, age time.Duration) x402.Transfer {
				return x402.Transfer{
					Transaction: "0x0" + string('0'+rune(nonce)), Time: time.Now().Add(-age), From: payer, To: payee,
					Value: big.NewInt(5000), Authorized: nonce > 0, Nonce: [32]byte{31: nonce},
				}
			}
			d.Scanner = received{err: c.err, transfers: []x402.Transfer{
				transfer(1, 25*time.Hour), transfer(3, 25*time.Hour), // in doubt, and known to be paid
				transfer(4, 0), transfer(5, 72*time.Hour), // unknown, and too old
				transfer(0, 0), transfer(0, 0), transfer(0, 0),
			}}
			if err := d.reconcile(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got := line(t, &log)
			part := map[string]any{}
			for attr := range c.want {
				part[attr] = got[attr]
			}
			if diff := cmp.Diff(c.want, part); diff != "" || got["level"] != "INFO" || got["RefundsDue"] != c.want["exhausted"] {
				t.Errorf("%s: line (-want +got):\n%s\n%v", name, diff, got)
			}
		}
	})
}

// Without evidence a run counts, and says that it had none.
func TestReconcileWithoutEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		if err := reconcileParts(t, &log).reconcile(t.Context()); err != nil {
			t.Error(err)
		}
		got := line(t, &log)
		if got["evidence"] != false || got["CannotTell"] != 2.0 || got["Open"] != 2.0 || got["RefundsDue"] != 1.0 {
			t.Errorf("%v", got)
		}
	})
}

// A run that failed is an error of the invocation, writes its line, and has no other
// metric than the failure: an incomplete count would end an alarm.
func TestReconcileFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := reconcileParts(t, &log)
		down := errors.New("throttled")
		d.Index = brokenIndex{down}
		if err := d.reconcile(t.Context()); !errors.Is(err, down) {
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
		d := reconcileParts(t, &log)
		c, err := d.Ledger.Claim(t.Context(), ledger.Payment{Key: "strange", AuthDigest: "a", Terms: json.RawMessage("{}")}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Hold.Uncertain(t.Context(), "timeout", ""); err != nil {
			t.Fatal(err)
		}
		if err := d.reconcile(t.Context()); err != nil {
			t.Error(err)
		}
		if got := line(t, &log); got["ReconcileFailed"] != 1.0 || got["failed"] != 1.0 || got["level"] != "INFO" {
			t.Errorf("%v", got)
		}
	})
}

// What the probes say is in the run's line and metrics, one for each probe. A probe
// that the service can do without is no reason not to be ready, and a run that fails
// says that the ledger is not.
func TestReconcileAsksWhetherItIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := func(context.Context) error { return nil }
		fails := func(context.Context) error { return errors.New("down") }
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		for name, c := range map[string]struct {
			ledger, facilitator, resolvers, chain func(context.Context) error
			index                                 error
			not                                   []any
			want                                  map[string]float64 // by probe
			ready                                 float64
		}{
			"all":               {answers, answers, answers, answers, nil, nil, map[string]float64{"Ledger": 1, "Facilitator": 1, "Resolvers": 1, "Chain": 1}, 1},
			"no chain":          {answers, answers, answers, fails, nil, []any{"chain"}, map[string]float64{"Ledger": 1, "Facilitator": 1, "Resolvers": 1, "Chain": 0}, 1},
			"two are down":      {answers, hangs, fails, answers, nil, []any{"facilitator", "resolvers"}, map[string]float64{"Ledger": 1, "Facilitator": 0, "Resolvers": 0, "Chain": 1}, 0},
			"the run fails":     {answers, answers, answers, answers, errors.New("throttled"), nil, map[string]float64{"Ledger": 0, "Facilitator": 1, "Resolvers": 1, "Chain": 1}, 0},
			"the table is shut": {fails, answers, answers, answers, errors.New("throttled"), []any{"ledger"}, map[string]float64{"Ledger": 0, "Facilitator": 1, "Resolvers": 1, "Chain": 1}, 0},
		} {
			var log bytes.Buffer
			d := reconcileParts(t, &log)
			if c.index != nil {
				d.Index = brokenIndex{c.index}
			}
			probes := []service.Probe{
				{Name: service.ProbeLedger, Check: c.ledger}, {Name: service.ProbeFacilitator, Check: c.facilitator},
				{Name: service.ProbeResolvers, Check: c.resolvers}, {Name: service.ProbeChain, Check: c.chain, Optional: true},
			}
			err := service.Reconcile(d.Platform, d.reconciler(), false, probes...)(t.Context())
			if (err != nil) != (c.index != nil) {
				t.Errorf("%s: %v", name, err)
			}
			got := line(t, &log)
			want := map[string]any{service.MetricReady: c.ready}
			for probe, v := range c.want {
				want[service.MetricReady+probe] = v
			}
			have := map[string]any{}
			for key, v := range got {
				if strings.HasPrefix(key, service.MetricReady) {
					have[key] = v
				}
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s: metrics (-want +got):\n%s", name, diff)
			}
			if not, _ := got["not_ready"].([]any); !cmp.Equal(c.not, not) {
				t.Errorf("%s: the line names %v, want %v", name, not, c.not)
			}
		}
	})
}
