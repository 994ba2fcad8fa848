package x402_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// An attempt that has lost its lease serves no answer: another attempt is running,
// and the next retry gets its answer. The receipt is on record nevertheless.
func TestLostLeaseServesNoAnswer(t *testing.T) {
	for what, late := range map[string]bool{"before the settlement is written": false, "before the answer is written": true} {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.settle = func(context.Context, int) x402.Settlement {
				if !late {
					b.takeOver(h)
				}
				return moved()
			}
			b.work = func(_ context.Context, n int) ([]byte, error) {
				if time.Sleep(time.Second); late && n == 1 { // the settlement is on record by now
					b.takeOver(h)
				}
				return fmt.Appendf(nil, `{"answer":%d}`, n), nil
			}
			b.expect(what, b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "true", true, true)
			if r := b.stored(h); r.State != ledger.Settled || r.Receipt == nil {
				t.Errorf("%s: the receipt is not on record: %+v", what, r)
			}
			b.expect("beside the other", b.ask(h, "GET /a"), 409, fault.PaymentInProgress, "true", true, true)
			time.Sleep(31 * time.Second)
			out := b.ask(h, "GET /a")
			b.expect("the retry", out, 200, "", "true", false, true)
			if again := b.ask(h, "GET /a"); !again.Replayed || !bytes.Equal(again.Body, out.Body) {
				t.Errorf("answered %s, then %s", out.Body, again.Body)
			}
		})
	}
}

// A settlement and its lookup that are both not on record: the payer has every
// lookup left, and is told to come back.
func TestOwedAndNotOnRecord(t *testing.T) {
	within(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, 1, 2), func(t *testing.T, b *harness) {
		b.work = looksUp(fault.DNSTimeout)
		out := b.ask(b.sign(nil), "GET /a")
		b.expect("owed", out, 504, fault.DNSTimeout, "true", true, true)
		if out.Fault.Wait() == 0 {
			t.Error("retryable, without a Retry-After")
		}
	})
}

// A lookup for which there is no time any more uses none up, and what the last
// one said stands.
func TestNoTimeForAnOwedLookup(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = looksUp(fault.UpstreamUnavailable)
		h := b.sign(nil)
		b.expect("owed", b.ask(h, "GET /a"), 503, fault.UpstreamUnavailable, "true", true, true)
		before := b.stored(h)
		slow := &countedSlots{}
		b.withParts(slow, nil)
		for _, late := range []time.Duration{20 * time.Second, 26 * time.Second, 28 * time.Second} { // the last is past the deadline
			time.Sleep(time.Minute)
			slow.late = late
			b.expect("no time", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		}
		r := b.stored(h)
		if r.Lookups != 1 || !r.LookupAt.Equal(before.LookupAt) || *r.LastFault != *before.LastFault || !r.LeaseUntil.IsZero() {
			t.Errorf("before %+v\nafter %+v", before, r)
		}
		b.expectCalls("no time", 1, 1)
	})
}

// An answer that is too large to keep is looked up again, for as long as it would
// have been kept, and is no debt.
func TestLargeAnswers(t *testing.T) {
	noise := make([]byte, 600<<10)
	_, _ = rand.Read(noise) // it never fails
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) { return noise, nil }
		h := b.sign(nil)
		b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("at once", b.ask(h, "GET /a"), 409, fault.PaymentInProgress, "true", true, true)
		for range 2 * ledger.MaxLookups {
			time.Sleep(11 * time.Minute)
			out := b.ask(h, "GET /a")
			b.expect("again", out, 200, "", "true", false, true)
			if out.Replayed || !bytes.Equal(out.Body, noise) {
				t.Error("not looked up")
			}
		}
		if r := b.stored(h); r.Owed() {
			t.Errorf("a debt: %+v", r)
		}
		time.Sleep(24 * time.Hour)
		b.expect("a day later", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, true)
		b.expectCalls("in all", 1, 1+2*ledger.MaxLookups)
	})
}

// A payment that the facilitator refuses is asked about 1, 10, and then every 60
// seconds, and its payer is told the recorded reason in between; but one that was
// not sent for a reason of ours may be sent again at once.
func TestRefusedIsSpaced(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		no := x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
		b.settle = settles(no)
		h := b.sign(nil)
		var asked []time.Duration
		begun := time.Now()
		for range 4 * 192 {
			sent, wrote := len(b.settles), b.store.Calls(ledgertest.Replace)
			out := b.ask(h, "GET /a")
			b.expect("refused", out, 402, fault.PaymentRequired, "false", false, false)
			if out.Receipt == nil || out.Receipt.ErrorReason != no.Reason {
				t.Fatalf("%+v", out)
			}
			if len(b.settles) > sent {
				asked = append(asked, time.Since(begun))
			} else if b.store.Calls(ledgertest.Replace) != wrote {
				t.Fatal("a repeat that is answered from the record is written")
			}
			time.Sleep(time.Second / 4)
		}
		if got := fmt.Sprint(asked); got != "[0s 1s 11s 1m11s 2m11s 3m11s]" {
			t.Errorf("asked after %s", got)
		}
	})
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		for _, s := range []x402.Settlement{
			{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, {Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized},
			{Class: x402.Refused, Reason: "no"},
		} {
			b.settle = settles(s)
			b.ask(h, "GET /a")
		}
		b.expectCalls("ours, ours, the payer's", 3, 0)
		time.Sleep(time.Second)
		b.settle = settles(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
		b.ask(h, "GET /a")
		b.settle = settles(moved())
		b.expect("not sent, and again at once", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
}

// A last lookup that had no time to begin, and whose return to the ledger may have
// been lost, is not said to be used up.
func TestNoTimeForTheLastLookup(t *testing.T) {
	for _, how := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		var armed bool
		within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if armed && op == ledgertest.Replace && r.LeaseUntil.IsZero() {
				return how
			}
			return ledgertest.None
		}, func(t *testing.T, b *harness) {
			b.work = looksUp(fault.DNSTimeout)
			h := b.sign(nil)
			for range ledger.MaxLookups - 1 {
				b.ask(h, "GET /a")
				time.Sleep(11 * time.Minute)
			}
			b.withParts(&countedSlots{late: 20 * time.Second}, nil)
			armed = true
			b.expect("no time", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
			b.expectCalls("no time", 1, ledger.MaxLookups-1)
		})
	}
}
