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

const gone fault.Code = "gone"

// soldOut is a Job.Check that refuses.
func soldOut() error {
	return fault.Info{Code: gone, Status: http.StatusGone, Class: fault.NoCharge, Message: "sold out"}.New(nil)
}

// again returns the two ways in which a payer can repeat a purchase: with the first signature
// again, or with a new one.
func again() map[string]func(b *harness, first string) (signature string) {
	return map[string]func(*harness, string) string{
		"the same signature": func(_ *harness, first string) string { return first },
		"a new signature":    func(b *harness, _ string) string { return b.sign(nil) },
	}
}

// verdict is the expected outcome of a payment that may have been sent before the check
// refused it.
type verdict struct {
	chain         func() x402.Finding // nil means that no node is configured
	status        int
	code          fault.Code
	charged       string
	settles, runs int // the total numbers of settlements and runs
}

func (v verdict) holds(b *harness, signature string) {
	b.t.Helper()
	b.chain = v.chain
	b.expect("when the check refuses", b.ask(signature, "GET /a"), expected{status: v.status, code: v.code, charged: v.charged, retryable: v.status == 503, receipt: v.status == 200})
	b.expectCalls("in all", v.settles, v.runs)
}

// TestCheckOfADoubt checks what becomes of a payment in doubt when the seller's check refuses
// it. If there is a node, the payment is not sent again. If the chain shows that it was paid,
// it is answered. If it never will be paid, the answer is the check's refusal. While the chain
// cannot tell, the payer is told to repeat the payment. If there is no node, the payment is
// sent again, because nothing else could resolve the doubt.
func TestCheckOfADoubt(t *testing.T) {
	for name, v := range map[string]verdict{
		"paid":        {chain: shows(x402.Paid), status: 200, charged: "true", settles: 1, runs: 1},
		"never paid":  {chain: shows(x402.NeverPaid), status: 410, code: gone, charged: "false", settles: 1},
		"open":        {chain: shows(x402.StillOpen), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"cannot tell": {chain: shows(x402.CannotTell), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"no node":     {status: 200, charged: "true", settles: 2, runs: 1},
	} {
		for who, comes := range again() {
			t.Run(name+", "+who, func(t *testing.T) {
				within(t, nil, func(_ *testing.T, b *harness) {
					b.window = duplicateWindow
					b.settle = settles(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, moved())
					first := b.sign(nil)
					b.expect("in doubt", b.ask(first, "GET /a"), uncertain())
					b.check = soldOut
					time.Sleep(2 * time.Second)
					v.holds(b, comes(b, first))
				})
			})
		}
	}
}

// TestCheckOfADoubtThatIsRefused checks a payment in doubt that is sent again although the
// seller's check refuses it, because there is no node. If a facilitator refuses the payment,
// the doubt remains, and the answer is never the check's refusal.
func TestCheckOfADoubtThatIsRefused(t *testing.T) {
	within(t, nil, func(_ *testing.T, b *harness) {
		b.settle = settles(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"})
		first := b.sign(nil)
		b.ask(first, "GET /a")
		b.check = soldOut
		time.Sleep(2 * time.Second)
		b.expect("refused in doubt", b.ask(first, "GET /a"), uncertain())
		b.expectCalls("in all", 2, 0)
	})
}

// TestCheckOfARefusal checks that a payment which a facilitator refused is not sent again when
// the seller's check refuses, even if the facilitator would now settle the payment. If there
// is a node, the answer depends on what the chain shows.
func TestCheckOfARefusal(t *testing.T) {
	for name, v := range map[string]verdict{
		"paid":        {chain: shows(x402.Paid), status: 200, charged: "true", settles: 1, runs: 1},
		"never paid":  {chain: shows(x402.NeverPaid), status: 410, code: gone, charged: "false", settles: 1},
		"open":        {chain: shows(x402.StillOpen), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"cannot tell": {chain: shows(x402.CannotTell), status: 503, code: fault.SettlementUncertain, charged: "null", settles: 1},
		"no node":     {status: 410, code: gone, charged: "false", settles: 1},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(_ *testing.T, b *harness) {
				b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"}, moved())
				first := b.sign(nil)
				b.expect("an empty wallet", b.ask(first, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "false"})
				b.check = soldOut
				time.Sleep(2 * time.Second)
				v.holds(b, first)
			})
		})
	}
}

// TestCheckOfWhatIsPaid checks that a paid payment is answered, by a replay or a run,
// regardless of the seller's check. The check is called only before a payment is sent.
func TestCheckOfWhatIsPaid(t *testing.T) {
	for name, failing := range map[string]bool{"answered": false, "owed": true} {
		for who, comes := range again() {
			t.Run(name+", "+who, func(t *testing.T) {
				within(t, nil, func(t *testing.T, b *harness) {
					b.window = duplicateWindow
					asked, runs := 0, 1
					b.check = func() error { asked++; return nil }
					if failing {
						b.work = looksUp(lookup.DNSTimeout, "")
						runs++
					}
					first := b.sign(nil)
					b.ask(first, "GET /a")
					b.check = soldOut
					time.Sleep(2 * time.Second)
					b.expect("paid", b.ask(comes(b, first), "GET /a"), answered())
					b.expectCalls("in all", 1, runs)
					b.wallet = must(x402test.NewWallet(rand.Reader))
					b.expect("somebody else", b.ask(b.sign(nil), "GET /a"), expected{status: 410, code: gone, charged: "false"})
					b.expectCalls("with somebody else", 1, runs)
					if asked != 1 {
						t.Errorf("the check was asked %d times before the first answer, want once", asked)
					}
				})
			})
		}
	}
}

// TestCheckStops checks that a check which refuses, fails or panics prevents the send, and
// that the lease and the slot are given back. The same payment is sent once the check allows
// it.
func TestCheckStops(t *testing.T) {
	for name, c := range map[string]struct {
		check     func() error
		status    int
		code      fault.Code
		retryable bool
	}{
		"refuses": {soldOut, 410, gone, false},
		"panics":  {func() error { panic("broken") }, 500, fault.InternalError, true},
		"fails":   {func() error { return context.DeadlineExceeded }, 500, fault.InternalError, true},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
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
