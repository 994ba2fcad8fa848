package x402_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// If a process freezes for longer than its lease while it sends, a request with a
// new signature sends the same authorization once more, and not its own.
func TestThawsAfterItsLease(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(&fakeEvidence{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}})
		var nonces []string
		b.onSettle = func(p x402.Payload) { nonces = append(nonces, p.Payload.Authorization.Nonce) }
		b.settle = func(_ context.Context, n int) x402.Settlement {
			if n > 1 {
				return moved()
			}
			time.Sleep(time.Minute)
			return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
		}
		frozen, second := b.sign(nil), b.sign(nil)
		var all sync.WaitGroup
		all.Go(func() {
			if out := b.ask(frozen, "GET /a"); out.Status == 402 {
				t.Errorf("the frozen one, once it thaws: %d %v", out.Status, out.Fault)
			}
		})
		time.Sleep(31 * time.Second)
		first := b.ask(second, "GET /a")
		b.expect("another", first, 200, "", "true", false, true)
		all.Wait()
		b.expectReplay("the frozen one, again", first, b.ask(frozen, "GET /a"))
		if len(nonces) != 2 || nonces[0] != nonces[1] {
			t.Errorf("sent %v", nonces)
		}
	})
}

// A process that ends between the two writes of a takeover, or after either: the
// next payment goes on from there, and the one that was closed is never sent.
func TestTakeOverCutShort(t *testing.T) {
	for _, fails := range []struct {
		name string
		op   func(ledger.Record) bool
	}{
		{"closing the owner", func(r ledger.Record) bool { return r.State == ledger.Superseded }},
		{"swapping the purchase", func(r ledger.Record) bool { return r.State == ledger.Bought }},
	} {
		for _, how := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
			armed := false
			within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				if armed && op == ledgertest.Replace && fails.op(r) {
					armed = false
					return how
				}
				return ledgertest.None
			}, func(t *testing.T, b *harness) {
				b.withWindow(nil)
				b.settle = settles(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
				first, second, third := b.sign(nil), b.sign(nil), b.sign(nil)
				b.expect("never sent", b.ask(first, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
				b.settle = settles(moved())
				armed = true
				b.expect(fails.name, b.ask(second, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
				b.expect("third", b.ask(third, "GET /a"), 200, "", "true", false, true)
				for _, h := range []string{first, second} {
					if out := b.ask(h, "GET /a"); out.Status != 200 || !out.Replayed {
						t.Errorf("%s: %d %v", fails.name, out.Status, out.Fault)
					}
				}
				b.expectCalls(fails.name, 2, 1)
			})
		}
	}
}

// A superseded payment is never sent. Once the purchase has no answer any more
// its payer signs anew; proof that its own money moved all the same makes it a
// refund, since another payment has answered the purchase.
func TestSuperseded(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(nil)
		first, second := b.sign(nil), b.sign(nil)
		b.expect("first", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.expect("second", b.ask(second, "GET /a"), 200, "", "true", false, true)
		time.Sleep(24*time.Hour + time.Second)
		out := b.ask(second, "GET /a")
		b.expect("a day later", out, 402, fault.PaymentRequired, "false", false, false)
		if !strings.Contains(out.Fault.Public(), "sign a new one") {
			t.Errorf("says %q", out.Fault.Public())
		}
		b.expectCalls("a day later", 1, 1)
		l := ledger.New(b.store, time.Now, func() string { return "witness" })
		r := b.stored(second)
		got, err := l.Testify(t.Context(), ledger.Witness{
			Key: r.Key, Receipt: ledger.Receipt{Transaction: "0xdouble"}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		})
		if err != nil || got != ledger.RefundDue {
			t.Errorf("its money moved: %d, %v", got, err)
		}
	})
}

// Money of a payment that was taken over, found before the purchase has an answer,
// is owed an answer.
func TestTakenOverAndPaid(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.withWindow(nil)
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
		first := b.sign(nil)
		b.ask(first, "GET /a")
		time.Sleep(16 * time.Minute)
		b.ask(b.sign(nil), "GET /a") // refused, too
		r := b.stored(first)
		if r.State != ledger.Superseded {
			t.Fatalf("%+v", r)
		}
		l := ledger.New(b.store, time.Now, func() string { return "witness" })
		got, err := l.Testify(t.Context(), ledger.Witness{
			Key: r.Key, Receipt: ledger.Receipt{Transaction: "0xlied", Network: "eip155:8453"}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		})
		if err != nil || got != ledger.Found {
			t.Errorf("%d, %v", got, err)
		}
		b.expect("first, again", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("first, again", 2, 1)
	})
}

// A payment whose first attempt died before it opened its purchase is in doubt.
// Once another payment has answered it, it is not sent any more either.
func TestInDoubtAndAnswered(t *testing.T) {
	var armed atomic.Bool
	within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if op == ledgertest.Create && r.State == ledger.Bought && armed.CompareAndSwap(true, false) {
			time.Sleep(35 * time.Second) // frozen, past its lease
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		b.withWindow(nil)
		first, second := b.sign(nil), b.sign(nil)
		paid := b.ask(first, "GET /a")
		b.expect("first", paid, 200, "", "true", false, true)
		armed.Store(true)
		var all sync.WaitGroup
		all.Go(func() { b.ask(second, "GET /a") })
		time.Sleep(31 * time.Second)
		b.expectReplay("second", paid, b.ask(second, "GET /a"))
		all.Wait()
		if r := b.stored(second); r.State != ledger.Uncertain || r.Owner != b.stored(first).Key {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Hour)
		b.expectReplay("second, when the window is over", paid, b.ask(second, "GET /a"))
		time.Sleep(24 * time.Hour)
		b.expectCalls("in all", 1, 1)
	})
}
