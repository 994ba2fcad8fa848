package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const payer = "0x857b06519e91e3a54538791bdbb0e22373e36b66"

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

// scheduled is the reconcile function over a ledger with two payments in doubt and a
// refund that is due.
type scheduled struct {
	*testing.T
	parts
	log bytes.Buffer
}

// reconciles runs a test of the scheduled function in a bubble.
func reconciles(t *testing.T, test func(s *scheduled)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := new(ledgertest.Memory)
		s := &scheduled{T: t, parts: parts{
			Platform: platform(), Offering: service.Offering{Terms: testTerms()}, Index: memory,
			Ledger: ledger.New(memory, time.Now, rand.Text),
		}}
		s.Platform.Log = slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelError + 1}))
		for nonce := range 3 {
			h := s.claim(ledger.Payment{
				Key: ledger.Key("eip155:8453", strings.ToLower(s.Terms.Asset), payer,
					fmt.Sprintf("0x%064d", nonce+1)),
				AuthDigest: fmt.Sprint(nonce), SigDigest: fmt.Sprint(nonce), Request: "GET /a",
				Terms: must(json.Marshal(testTerms().Requirements("5000"))), ValidBefore: time.Now().Add(5 * time.Minute),
			})
			err := h.Uncertain(t.Context(), "timeout", "")
			if nonce == 2 {
				err = h.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(25 * time.Hour) // the time for lookups is over
		test(s)
	})
}

func (s *scheduled) claim(p ledger.Payment) *ledger.Hold {
	return must(s.Ledger.Claim(s.Context(), p, time.Now().Add(30*time.Second))).Hold
}

// run runs the function, and returns the one line that it leaves.
func (s *scheduled) run(ctx context.Context, fails error, probes ...service.Probe) map[string]any {
	s.Helper()
	err := service.Reconcile(s.Platform, s.reconciler(), s.Evidence != nil, probes...)(ctx)
	if !errors.Is(err, fails) {
		s.Errorf("%v, want %v", err, fails)
	}
	var m map[string]any
	if err := json.Unmarshal(s.log.Bytes(), &m); err != nil {
		s.Fatalf("the log is not one JSON line: %v:\n%s", err, &s.log)
	}
	return m
}

// A run ends in time for its verdict and its line, which is written whatever
// the level of the log.
func TestReconcile(t *testing.T) {
	reconciles(t, func(s *scheduled) {
		var until []time.Duration
		s.Evidence = chainView(func(ctx context.Context, q x402.Question) x402.Finding {
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
		ctx, cancel := context.WithTimeout(s.Context(), timeout)
		defer cancel()
		begun := time.Now()
		got := s.run(ctx, nil)
		same(t, "it took", time.Since(begun), 3750*time.Millisecond)
		same(t, "time to ask the chain in", fmt.Sprint(until), "[3.75s 2.75s]")
		metrics := map[string]float64{
			"Open": 2, "SettledLate": 1, "RefusedLate": 0, "StillOpen": 0, "CannotTell": 0, "Left": 1,
			"OwedUnclaimed": 2, "RefundsDue": 1, "ReconcileFailed": 0,
		}
		if diff := cmp.Diff(metrics, emf(s.T, got, "Hostfacts", [][]string{{}}, begun)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		want := map[string]any{
			"time": begun.Add(3750 * time.Millisecond).Format(time.RFC3339Nano), "level": "INFO", "msg": "reconcile",
			"listed": 2.0, "settled_late": 1.0, "refused_late": 0.0, "still_open": 0.0, "cannot_tell": 0.0, "skipped": 0.0, "failed": 0.0,
			"left": 1.0, "open": 2.0, "owed": 2.0, "exhausted": 1.0, "uncounted": 0.0,
			"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": false,
			"evidence": true, "ms": 3750.0, "_aws": got["_aws"],
		}
		for name, value := range metrics {
			want[name] = value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
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

// transfers are some that were asked for and some that nobody knows of.
func transfers() []x402.Transfer {
	transfer := func(nonce byte, age time.Duration) x402.Transfer {
		return x402.Transfer{
			Transaction: fmt.Sprintf("0x0%d", nonce), Time: time.Now().Add(-age), From: must(x402.ParseAddress(payer)),
			To: must(x402.ParseAddress(testTerms().PayTo)), Value: big.NewInt(5000), Authorized: nonce > 0, Nonce: [32]byte{31: nonce},
		}
	}
	return []x402.Transfer{
		transfer(1, 25*time.Hour), transfer(3, 25*time.Hour), // in doubt, and known to be paid
		transfer(4, 0), transfer(5, 72*time.Hour), // unknown, and too old
		transfer(0, 0), transfer(0, 0), transfer(0, 0),
	}
}

// What a run's line says. Without evidence it counts, and says that it had none. A corrupt
// record, or a node that is down, is no error of the invocation. A run that failed is, and
// has no other metric than the failure: an incomplete count would end an alarm.
func TestReconcileSays(t *testing.T) {
	throttled := errors.New("throttled")
	type line = map[string]any
	for _, c := range []struct {
		change func(s *scheduled)
		fails  error
		want   line
	}{
		{func(*scheduled) {}, nil, line{
			"evidence": false, "CannotTell": 2.0, "Open": 2.0, "RefundsDue": 1.0, "ReconcileFailed": 0.0, "level": "INFO",
		}},
		{func(s *scheduled) {
			corrupt := s.claim(ledger.Payment{Key: "strange", AuthDigest: "a", Terms: json.RawMessage("{}")})
			if err := corrupt.Uncertain(s.Context(), "timeout", ""); err != nil {
				s.Fatal(err)
			}
			time.Sleep(time.Minute) // its lease is over
		}, nil, line{"ReconcileFailed": 1.0, "failed": 1.0, "level": "INFO"}},
		{func(s *scheduled) { s.Scanner = received{transfers: transfers()} }, nil, line{
			"received": 7.0, "deposits": 3.0, "found": 1.0, "unasked": 1.0, "unmatched": 1.0, "unread": false,
			"owed": 3.0, "exhausted": 2.0, "RefundsDue": 2.0, "level": "INFO",
		}},
		{func(s *scheduled) { s.Scanner = received{transfers(), errors.New("down")} }, nil, line{
			"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": true,
			"owed": 1.0, "exhausted": 1.0, "RefundsDue": 1.0, "level": "INFO",
		}},
		{func(s *scheduled) { s.Index = brokenIndex{throttled} }, throttled, line{
			"level": "ERROR", "ReconcileFailed": 1.0, "Open": nil, "CannotTell": nil, "OwedUnclaimed": nil, "RefundsDue": nil, "Left": nil,
			"error": "list open records: throttled\nlist owed records: throttled",
		}},
	} {
		reconciles(t, func(s *scheduled) {
			c.change(s)
			line := s.run(s.Context(), c.fails)
			got := map[string]any{}
			for name := range c.want {
				got[name] = line[name]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				s.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

// What the probes say is in the run's line and metrics, one for each probe. A probe
// that the service can do without is no reason not to be ready, and a run that fails
// says that the ledger is not.
func TestReconcileAsksWhetherItIsReady(t *testing.T) {
	throttled := errors.New("throttled")
	for _, c := range []struct {
		down  string // probes
		index error
		not   any
		want  string // metrics: ready, and by probe
	}{
		{"", nil, nil, "1: ledger 1 facilitator 1 resolvers 1 chain 1"},
		{"chain", nil, []any{"chain"}, "1: ledger 1 facilitator 1 resolvers 1 chain 0"},
		{"facilitator resolvers", nil, []any{"facilitator", "resolvers"}, "0: ledger 1 facilitator 0 resolvers 0 chain 1"},
		{"", throttled, nil, "0: ledger 0 facilitator 1 resolvers 1 chain 1"},
		{"ledger", throttled, []any{"ledger"}, "0: ledger 0 facilitator 1 resolvers 1 chain 1"},
	} {
		reconciles(t, func(s *scheduled) {
			if c.index != nil {
				s.Index = brokenIndex{c.index}
			}
			var probes []service.Probe
			for _, name := range []string{service.ProbeLedger, service.ProbeFacilitator, service.ProbeResolvers, service.ProbeChain} {
				probes = append(probes, service.Probe{Name: name, Optional: name == service.ProbeChain, Check: func(ctx context.Context) error {
					if strings.Contains(c.down, name) {
						<-ctx.Done()
					}
					return ctx.Err()
				}})
			}
			got := s.run(s.Context(), c.index, probes...)
			said := fmt.Sprintf("%v: ledger %v facilitator %v resolvers %v chain %v",
				got["Ready"], got["ReadyLedger"], got["ReadyFacilitator"], got["ReadyResolvers"], got["ReadyChain"])
			if diff := cmp.Diff(c.not, got["not_ready"]); said != c.want || diff != "" {
				t.Errorf("%q down: %s, want %s; not ready: %s", c.down, said, c.want, diff)
			}
		})
	}
}
