package x402_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestInvalidParametersAreNotCharged(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		b.expect("invalid", b.askWith(h, "", fault.New(fault.InvalidDomain, nil)), 400, fault.InvalidDomain, "false", false, false)
		b.expectCalls("invalid", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d creates", n)
		}
		b.expect("corrected, same signature", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	within(t, ledgertest.Failing(ledgertest.Fetch, ledgertest.FailBefore, 1), func(_ *testing.T, b *harness) {
		out := b.askWith(b.sign(nil), "GET /a", fault.New(fault.InvalidDomain, nil))
		b.expect("no ledger", out, 400, fault.InvalidDomain, "null", false, false)
	})
}

func TestSettlementOutcomes(t *testing.T) {
	for _, c := range []struct {
		name      string
		s         x402.Settlement
		status    int
		code      fault.Code
		charged   string
		retryable bool
		state     ledger.State
	}{
		{"refused", declined(), 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"nonce used, first attempt", usedNonce(), 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"unavailable", unreached(), 503, fault.FacilitatorUnavailable, "false", true, ledger.Refused},
		{"unauthorized", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"turned away", turned(), 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"unknown", x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"forgotten class", x402.Settlement{}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				b.settle = settles(c.s, moved())
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
				b.expect("same signature again", b.ask(h, "GET /a"), 200, "", "true", false, true)
				b.expectCalls("second", 2, 1)
			})
		})
	}
}

// In doubt, and without a chain, a used nonce means paid: in the transaction that was
// named before.
func TestUsedInDoubt(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = settles(x402.Settlement{Class: x402.Unknown, Reason: "timeout", Transaction: tx}, usedNonce())
		h := b.sign(nil)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		out := b.ask(h, "GET /a")
		b.expect("nonce used in doubt", out, 200, "", "true", false, true)
		if out.Receipt.Transaction != tx {
			t.Errorf("the receipt is %+v", out.Receipt)
		}
	})
}

// A verdict that could not be recorded is reported to the operator, whatever the
// answer to the payer is; a verdict that is on record is not.
func TestUnrecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		settle x402.Settlement
		fails  int // the write that fails, 0 for none
		work   error
		status int
	}{
		{"answered", moved(), 0, nil, 200},
		{"settlement", moved(), 1, nil, 200},
		{"answer", moved(), 2, nil, 200},
		{"owed lookup", moved(), 2, fault.New(fault.DNSTimeout, nil), 504},
		{"refused", declined(), 0, nil, 402},
		{"in doubt", x402.Settlement{Class: x402.Unknown}, 0, nil, 503},
	} {
		within(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, c.fails), func(t *testing.T, b *harness) {
			b.settle = settles(c.settle)
			b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), c.work }
			out := b.ask(b.sign(nil), "GET /a")
			if out.Status != c.status || out.Trace.Unrecorded != (c.fails > 0) {
				t.Errorf("%s, write %d fails: status %d, unrecorded %t", c.name, c.fails, out.Status, out.Trace.Unrecorded)
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
			fails := 1
			if lost {
				fails = 0
			}
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
