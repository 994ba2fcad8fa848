package x402_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A "no" with a failed PAYMENT-RESPONSE tells the payer to sign anew, so it
// needs proof; these are the places where a word of the facilitator's is none.

func contractPayer(d *x402test.Draft) {
	d.Payload.Payload.Authorization.From = "0x2222222222222222222222222222222222222222"
}

// another is the same authorization with another signature.
func another(t *testing.T, d x402test.Draft) string {
	t.Helper()
	d.Payload.Extensions = maps.Clone(d.Payload.Extensions)
	delete(d.Payload.Extensions, "retry-token") // which is not on the chain
	d.Payload.Payload.Signature = "0x" + strings.Repeat("ab", 100)
	h, err := x402.EncodeHeader(d.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func settles(s x402.Settlement) func(context.Context, int) x402.Settlement {
	return func(context.Context, int) x402.Settlement { return s }
}

// Facilitators look at the window before they look at the nonce. So a refusal
// at its end asks the chain, and without an answer nobody knows.
func TestRefusedAtTheEndOfTheWindow(t *testing.T) {
	for _, c := range []struct {
		f       x402.Finding
		status  int
		code    fault.Code
		charged string
		receipt bool
	}{
		{x402.Finding{}, 503, fault.SettlementUncertain, "null", false},
		{x402.Finding{Verdict: x402.StillOpen}, 402, fault.PaymentRequired, "false", false},
		{x402.Finding{Verdict: x402.NeverPaid, Reason: "expired"}, 402, fault.PaymentRequired, "false", false},
		{x402.Finding{Verdict: x402.Paid, Transaction: tx}, 200, "", "true", true},
	} {
		within(t, nil, func(t *testing.T, b *bench) {
			seen := &fakeEvidence{f: c.f}
			b.with(nil, seen)
			b.settle = func(context.Context, int) x402.Settlement {
				time.Sleep(10 * time.Second)
				return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true}
			}
			h := b.sign(func(d *x402test.Draft) {
				d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 8)
			})
			b.expect(c.f.Verdict.String(), b.ask(h, "GET /a"), c.status, c.code, c.charged, c.code == fault.SettlementUncertain, c.receipt)
			if len(seen.asked) != 1 {
				t.Errorf("%s: the chain was asked %d times", c.f.Verdict, len(seen.asked))
			}
		})
	}
}

// A payment that was refused, and that a third party submitted since: when its
// window is over too, it is not called unpaid before the chain was asked.
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
		within(t, nil, func(t *testing.T, b *bench) {
			seen := &fakeEvidence{f: c.f}
			b.with(nil, seen)
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

// The end of the window is the facilitator's to say, also when our clock is
// behind: the chain is asked then, too.
func TestExpiredByTheFacilitatorsClock(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.with(nil, &fakeEvidence{f: x402.Finding{}})
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true})
		b.expect("minutes before the end", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
	})
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
		within(t, nil, func(t *testing.T, b *bench) {
			lost := errors.New("the node is away")
			seen := &fakeEvidence{f: x402.Finding{Cause: lost}}
			b.with(nil, seen)
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

// Two seconds are the least that is worth sending a payment with.
func TestNoTimeToSettle(t *testing.T) {
	for late, sent := range map[time.Duration]int{15 * time.Second: 1, 15*time.Second + time.Millisecond: 0, time.Minute: 0} {
		within(t, nil, func(t *testing.T, b *bench) {
			b.with(&slowRoom{late: late}, nil)
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

// slowRoom has a slot, late.
type slowRoom struct{ late time.Duration }

func (s *slowRoom) Acquire(context.Context, string, time.Time) (x402.Slot, error) {
	time.Sleep(s.late)
	return s, nil
}

func (s *slowRoom) Release(context.Context) error { return nil }

// A contract wallet's authorization goes on with the signature that it was
// claimed with. Another one could be anybody's, since what is on the chain can be
// copied from there: it opens nothing, asks nobody, raises no alarm, and is not
// told that nothing was charged when something was.
func TestSecondSignatureOfOneAuthorization(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
		var draft x402test.Draft
		first := b.sign(func(d *x402test.Draft) { contractPayer(d); draft = *d })
		b.expect("owed", b.ask(first, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(time.Second)
		b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), nil }
		verifies, writes := b.verifys, b.store.Calls(ledgertest.Create)+b.store.Calls(ledgertest.Replace)
		for _, says := range []x402.Verification{
			{Valid: true}, {Reason: x402.ReasonNonceUsed, NonceUsed: true}, {Reason: "invalid_exact_evm_insufficient_balance"},
		} {
			b.verify = says
			out := b.ask(another(t, draft), "GET /a")
			b.expect("second", out, 402, fault.PaymentRequired, "true", false, false)
			if out.Trace.Unrecorded {
				t.Error("it raises an alarm")
			}
		}
		if b.verifys != verifies || b.store.Calls(ledgertest.Create)+b.store.Calls(ledgertest.Replace) != writes {
			t.Error("it costs a call or a write")
		}
		b.expect("first, again", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.counts("two signatures", 1, 2)
	})
}

// The facilitator cannot check a contract wallet's signature once its nonce is
// used, which a third party can do. One that was found in order before goes on
// to the chain; any other gets no answer, but is not called unpaid either: the
// scan of the chain finds its money.
func TestContractWalletPaidByAThirdParty(t *testing.T) {
	used := x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	within(t, nil, func(t *testing.T, b *bench) {
		b.with(nil, &fakeEvidence{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}})
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
		h := b.sign(contractPayer)
		b.expect("not sent", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.verify = used
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true})
		b.expect("found in order before", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	for _, seen := range []*fakeEvidence{{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}}, {}, nil} {
		within(t, nil, func(t *testing.T, b *bench) {
			if seen != nil {
				b.with(nil, seen)
			}
			b.verify = used
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("never seen", out, 402, fault.PaymentRequired, "null", false, false)
			if out.Trace.Unrecorded || b.store.Calls(ledgertest.Create) != 0 || seen != nil && len(seen.asked) != 0 {
				t.Errorf("unrecorded %t, %d writes", out.Trace.Unrecorded, b.store.Calls(ledgertest.Create))
			}
		})
	}
}

// A contract wallet's payment that is claimed while the facilitator looks at a
// copy of it is answered from the record.
func TestClaimedWhileVerified(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		inner := true
		b.onVerify = func() {
			if inner {
				inner = false
				b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
		}
		b.expect("copy", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.counts("claimed while verified", 1, 1)
	})
}

// If it is refused meanwhile, its payer is told so, and is not taken for somebody
// who copied it.
func TestRefusedWhileVerified(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		used := x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
		b.verify = x402.Verification{Valid: true}
		b.settle = func(context.Context, int) x402.Settlement { return used }
		h := b.sign(contractPayer)
		inner := true
		b.onVerify = func() {
			if inner {
				inner = false
				b.expect("first", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
				time.Sleep(2 * time.Second)
				b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
			}
		}
		out := b.ask(h, "GET /a")
		b.expect("again", out, 402, fault.PaymentRequired, "false", false, false)
		if out.Receipt == nil || out.Receipt.ErrorReason != x402.ReasonNonceUsed {
			t.Errorf("the payer is told %+v, want the reason of the refusal", out.Receipt)
		}
		b.counts("refused while verified", 2, 0)
	})
}

// An answer that was given late in the day is had again for a day.
func TestReplayCountsFromTheAnswer(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(_ context.Context, n int) ([]byte, error) {
			if n == 1 {
				return nil, fault.New(fault.DNSTimeout, nil)
			}
			return []byte("{}"), nil
		}
		h := b.sign(nil)
		b.expect("owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(24*time.Hour - time.Minute)
		b.expect("answered", b.ask(h, "GET /a"), 200, "", "true", false, true)
		time.Sleep(24 * time.Hour)
		b.expect("a day later", b.ask(h, "GET /a"), 200, "", "true", false, true)
		time.Sleep(time.Second)
		b.expect("more than a day later", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, true)
	})
}

// Nobody is asked to come back when the day will be over by then.
func TestRetryableWithinTheDay(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
		h := b.sign(nil)
		b.expect("first", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		time.Sleep(24*time.Hour - 9*time.Second)
		out := b.ask(h, "GET /a") // the next would be ten seconds later
		b.expect("nine seconds before the end", out, 504, fault.DNSTimeout, "true", false, true)
		if out.Fault.Wait() != 0 {
			t.Errorf("Retry-After %s", out.Fault.Wait())
		}
		b.expect("again", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", false, true)
		b.counts("in all", 1, 2)
	})
}

// A settlement that comes too late for its lookup, and whose record fails, uses
// up no lookup and gives none away.
func TestLateSettlementNotRecorded(t *testing.T) {
	for _, fails := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		within(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
			if op == ledgertest.Replace && n == 1 {
				return fails
			}
			return ledgertest.None
		}, func(t *testing.T, b *bench) {
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
			b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
			h := b.sign(nil)
			b.expect("late", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
			for range ledger.MaxLookups + 2 {
				time.Sleep(11 * time.Minute)
				b.ask(h, "GET /a")
			}
			b.counts("in all", 1, ledger.MaxLookups)
		})
	}
}
