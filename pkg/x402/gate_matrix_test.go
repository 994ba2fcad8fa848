package x402_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type standing struct {
	charged string
	reach   func(b *harness, h string)
}

// standings returns, for each stored state, a function that brings a payment into that state.
// The field charged is what the record of the payment then says about the charge.
func standings() map[string]standing {
	after := func(s x402.Settlement, seen func() x402.Finding, failing bool) func(*harness, string) {
		return func(b *harness, h string) {
			b.chain, b.settle = seen, settleWith(s)
			if failing {
				b.work = lookUpWith(lookup.DNSTimeout)
			}
			b.ask(h, "GET /a")
		}
	}
	owed := after(moved(), nil, true)
	closed := func(end ledger.Event) func(b *harness, h string) {
		return func(b *harness, h string) {
			owed(b, h)
			time.Sleep(25 * time.Hour)
			l := ledger.New(b.store, time.Now, func() string { return "closed" })
			if _, err := l.Apply(b.t.Context(), b.storedPayment(h), end, ledger.Change{Transaction: tx}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
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
		"disproved": {"false", after(usedNonce(), chainShowing(x402.NeverPaid), false)},
		"owed":      {"true", owed},
		"spent":     {"true", func(b *harness, h string) { owed(b, h); time.Sleep(25 * time.Hour) }},
		"redeemed":  {"true", after(moved(), nil, false)},
		"refunded":  {"true", closed(ledger.EventRefund)},
		"attested":  {"true", closed(ledger.EventAttest)},
	}
}

// TestTurnedAwaySaysWhatTheRecordSays checks every way to refuse a request in every state of
// its payment. The outcome shows the charge and the receipt from the record, and is not
// retryable. A sender whose signature was not verified gets no receipt.
func TestTurnedAwaySaysWhatTheRecordSays(t *testing.T) {
	ways := map[string]wayToRefuse{
		"again, when it has ended": {402, fault.PaymentRequired, func(b *harness, h, _ string) x402.Outcome { return b.ask(h, "GET /a") }},
		"wrong URL":                {402, fault.PaymentRequired, func(b *harness, h, _ string) x402.Outcome { return b.ask(h, "GET /b") }},
		"wrong parameter": {400, lookup.InvalidDomain, func(b *harness, h, _ string) x402.Outcome {
			return b.askWith(h, "GET /a", lookup.Fault(lookup.InvalidDomain, errors.New("?")))
		}},
		"past the window, wrong parameter": {400, lookup.InvalidDomain, func(b *harness, h, _ string) x402.Outcome {
			time.Sleep(10 * time.Minute)
			return b.askWith(h, "GET /a", lookup.Fault(lookup.InvalidDomain, nil))
		}},
		"second signature": {402, fault.PaymentRequired, func(b *harness, _, other string) x402.Outcome { return b.ask(other, "GET /a") }},
		"past the window, second signature": {402, fault.PaymentRequired, func(b *harness, _, other string) x402.Outcome {
			time.Sleep(10 * time.Minute)
			return b.ask(other, "GET /a")
		}},
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
			if !canArise(state, name, w) {
				continue
			}
			t.Run(state+", "+name, func(t *testing.T) {
				withHarness(t, nil, func(_ *testing.T, b *harness) {
					b.refuseBy(w, s, strings.HasSuffix(name, "second signature"))
				})
			})
		}
	}
}

// wayToRefuse is a request that is refused regardless of the state of its payment, with the
// expected outcome.
type wayToRefuse struct {
	status int
	code   fault.Code
	ask    func(b *harness, h, other string) x402.Outcome
}

// canArise reports whether a payment in the given state can be refused in the named way.
func canArise(state, name string, w wayToRefuse) bool {
	if name == "again, when it has ended" {
		return state == "disproved" || state == "refunded" || state == "attested"
	}
	if strings.HasPrefix(name, "past the window") {
		// Past its window, a payment is no longer in flight, because its attempt has been
		// abandoned. A payment that a facilitator refused is then turned away before the
		// parameters of the request are checked. So the answer is never a 400.
		return state != "in flight" && (state != "refused" || w.status != 400)
	}
	return true
}

// refuseBy brings a payment into the state of s, and then makes the request of w with this
// payment. The request must be refused. It must cause no write, no settlement and no lookup. If
// stranger is true, the request has another signature, and must get no receipt.
func (b *harness) refuseBy(w wayToRefuse, s standing, stranger bool) {
	b.t.Helper()
	b.verify = x402.Verification{Valid: true}
	var draft x402test.Draft
	h := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
	s.reach(b, h)
	before, settles, runs := b.storedPayment(h).Version, len(b.settleTerms), b.runs.Load()
	out := w.ask(b, h, copyWithoutToken(b.t, draft))
	b.expect("turned away", out, expected{status: w.status, code: w.code, charged: s.charged, receipt: s.charged == "true" && !stranger})
	if stranger && out.Receipt != nil {
		b.t.Errorf("told %+v", out.Receipt)
	}
	if len(b.settleTerms) != settles || b.runs.Load() != runs || b.storedPayment(h).Version != before || out.Trace.Unrecorded {
		b.t.Errorf("%d settlements, version %d after %d", len(b.settleTerms)-settles, b.storedPayment(h).Version, before)
	}
}

// TestAssetRespelled checks that a deployment may write the token's address in another letter
// case. A payment from before the deployment is still answered.
func TestAssetRespelled(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		standings()["owed"].reach(b, h)
		time.Sleep(2 * time.Second)
		b.work = lookUpWith("")
		lower := terms()
		lower.Asset = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
		b.offer = offer(t, lower, "5000", "Oslo")
		b.expect("after the deploy", b.ask(h, "GET /a"), answered())
	})
}

// TestMoneyWithoutARequest checks the answer to a payment whose transfer was recorded before
// any request came. The payer learns that the payment was charged and what happens to the
// money, both while the amount is due back and after the record is closed. If the signer
// cannot be recovered, the sender could be anybody and gets no receipt.
func TestMoneyWithoutARequest(t *testing.T) {
	for told, c := range map[string]struct {
		payer func(*x402test.Draft)
		end   ledger.Event
	}{
		"is due back": {}, "refunded by transaction 0xback": {end: ledger.EventRefund}, "authorization already used": {end: ledger.EventAttest},
		"comes without another charge": {payer: contractPayer},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			h := b.sign(c.payer)
			l := ledger.New(b.store, time.Now, rand.Text)
			r, _, err := l.RecordTransfer(t.Context(), ledger.Witness{Key: b.key(h), Receipt: ledger.Receipt{Transaction: tx}, At: time.Now()})
			if err == nil && c.end != "" {
				_, err = l.Apply(t.Context(), *r, c.end, ledger.Change{Transaction: "0xback"})
			}
			if err != nil {
				t.Fatal(err)
			}
			out := b.ask(h, "GET /a")
			b.expect(told, out, expected{status: 402, code: fault.PaymentRequired, charged: "true", receipt: c.payer == nil})
			if !strings.HasSuffix(out.Fault.Public(), told) {
				t.Errorf("the payer is told %q, want %q", out.Fault.Public(), told)
			}
			if c.payer == nil {
				b.expect("wrong parameter", b.askWith(h, "GET /a", lookup.Fault(lookup.InvalidDomain, nil)), expected{status: 400, code: lookup.InvalidDomain, charged: "true", receipt: true})
			}
			b.expectCalls(told, 0, 0)
		})
	}
}

// TestNonceOfAnotherAuthorization checks that a nonce counts as used if it is on record for
// another authorization. Neither the kind of signer nor the terms matter. The answer shows
// nothing from the record.
func TestNonceOfAnotherAuthorization(t *testing.T) {
	for name, contract := range map[string]bool{"a key": false, "a contract wallet": true} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
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
			b.expect(name, b.ask(b.sign(change), "GET /a"), answered())
			time.Sleep(time.Second) // gives the next authorization another window
			other := b.sign(change)
			b.expect(name+", today's terms", b.ask(other, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			b.offer = offer(t, terms(), "7000", "Rome")
			b.expect(name+", another price", b.ask(other, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			b.expectCalls(name, 1, 1)
		})
	}
}

// TestClaimedWhileVerified plays two requests, A and B, with one authorization of a contract
// wallet. A arrives first. While the facilitator verifies A, the payer sends B, which claims
// the payment and is answered. Then A must continue with the record of the payment:
//
//   - If the payer sent A, and the payment has moved money, A must get the same outcome as B.
//   - If the payer sent A, and the facilitator refused the payment, the payment must be sent
//     to the facilitator again.
//   - If a stranger sent A, with another signature, the answer to A must say that the payment
//     is used.
func TestClaimedWhileVerified(t *testing.T) {
	for name, c := range map[string]struct {
		settled     x402.Settlement
		stranger    bool
		status      int
		code        fault.Code
		receipt     bool
		sent, works int
	}{
		"paid":              {settled: moved(), status: 200, receipt: true, sent: 1, works: 1},
		"refused":           {settled: declined(), status: 402, code: fault.PaymentRequired, sent: 2},
		"paid, by somebody": {settled: moved(), stranger: true, status: 402, code: fault.PaymentRequired, sent: 1, works: 1},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			b.settle = settleWith(c.settled)
			var draft x402test.Draft
			h := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
			b.onVerify = func() {
				b.onVerify = nil
				b.ask(h, "GET /a")
				time.Sleep(2 * time.Second)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
			copied := h
			if c.stranger {
				copied = copyWithoutToken(t, draft)
			}
			out := b.ask(copied, "GET /a")
			b.expect(name, out, expected{status: c.status, code: c.code, charged: fmt.Sprint(c.settled.Class == x402.Moved), receipt: c.receipt})
			if told := out.Receipt != nil && out.Receipt.ErrorReason == declined().Reason; told != (name == "refused") {
				t.Errorf("%s: PAYMENT-RESPONSE %+v", name, out.Receipt)
			}
			b.expectCalls(name, c.sent, c.works)
		})
	}
}
