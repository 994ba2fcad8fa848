package x402_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A facilitator that has refused a payment is asked about it again: the first refusal
// stands, and before the second is answered the chain is asked. Where it cannot be,
// the word that the authorization is used counts as paid.
func TestRefusedAgain(t *testing.T) {
	refused, used := declined(), usedNonce()
	for name, c := range map[string]struct {
		chain      *x402.Finding // nil: no node
		word       x402.Settlement
		status     int
		charged    string
		state      ledger.State
		usedAsPaid bool
	}{
		"no node, refused":     {nil, refused, 402, "false", ledger.Refused, false},
		"no node, used":        {nil, used, 200, "true", ledger.Redeemed, true},
		"paid, refused":        {&x402.Finding{Verdict: x402.Paid, Transaction: tx}, refused, 200, "true", ledger.Redeemed, false},
		"paid, used":           {&x402.Finding{Verdict: x402.Paid, Transaction: tx}, used, 200, "true", ledger.Redeemed, false},
		"never, refused":       {&x402.Finding{Verdict: x402.NeverPaid, Reason: "cancelled"}, refused, 402, "false", ledger.Refused, false},
		"never, used":          {&x402.Finding{Verdict: x402.NeverPaid, Reason: "cancelled"}, used, 402, "false", ledger.Refused, false},
		"open, refused":        {&x402.Finding{Verdict: x402.StillOpen}, refused, 402, "false", ledger.Refused, false},
		"open, used":           {&x402.Finding{Verdict: x402.StillOpen}, used, 503, "null", ledger.Uncertain, false},
		"cannot tell, refused": {&x402.Finding{Verdict: x402.CannotTell}, refused, 503, "null", ledger.Refused, false},
		"cannot tell, used":    {&x402.Finding{Verdict: x402.CannotTell}, used, 503, "null", ledger.Uncertain, false},
	} {
		for _, anew := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", signed anew ", anew), func(t *testing.T) {
				within(t, nil, func(t *testing.T, b *harness) {
					seen := &fakeEvidence{}
					b.withWindow(nil, nil)
					if c.chain != nil {
						seen.f = *c.chain
						b.withWindow(seen, nil)
					}
					b.settle = settles(declined(), c.word)
					h := b.sign(nil)
					b.expect("the first refusal", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
					if len(seen.asked) != 0 {
						t.Error("the chain was asked about the first refusal")
					}
					time.Sleep(time.Second)
					again := h
					if anew && c.state != ledger.Refused { // the other cases go on with the new one
						again = b.sign(nil)
					}
					out := b.ask(again, "GET /a")
					code := map[int]fault.Code{402: fault.PaymentRequired, 503: fault.SettlementUncertain}[c.status]
					b.expect("the second word", out, c.status, code, c.charged, c.status == 503, c.status == 200)
					if r := b.stored(h); r.State != c.state || r.Disproved != strings.HasPrefix(name, "never") || out.Trace.UsedAsPaid != c.usedAsPaid {
						t.Errorf("%s, disproved %v, used as paid %v", r.State, r.Disproved, out.Trace.UsedAsPaid)
					}
					if c.chain != nil && len(seen.asked) != 1 {
						t.Errorf("the chain was asked %d times", len(seen.asked))
					}
				})
			})
		}
	}
}

// An authorization that was refused for its own signature holds the purchase while it
// can execute. A new signature is told that a new key buys at once, and it does.
func TestRefusedSignatureHoldsThePurchase(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(&fakeEvidence{f: x402.Finding{Verdict: x402.StillOpen}}, nil)
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
				b.withWindow(nil, nil)
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

// Time-outs of payments whose signer was not recovered close no facilitator: the
// contract of a wallet can cause them.
func TestTimeoutsOfContractWallets(t *testing.T) {
	for name, c := range map[string]struct {
		contract bool
		asked    string
	}{"contract": {true, "p"}, "account": {false, "f"}} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				p := b.withFallback(nil)
				p.primary, p.fallback = hangs, says(moved())
				p.verifies = func(string) x402.Verification { return x402.Verification{Valid: true} }
				for i := range 6 {
					b.ask(b.sign(func(d *x402test.Draft) {
						if c.contract {
							contractPayer(d)
						}
					}), fmt.Sprint("GET /", i))
				}
				p.primary = says(moved())
				p.was()
				b.expect("an account", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
				if asked := p.was(); asked != c.asked {
					t.Errorf("asked %s, want %s", asked, c.asked)
				}
			})
		})
	}
}
