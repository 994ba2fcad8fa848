package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Faults that no record can change are refused before anything is read.
func TestFixedFactsCostNoRead(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		edited := func(change func(d *x402test.Draft)) string {
			var draft x402test.Draft
			b.sign(func(d *x402test.Draft) { draft = *d })
			digest := must(x402test.Digest(draft.Payload.Payload.Authorization, draft.Terms))
			draft.Payload.Payload.Signature = fmt.Sprintf("0x%x", b.wallet.Sign(digest))
			change(&draft)
			h := must(x402.EncodeHeader(draft.Payload))
			return h
		}
		accepted := func(old, now string) string {
			return edited(func(d *x402test.Draft) {
				d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), old, now, 1))
			})
		}
		for says, h := range map[string]string{
			"accepted.network": accepted("eip155:8453", "eip155:1"),
			"accepted.asset":   accepted("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02914"),
			"signature: v is 2": edited(func(d *x402test.Draft) {
				s := d.Payload.Payload.Signature
				d.Payload.Payload.Signature = s[:len(s)-2] + "02"
			}),
		} {
			out := b.ask(h, "GET /a")
			b.expect(says, out, 402, fault.PaymentRequired, "false", false, false)
			if !strings.Contains(out.Fault.Public(), says) {
				t.Errorf("%q does not say %q", out.Fault.Public(), says)
			}
		}
		if n := b.store.Calls(ledgertest.Fetch) + b.store.Calls(ledgertest.Create) + b.verifys + len(b.settles); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

// If the store fails before the claim, nothing is sent, and the answer does not say
// whether the payment was charged.
func TestStoreFailsBeforeTheClaim(t *testing.T) {
	within(t, ledgertest.Failing(ledgertest.Fetch, ledgertest.FailBefore, 1), func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		b.expect("read", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
		b.expectCalls("read", 0, 0)
		b.expect("again", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	within(t, ledgertest.Failing(ledgertest.Create, ledgertest.FailBefore, 1), func(t *testing.T, b *harness) {
		b.offersNames()
		h := b.sign(named)
		b.expect("name", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
		b.expectCalls("name", 0, 0)
		b.expect("again", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
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
			out := b.gate.Serve(context.Background(), x402.Request{
				Signature: b.sign(nil), Offer: b.offer, Deadline: time.Now().Add(given),
				Prepare: func() (x402.Job, error) {
					return x402.Job{
						Fingerprint: "GET /a", Budget: 8 * time.Second, Timeout: fault.DNSTimeout,
						Run: func(context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte("{}")}, nil },
					}, nil
				},
				Error: func(*fault.Error, x402.Standing) []byte { return nil },
			})
			if out.Status != status || (b.store.Calls(ledgertest.Create) == 2) != (status == 200) {
				t.Errorf("with %s: %d %v, %d claims", given, out.Status, out.Fault, b.store.Calls(ledgertest.Create))
			}
		})
	}
}

// A validBefore beyond any date is bounded, so that no row is kept for ever, and the
// payment is refused.
func TestWindowWithoutEnd(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		for _, end := range []string{"115792089237316195423570985008687907853269984665640564039457584007913129639935", fmt.Sprint(int64(1) << 62)} {
			h := b.sign(func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = end })
			b.expect(end, b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		}
		b.expectCalls("no end", 0, 0)
	})
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
