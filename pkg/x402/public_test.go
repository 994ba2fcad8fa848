package x402_test

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// withoutToken removes the retry token from a payment. A client that echoes no extensions
// sends a payment without the token. Once that payment is sent, everything in its header can
// be read from the chain.
func withoutToken(d *x402test.Draft) { delete(d.Payload.Extensions, "retry-token") }

// TestCopyInDoubt plays a payment in doubt that came without a retry token. Anybody who has
// read the payment from the chain may send it again. The copy must resolve the doubt, and the
// reply to the copy must say whether the payment was charged. This reply has no answer, and is
// the same for the right request and a wrong one. To get the answer, the payer signs again.
func TestCopyInDoubt(t *testing.T) {
	for name, path := range map[string]string{"the right question": "GET /a", "a guess": "GET /b"} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				b.window = duplicateWindow
				b.settle = settleWith(lostReply(), lostReply(), moved())
				copied := b.sign(withoutToken)
				meter := &fakeMeter{harness: b}
				first := b.ask(copied, "GET /a")
				b.expect("first", first, uncertain())
				if says := first.Fault.Public(); !strings.Contains(says, "Repeat this to learn whether it was charged. For the answer sign a new payment") {
					t.Errorf("the payer is told %q", says)
				}
				b.meter = meter
				b.expect("in doubt", b.ask(copied, path), uncertain())
				settled := b.ask(copied, path)
				b.expect("settled", settled, expected{status: 402, code: fault.PaymentRequired, charged: "true"})
				b.expect("again", b.ask(copied, path), expected{status: 402, code: fault.PaymentRequired, charged: "true"})
				if !saysUsedUp(&settled) {
					t.Errorf("settled: %v", settled.Fault)
				}
				b.expectCalls("copies", 3, 0)
				if heard := strings.ReplaceAll(meter.callText(), "late, ", ""); heard != atFaultCalls+", "+atFaultCalls+", "+notAtFaultCalls {
					t.Errorf("the copies count as %q", heard)
				}
				b.expect("signed again", b.ask(b.sign(nil), "GET /a"), answered())
				b.expectCalls("in all", 3, 1)
			})
		})
	}
}

// TestCopyOfAnother plays two payments for one purchase: the owner, which was answered, and a
// second payment, which is in doubt. Then somebody sends a copy of the second payment. The
// second payment must not become the owner, and the sender of the copy must not get the
// owner's answer.
func TestCopyOfAnother(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.window = duplicateWindow
		b.chain = chainShowing(x402.StillOpen)
		b.settle = settleWith(moved(), lostReply(), moved())
		own := b.sign(nil)
		b.expect("another payment", b.ask(own, "GET /a"), answered())
		copied := b.sign(withoutToken)
		b.expect("in doubt", b.ask(copied, "GET /b"), uncertain())
		b.rewrite(copied, func(r *ledger.Payment) { r.Purchase = b.storedPayment(own).Purchase })
		b.expect("a copy", b.ask(copied, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "null"})
		b.expectCalls("in all", 2, 1)
	})
}

// TestOwnPurchaseInDoubt plays a payment in doubt that has no retry token and is a separate
// purchase. When the payment is repeated, it must be answered, because no other signature
// could get its answer. After that it must count as used.
func TestOwnPurchaseInDoubt(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.noImplicitRetry = true
		b.settle = settleWith(lostReply(), moved())
		h := b.sign(withoutToken)
		b.expect("first", b.ask(h, "GET /ping"), uncertain())
		b.expect("again", b.ask(h, "GET /ping"), answered())
		b.expect("answered", b.ask(h, "GET /ping"), expected{status: 402, code: fault.PaymentRequired, charged: "true"})
		b.expectCalls("in all", 2, 1)
	})
}

// TestCopyIsNotSent plays a payment in doubt that came without a retry token, and a copy of
// it. If the job has a check, or if the copy came to another endpoint, the Gate must not send
// the copy to the facilitator, because the copy may ask for something that the payer did not
// want. The Gate must only ask the chain about the payment.
func TestCopyIsNotSent(t *testing.T) {
	for name, changeShop := range map[string]func(b *harness){
		"a check":          func(b *harness) { b.check = func() error { return nil } },
		"another endpoint": func(b *harness) { b.endpoint = otherEndpoint },
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				b.endpoint, b.window = firstEndpoint, duplicateWindow
				b.chain = chainShowing(x402.StillOpen)
				b.settle = settleWith(lostReply(), moved())
				copied := b.sign(withoutToken)
				b.expect("first", b.ask(copied, "GET /a"), uncertain())
				changeShop(b)
				b.expect("open", b.ask(copied, "GET /a"), uncertain())
				b.expectCalls("in doubt", 1, 0)
				b.chain = chainShowing(x402.Paid)
				b.expect("paid", b.ask(copied, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "true"})
				b.expectCalls("in all", 1, 0)
			})
		})
	}
}
