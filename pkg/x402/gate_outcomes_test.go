package x402_test

import (
	"context"
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

func TestInvalidParametersAreNotCharged(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		b.expect("invalid", b.askWith(h, "", lookup.Fault(lookup.InvalidDomain, nil)), 400, lookup.InvalidDomain, "false", false, false)
		b.expectCalls("invalid", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d creates", n)
		}
		b.expect("corrected, same signature", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	within(t, ledgertest.Failing(ledgertest.Fetch, ledgertest.FailBefore, 1), func(_ *testing.T, b *harness) {
		out := b.askWith(b.sign(nil), "GET /a", lookup.Fault(lookup.InvalidDomain, nil))
		b.expect("no ledger", out, 400, lookup.InvalidDomain, "null", false, false)
	})
}

func TestSettlementOutcomes(t *testing.T) {
	for _, c := range []struct {
		name      string
		s, then   x402.Settlement
		status    int
		code      fault.Code
		charged   string
		retryable bool
		state     ledger.State
	}{
		{"refused", declined(), moved(), 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"nonce used, first attempt", usedNonce(), moved(), 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"unavailable", unreached(), moved(), 503, fault.FacilitatorUnavailable, "false", true, ledger.Refused},
		{"unauthorized", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, moved(), 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"turned away", turned(), moved(), 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"unknown", x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, moved(), 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"forgotten class", x402.Settlement{}, moved(), 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		// Without a chain it is paid then, in the transaction that was named before.
		{"unknown, and used", x402.Settlement{Class: x402.Unknown, Reason: "timeout", Transaction: tx}, usedNonce(), 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				b.settle = settles(c.s, c.then)
				h := b.sign(nil)
				out := b.ask(h, "GET /a")
				b.expect("first", out, c.status, c.code, c.charged, c.retryable, false)
				if last := out.Trace.States[len(out.Trace.States)-1]; last != c.state || out.Trace.Class != c.s.Class.String() {
					t.Errorf("state %s, want %s; class %s", last, c.state, out.Trace.Class)
				}
				if failed := out.Receipt; (c.s.Class == x402.Refused) != (failed != nil) || (failed != nil && (failed.Success || failed.ErrorReason != c.s.Reason)) {
					t.Errorf("PAYMENT-RESPONSE of the failure: %+v", failed)
				}
				b.expectCalls("first", 1, 0)
				time.Sleep(time.Second)
				again := b.ask(h, "GET /a")
				b.expect("same signature again", again, 200, "", "true", false, true)
				if again.Receipt.Transaction != tx {
					t.Errorf("the receipt is %+v", again.Receipt)
				}
				b.expectCalls("second", 2, 1)
			})
		})
	}
}

// A verdict that could not be recorded is reported to the operator, whatever the
// answer to the payer is; a verdict that is on record is not.
func TestUnrecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		settle x402.Settlement
		fails  []int // the writes that fail
		work   error
		status int
	}{
		{"answered", moved(), nil, nil, 200},
		{"settlement", moved(), []int{1}, nil, 200},
		{"answer", moved(), []int{2}, nil, 200},
		{"owed lookup", moved(), []int{2}, lookup.Fault(lookup.DNSTimeout, nil), 504},
		{"settlement and owed lookup", moved(), []int{1, 2}, lookup.Fault(lookup.DNSTimeout, nil), 504},
		{"refused", declined(), nil, nil, 402},
		{"in doubt", x402.Settlement{Class: x402.Unknown}, nil, nil, 503},
	} {
		within(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, c.fails...), func(t *testing.T, b *harness) {
			b.settle = settles(c.settle)
			b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), c.work }
			out := b.ask(b.sign(nil), "GET /a")
			if out.Status != c.status || out.Trace.Unrecorded != (c.fails != nil) {
				t.Errorf("%s, writes %d fail: status %d, unrecorded %t", c.name, c.fails, out.Status, out.Trace.Unrecorded)
			}
			if c.status == 504 && (!out.Payment.Retryable || out.Fault.Wait() == 0) { // every lookup is left
				t.Errorf("%s: not told to come back: %v", c.name, out.Fault)
			}
		})
	}
}

// A definite verdict is answered only when it is on record: if its write failed, or
// the lease was lost, the answer is uncertain.
func TestVerdictsThatAreNotOnRecord(t *testing.T) {
	for _, c := range []struct {
		name string
		s    x402.Settlement
		f    x402.Finding
		code fault.Code
	}{
		{"disproved", lost(), x402.Finding{Verdict: x402.NeverPaid, Reason: "cancelled"}, fault.SettlementUncertain},
		{"refused", declined(), x402.Finding{}, fault.SettlementUncertain},
		{"not sent", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, x402.Finding{}, fault.FacilitatorUnauthorized},
		{"unknown", lost(), x402.Finding{}, fault.SettlementUncertain},
	} {
		for _, lost := range []bool{false, true} {
			fails := map[bool]int{false: 1}[lost] // 0 is none
			within(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, fails), func(t *testing.T, b *harness) {
				b.withParts(nil, &fakeEvidence{f: c.f})
				h := b.sign(nil)
				b.settle = func(context.Context, int) x402.Settlement {
					if lost {
						b.takeOver(h)
					}
					return c.s
				}
				out := b.ask(h, "GET /a")
				b.expect(fmt.Sprintf("%s, lost %t", c.name, lost), out, 503, c.code, "null", true, false)
				if out.Receipt != nil {
					t.Errorf("%s, lost %t: PAYMENT-RESPONSE %+v", c.name, lost, out.Receipt)
				}
				if out.Trace.Unrecorded == lost {
					t.Errorf("%s, lost %t: unrecorded %t", c.name, lost, out.Trace.Unrecorded)
				}
				if r := b.stored(h); lost && (r.WriteID != "other" || r.State != ledger.Settling) {
					t.Errorf("%s: the other attempt was overwritten: %+v", c.name, r)
				}
			})
		}
	}
}

// The words of a facilitator that leave it to the chain; what follows from its verdict is
// in TestConclusions. A facilitator looks at the window before the nonce, so that what it
// says at the end of the window is about that, whatever reason it gives. A verdict is
// written also when the process was frozen past its deadline.
func TestWordsThatLeaveItToTheChain(t *testing.T) {
	for name, w := range map[string]struct {
		s     x402.Settlement
		late  time.Duration
		asked int
	}{
		"refused": {declined(), 2*time.Second - 1, 0}, "refused at the end": {declined(), 2 * time.Second, 1},
		"unknown": {lost(), 0, 1}, "used": {usedNonce(), 0, 1},
		"expired by its clock": {x402.Settlement{Class: x402.Refused, Reason: "valid_before", Expired: true}, 0, 1},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{f: x402.Finding{Verdict: x402.NeverPaid}, late: 28 * time.Second}
			b.withParts(nil, seen)
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(w.late); return w.s }
			h := b.sign(func(d *x402test.Draft) {
				d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 8)
			})
			out := b.ask(h, "GET /a")
			b.expect(name, out, 402, fault.PaymentRequired, "false", false, false)
			if len(seen.asked) != w.asked || b.stored(h).Disproved != (w.asked == 1) || out.Trace.Verdict != map[int]string{1: "never_paid"}[w.asked] {
				t.Errorf("%s: asked %d times, verdict %s, %+v", name, len(seen.asked), out.Trace.Verdict, b.stored(h))
			}
		})
	}
}

// A refusal with a failed PAYMENT-RESPONSE tells the payer to sign anew, so it needs
// proof that nothing moved. A payment that was refused, and that a third party submitted
// since: when its window is over too, the chain is asked before the answer says that it
// is unpaid.
func TestRefusedThenSubmittedByAThirdParty(t *testing.T) {
	for v, c := range map[x402.Verdict]struct {
		status  int
		charged string
		failed  bool // PAYMENT-RESPONSE says that nothing moved
	}{x402.Paid: {200, "true", false}, x402.NeverPaid: {402, "false", true}, x402.StillOpen: {402, "false", false}, x402.CannotTell: {402, "false", false}} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{f: x402.Finding{Verdict: v, Transaction: tx}}
			b.withParts(nil, seen)
			b.settle = settles(declined(), x402.Settlement{Class: x402.Refused, Reason: "valid_before", Expired: true})
			h := b.sign(nil)
			b.expect("no funds", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
			time.Sleep(10 * time.Minute)
			out := b.ask(h, "GET /a")
			code := map[int]fault.Code{402: fault.PaymentRequired}[c.status]
			b.expect(v.String(), out, c.status, code, c.charged, false, v == x402.Paid)
			if failed := out.Receipt != nil && !out.Receipt.Success; failed != c.failed || len(seen.asked) == 0 {
				t.Errorf("%s: PAYMENT-RESPONSE %+v, asked %d times", v, out.Receipt, len(seen.asked))
			}
		})
	}
}

// The chain is told whether the payment may be our own, and its transaction
// where the facilitator named one; why it cannot tell is logged.
func TestWhatTheChainIsAsked(t *testing.T) {
	for _, s := range []x402.Settlement{{Class: x402.Unknown, Transaction: tx}, usedNonce()} {
		within(t, nil, func(t *testing.T, b *harness) {
			lost := errors.New("the node is away")
			seen := &fakeEvidence{f: x402.Finding{Cause: lost}}
			b.withParts(nil, seen)
			b.settle = settles(s, x402.Settlement{Class: x402.NotSent})
			h := b.sign(nil)
			out := b.ask(h, "GET /a")
			b.expect(s.Class.String(), out, 503, fault.SettlementUncertain, "null", true, false)
			b.ask(h, "GET /a")
			for i, q := range seen.asked {
				if q.Sent != (s.Class == x402.Unknown || i == 1) || q.Transaction != s.Transaction || !errors.Is(out.Trace.Cause, lost) {
					t.Errorf("%s: asked %+v, cause %v", s.Class, q, out.Trace.Cause)
				}
			}
			if len(seen.asked) != 2 {
				t.Errorf("%s: asked %d times", s.Class, len(seen.asked))
			}
		})
	}
}

// A settlement that comes too late for its lookup, and whose record may fail, begins
// none, uses none up and gives none away.
func TestLateSettlement(t *testing.T) {
	for _, fails := range []ledgertest.Fault{ledgertest.None, ledgertest.FailBefore, ledgertest.FailAfter} {
		within(t, ledgertest.Failing(ledgertest.Replace, fails, 1), func(t *testing.T, b *harness) {
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
			b.work = looksUp(lookup.DNSTimeout)
			h := b.sign(nil)
			b.expect("late", b.ask(h, "GET /a"), 504, lookup.DNSTimeout, "true", true, true)
			b.expectCalls("late", 1, 0)
			for range ledger.MaxLookups + 2 {
				time.Sleep(11 * time.Minute)
				b.ask(h, "GET /a")
			}
			b.expectCalls("in all", 1, ledger.MaxLookups)
		})
	}
}
