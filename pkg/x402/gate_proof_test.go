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
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A refusal with a failed PAYMENT-RESPONSE tells the payer to sign anew, so it needs
// proof that nothing moved. These tests are of the cases in which an answer of the
// facilitator is no such proof.

// Each word of a facilitator that leaves it to the chain, with each verdict. A
// facilitator looks at the window before the nonce, so that what it says at the end
// of the window is about that, whatever reason it gives.
func TestEvidenceVerdicts(t *testing.T) {
	type word struct {
		s    x402.Settlement
		late time.Duration
		end  bool // of the window
	}
	for name, w := range map[string]word{
		"unknown": {s: lost()}, "used": {s: usedNonce()}, "refused at the end": {declined(), 2*time.Second + time.Nanosecond, true},
		"expired by its clock": {s: x402.Settlement{Class: x402.Refused, Reason: "valid_before", Expired: true}, end: true},
	} {
		for _, v := range []x402.Verdict{x402.Paid, x402.NeverPaid, x402.StillOpen, x402.CannotTell} {
			within(t, nil, func(t *testing.T, b *harness) {
				seen := &fakeEvidence{f: x402.Finding{Verdict: v}}
				if v == x402.NeverPaid {
					seen.late = 28 * time.Second // the process is frozen past its deadline
				}
				b.withParts(nil, seen)
				b.settle = func(context.Context, int) x402.Settlement { time.Sleep(w.late); return w.s }
				out := b.ask(b.sign(func(d *x402test.Draft) {
					d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 8)
				}), "GET /a")
				state, what := ledger.Uncertain, fmt.Sprint(name, ", ", v)
				switch {
				case v == x402.Paid:
					state = ledger.Redeemed
					b.expect(what, out, 200, "", "true", false, true)
				case v == x402.NeverPaid, v == x402.StillOpen && w.end:
					state = ledger.Refused
					b.expect(what, out, 402, fault.PaymentRequired, "false", false, false)
				default:
					b.expect(what, out, 503, fault.SettlementUncertain, "null", true, false)
				}
				if last := out.Trace.States[len(out.Trace.States)-1]; last != state || out.Trace.Verdict != v.String() || len(seen.asked) != 1 {
					t.Errorf("%s: state %s, evidence %s, asked %d times", what, last, out.Trace.Verdict, len(seen.asked))
				}
			})
		}
	}
}

// A payment that was refused, and that a third party submitted since: when its
// window is over too, the chain is asked before the answer says that it is unpaid.
func TestRefusedThenSubmittedByAThirdParty(t *testing.T) {
	for _, c := range []struct {
		f       x402.Finding
		status  int
		charged string
		success bool
		failed  bool // PAYMENT-RESPONSE says that nothing moved
	}{
		{x402.Finding{Verdict: x402.Paid, Transaction: tx}, 200, "true", true, false},
		{x402.Finding{Verdict: x402.NeverPaid, Reason: "expired"}, 402, "false", false, true},
		{x402.Finding{Verdict: x402.StillOpen}, 402, "false", false, false},
		{x402.Finding{}, 402, "false", false, false},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{f: c.f}
			b.withParts(nil, seen)
			b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"})
			h := b.sign(nil)
			b.expect("no funds", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
			b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true})
			time.Sleep(10 * time.Minute)
			out := b.ask(h, "GET /a")
			code := fault.PaymentRequired
			if c.success {
				code = ""
			}
			b.expect(c.f.Verdict.String(), out, c.status, code, c.charged, false, c.success)
			if failed := out.Receipt != nil && !out.Receipt.Success; failed != c.failed {
				t.Errorf("%s: PAYMENT-RESPONSE %+v", c.f.Verdict, out.Receipt)
			}
			if len(seen.asked) == 0 {
				t.Errorf("%s: the chain was not asked", c.f.Verdict)
			}
		})
	}
}

// The chain is told whether the payment may be our own, and its transaction
// where the facilitator named one; why it cannot tell is logged.
func TestWhatTheChainIsAsked(t *testing.T) {
	for _, c := range []struct {
		s    x402.Settlement
		sent bool
	}{
		{x402.Settlement{Class: x402.Unknown, Transaction: tx}, true},
		{x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}, false},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			lost := errors.New("the node is away")
			seen := &fakeEvidence{f: x402.Finding{Cause: lost}}
			b.withParts(nil, seen)
			b.settle = settles(c.s)
			h := b.sign(nil)
			out := b.ask(h, "GET /a")
			b.expect(c.s.Class.String(), out, 503, fault.SettlementUncertain, "null", true, false)
			if q := seen.asked[0]; q.Sent != c.sent || q.Transaction != c.s.Transaction {
				t.Errorf("%s: asked %+v", c.s.Class, q)
			}
			if !errors.Is(out.Trace.Cause, lost) {
				t.Errorf("%s: cause %v", c.s.Class, out.Trace.Cause)
			}
			b.settle = settles(x402.Settlement{Class: x402.NotSent})
			b.ask(h, "GET /a")
			if q := seen.asked[1]; !q.Sent || q.Transaction != c.s.Transaction {
				t.Errorf("%s, in doubt: asked %+v", c.s.Class, q)
			}
		})
	}
}

// With less than two seconds left, a payment is not sent.
func TestNoTimeToSettle(t *testing.T) {
	for late, sent := range map[time.Duration]int{15 * time.Second: 1, 15*time.Second + time.Millisecond: 0, time.Minute: 0} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.withParts(&countedSlots{late: late}, nil)
			out := b.ask(b.sign(nil), "GET /a")
			if sent == 0 {
				b.expect(late.String(), out, 503, fault.PaymentUnavailable, "false", true, false)
			}
			if len(b.settles) != sent {
				t.Errorf("a slot after %s: %d sent, want %d", late, len(b.settles), sent)
			}
		})
	}
}

// A settlement that comes too late for its lookup, and whose record fails, uses
// up no lookup and gives none away.
func TestLateSettlementNotRecorded(t *testing.T) {
	for _, fails := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		within(t, ledgertest.Failing(ledgertest.Replace, fails, 1), func(t *testing.T, b *harness) {
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
			b.work = looksUp(fault.DNSTimeout)
			h := b.sign(nil)
			b.expect("late", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
			for range ledger.MaxLookups + 2 {
				time.Sleep(11 * time.Minute)
				b.ask(h, "GET /a")
			}
			b.expectCalls("in all", 1, ledger.MaxLookups)
		})
	}
}
