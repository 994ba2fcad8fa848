package x402_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// If the store fails before the claim, nothing is sent, and the answer does not say
// whether the payment was charged.
func TestStoreFailsBeforeTheClaim(t *testing.T) {
	for op, payer := range map[ledgertest.Op]func(*x402test.Draft){ledgertest.Fetch: contractPayer, ledgertest.Create: nil} {
		within(t, ledgertest.Failing(op, ledgertest.FailBefore, 1), func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			h := b.sign(payer)
			b.expect("store down", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
			b.expectCalls("store down", 0, 0)
			b.expect("store up", b.ask(h, "GET /a"), 200, "", "true", false, true)
		})
	}
}

// A record that is corrupt fails closed: the payment is not sent, and the chain is not
// asked about it.
func TestCorruptRecords(t *testing.T) {
	redeemed := func(r *ledger.Record) {
		r.State, r.Receipt, r.SettledAt, r.AnsweredAt = ledger.Redeemed, &ledger.Receipt{Transaction: tx}, time.Now(), time.Now()
	}
	for name, c := range map[string]struct {
		settle  x402.Settlement
		change  func(*ledger.Record)
		charged string
	}{
		"redeemed without an answer": {declined(), func(r *ledger.Record) {
			redeemed(r)
			r.Answer = &ledger.Answer{Stored: true, Encoding: "gzip"}
		}, "true"},
		"redeemed without a receipt": {declined(), func(r *ledger.Record) {
			redeemed(r)
			r.Receipt, r.Answer = nil, &ledger.Answer{Stored: true}
		}, "true"},
		"in doubt without terms": {lost(), func(r *ledger.Record) { r.Terms = json.RawMessage(`[]`) }, "null"},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			b.settle = settles(c.settle)
			h := b.sign(contractPayer)
			b.ask(h, "GET /a")
			b.rewrite(h, c.change)
			b.expect(name, b.ask(h, "GET /a"), 503, fault.PaymentUnavailable, c.charged, true, false)
			b.expectCalls(name, 1, 0)
		})
	}
	within(t, nil, func(t *testing.T, b *harness) {
		b.chain = shows(x402.NeverPaid)
		b.settle = settles(x402.Settlement{Class: x402.NotSent})
		h := b.sign(nil)
		b.expect("not sent", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.rewrite(h, func(r *ledger.Record) { r.Terms = json.RawMessage(`{"amount":"-5"}`) })
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		if len(b.questions) != 0 {
			t.Error("the chain was asked")
		}
	})
}

// A request that comes with too little time to settle is not claimed, and a payment
// with less than two seconds left is not sent.
func TestNoTime(t *testing.T) {
	for _, c := range []struct {
		given, late   time.Duration // late is the slot
		claimed, sent bool
	}{
		{12 * time.Second, 0, true, true},
		{12*time.Second - time.Millisecond, 0, false, false},
		{27 * time.Second, 15 * time.Second, true, true},
		{27 * time.Second, 15*time.Second + time.Millisecond, true, false},
		{27 * time.Second, time.Minute, true, false},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.slots = &countedSlots{late: c.late}
			b.given = c.given
			out := b.ask(b.sign(nil), "GET /a")
			if !c.sent {
				charged := map[bool]string{true: "false", false: "null"}[c.claimed]
				b.expect(fmt.Sprint(c), out, 503, fault.PaymentUnavailable, charged, true, false)
			}
			if claimed := b.store.Calls(ledgertest.Create) == 2; claimed != c.claimed || (len(b.settles) == 1) != c.sent {
				t.Errorf("%+v: %d %v, claimed %t, %d sent", c, out.Status, out.Fault, claimed, len(b.settles))
			}
		})
	}
}

// What each call may take: /verify 3 s; a settlement 15 s, and 13 s in doubt,
// where 4 s are left for the chain, 8 s for the lookup and 2 s for the writes.
func TestBudgetOfEachCall(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.chain = shows(x402.CannotTell)
		b.verify = x402.Verification{Valid: true}
		b.work = func(ctx context.Context, _ int) ([]byte, error) {
			if until, _ := ctx.Deadline(); time.Until(until) != 8*time.Second {
				t.Errorf("the lookup has %s, want 8 s", time.Until(until))
			}
			return []byte("{}"), nil
		}
		h := b.sign(contractPayer)
		until := time.Now().Add(27*time.Second + 3*time.Second) // what has not ended by then is dead
		b.settle = func(context.Context, int) x402.Settlement {
			if r := b.stored(h); !r.LeaseUntil.Equal(until) {
				t.Errorf("the lease ends at %s, want %s", r.LeaseUntil, until)
			}
			return lost()
		}
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			<-ctx.Done()
			return x402.Settlement{Class: x402.Unknown}
		}
		b.chain = shows(x402.Paid)
		b.expect("in doubt, at the last moment", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if got := fmt.Sprint(b.left); got != "[3s 15s 4s 13s 4s]" {
			t.Errorf("verify, and settle and chain twice: %s", got)
		}
	})
}

// The chain is asked with what is left, if it is half a second or more.
func TestChainWithLittleTime(t *testing.T) {
	for late, want := range map[time.Duration]string{
		15 * time.Second:                          "[2s]",
		16500 * time.Millisecond:                  "[500ms]",
		16500*time.Millisecond + time.Microsecond: "[]",
		time.Minute:                               "[]",
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.chain = shows(x402.StillOpen)
			b.settle = func(context.Context, int) x402.Settlement {
				time.Sleep(late)
				return x402.Settlement{Class: x402.Unknown}
			}
			b.expect("unknown", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			if got := fmt.Sprint(b.left[1:]); got != want {
				t.Errorf("settled after %s: the chain had %s, want %s", late, got, want)
			}
		})
	}
}

// Without a free slot nothing is settled: the claim is released, and no lookup is
// counted.
func TestSlots(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		r := &countedSlots{full: fault.New(fault.Overloaded, nil)}
		b.slots = r
		h := b.sign(nil)
		b.expect("full", b.ask(h, "GET /a"), 503, fault.Overloaded, "false", true, false)
		b.expectCalls("full", 0, 0)
		r.full = nil
		b.work = looksUp(lookup.DNSTimeout)
		b.expect("room, owed", b.ask(h, "GET /a"), 504, lookup.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		r.full = fault.New(fault.Overloaded, nil)
		for _, r.late = range []time.Duration{0, 28 * time.Second} { // the last is past the deadline
			b.expect("full again, owed", b.ask(h, "GET /a"), 503, fault.Overloaded, "true", true, true)
			if kept := b.stored(h); kept.Lookups != 1 || !kept.LeaseUntil.IsZero() {
				t.Errorf("no slot after %s: %d lookups, lease until %s", r.late, kept.Lookups, kept.LeaseUntil)
			}
		}
		r.late = 0
		r.full, r.broken = nil, errors.New("store down")
		b.work = looksUp("")
		b.expect("room again", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("a replay takes no slot", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("in all", 1, 2)
		if r.taken != 2 || r.released != 2 {
			t.Errorf("%d slots taken, %d released", r.taken, r.released)
		}
	})
}
