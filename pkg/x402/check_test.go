package x402_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const codeGone fault.Code = "gone"

// soldOut is a Job.Check that refuses every payment.
func soldOut() error {
	return fault.Info{Code: codeGone, Status: http.StatusGone, Class: fault.NoCharge, Message: "sold out"}.New(nil)
}

// repeats returns, by name, the two ways in which a payer can repeat a purchase: with the
// first signature once more, or with a new signature.
func repeats() map[string]func(b *harness, first string) (signature string) {
	return map[string]func(*harness, string) string{
		"the same signature": func(_ *harness, first string) string { return first },
		"a new signature":    func(b *harness, _ string) string { return b.sign(nil) },
	}
}

// verdict describes a payment that the seller's check refuses although the payment may have
// been sent before: what the chain shows about the payment, and the expected outcome.
type verdict struct {
	chain         func() x402.Finding // nil means that no node is configured
	status        int
	code          fault.Code
	charged       string
	settles, runs int // the total number of settlements; the total number of runs of the job
}

func (v verdict) check(b *harness, signature string) {
	b.t.Helper()
	b.chain = v.chain
	b.expect("when the check refuses", b.ask(signature, "GET /a"), expected{status: v.status, code: v.code, charged: v.charged, retryable: v.status == 503, receipt: v.status == 200})
	b.expectCalls("in all", v.settles, v.runs)
}

// TestCheckOfADoubt plays a payment in doubt. The payer repeats the purchase, with the same
// signature or a new one, and the seller's check now refuses. If there is a node, the payment
// must not be sent again. If the chain shows that the payment was paid, the payer must get the
// answer. If the chain shows that the payment never will be paid, the payer must get the
// check's refusal. While the chain cannot tell, the payer must be told to repeat the payment.
// If there is no node, the payment must be sent again, because nothing else could resolve the
// doubt.
func TestCheckOfADoubt(t *testing.T) {
	for name, v := range map[string]verdict{
		"paid":        {chain: chainShowing(x402.Paid), status: 200, charged: "true", settles: 1, runs: 1},
		"never paid":  {chain: chainShowing(x402.NeverPaid), status: 410, code: codeGone, charged: "false", settles: 1},
		"open":        {chain: chainShowing(x402.StillOpen), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"cannot tell": {chain: chainShowing(x402.CannotTell), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"no node":     {status: 200, charged: "true", settles: 2, runs: 1},
	} {
		for who, comes := range repeats() {
			t.Run(name+", "+who, func(t *testing.T) {
				withHarness(t, nil, func(_ *testing.T, b *harness) {
					b.window = duplicateWindow
					b.settle = settleWith(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, moved())
					first := b.sign(nil)
					b.expect("in doubt", b.ask(first, "GET /a"), uncertain())
					b.check = soldOut
					time.Sleep(2 * time.Second)
					v.check(b, comes(b, first))
				})
			})
		}
	}
}

// TestCheckOfADoubtThatIsRefused plays a payment in doubt that the payer repeats. The seller's
// check now refuses, and there is no node, so the payment is sent again. The facilitator
// refuses the payment. The doubt must remain, and the answer must not be the check's refusal.
func TestCheckOfADoubtThatIsRefused(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, b *harness) {
		b.settle = settleWith(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"})
		first := b.sign(nil)
		b.ask(first, "GET /a")
		b.check = soldOut
		time.Sleep(2 * time.Second)
		b.expect("refused in doubt", b.ask(first, "GET /a"), uncertain())
		b.expectCalls("in all", 2, 0)
	})
}

// TestCheckOfARefusal plays a payment that a facilitator refused. The payer repeats the
// payment, and the facilitator would now settle it, but the seller's check refuses. The
// payment must not be sent again. If there is no node, the payer must get the check's refusal.
// If there is a node, the chain must decide, as in TestCheckOfADoubt.
func TestCheckOfARefusal(t *testing.T) {
	for name, v := range map[string]verdict{
		"paid":        {chain: chainShowing(x402.Paid), status: 200, charged: "true", settles: 1, runs: 1},
		"never paid":  {chain: chainShowing(x402.NeverPaid), status: 410, code: codeGone, charged: "false", settles: 1},
		"open":        {chain: chainShowing(x402.StillOpen), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"cannot tell": {chain: chainShowing(x402.CannotTell), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"no node":     {status: 410, code: codeGone, charged: "false", settles: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				b.settle = settleWith(x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"}, moved())
				first := b.sign(nil)
				b.expect("an empty wallet", b.ask(first, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "false"})
				b.check = soldOut
				time.Sleep(2 * time.Second)
				v.check(b, first)
			})
		})
	}
}

// TestCheckOfWhatIsPaid plays a payment that is paid before the seller's check begins to
// refuse. The payer repeats the purchase, with the same signature or a new one. The payer must
// get the answer, by a replay or, if the answer is owed, by another run. Another payer must
// get the check's refusal. For the first request, the check must have been called exactly
// once.
func TestCheckOfWhatIsPaid(t *testing.T) {
	for name, failing := range map[string]bool{"answered": false, "owed": true} {
		for who, comes := range repeats() {
			t.Run(name+", "+who, func(t *testing.T) {
				withHarness(t, nil, func(t *testing.T, b *harness) {
					b.window = duplicateWindow
					asked, runs := 0, 1
					b.check = func() error { asked++; return nil }
					if failing {
						b.work = lookUpWith(lookup.DNSTimeout, "")
						runs++
					}
					first := b.sign(nil)
					b.ask(first, "GET /a")
					b.check = soldOut
					time.Sleep(2 * time.Second)
					b.expect("paid", b.ask(comes(b, first), "GET /a"), answered())
					b.expectCalls("in all", 1, runs)
					b.wallet = must(x402test.NewWallet(rand.Reader))
					b.expect("somebody else", b.ask(b.sign(nil), "GET /a"), expected{status: 410, code: codeGone, charged: "false"})
					b.expectCalls("with somebody else", 1, runs)
					if asked != 1 {
						t.Errorf("the check was asked %d times before the first answer, want once", asked)
					}
				})
			})
		}
	}
}

// TestCheckStops plays a check that refuses, fails or panics. The payment must not be sent,
// and the lease and the slot must be given back. Once the check allows the same payment, it
// must be sent and answered.
func TestCheckStops(t *testing.T) {
	for name, c := range map[string]struct {
		check     func() error
		status    int
		code      fault.Code
		retryable bool
	}{
		"refuses": {soldOut, 410, codeGone, false},
		"panics":  {func() error { panic("broken") }, 500, fault.InternalError, true},
		"fails":   {func() error { return context.DeadlineExceeded }, 500, fault.InternalError, true},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				slots := &countedSlots{}
				b.slots, b.check = slots, c.check
				header := b.sign(nil)
				for range 2 { // the second request need not wait, because nobody holds the lease
					b.expect("stopped", b.ask(header, "GET /a"), expected{status: c.status, code: c.code, charged: "false", retryable: c.retryable})
				}
				b.expectCalls("stopped", 0, 0)
				if slots.taken != 2 || slots.released != 2 {
					t.Errorf("%d slots taken, %d released", slots.taken, slots.released)
				}
				b.check = nil
				b.expect("allowed", b.ask(header, "GET /a"), answered())
				b.expectCalls("allowed", 1, 1)
			})
		})
	}
}
