package x402_test

import (
	"strings"
	"testing"
	"time"

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
		if b.verifys != 1 {
			t.Errorf("%d verifies, want 1", b.verifys)
		}
		b.expectCalls("contract wallet", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Reason: "invalid_exact_evm_signature"}
		out := b.ask(b.sign(contractPayer), "GET /a")
		b.expect("invalid", out, 402, fault.PaymentRequired, "false", false, false)
		if !strings.Contains(out.Fault.Public(), "invalid_exact_evm_signature") {
			t.Errorf("reason %q", out.Fault.Public())
		}
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("no verdict", b.ask(b.sign(contractPayer), "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.expectCalls("not verified", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d writes for payments that were not verified", n)
		}
	})
	// Another signature for the same authorization is not vouched for by the
	// record.
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		var sealed x402test.Draft
		h := b.sign(func(d *x402test.Draft) { contractPayer(d); sealed = *d })
		b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.verify = x402.Verification{Reason: "invalid"}
		b.expect("forged", b.ask(another(t, sealed), "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		b.expect("another, with the token", b.ask(resigned(t, sealed), "GET /a"), 200, "", "true", false, true)
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

// An empty verdict of /verify does not count as valid.
func TestVerifySaysNothing(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.expect("no word", b.ask(b.sign(contractPayer), "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		b.expectCalls("no word", 0, 0)
	})
}

// A request with a signature that is not on record gets nothing of the stored
// answer, in any state, and cannot tell the state.
func TestForgedSignatures(t *testing.T) {
	for _, s := range []x402.Settlement{moved(), {Class: x402.Refused, Reason: "no"}, {Class: x402.Unknown}} {
		for _, v := range []struct {
			passed time.Duration // past the window the terms are what fails
			says   x402.Verification
		}{
			{0, x402.Verification{Reason: "invalid_exact_evm_signature"}},
			{0, x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}},
			{time.Hour, x402.Verification{Reason: "invalid_exact_evm_signature"}},
		} {
			within(t, nil, func(t *testing.T, b *harness) {
				b.verify = x402.Verification{Valid: true}
				b.settle = settles(s)
				var draft x402test.Draft
				h := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
				b.ask(h, "GET /a")
				time.Sleep(v.passed)
				b.verify = v.says
				out := b.ask(another(t, draft), "GET /a")
				if out.Status != 402 || out.Receipt != nil || out.Replayed {
					t.Errorf("%s, after %s, %s: %+v", s.Class, v.passed, v.says.Reason, out)
				}
				b.expectCalls("forged", 1, map[bool]int{true: 1}[s.Class == x402.Moved])
			})
		}
	}
}

// A contract wallet's authorization is continued with the signature that it was
// claimed with. Another signature could be anybody's, since the authorization can be
// copied from the chain: it gets no answer, causes no call and no alarm, and is not
// told that nothing was charged when something was.
func TestSecondSignatureOfOneAuthorization(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		b.work = looksUp(fault.DNSTimeout)
		var draft x402test.Draft
		first := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
		b.expect("owed", b.ask(first, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		b.work = looksUp("")
		verifies, writes := b.verifys, b.writes()
		for _, says := range []x402.Verification{
			{Valid: true}, {Reason: x402.ReasonNonceUsed, NonceUsed: true}, {Reason: "invalid_exact_evm_insufficient_balance"},
		} {
			b.verify = says
			out := b.ask(another(t, draft), "GET /a")
			b.expect("second", out, 402, fault.PaymentRequired, "true", false, false)
			if out.Trace.Unrecorded {
				t.Error("it raises an alarm")
			}
		}
		if b.verifys != verifies || b.writes() != writes {
			t.Error("it costs a call or a write")
		}
		b.expect("first, again", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("two signatures", 1, 2)
	})
}

// The facilitator cannot check a contract wallet's signature once its nonce is
// used, which a third party can do. For one that was verified before, the chain is
// asked. Any other gets no answer, but is not said to be unpaid either: the scan of
// the chain finds its money.
func TestContractWalletPaidByAThirdParty(t *testing.T) {
	used := x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	within(t, nil, func(t *testing.T, b *harness) {
		b.withParts(nil, &fakeEvidence{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}})
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
		h := b.sign(contractPayer)
		b.expect("not sent", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.verify = used
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true})
		b.expect("found in order before", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
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

// A contract wallet's payment that is claimed while the facilitator looks at a
// copy of it is answered from the record.
func TestClaimedWhileVerified(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		inner := true
		b.onVerify = func() {
			if inner {
				inner = false
				b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
		}
		b.expect("copy", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("claimed while verified", 1, 1)
	})
}

// If it is refused meanwhile, the payer gets the refusal, and is not treated as
// somebody with a copy.
func TestRefusedWhileVerified(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		used := x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(used)
		h := b.sign(contractPayer)
		inner := true
		b.onVerify = func() {
			if inner {
				inner = false
				b.expect("first", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
				time.Sleep(2 * time.Second)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
		}
		out := b.ask(h, "GET /a")
		b.expect("again", out, 402, fault.PaymentRequired, "false", false, false)
		if out.Receipt == nil || out.Receipt.ErrorReason != x402.ReasonNonceUsed {
			t.Errorf("the payer is told %+v, want the reason of the refusal", out.Receipt)
		}
		b.expectCalls("refused while verified", 2, 0)
	})
}
