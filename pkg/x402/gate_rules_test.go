package x402_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
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
	t.Run("before the settlement is written", func(t *testing.T) {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.settle = func(context.Context, int) x402.Settlement { b.takeOver(h); return moved() }
			out := b.ask(h, "GET /a")
			b.expect("lost", out, 503, fault.SettlementUncertain, "true", true, true)
			if r := b.stored(h); r.State != ledger.Settled || r.Receipt == nil {
				t.Errorf("the receipt is not on record: %+v", r)
			}
			b.expect("beside the other", b.ask(h, "GET /a"), 409, fault.PaymentInProgress, "true", true, true)
			time.Sleep(31 * time.Second)
			b.expect("the retry", b.ask(h, "GET /a"), 200, "", "true", false, true)
		})
	})
	t.Run("before the answer is written", func(t *testing.T) {
		within(t, nil, func(t *testing.T, b *harness) {
			h := b.sign(nil)
			b.work = func(_ context.Context, n int) ([]byte, error) {
				if time.Sleep(time.Second); n == 1 { // the settlement is on record by now
					b.takeOver(h)
				}
				return fmt.Appendf(nil, `{"answer":%d}`, n), nil
			}
			b.expect("lost", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "true", true, true)
			time.Sleep(31 * time.Second)
			out := b.ask(h, "GET /a")
			b.expect("the retry", out, 200, "", "true", false, true)
			if again := b.ask(h, "GET /a"); !again.Replayed || !bytes.Equal(again.Body, out.Body) {
				t.Errorf("answered %s, then %s", out.Body, again.Body)
			}
		})
	})
}

// A request during the lookup of the same payment already gets the receipt, and is
// told that it was charged.
func TestInFlightAfterSettlement(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		var beside x402.Outcome
		b.work = func(context.Context, int) ([]byte, error) {
			time.Sleep(time.Second)
			beside = b.ask(h, "GET /a")
			return []byte("{}"), nil
		}
		out := b.ask(h, "GET /a")
		b.expect("beside the lookup", beside, 409, fault.PaymentInProgress, "true", true, true)
		if *beside.Receipt != *out.Receipt || beside.Fault.Wait() < time.Second {
			t.Errorf("receipt %+v, Retry-After %s", beside.Receipt, beside.Fault.Wait())
		}
	})
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		b.settle = settles(x402.Settlement{Class: x402.NotSent})
		b.ask(h, "GET /a")
		var beside x402.Outcome
		b.settle = func(context.Context, int) x402.Settlement { beside = b.ask(h, "GET /a"); return moved() }
		b.ask(h, "GET /a")
		b.expect("beside the settlement", beside, 409, fault.PaymentInProgress, "null", true, false)
	})
}

// A claim that finds a refused payment and is overtaken by another claim: the
// payment may be in settlement again.
func TestInFlightAfterARefusal(t *testing.T) {
	var b *harness
	var h string
	armed := false
	within(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Replace && armed {
			armed = false
			b.takeOver(h)
		}
		return ledgertest.None
	}, func(t *testing.T, inner *harness) {
		b = inner
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
		h = b.sign(nil)
		b.expect("refused", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		time.Sleep(time.Second)
		armed = true
		b.expect("too late", b.ask(h, "GET /a"), 409, fault.PaymentInProgress, "null", true, false)
		b.expectCalls("too late", 1, 0)
	})
}

// In doubt, a refusal by the facilitator decides nothing: the chain is asked.
func TestRefusedInDoubtAsksTheChain(t *testing.T) {
	for _, s := range []x402.Settlement{
		{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"},
		{Class: x402.NotSent, Code: fault.FacilitatorUnavailable},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{}
			b.withParts(nil, seen)
			b.settle = settles(x402.Settlement{Class: x402.Unknown, Transaction: tx})
			h := b.sign(nil)
			b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			b.settle, seen.f = settles(s), x402.Finding{Verdict: x402.Paid, Transaction: tx}
			b.expect(s.Class.String(), b.ask(h, "GET /a"), 200, "", "true", false, true)
			if len(seen.asked) != 2 || !seen.asked[1].Sent {
				t.Errorf("%s: the chain was asked %+v", s.Class, seen.asked)
			}
		})
	}
}

// Proof from the chain ends doubt: the payer is told that nothing moved, and the
// record becomes refused.
func TestDisprovedInDoubt(t *testing.T) {
	for _, s := range []x402.Settlement{{}, {Class: x402.Refused, Reason: "no"}, {Class: x402.NotSent}} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{}
			b.withParts(nil, seen)
			b.settle = settles(x402.Settlement{Class: x402.Unknown})
			h := b.sign(nil)
			b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			b.settle, seen.f = settles(s), x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
			out := b.ask(h, "GET /a")
			b.expect(s.Class.String(), out, 402, fault.PaymentRequired, "false", false, false)
			if r := b.stored(h); r.State != ledger.Refused || r.Doubt || r.Reason != seen.f.Reason || out.Receipt == nil {
				t.Errorf("%s: %s, doubt %t, reason %q, PAYMENT-RESPONSE %+v", s.Class, r.State, r.Doubt, r.Reason, out.Receipt)
			}
		})
	}
}

// A transfer counts from the first claim of its payment, however often it was
// claimed since.
func TestSinceIsTheFirstClaim(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		seen := &fakeEvidence{}
		b.withParts(nil, seen)
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h, first := b.sign(nil), time.Now()
		for range 3 {
			b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			time.Sleep(time.Minute)
		}
		for i, q := range seen.asked {
			if !q.Since.Equal(first) {
				t.Errorf("question %d: since %s, want %s", i, q.Since, first)
			}
		}
	})
}

// A slot is given back however the request ends.
func TestSlotsAreGivenBack(t *testing.T) {
	for name, s := range map[string]x402.Settlement{
		"refused": {Class: x402.Refused, Reason: "no"}, "not sent": {Class: x402.NotSent}, "unknown": {},
		"moved": moved(),
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			r := &countedSlots{}
			b.withParts(r, nil)
			b.settle = settles(s)
			b.ask(b.sign(nil), "GET /a")
			if r.taken != 1 || r.released != 1 {
				t.Errorf("%s: %d slots taken, %d given back", name, r.taken, r.released)
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
		slow := &slowSlots{}
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
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
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
		asked := map[time.Duration]int{}
		begun := time.Now()
		for range 1200 { // 4 minutes, at a client's whole limit
			before, writes := len(b.settles), b.store.Calls(ledgertest.Replace)
			out := b.ask(h, "GET /a")
			b.expect("refused", out, 402, fault.PaymentRequired, "false", false, false)
			if out.Receipt == nil || out.Receipt.ErrorReason != no.Reason {
				t.Fatalf("%+v", out)
			}
			if len(b.settles) > before {
				asked[time.Since(begun)]++
			} else if b.store.Calls(ledgertest.Replace) != writes {
				t.Fatal("a repeat that is answered from the record is written")
			}
			time.Sleep(200 * time.Millisecond)
		}
		if want := map[time.Duration]int{0: 1, time.Second: 1, 11 * time.Second: 1, 71 * time.Second: 1, 131 * time.Second: 1, 191 * time.Second: 1}; !reflect.DeepEqual(asked, want) {
			t.Errorf("asked after %v", asked)
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

// After the last lookup every error says that a refund is due, and none asks for
// another try.
func TestLastErrorNamesTheRefund(t *testing.T) {
	for _, code := range []fault.Code{fault.DNSTimeout, fault.InternalError} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.work = looksUp(code)
			h := b.sign(nil)
			for n := 1; n <= ledger.MaxLookups+1; n++ {
				out := b.ask(h, "GET /a")
				if out.Fault.Code != code || out.Standing.Retryable != (n < ledger.MaxLookups) {
					t.Errorf("%s, request %d: %v, retryable %v", code, n, out.Fault, out.Standing.Retryable)
				}
				said := out.Fault.Public()
				if refund := strings.HasSuffix(said, "a refund is due."); refund != (n >= ledger.MaxLookups) || refund && strings.Contains(said, "retry") {
					t.Errorf("%s, request %d: %q", code, n, said)
				}
				time.Sleep(11 * time.Minute)
			}
		})
	}
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
			b.withParts(&slowSlots{20 * time.Second}, nil)
			armed = true
			b.expect("no time", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
			b.expectCalls("no time", 1, ledger.MaxLookups-1)
		})
	}
}
