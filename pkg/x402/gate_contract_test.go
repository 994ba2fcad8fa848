package x402_test

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Signatures that cannot be judged locally go to the facilitator's /verify,
// once; a payment that the ledger knows by the same signature does not.
func TestContractWallets(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		b.expect("valid", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("replayed", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if len(b.shown) != 1 {
			t.Errorf("%d verifies, want 1", len(b.shown))
		}
		b.expectCalls("contract wallet", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		for says, v := range map[string]x402.Verification{
			"signature is not the payer's: bad":               {Reason: "bad", BadSignature: true},
			"the facilitator does not accept the payment: no": {Reason: "no"},
			"the facilitator does not accept the payment: ":   {}, // an empty verdict does not count as valid
		} {
			b.verify = v
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("invalid", out, 402, fault.PaymentRequired, "false", false, false)
			if got := out.Fault.Public(); got != says {
				t.Errorf("the payer reads %q, want %q", got, says)
			}
		}
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("no verdict", b.ask(b.sign(contractPayer), "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.expectCalls("not verified", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d writes for payments that were not verified", n)
		}
	})
	// With the token another signature of the wallet stands for the first, and what
	// a stranger is told of the charge is what the record says.
	for _, c := range []struct {
		settle  x402.Settlement
		status  int
		code    fault.Code
		charged string
	}{
		{x402.Settlement{Class: x402.Unknown}, 503, fault.SettlementUncertain, "null"},
		{moved(), 200, "", "true"},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			b.settle = settles(c.settle)
			var sealed x402test.Draft
			h := b.sign(func(d *x402test.Draft) { contractPayer(d); sealed = *d })
			b.expect("first", b.ask(h, "GET /a"), c.status, c.code, c.charged, c.code != "", c.code == "")
			b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
			b.expect("other", b.ask(resigned(t, sealed), "GET /a"), c.status, c.code, c.charged, c.code != "", c.code == "")
			b.expect("a stranger's", b.ask(another(t, sealed), "GET /a"), 402, fault.PaymentRequired, c.charged, false, false)
		})
	}
}

// The facilitator cannot check a contract wallet's signature once its nonce is
// used, which a third party can do. A payment that has no record then gets no answer,
// but is not said to be unpaid either: the scan of the chain finds its money.
func TestContractWalletPaidByAThirdParty(t *testing.T) {
	used := x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	for _, seen := range []*fakeEvidence{{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}}, {}, nil} {
		within(t, nil, func(t *testing.T, b *harness) {
			if seen != nil {
				b.withParts(nil, seen)
			}
			b.verify = used
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("never seen", out, 402, fault.PaymentRequired, "null", false, false)
			if out.Trace.Unrecorded || b.store.Calls(ledgertest.Create) != 0 || seen != nil && len(seen.asked) != 0 {
				t.Errorf("unrecorded %t, %d writes", out.Trace.Unrecorded, b.store.Calls(ledgertest.Create))
			}
		})
	}
}
