package x402_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// hang plays a facilitator that never answers. It waits until ctx ends, and then returns what
// the client of a facilitator returns after a time-out.
func hang(ctx context.Context, _ int) x402.Settlement {
	<-ctx.Done()
	return x402.Settlement{Class: x402.Unknown, Reason: "timeout", NoDecision: true}
}

// Each of the following functions returns a Settlement that the client of a facilitator can
// return.
func unreached() x402.Settlement {
	return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed"}
}

func turnedAway() x402.Settlement {
	return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "http_401"}
}

func lostReply() x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: "connection_lost", NoDecision: true}
}

// reverted returns the result for a transaction that was broadcast and then failed.
func reverted() x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: "invalid_exact_evm_transaction_failed", Transaction: tx}
}

func declined() x402.Settlement {
	return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
}

func usedNonce() x402.Settlement {
	return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
}

func screened() x402.Settlement {
	return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "kyt_risk_detected", AboutPayer: true}
}

// TestFallback plays pairs of replies from the primary and the fallback, with different answers
// of the chain. It checks who is asked in which order, and the outcome. Then a new process gets
// the same payment. If a facilitator has refused the payment for a reason about the payer, the
// new process must ask no other facilitator.
func TestFallback(t *testing.T) {
	// later plays a node that is some blocks behind: it shows the transfer only when the chain
	// is asked for the fourth time. Only then does the fallback's report of a settlement count.
	behind := 0
	later := func() x402.Finding {
		behind++
		if behind == 4 {
			return chainShowing(x402.Paid)()
		}
		return chainShowing(x402.StillOpen)()
	}
	open, paid, unseen := chainShowing(x402.StillOpen), chainShowing(x402.Paid), chainShowing(x402.CannotTell)
	for name, c := range map[string]pairRow{
		"primary settles":      {primary: moved(), fallback: moved(), chain: open, wantLetters: "p", status: 200, state: ledger.Redeemed},
		"not reached":          {primary: unreached(), fallback: moved(), chain: open, wantLetters: "pf", status: 200, state: ledger.Redeemed},
		"turned away":          {primary: turnedAway(), fallback: moved(), chain: open, wantLetters: "pf", status: 200, state: ledger.Redeemed},
		"refused":              {primary: declined(), fallback: moved(), chain: open, wantLetters: "p", status: 402, code: fault.PaymentRequired, state: ledger.Refused, refusedBy: primaryName},
		"screened at the door": {primary: screened(), fallback: moved(), chain: open, wantLetters: "p", status: 503, code: fault.FacilitatorUnauthorized, state: ledger.Refused, refusedBy: primaryName},
		"used, for another":    {primary: usedNonce(), fallback: moved(), chain: open, wantLetters: "pc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain, refusedBy: primaryName},
		"used, by us":          {primary: usedNonce(), fallback: moved(), chain: paid, wantLetters: "pc", status: 200, state: ledger.Redeemed},
		"lost, chain has it":   {primary: lostReply(), fallback: moved(), chain: paid, wantLetters: "ppc", status: 200, state: ledger.Redeemed},
		"lost, chain not":      {primary: lostReply(), fallback: turnedAway(), chain: open, wantLetters: "ppcfc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"lost, fallback down":  {primary: lostReply(), fallback: unreached(), chain: open, wantLetters: "ppcf", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"lost, fallback lies":  {primary: lostReply(), fallback: moved(), chain: open, wantLetters: "ppcfccccc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"lost, node behind":    {primary: lostReply(), fallback: moved(), chain: later, wantLetters: "ppcfccc", status: 200, state: ledger.Redeemed},
		"lost, fallback no":    {primary: lostReply(), fallback: declined(), chain: open, wantLetters: "ppcfc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"lost, blind":          {primary: lostReply(), fallback: moved(), wantLetters: "ppf", status: 200, state: ledger.Redeemed},
		"lost, blind, used":    {primary: lostReply(), fallback: usedNonce(), wantLetters: "ppf", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"lost, node down":      {primary: lostReply(), fallback: moved(), chain: unseen, wantLetters: "ppcfccccc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"nobody":               {primary: unreached(), fallback: unreached(), chain: open, wantLetters: "pf", status: 503, code: fault.FacilitatorUnavailable, state: ledger.Refused},
		"door and nobody":      {primary: turnedAway(), fallback: unreached(), chain: open, wantLetters: "pf", status: 503, code: fault.FacilitatorUnauthorized, state: ledger.Refused},
		"nobody and door":      {primary: unreached(), fallback: turnedAway(), chain: open, wantLetters: "pf", status: 503, code: fault.FacilitatorUnauthorized, state: ledger.Refused},
		"fallback refuses":     {primary: unreached(), fallback: declined(), chain: open, wantLetters: "pf", status: 402, code: fault.PaymentRequired, state: ledger.Refused, refusedBy: fallbackName},
		"fallback lost, found": {primary: unreached(), fallback: lostReply(), chain: paid, wantLetters: "pfc", status: 200, state: ledger.Redeemed},
		"fallback lost":        {primary: turnedAway(), fallback: lostReply(), chain: open, wantLetters: "pfc", status: 503, code: fault.SettlementUncertain, state: ledger.Uncertain},
		"fallback used, blind": {primary: unreached(), fallback: usedNonce(), wantLetters: "pf", status: 402, code: fault.PaymentRequired, state: ledger.Refused, refusedBy: fallbackName},
		"door, then used":      {primary: turnedAway(), fallback: usedNonce(), wantLetters: "pf", status: 200, state: ledger.Redeemed},
		"at the door twice": {
			primary: turnedAway(), fallback: x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorMisconfigured}, chain: open, wantLetters: "pf", status: 503, code: fault.FacilitatorUnauthorized, state: ledger.Refused,
		},
		"door, then screened":   {primary: turnedAway(), fallback: screened(), chain: open, wantLetters: "pf", status: 503, code: fault.FacilitatorUnauthorized, state: ledger.Refused, refusedBy: fallbackName},
		"lost, and the hash is": {primary: x402.Settlement{Class: x402.Unknown, Transaction: tx}, fallback: moved(), chain: paid, wantLetters: "pc", status: 200, state: ledger.Redeemed},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				h := b.sign(nil)
				b.askPair(h, c)
				b.askPairAgain(h, c)
			})
		})
	}
}

// pairRow holds the replies of two facilitators and the answer of the chain, and then the
// expected outcome. If chain is nil, there is no node. wantLetters has a letter for each
// expected call, in order: p for the primary, f for the fallback, and c for the chain.
type pairRow struct {
	primary, fallback x402.Settlement
	chain             func() x402.Finding
	wantLetters       string
	status            int
	code              fault.Code
	state             ledger.State
	refusedBy         string
}

// askPair sends a payment for the first time, and checks the outcome. If a facilitator turned
// the payment away, and the payment ends as refused, the record must say that the payment was
// sent.
func (b *harness) askPair(h string, c pairRow) {
	b.t.Helper()
	b.withFallback(c.chain)
	b.settle, b.fallback = settleWith(c.primary), settleWith(c.fallback)
	out := b.ask(h, "GET /a")
	r := b.storedPayment(h)
	code := fault.Code("")
	if out.Fault != nil {
		code = out.Fault.Code
	}
	if out.Status != c.status || code != c.code || r.State != c.state || b.callLetters != c.wantLetters || r.RefusedBy != c.refusedBy {
		b.t.Errorf("%d %s, %s, asked %s, refused by %q; want %d %s, %s, %s, %q",
			out.Status, code, r.State, b.callLetters, r.RefusedBy, c.status, c.code, c.state, c.wantLetters, c.refusedBy)
	}
	turned := c.primary.Class == x402.TurnedAway || strings.Contains(b.callLetters, "f") && c.fallback.Class == x402.TurnedAway
	if turned && r.State == ledger.Refused && !r.Sent {
		b.t.Error("turned away, and not on record as sent")
	}
}

// askPairAgain sends the payment again after a minute, to a new process. If a facilitator has
// refused the payment for a reason about the payer, the new process must ask only that
// facilitator. The new process may also ask the chain.
func (b *harness) askPairAgain(h string, c pairRow) {
	b.t.Helper()
	b.takeCallLetters()
	b.settle, b.fallback = settleWith(unreached()), settleWith(unreached())
	time.Sleep(time.Minute)
	b.restart()
	b.ask(h, "GET /a")
	if asked := strings.Trim(b.takeCallLetters(), "c"); c.refusedBy != "" && asked != c.refusedBy[:1] {
		b.t.Errorf("refused by %s, and asked again: %s", c.refusedBy, asked)
	}
}

// TestFallbackAloneInDoubt plays a facilitator that is asked alone, because it has refused the
// payment before. The payment is in doubt. In the first part, the fallback is asked alone. A
// success that the fallback reports must not count until the chain shows the payment.
func TestFallbackAloneInDoubt(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.withFallback(chainShowing(x402.StillOpen))
		b.settle, b.fallback = settleWith(unreached()), settleWith(declined())
		h := b.sign(nil)
		b.ask(h, "GET /a")
		time.Sleep(time.Minute)
		b.fallback = settleWith(lostReply())
		b.expect("in doubt", b.ask(h, "GET /a"), uncertain())
		b.takeCallLetters()
		b.fallback = settleWith(moved())
		b.expect("it boasts", b.ask(h, "GET /a"), uncertain())
		if asked := b.takeCallLetters(); asked != "fccccc" {
			t.Errorf("asked %s", asked)
		}
		b.chain = chainShowing(x402.Paid)
		b.expect("it is true", b.ask(h, "GET /a"), answered())
	})
	// In the second part, the primary has refused the payment, but the record does not name the
	// primary, as if there had been no fallback when the record was made. The primary must be
	// asked alone, and a success that the primary reports must count at once.
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.withFallback(chainShowing(x402.StillOpen))
		h := b.sign(nil)
		for _, s := range []x402.Settlement{declined(), unreached(), lostReply(), moved()} {
			b.settle = settleWith(s)
			b.takeCallLetters()
			b.ask(h, "GET /a")
			time.Sleep(time.Minute)
			if asked := strings.Trim(b.takeCallLetters(), "c"); asked != "p" {
				t.Errorf("the primary alone: asked %s", asked)
			}
			if s.Class != x402.Moved {
				b.rewrite(h, func(r *ledger.Payment) { r.Asked, r.RefusedBy = nil, "" })
			}
		}
		if r := b.storedPayment(h); r.State != ledger.Redeemed {
			t.Errorf("the primary alone: %s", r.State)
		}
	})
}

// TestFallbackVerifies plays replies to Verify for the payment of a contract wallet. The
// fallback must be asked to verify only if the primary decides nothing and gives no reason
// about the payer. The primary must have 1.5 seconds to verify.
func TestFallbackVerifies(t *testing.T) {
	down := x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, errors.New("down"))}
	no := x402.Verification{Reason: "invalid_exact_evm_signature", BadSignature: true}
	yes := x402.Verification{Valid: true}
	for name, c := range map[string]struct {
		primary, fallback x402.Verification
		asked             string
		status            int
	}{
		"primary":    {yes, no, "pp", 200},
		"primary no": {no, yes, "p", 402},
		"screened":   {x402.Verification{Fault: down.Fault, AboutPayer: true}, yes, "p", 503},
		"used":       {x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}, yes, "p", 402},
		"fallback":   {down, yes, "pfp", 200},
		"no":         {down, no, "pf", 402},
		"nobody":     {down, down, "pf", 503},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.withFallback(nil)
			b.verify, b.fallbackVerify = c.primary, c.fallback
			out := b.ask(b.sign(contractPayer), "GET /a")
			if out.Status != c.status || b.callLetters != c.asked {
				t.Errorf("%s: %d, asked %s; want %d, %s", name, out.Status, b.callLetters, c.status, c.asked)
			}
			if b.timeLeft[0] != 1500*time.Millisecond {
				t.Errorf("%s: the primary had %s", name, b.timeLeft[0])
			}
		})
	}
}

// TestPrimaryHangs plays a primary that hangs. First five payments are delayed, and each must be
// answered with the help of the fallback. Then the breaker of the primary is open: the next
// payment must go to the fallback without delay. Every 30 seconds, only one payment may be sent
// to the primary, to find out whether the primary answers again. Once the primary has answered,
// all payments must go to the primary again.
func TestPrimaryHangs(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		settled := false
		b.withFallback(func() x402.Finding {
			if settled {
				return x402.Finding{Fate: x402.Paid, Transaction: tx}
			}
			return x402.Finding{Fate: x402.StillOpen}
		})
		b.settle = hang
		b.fallback = func(context.Context, int) x402.Settlement { settled = true; return moved() }
		for i := range 5 {
			settled = false
			begun := time.Now()
			b.expect("hangs", b.ask(b.sign(nil), fmt.Sprint("GET /", i)), answered())
			if asked, took := b.takeCallLetters(), time.Since(begun); asked != "ppcfc" || took > 13*time.Second {
				t.Errorf("payment %d: asked %s, took %s", i, asked, took)
			}
		}
		begun := time.Now()
		b.expect("left alone", b.ask(b.sign(nil), "GET /5"), answered())
		if asked, took := b.takeCallLetters(), time.Since(begun); asked != "f" || took > 0 {
			t.Errorf("breaker open: asked %s, took %s", asked, took)
		}
		time.Sleep(30 * time.Second)
		settled = false
		b.settle = func(ctx context.Context, _ int) x402.Settlement { // while the primary hangs, another payment arrives
			b.settle = hang
			b.expect("beside it", b.ask(b.sign(nil), "GET /7"), answered())
			return hang(ctx, 0)
		}
		b.expect("one tries", b.ask(b.sign(nil), "GET /6"), answered())
		b.expect("still down", b.ask(b.sign(nil), "GET /10"), answered())
		if asked := b.takeCallLetters(); asked != "pfpcf" {
			t.Errorf("half open: asked %s", asked)
		}
		b.settle = settleWith(moved())
		time.Sleep(30 * time.Second)
		b.expect("up again", b.ask(b.sign(nil), "GET /8"), answered())
		b.expect("closed", b.ask(b.sign(nil), "GET /9"), answered())
		if asked := b.takeCallLetters(); asked != "pp" {
			t.Errorf("closed: asked %s", asked)
		}
	})
}

// TestBudgetsWithAFallback checks the time limit of each call to a facilitator or to the chain.
// In the first part, every call hangs. In the second part there is no node, the attempt to
// reach the primary fails after four seconds, and the fallback hangs.
func TestBudgetsWithAFallback(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.withFallback(func() x402.Finding { time.Sleep(b.timeLeft[len(b.timeLeft)-1]); return x402.Finding{} })
		b.settle, b.fallback = hang, hang
		b.expect("hanging", b.ask(b.sign(nil), "GET /a"), uncertain())
		want := []time.Duration{4 * time.Second, 2 * time.Second, 2 * time.Second, 4 * time.Second, 2 * time.Second}
		if fmt.Sprint(b.timeLeft) != fmt.Sprint(want) {
			t.Errorf("%s had %v, want %v", b.callLetters, b.timeLeft, want)
		}
	})
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.withFallback(nil)
		b.fallback = hang
		b.settle = func(ctx context.Context, _ int) x402.Settlement { time.Sleep(4 * time.Second); return unreached() }
		b.expect("hanging", b.ask(b.sign(nil), "GET /a"), uncertain())
		if want := []time.Duration{4 * time.Second, 5 * time.Second}; fmt.Sprint(b.timeLeft) != fmt.Sprint(want) {
			t.Errorf("%s had %v, want %v", b.callLetters, b.timeLeft, want)
		}
	})
}

// TestTimeoutsOfContractWallets plays six payments that meet a time-out of the primary. If the
// payers are contract wallets, the time-outs must not open the primary's breaker, because the
// contract of a wallet can cause a time-out. If the payers are ordinary accounts, the time-outs
// must open the breaker.
func TestTimeoutsOfContractWallets(t *testing.T) {
	for asked, payer := range map[string]func(*x402test.Draft){"p": contractPayer, "f": nil} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.withFallback(nil)
			b.settle = hang
			b.verify = x402.Verification{Valid: true}
			for i := range 6 {
				b.ask(b.sign(payer), fmt.Sprint("GET /", i))
			}
			b.settle = settleWith(moved())
			b.takeCallLetters()
			b.expect("an account", b.ask(b.sign(nil), "GET /a"), answered())
			if got := b.takeCallLetters(); got != asked {
				t.Errorf("asked %s, want %s", got, asked)
			}
		})
	}
}

// TestNotSentAgain plays a primary that hangs. First four payments meet a time-out. Then the
// first of them comes again, and is not sent again because its window is over. The log must name
// no facilitator as asked. For the breaker of the primary, this repeat must neither count as a
// time-out nor end the row of time-outs: one more time-out must open the breaker.
func TestNotSentAgain(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.withFallback(nil)
		b.settle, b.fallback = hang, hang
		b.ask(b.sign(nil), "GET /0")
		b.fallback = settleWith(moved())
		for i := range 3 {
			b.ask(b.sign(nil), fmt.Sprint("GET /", i+1))
		}
		time.Sleep(5 * time.Minute)
		b.takeCallLetters()
		out := b.ask(b.sign(nil), "GET /0")
		b.expect("past its window", out, uncertain())
		if asked := b.takeCallLetters(); asked != "" || len(out.Trace.Asked) > 0 {
			t.Errorf("asked %q, noted %+v", asked, out.Trace.Asked)
		}
		b.ask(b.sign(nil), "GET /5") // this is the fifth payment that meets a time-out
		b.takeCallLetters()
		b.expect("left alone", b.ask(b.sign(nil), "GET /6"), answered())
		if asked := b.takeCallLetters(); asked != "f" {
			t.Errorf("asked %q", asked)
		}
	})
}

// TestNoTimeToAsk plays a store that is slow to record the name of the fallback. If less than a
// second is left after that, the fallback must not be asked.
func TestNoTimeToAsk(t *testing.T) {
	withHarness(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if p, _ := r.(ledger.Payment); op == ledgertest.Replace && p.State == ledger.Settling && len(p.Asked) == 2 {
			time.Sleep(4*time.Second + time.Millisecond)
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		b.withFallback(nil)
		b.settle = settleWith(unreached())
		b.expect("no time", b.ask(b.sign(nil), "GET /a"), expected{status: 503, code: fault.FacilitatorUnavailable, charged: "false", retryable: true})
		if b.callLetters != "p" {
			t.Errorf("asked %q", b.callLetters)
		}
	})
}
