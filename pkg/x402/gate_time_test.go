package x402_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// callTimes records how long each call of a request may take, and until when a slot
// is held.
type callTimes struct {
	*harness
	verifies, settling, finding []time.Duration
	slots                       []time.Time
	full                        error
	f                           x402.Finding
}

func left(ctx context.Context) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 1000 * time.Hour
	}
	return time.Until(d)
}

func (w *callTimes) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	w.verifies = append(w.verifies, left(ctx))
	return w.harness.Verify(ctx, p, r)
}

func (w *callTimes) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	w.settling = append(w.settling, left(ctx))
	return w.harness.Settle(ctx, p, r)
}

func (w *callTimes) Find(ctx context.Context, _ x402.Question) x402.Finding {
	w.finding = append(w.finding, left(ctx))
	return w.f
}

func (w *callTimes) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	w.slots = append(w.slots, until)
	if w.full != nil {
		time.Sleep(28 * time.Second)
		return nil, w.full
	}
	return w, nil
}

func (w *callTimes) Release(context.Context) error { return nil }

func (b *harness) withCallTimes() *callTimes {
	w := &callTimes{harness: b}
	b.build(func(c *x402.GateConfig) { c.Facilitator, c.Slots, c.Evidence = w, w, w })
	return w
}

// The lease and the slot end 3 s after the invocation: an attempt that has not ended
// by then is dead, or past its deadline.
func TestLeaseAndSlotOutliveTheInvocation(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		w := b.withCallTimes()
		h := b.sign(nil)
		until := time.Now().Add(27*time.Second + 3*time.Second)
		holds := func(when string) {
			if r := b.stored(h); !r.LeaseUntil.Equal(until) {
				t.Errorf("%s the lease ends at %s, want %s", when, r.LeaseUntil, until)
			}
		}
		b.settle = func(context.Context, int) x402.Settlement { holds("while it settles"); return moved() }
		b.work = func(context.Context, int) ([]byte, error) {
			time.Sleep(time.Second)
			holds("while it looks up")
			return nil, fault.New(fault.DNSTimeout, nil)
		}
		b.expect("owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		until = time.Now().Add(30 * time.Second)
		b.expect("owed again", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		if len(w.slots) != 2 || !w.slots[1].Equal(until) {
			t.Errorf("slots until %v, want until %s", w.slots, until)
		}
	})
}

// What each call may take: /verify 3 s; a settlement 15 s, and 13 s in doubt,
// where 4 s are left for the chain, 8 s for the lookup and 2 s for the writes.
func TestBudgetOfEachCall(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		w := b.withCallTimes()
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h := b.sign(contractPayer)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			<-ctx.Done()
			return x402.Settlement{Class: x402.Unknown}
		}
		w.f = x402.Finding{Verdict: x402.Paid, Transaction: tx}
		b.expect("in doubt, at the last moment", b.ask(h, "GET /a"), 200, "", "true", false, true)
		want := fmt.Sprint([][]time.Duration{{3 * time.Second}, {15 * time.Second, 13 * time.Second}, {4 * time.Second, 4 * time.Second}})
		if got := fmt.Sprint([][]time.Duration{w.verifies, w.settling, w.finding}); got != want {
			t.Errorf("verify, settle, chain: %s, want %s", got, want)
		}
	})
}

// The chain is asked with what is left, if it is half a second or more.
func TestChainWithLittleTime(t *testing.T) {
	for late, want := range map[time.Duration]string{
		10 * time.Second:                          "[4s]",
		15 * time.Second:                          "[2s]",
		16500 * time.Millisecond:                  "[500ms]",
		16500*time.Millisecond + time.Microsecond: "[]",
		time.Minute:                               "[]",
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			w := b.withCallTimes()
			w.f = x402.Finding{Verdict: x402.StillOpen}
			b.settle = func(context.Context, int) x402.Settlement {
				time.Sleep(late)
				return x402.Settlement{Class: x402.Unknown}
			}
			b.expect("unknown", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			if got := fmt.Sprint(w.finding); got != want {
				t.Errorf("settled after %s: the chain had %s, want %s", late, got, want)
			}
		})
	}
}

// A process that was frozen until after its deadline still records its verdict,
// whatever it is.
func TestVerdictsAfterTheDeadline(t *testing.T) {
	frozen := func() { time.Sleep(28 * time.Second) } // past the deadline, within the lease
	for name, c := range map[string]struct {
		s     x402.Settlement
		f     x402.Finding
		state ledger.State
	}{
		"moved":    {s: moved(), state: ledger.Settled},
		"refused":  {s: x402.Settlement{Class: x402.Refused, Reason: "no"}, state: ledger.Refused},
		"not sent": {s: x402.Settlement{Class: x402.NotSent}, state: ledger.Refused},
		"unknown":  {s: x402.Settlement{Class: x402.Unknown}, state: ledger.Uncertain},
		"used":     {s: x402.Settlement{Class: x402.Refused, NonceUsed: true}, state: ledger.Uncertain},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.withCallTimes()
			b.settle = func(context.Context, int) x402.Settlement { frozen(); return c.s }
			h := b.sign(nil)
			out := b.ask(h, "GET /a")
			if r := b.stored(h); r.State != c.state || !r.LeaseUntil.IsZero() || out.Trace.Unrecorded {
				t.Errorf("%s: %s, lease until %s, unrecorded %t", name, r.State, r.LeaseUntil, out.Trace.Unrecorded)
			}
		})
	}
	within(t, nil, func(t *testing.T, b *harness) {
		w := b.withCallTimes()
		w.f = x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
		b.build(func(c *x402.GateConfig) { c.Facilitator, c.Evidence = w, frozenChain{w, frozen} })
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h := b.sign(nil)
		b.expect("disproved", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		if r := b.stored(h); r.State != ledger.Refused {
			t.Errorf("disproved: %s", r.State)
		}
	})
	for name, c := range map[string]struct {
		err   error
		state ledger.State
	}{
		"answered": {nil, ledger.Redeemed},
		"owed":     {fault.New(fault.DNSTimeout, nil), ledger.Settled},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.work = func(context.Context, int) ([]byte, error) { frozen(); return []byte("{}"), c.err }
			h := b.sign(nil)
			out := b.ask(h, "GET /a")
			if r := b.stored(h); r.State != c.state || !r.LeaseUntil.IsZero() || out.Trace.Unrecorded {
				t.Errorf("%s: %s, lease until %s, unrecorded %t", name, r.State, r.LeaseUntil, out.Trace.Unrecorded)
			}
		})
	}
}

// frozenChain is chain evidence during which the process freezes.
type frozenChain struct {
	*callTimes
	freeze func()
}

func (c frozenChain) Find(ctx context.Context, q x402.Question) x402.Finding {
	c.freeze()
	return c.callTimes.Find(ctx, q)
}

// A process that was frozen while it waited for a slot and gets none releases its
// claim, and no lookup is counted.
func TestNoSlotAfterTheDeadline(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = looksUp(fault.DNSTimeout)
		fresh, owed := b.sign(nil), b.sign(nil)
		b.expect("owed", b.ask(owed, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		w := b.withCallTimes()
		w.full = fault.New(fault.Overloaded, errors.New("full"))
		b.expect("full, fresh", b.ask(fresh, "GET /b"), 503, fault.Overloaded, "false", true, false)
		b.expect("full, owed", b.ask(owed, "GET /a"), 503, fault.Overloaded, "true", true, true)
		if f, o := b.stored(fresh), b.stored(owed); f.State != ledger.Refused || o.Lookups != 1 || !o.LeaseUntil.IsZero() {
			t.Errorf("fresh %s; owed after %d lookups, lease until %s", f.State, o.Lookups, o.LeaseUntil)
		}
	})
}

// lateSlots has slots whose release takes a second.
type lateSlots struct{ given time.Time }

func (r *lateSlots) Acquire(context.Context, string, time.Time) (x402.Slot, error) { return r, nil }

func (r *lateSlots) Release(context.Context) error {
	time.Sleep(time.Second)
	r.given = time.Now()
	return nil
}

// The slot is given back beside the last write, not after it, and before the
// request is answered.
func TestSlotIsGivenBackBesideTheLastWrite(t *testing.T) {
	within(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Replace && n == 2 {
			time.Sleep(time.Second)
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		r := &lateSlots{}
		b.withParts(r, nil)
		begun := time.Now()
		b.expect("answered", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		if took := time.Since(begun); took != time.Second || !r.given.Equal(time.Now()) {
			t.Errorf("it took %s, and the slot was given back at %s", took, r.given)
		}
	})
}
