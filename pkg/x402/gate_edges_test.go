package x402_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// If the store fails before the claim, nothing is sent, and the answer does not say
// whether the payment was charged.
func TestStoreFailsBeforeTheClaim(t *testing.T) {
	for op, payer := range map[ledgertest.Op]func(*x402test.Draft){ledgertest.Fetch: contractPayer, ledgertest.Create: nil} {
		within(t, ledgertest.Failing(op, ledgertest.FailBefore, 1), func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			h := b.sign(payer)
			b.expect("store down", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
			b.expectCalls("store down", 0, 0)
			b.expect("store up", b.ask(h, "GET /a"), 200, "", "true", false, true)
		})
	}
}

// A record whose terms cannot be read fails closed: the payment is not sent, and the
// chain is not asked about it.
func TestTermsThatCannotBeRead(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h := b.sign(contractPayer)
		b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.rewrite(h, func(r *ledger.Record) { r.Terms = json.RawMessage(`[]`) })
		b.expect("no terms", b.ask(h, "GET /a"), 503, fault.PaymentUnavailable, "null", true, false)
		b.expectCalls("no terms", 1, 0)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		seen := &fakeEvidence{f: x402.Finding{Verdict: x402.NeverPaid}}
		b.withParts(nil, seen)
		b.settle = settles(x402.Settlement{Class: x402.NotSent})
		h := b.sign(nil)
		b.expect("not sent", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.rewrite(h, func(r *ledger.Record) { r.Terms = json.RawMessage(`{"amount":"-5"}`) })
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		if len(seen.asked) != 0 {
			t.Error("the chain was asked")
		}
	})
}

// A request that comes with too little time to settle is not claimed.
func TestNoTimeToClaim(t *testing.T) {
	for given, status := range map[time.Duration]int{12 * time.Second: 200, 12*time.Second - time.Millisecond: 503} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.given = given
			out := b.ask(b.sign(nil), "GET /a")
			if out.Status != status || (b.store.Calls(ledgertest.Create) == 2) != (status == 200) {
				t.Errorf("with %s: %d %v, %d claims", given, out.Status, out.Fault, b.store.Calls(ledgertest.Create))
			}
		})
	}
}

func TestNewGatePanics(t *testing.T) {
	whole := x402.GateConfig{
		Ledger:      ledger.New(&ledgertest.Memory{}, time.Now, func() string { return "w" }),
		Facilitator: &harness{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	needsEach(t, whole, x402.NewGate, map[string]func(*x402.GateConfig){
		"ledger":      func(c *x402.GateConfig) { c.Ledger = nil },
		"facilitator": func(c *x402.GateConfig) { c.Facilitator = nil },
		"clock":       func(c *x402.GateConfig) { c.Now = nil },
		"log":         func(c *x402.GateConfig) { c.Log = nil },
	})
}
