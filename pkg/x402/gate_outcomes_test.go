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
		{"refused", x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"nonce used, first attempt", x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"unavailable", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, 503, fault.FacilitatorUnavailable, "false", true, ledger.Refused},
		{"misconfigured", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorMisconfigured}, 503, fault.FacilitatorMisconfigured, "false", true, ledger.Refused},
		{"unauthorized", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"unknown", x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"forgotten class", x402.Settlement{}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				b.settle = settles(c.s, moved())
				h := b.sign(nil)
				out := b.ask(h, "GET /a")
				b.expect("first", out, c.status, c.code, c.charged, c.retryable, false)
				if last := out.Trace.States[len(out.Trace.States)-1]; last != c.state {
					t.Errorf("state %s, want %s", last, c.state)
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

// In doubt, a refusal proves nothing, and a used nonce means paid.
func TestDoubt(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		script := []x402.Settlement{
			{Class: x402.Unknown, Reason: "timeout", Transaction: tx},
			{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"},
			{Class: x402.NotSent, Code: fault.FacilitatorUnavailable},
			{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true},
		}
		b.settle = settles(script...)
		h := b.sign(nil)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("refused in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("not sent in doubt", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "null", true, false)
		out := b.ask(h, "GET /a")
		b.expect("nonce used in doubt", out, 200, "", "true", false, true)
		if out.Receipt.Transaction != tx {
			t.Errorf("the known transaction is not in the receipt: %+v", out.Receipt)
		}
	})
}

// If the store fails before sending, nothing is sent. If it fails after the
// settlement, the payer gets the answer, and a later write completes the record.
func TestStoreFaults(t *testing.T) {
	for _, f := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		within(t, ledgertest.Failing(ledgertest.Create, f, 1), func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.expect("store down", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
			b.expectCalls("store down", 0, 0)
			time.Sleep(31 * time.Second)
			b.expect("store up", b.ask(h, "GET /a"), 200, "", "true", false, true)
			b.expectCalls("store up", 1, 1)
		})
		for _, calls := range [][]int{{1}, {2}, {1, 2}} {
			within(t, ledgertest.Failing(ledgertest.Replace, f, calls...), func(t *testing.T, b *harness) {
				b.settle = settles(moved(), x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true})
				h := b.sign(nil)
				what := fmt.Sprintf("writes %v fail with %d", calls, f)
				b.expect(what, b.ask(h, "GET /a"), 200, "", "true", false, true)
				time.Sleep(31 * time.Second)
				b.expect(what+", again", b.ask(h, "GET /a"), 200, "", "true", false, true)
			})
		}
	}
}

// The answer to wrong parameters with a payment that was used before says whether
// that payment was charged.
func TestInvalidAfterPayment(t *testing.T) {
	invalid := fault.New(fault.InvalidDomain, nil)
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = looksUp(fault.DNSTimeout)
		h := b.sign(nil)
		b.expect("never seen", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "false", false, false)
		b.expect("owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.expect("owed, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "true", false, true)
		time.Sleep(10 * time.Minute)
		b.expect("past the window", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "true", false, true)
		b.expectCalls("invalid", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h := b.sign(nil)
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("in doubt, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "null", false, false)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
		h := b.sign(nil)
		b.expect("refused", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		b.expect("refused, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "false", false, false)
	})
	within(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Fetch {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		b.expect("no ledger", b.askWith(b.sign(nil), "GET /a", invalid), 400, fault.InvalidDomain, "null", false, false)
	})
}

// A verdict that could not be recorded is reported to the operator, whatever the
// answer to the payer is; a verdict that is on record is not.
func TestUnrecorded(t *testing.T) {
	refusal := x402.Settlement{Class: x402.Refused, Reason: "no"}
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
		{"refusal", refusal, 1, nil, 503},
		{"refused", refusal, 0, nil, 402},
		{"given back", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, 1, nil, 503},
		{"doubt", x402.Settlement{Class: x402.Unknown}, 1, nil, 503},
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
	never := &fakeEvidence{f: x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}}
	for _, c := range []struct {
		name     string
		s        x402.Settlement
		evidence *fakeEvidence
		code     fault.Code
	}{
		{"disproved", x402.Settlement{Class: x402.Unknown}, never, fault.SettlementUncertain},
		{"refused", x402.Settlement{Class: x402.Refused, Reason: "no"}, nil, fault.SettlementUncertain},
		{"not sent", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, nil, fault.FacilitatorUnauthorized},
		{"unknown", x402.Settlement{Class: x402.Unknown}, nil, fault.SettlementUncertain},
	} {
		for _, lost := range []bool{false, true} {
			fails := 1
			if lost {
				fails = 0
			}
			within(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, fails), func(t *testing.T, b *harness) {
				if c.evidence != nil {
					b.withParts(nil, c.evidence)
				}
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
