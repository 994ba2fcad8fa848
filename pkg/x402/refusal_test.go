package x402_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// An authorization that was refused for its own signature holds the purchase while it
// can execute. A new signature is told that a new key buys at once, and it does.
func TestRefusedSignatureHoldsThePurchase(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.window, b.chain = duplicateWindow, shows(x402.StillOpen)
		bad := x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_signature", BadSignature: true}
		b.settle = settles(bad, bad, moved())
		b.ask(b.sign(nil), "GET /a")
		for _, when := range []string{"asked again", "from the record"} {
			time.Sleep(2 * time.Second)
			out := b.ask(b.sign(nil), "GET /a")
			b.expect(when, out, 402, fault.PaymentRequired, "false", false, false)
			if says := out.Fault.Public(); !strings.Contains(says, "a new Idempotency-Key buys at once") {
				t.Errorf("%s: %q", when, says)
			}
		}
		b.keys = []string{"order-2"}
		b.expect("a new key", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
	})
}

// A payment that came without its offer's extensions is told what holds for it: its
// signature cannot be repeated once it is paid, and a new one is not charged.
func TestWithoutExtensions(t *testing.T) {
	const anew, never = "sign a new one, which is not charged again", "cannot be repeated once it is paid"
	for name, c := range map[string]struct {
		own   bool // each request is another purchase
		token bool
		says  string
	}{"with": {false, true, ""}, "without": {false, false, anew}, "without a purchase": {true, false, never}} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				b.window = duplicateWindow
				b.anew = c.own
				h := b.sign(func(d *x402test.Draft) {
					if !c.token {
						delete(d.Payload.Extensions, "retry-token")
					}
				})
				says := func(what string, out x402.Outcome) {
					t.Helper()
					if same := strings.Contains(out.Fault.Public(), "same PAYMENT-SIGNATURE"); same && !c.token {
						t.Errorf("%s: %q", what, out.Fault.Public())
					}
					for _, text := range []string{anew, never} {
						if said := strings.Contains(out.Fault.Public(), text); said != (text == c.says) {
							t.Errorf("%s: %q", what, out.Fault.Public())
						}
					}
				}
				b.work = looksUp(lookup.DNSTimeout, "")
				inFlight := make(chan x402.Outcome, 1)
				b.settle = func(context.Context, int) x402.Settlement {
					time.Sleep(2 * time.Second)
					return moved()
				}
				go func() { time.Sleep(time.Second); inFlight <- b.ask(h, "GET /a") }()
				owed := b.ask(h, "GET /a")
				b.expect("owed", owed, 504, lookup.DNSTimeout, "true", true, true)
				says("owed", owed)
				says("in flight", <-inFlight)
				if !c.token {
					used := b.ask(h, "GET /a")
					b.expect("used", used, 402, fault.PaymentRequired, "true", false, false)
					if !strings.Contains(used.Fault.Public(), "sign a new one") {
						t.Errorf("%q", used.Fault.Public())
					}
				}
				time.Sleep(time.Second)
				if !c.own {
					b.expect("signed anew", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
					b.expectCalls("in all", 1, 2)
				}
			})
		})
	}
}
