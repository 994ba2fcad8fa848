package x402_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Without a free slot nothing is settled: the claim is released, and no lookup is
// counted.
func TestSlots(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		r := &countedSlots{full: fault.New(fault.Overloaded, nil)}
		b.withParts(r, nil)
		h := b.sign(nil)
		b.expect("full", b.ask(h, "GET /a"), 503, fault.Overloaded, "false", true, false)
		b.expectCalls("full", 0, 0)
		r.full = nil
		b.work = looksUp(fault.DNSTimeout)
		b.expect("room, owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
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

// A slot is given back however the request ends, and before it is answered: Lambda
// freezes what goes on behind an answer.
func TestSlotsAreGivenBack(t *testing.T) {
	for name, s := range map[string]x402.Settlement{
		"refused": {Class: x402.Refused, Reason: "no"}, "not sent": {Class: x402.NotSent}, "unknown": {}, "moved": moved(),
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			r := &countedSlots{release: func() { time.Sleep(time.Second) }}
			b.withParts(r, nil)
			b.settle = settles(s)
			b.ask(b.sign(nil), "GET /a")
			if r.taken != 1 || r.released != 1 {
				t.Errorf("%s: %d slots taken, %d given back", name, r.taken, r.released)
			}
		})
	}
}

// A record that is corrupt fails closed.
func TestCorruptRecords(t *testing.T) {
	for name, change := range map[string]func(*ledger.Record){
		"redeemed without an answer": func(r *ledger.Record) { r.Answer = &ledger.Answer{Stored: true, Encoding: "gzip"} },
		"redeemed without a receipt": func(r *ledger.Record) { r.Receipt, r.Answer = nil, &ledger.Answer{Stored: true} },
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
			b.ask(h, "GET /a")
			b.rewrite(h, func(r *ledger.Record) {
				r.State, r.Receipt, r.SettledAt = ledger.Redeemed, &ledger.Receipt{Transaction: tx}, time.Now()
				change(r)
			})
			b.expect(name, b.ask(h, "GET /a"), 503, fault.PaymentUnavailable, "true", true, false)
		})
	}
}
