package x402_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// standings bring a payment into each stored state, and say what the record
// says then of the charge.
func standings() map[string]struct {
	charged string
	bring   func(b *harness, h string)
} {
	type standing = struct {
		charged string
		bring   func(b *harness, h string)
	}
	after := func(s x402.Settlement, seen *x402.Finding, failing bool) func(*harness, string) {
		return func(b *harness, h string) {
			if seen != nil {
				b.withParts(nil, &fakeEvidence{f: *seen})
			}
			b.settle = settles(s)
			if failing {
				b.work = looksUp(fault.DNSTimeout)
			}
			b.ask(h, "GET /a")
		}
	}
	used := x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
	owed := after(moved(), nil, true)
	return map[string]standing{
		"in flight": {"null", func(b *harness, h string) {
			hold := make(chan struct{})
			b.settle = func(context.Context, int) x402.Settlement { <-hold; return moved() }
			done := make(chan struct{})
			go func() { defer close(done); b.ask(h, "GET /a") }()
			b.t.Cleanup(func() { close(hold); <-done })
			time.Sleep(time.Second)
			synctest.Wait()
		}},
		"uncertain": {"null", after(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, nil, false)},
		"refused":   {"false", after(x402.Settlement{Class: x402.Refused, Reason: "no"}, nil, false)},
		"disproved": {"false", after(used, &x402.Finding{Verdict: x402.NeverPaid, Reason: "cancelled"}, false)},
		"owed":      {"true", owed},
		"spent":     {"true", func(b *harness, h string) { owed(b, h); time.Sleep(25 * time.Hour) }},
		"redeemed":  {"true", after(moved(), nil, false)},
		"refunded": {"true", func(b *harness, h string) {
			owed(b, h)
			time.Sleep(25 * time.Hour)
			l := ledger.New(b.store, time.Now, func() string { return "refund" })
			if _, err := l.Refund(b.t.Context(), b.stored(h).Key, tx); err != nil {
				b.t.Fatal(err)
			}
		}},
	}
}

// For every state of a payment, and every way to refuse a request with it: charged
// and receipt are those of the record, and the answer is not retryable. A signature
// that was not verified gets no receipt.
func TestTurnedAwaySaysWhatTheRecordSays(t *testing.T) {
	ways := map[string]struct {
		status int
		code   fault.Code
		ask    func(b *harness, h, other string) x402.Outcome
	}{
		"wrong URL": {402, fault.PaymentRequired, func(b *harness, h, _ string) x402.Outcome { return b.ask(h, "GET /b") }},
		"wrong parameter": {400, fault.InvalidDomain, func(b *harness, h, _ string) x402.Outcome {
			return b.askWith(h, "GET /a", fault.New(fault.InvalidDomain, errors.New("?")))
		}},
		"second signature": {402, fault.PaymentRequired, func(b *harness, _, other string) x402.Outcome { return b.ask(other, "GET /a") }},
		"another price, wrong URL": {402, fault.PaymentRequired, func(b *harness, h, _ string) x402.Outcome {
			b.offer = offer(b.t, terms(), "7000", "Rome")
			return b.ask(h, "GET /b")
		}},
		"past the window, wrong URL": {402, fault.PaymentRequired, func(b *harness, h, _ string) x402.Outcome {
			time.Sleep(10 * time.Minute)
			return b.ask(h, "GET /b")
		}},
	}
	for state, s := range standings() {
		for name, w := range ways {
			if state == "in flight" && name == "past the window, wrong URL" {
				continue // it is abandoned by then
			}
			within(t, nil, func(t *testing.T, b *harness) {
				b.verify = x402.Verification{Valid: true}
				var draft x402test.Draft
				h := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
				s.bring(b, h)
				settles := len(b.settles)
				out := w.ask(b, h, another(t, draft))
				what := fmt.Sprint(state, ", ", name)
				b.expect(what, out, w.status, w.code, s.charged, false, s.charged == "true" && name != "second signature")
				if len(b.settles) != settles || out.Trace.Unrecorded {
					t.Errorf("%s: %d settlements, unrecorded %t", what, len(b.settles)-settles, out.Trace.Unrecorded)
				}
			})
		}
	}
}

// What evidence refused, and what was refunded, is answered from the record: no
// settlement, no lookup, no write that changes anything.
func TestEndedPayments(t *testing.T) {
	for state, want := range map[string]string{"disproved": "false", "refunded": "true"} {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			standings()[state].bring(b, h)
			before, settles, runs := b.stored(h).Version, len(b.settles), int(b.runs.Load())
			for range 100 {
				b.expect(state, b.ask(h, "GET /a"), 402, fault.PaymentRequired, want, false, state == "refunded")
				time.Sleep(200 * time.Millisecond)
			}
			b.expectCalls(state, settles, runs)
			if v := b.stored(h).Version; v != before {
				t.Errorf("%s: version %d after %d", state, v, before)
			}
		})
	}
}

// A deploy that spells the token's address in another letter case changes no
// payment that was made before.
func TestAssetRespelled(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		standings()["owed"].bring(b, h)
		time.Sleep(2 * time.Second)
		b.work = looksUp("")
		lower := terms()
		lower.Asset = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
		b.offer = offer(t, lower, "5000", "Oslo")
		b.expect("after the deploy", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("a new payment in the old spelling", b.ask(b.respelled(terms().Asset), "GET /a"), 402, fault.PaymentRequired, "false", false, false)
	})
}

// respelled is a new payment whose echo of the asset is spelled otherwise than
// today's offer.
func (b *harness) respelled(asset string) string {
	old := terms()
	old.Asset = asset
	d := must(b.wallet.Draft(offer(b.t, old, "5000", "Oslo").Required(""), time.Now()))
	h := must(b.wallet.Seal(d))
	return h
}

// A transfer without a request is on record, too: a request with its nonce is not
// told that nothing was charged.
func TestMoneyWithoutARequest(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		key := b.key(h)
		l := ledger.New(b.store, time.Now, func() string { return "seen" })
		if _, err := l.Testify(t.Context(), ledger.Witness{
			Key: key, Receipt: ledger.Receipt{Transaction: tx}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		}); err != nil {
			t.Fatal(err)
		}
		b.expect("asked for", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, true)
		b.expect("wrong parameter", b.askWith(h, "GET /a", fault.New(fault.InvalidDomain, nil)), 400, fault.InvalidDomain, "true", false, true)
		b.expectCalls("money without a request", 0, 0)
	})
	// A signature that cannot be recovered could be anybody's: no receipt.
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		l := ledger.New(b.store, time.Now, func() string { return "seen" })
		if _, err := l.Testify(t.Context(), ledger.Witness{
			Key: b.key(h), Receipt: ledger.Receipt{Transaction: tx}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		}); err != nil {
			t.Fatal(err)
		}
		b.expect("a contract wallet", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		b.expectCalls("money without a request", 0, 0)
	})
}

// A nonce that is on record for another authorization is used up, for any signer and
// any terms. The answer shows nothing of the other record.
func TestNonceOfAnotherAuthorization(t *testing.T) {
	for name, contract := range map[string]bool{"a key": false, "a contract wallet": true} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			var nonce string
			change := func(d *x402test.Draft) {
				if contract {
					contractPayer(d)
				}
				if nonce == "" {
					nonce = d.Payload.Payload.Authorization.Nonce
				}
				d.Payload.Payload.Authorization.Nonce = nonce
			}
			b.expect(name, b.ask(b.sign(change), "GET /a"), 200, "", "true", false, true)
			time.Sleep(time.Second) // the window of the next one is another
			other := b.sign(change)
			b.expect(name+", today's terms", b.ask(other, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
			b.offer = offer(t, terms(), "7000", "Rome")
			b.expect(name+", another price", b.ask(other, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
			b.expectCalls(name, 1, 1)
		})
	}
}

// A contract wallet's payment that another signature claims while the facilitator
// looks at it is not told of either.
func TestAnotherClaimsWhileVerified(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		var draft x402test.Draft
		h := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
		inner := true
		b.onVerify = func() {
			if inner {
				inner = false
				b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
		}
		b.expect("another", b.ask(another(t, draft), "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		b.expectCalls("claimed by another while verified", 1, 1)
	})
}
