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
				Key: ledger.Key("eip155:8453", strings.ToLower(s.Terms.Asset), "0x857b06519e91e3a54538791bdbb0e22373e36b66",
					fmt.Sprintf("0x%064d", nonce+1)),
				AuthDigest: fmt.Sprint(nonce), SigDigest: fmt.Sprint(nonce), Request: "GET /a",
				Terms: must(json.Marshal(testTerms().Requirements("5000"))), ValidBefore: time.Now().Add(5 * time.Minute),
			})
			err := error(nil)
			if nonce < 2 {
				err = h.Uncertain(t.Context(), "timeout", "")
			} else {
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

// says compares members of a line.
func (s *scheduled) says(line map[string]any, want map[string]any) {
	s.Helper()
	part := map[string]any{}
	for name := range want {
		part[name] = line[name]
	}
	if diff := cmp.Diff(want, part); diff != "" {
		s.Errorf("line (-want +got):\n%s", diff)
	}
}

// A run ends in time for its verdict and its line, which is written whatever
// the level of the log.
func TestReconcile(t *testing.T) {
	t.Parallel()
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
		if diff := cmp.Diff([]time.Duration{3750 * time.Millisecond, 2750 * time.Millisecond}, until); diff != "" {
			t.Errorf("time to ask the chain in (-want +got):\n%s", diff)
		}
		want := map[string]any{
			"time": begun.Add(3750 * time.Millisecond).Format(time.RFC3339Nano), "level": "INFO", "msg": "reconcile",
			"listed": 2.0, "settled_late": 1.0, "refused_late": 0.0, "still_open": 0.0, "cannot_tell": 0.0, "skipped": 0.0, "failed": 0.0,
			"left": 1.0, "open": 2.0, "owed": 2.0, "exhausted": 1.0, "uncounted": 0.0,
			"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": false,
			"evidence": true, "ms": 3750.0,
			"Open": 2.0, "SettledLate": 1.0, "RefusedLate": 0.0, "StillOpen": 0.0, "CannotTell": 0.0, "Left": 1.0,
			"OwedUnclaimed": 2.0, "RefundsDue": 1.0, "ReconcileFailed": 0.0,
		}
		metrics := values{}
		for name, value := range want {
			if name[0] >= 'A' && name[0] <= 'Z' {
				metrics[name] = fmt.Sprint(value, " Count")
			}
		}
		if diff := cmp.Diff(metrics, emf(s.T, got, "Hostfacts", [][]string{{}}, begun)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		delete(got, "_aws")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
	})
}

// A run says what has come in, and what it was for. A node that is down is no
// error of the invocation.
func TestReconcileReceived(t *testing.T) {
	t.Parallel()
	payer := must(x402.ParseAddress("0x857b06519e91e3a54538791bdbb0e22373e36b66"))
	payee := must(x402.ParseAddress(testTerms().PayTo))
	for err, want := range map[error]map[string]any{
		nil: {
			"received": 7.0, "deposits": 3.0, "found": 1.0, "unasked": 1.0, "unmatched": 1.0, "unread": false,
			"owed": 3.0, "exhausted": 2.0, "RefundsDue": 2.0, "level": "INFO",
		},
		errors.New("down"): {
			"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": true,
			"owed": 1.0, "exhausted": 1.0, "RefundsDue": 1.0, "level": "INFO",
		},
	} {
		reconciles(t, func(s *scheduled) {
			transfer := func(nonce byte, age time.Duration) x402.Transfer {
				return x402.Transfer{
					Transaction: fmt.Sprintf("0x0%d", nonce), Time: time.Now().Add(-age), From: payer, To: payee,
					Value: big.NewInt(5000), Authorized: nonce > 0, Nonce: [32]byte{31: nonce},
				}
			}
			s.Scanner = received{err: err, transfers: []x402.Transfer{
				transfer(1, 25*time.Hour), transfer(3, 25*time.Hour), // in doubt, and known to be paid
				transfer(4, 0), transfer(5, 72*time.Hour), // unknown, and too old
				transfer(0, 0), transfer(0, 0), transfer(0, 0),
			}}
			s.says(s.run(s.Context(), nil), want)
		})
	}
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

// Without evidence a run counts, and says that it had none. A corrupt record is no
// error of the invocation; its metric says it.
func TestReconcileWithoutEvidence(t *testing.T) {
	t.Parallel()
	reconciles(t, func(s *scheduled) {
		want := map[string]any{"evidence": false, "CannotTell": 2.0, "Open": 2.0, "RefundsDue": 1.0, "ReconcileFailed": 0.0}
		s.says(s.run(s.Context(), nil), want)
	})
	reconciles(t, func(s *scheduled) {
		corrupt := s.claim(ledger.Payment{Key: "strange", AuthDigest: "a", Terms: json.RawMessage("{}")})
		if err := corrupt.Uncertain(s.Context(), "timeout", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // its lease is over
		s.says(s.run(s.Context(), nil), map[string]any{"ReconcileFailed": 1.0, "failed": 1.0, "level": "INFO"})
	})
}

// A run that failed is an error of the invocation, writes its line, and has no other
// metric than the failure: an incomplete count would end an alarm.
func TestReconcileFails(t *testing.T) {
	t.Parallel()
	reconciles(t, func(s *scheduled) {
		down := errors.New("throttled")
		s.Index = brokenIndex{down}
		got := s.run(s.Context(), down)
		s.says(got, map[string]any{"level": "ERROR", "ReconcileFailed": 1.0})
		if !strings.Contains(fmt.Sprint(got["error"]), "throttled") {
			t.Errorf("%v", got)
		}
		for name := range got {
			if name[0] >= 'A' && name[0] <= 'Z' && name != "ReconcileFailed" {
				t.Errorf("%s is there", name)
			}
		}
	})
}

// What the probes say is in the run's line and metrics, one for each probe. A probe
// that the service can do without is no reason not to be ready, and a run that fails
// says that the ledger is not.
func TestReconcileAsksWhetherItIsReady(t *testing.T) {
	t.Parallel()
	answers := func(context.Context) error { return nil }
	fails := func(context.Context) error { return errors.New("down") }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	type probe = func(context.Context) error
	throttled := errors.New("throttled")
	for name, c := range map[string]struct {
		ledger, facilitator, resolvers, chain probe
		index                                 error
		not                                   any
		want                                  string // metrics: ready, and by probe
	}{
		"all":               {answers, answers, answers, answers, nil, nil, "1: ledger 1 facilitator 1 resolvers 1 chain 1"},
		"no chain":          {answers, answers, answers, fails, nil, []any{"chain"}, "1: ledger 1 facilitator 1 resolvers 1 chain 0"},
		"two are down":      {answers, hangs, fails, answers, nil, []any{"facilitator", "resolvers"}, "0: ledger 1 facilitator 0 resolvers 0 chain 1"},
		"the run fails":     {answers, answers, answers, answers, throttled, nil, "0: ledger 0 facilitator 1 resolvers 1 chain 1"},
		"the table is shut": {fails, answers, answers, answers, throttled, []any{"ledger"}, "0: ledger 0 facilitator 1 resolvers 1 chain 1"},
	} {
		reconciles(t, func(s *scheduled) {
			if c.index != nil {
				s.Index = brokenIndex{c.index}
			}
			got := s.run(s.Context(), c.index,
				service.Probe{Name: service.ProbeLedger, Check: c.ledger},
				service.Probe{Name: service.ProbeFacilitator, Check: c.facilitator},
				service.Probe{Name: service.ProbeResolvers, Check: c.resolvers},
				service.Probe{Name: service.ProbeChain, Check: c.chain, Optional: true})
			said := fmt.Sprintf("%v: ledger %v facilitator %v resolvers %v chain %v",
				got["Ready"], got["ReadyLedger"], got["ReadyFacilitator"], got["ReadyResolvers"], got["ReadyChain"])
			if diff := cmp.Diff(c.not, got["not_ready"]); said != c.want || diff != "" {
				t.Errorf("%s: %s, want %s; not ready: %s", name, said, c.want, diff)
			}
		})
	}
}
