package x402_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
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
		for range 10 {
			b.expect("full again, owed", b.ask(h, "GET /a"), 503, fault.Overloaded, "true", true, true)
		}
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

// Every verdict of the chain, for what asks it.
func TestEvidenceVerdicts(t *testing.T) {
	unknown := x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	used := x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
	paid := x402.Finding{Verdict: x402.Paid, Transaction: tx}
	never := x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
	for _, c := range []struct {
		name    string
		s       x402.Settlement
		f       x402.Finding
		status  int
		code    fault.Code
		charged string
		retry   bool
		state   ledger.State
	}{
		{"unknown, paid", unknown, paid, 200, "", "true", false, ledger.Redeemed},
		{"unknown, never", unknown, never, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"unknown, open", unknown, x402.Finding{Verdict: x402.StillOpen}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"unknown, cannot tell", unknown, x402.Finding{}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"used, paid", used, paid, 200, "", "true", false, ledger.Redeemed},
		{"used, never", used, never, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"used, open", used, x402.Finding{Verdict: x402.StillOpen}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"used, cannot tell", used, x402.Finding{}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.withParts(nil, &fakeEvidence{f: c.f})
			b.settle = settles(c.s)
			out := b.ask(b.sign(nil), "GET /a")
			b.expect(c.name, out, c.status, c.code, c.charged, c.retry, c.status == 200)
			if last := out.Trace.States[len(out.Trace.States)-1]; last != c.state || out.Trace.Verdict != c.f.Verdict.String() {
				t.Errorf("%s: state %s, evidence %s", c.name, last, out.Trace.Verdict)
			}
		})
	}
}

// A record that is corrupt fails closed.
func TestCorruptRecords(t *testing.T) {
	for name, change := range map[string]func(*ledger.Record){
		"redeemed without an answer": func(r *ledger.Record) {
			r.State = ledger.Redeemed
			r.Answer = &ledger.Answer{Stored: true, Encoding: "gzip"}
		},
		"redeemed without a receipt": func(r *ledger.Record) {
			r.State = ledger.Redeemed
			r.Receipt = nil
			r.Answer = &ledger.Answer{Stored: true}
		},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
			b.ask(h, "GET /a")
			r, err := b.store.Fetch(t.Context(), b.key(h))
			if err != nil || r == nil {
				t.Fatal(r, err)
			}
			r.Receipt = &ledger.Receipt{Transaction: tx}
			r.SettledAt = time.Now()
			r.Version, r.WriteID = r.Version+1, "planted"
			change(r)
			if err := b.store.Replace(t.Context(), *r); err != nil {
				t.Fatal(err)
			}
			b.expect(name, b.ask(h, "GET /a"), 503, fault.PaymentUnavailable, "true", true, false)
		})
	}
}

var _ ledger.Store = (*ledgertest.Faulty)(nil)

// The slot is held while the work runs, on the way from a settlement and on that of
// an owed answer: what it caps is the work, too.
func TestSlotIsHeldWhileItLooksUp(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		r := &countedSlots{}
		b.withParts(r, nil)
		b.work = func(_ context.Context, n int) ([]byte, error) {
			time.Sleep(time.Second)
			if r.taken-r.released != 1 {
				t.Errorf("lookup %d runs with %d slots", n, r.taken-r.released)
			}
			if n == 1 {
				return nil, fault.New(fault.DNSTimeout, nil)
			}
			return []byte("{}"), nil
		}
		h := b.sign(nil)
		b.expect("owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		b.expect("answered", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if r.taken != 2 || r.released != 2 {
			t.Errorf("%d slots taken, %d released", r.taken, r.released)
		}
	})
}
