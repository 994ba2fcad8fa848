package x402_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const primaryName, fallbackName = "primary.example", "fallback.example/x402"

// twoFacilitators is a harness with two facilitators and, if seen is given, chain
// evidence. It records who was asked, in order: "p" is the primary, "f" the
// fallback, "c" the chain.
type twoFacilitators struct {
	*harness
	primary, fallback func(ctx context.Context) x402.Settlement
	chain             func() x402.Finding // nil: no view of the chain
	verifies          func(name string) x402.Verification
	asked             string
	left              []time.Duration // that each call had
	header            string          // of the payment; its record must name who is asked
}

// oneOfTwo is one of the two facilitators.
type oneOfTwo struct {
	*twoFacilitators
	name string
}

func (s oneOfTwo) Settle(ctx context.Context, _ x402.Payload, _ x402.Requirements) x402.Settlement {
	s.asked += s.name[:1]
	s.left = append(s.left, left(ctx))
	if s.header != "" {
		if r := s.stored(s.header); !slices.Contains(r.Asked, s.name) || r.State != ledger.Settling {
			s.t.Errorf("%s is asked, and the record, %s, names %v", s.name, r.State, r.Asked)
		}
	}
	if s.name == primaryName {
		return s.primary(ctx)
	}
	return s.fallback(ctx)
}

func (s oneOfTwo) Verify(ctx context.Context, _ x402.Payload, _ x402.Requirements) x402.Verification {
	s.asked += s.name[:1]
	s.left = append(s.left, left(ctx))
	return s.verifies(s.name)
}

func (p *twoFacilitators) Find(ctx context.Context, _ x402.Question) x402.Finding {
	p.asked += "c"
	p.left = append(p.left, left(ctx))
	return p.chain()
}

// withFallback gives the Gate two facilitators; seen is what the chain says, nil for
// no view of it.
func (b *harness) withFallback(seen func() x402.Finding) *twoFacilitators {
	p := &twoFacilitators{harness: b, chain: seen, primary: says(moved()), fallback: says(moved())}
	p.restart()
	return p
}

// restart is another process with the same ledger: its breakers are new.
func (p *twoFacilitators) restart() {
	p.build(func(c *x402.Gate) {
		c.Facilitator = oneOfTwo{p, primaryName}
		c.Fallback = &x402.Fallback{Facilitator: oneOfTwo{p, fallbackName}, Primary: primaryName, Name: fallbackName, Now: time.Now}
		if p.chain != nil {
			c.Evidence = p
		}
	})
}

// was returns who was asked since the last time.
func (p *twoFacilitators) was() string {
	asked := p.asked
	p.asked = ""
	return asked
}

func says(s x402.Settlement) func(context.Context) x402.Settlement {
	return func(context.Context) x402.Settlement { return s }
}

// hangs is a facilitator that never answers.
func hangs(ctx context.Context) x402.Settlement {
	<-ctx.Done()
	return x402.Settlement{Class: x402.Unknown, Reason: "timeout", NoVerdict: true}
}

// What a facilitator's client can come back with.
func unreached() x402.Settlement {
	return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed"}
}

func turned() x402.Settlement {
	return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "http_401"}
}

func lost() x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: "connection_lost", NoVerdict: true}
}

// reverted is a transaction that was broadcast and has failed.
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

// Every reply of the primary with every reply of the fallback: who is asked, in
// which order, and the result.
func TestFallback(t *testing.T) {
	onChain := func(v x402.Verdict) func() x402.Finding {
		return func() x402.Finding { return x402.Finding{Verdict: v, Transaction: tx} }
	}
	// A fallback that says that it settled is believed as soon as the chain has it: a
	// node can be some blocks behind.
	behind := 0
	later := func() x402.Finding {
		behind++
		return onChain(map[bool]x402.Verdict{true: x402.Paid, false: x402.StillOpen}[behind == 4])()
	}
	open, paid, unseen := onChain(x402.StillOpen), onChain(x402.Paid), onChain(x402.CannotTell)
	for name, c := range map[string]struct {
		primary, fallback x402.Settlement
		chain             func() x402.Finding
		asked             string
		status            int
		code              fault.Code
		state             ledger.State
		refusedBy         string
	}{
		"primary settles":      {moved(), moved(), open, "p", 200, "", ledger.Redeemed, ""},
		"not reached":          {unreached(), moved(), open, "pf", 200, "", ledger.Redeemed, ""},
		"turned away":          {turned(), moved(), open, "pf", 200, "", ledger.Redeemed, ""},
		"refused":              {declined(), moved(), open, "p", 402, fault.PaymentRequired, ledger.Refused, primaryName},
		"screened at the door": {screened(), moved(), open, "p", 503, fault.FacilitatorUnauthorized, ledger.Refused, primaryName},
		"used, for another":    {usedNonce(), moved(), open, "pc", 503, fault.SettlementUncertain, ledger.Uncertain, primaryName},
		"used, by us":          {usedNonce(), moved(), paid, "pc", 200, "", ledger.Redeemed, ""},
		"lost, chain has it":   {lost(), moved(), paid, "ppc", 200, "", ledger.Redeemed, ""},
		"lost, chain not":      {lost(), turned(), open, "ppcfc", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"lost, fallback down":  {lost(), unreached(), open, "ppcf", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"lost, fallback lies":  {lost(), moved(), open, "ppcfccccc", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"lost, node behind":    {lost(), moved(), later, "ppcfccc", 200, "", ledger.Redeemed, ""},
		"lost, fallback no":    {lost(), declined(), open, "ppcfc", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"lost, blind":          {lost(), moved(), nil, "ppf", 200, "", ledger.Redeemed, ""},
		"lost, blind, used":    {lost(), usedNonce(), nil, "ppf", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"lost, node down":      {lost(), moved(), unseen, "ppcfccccc", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"nobody":               {unreached(), unreached(), open, "pf", 503, fault.FacilitatorUnavailable, ledger.Refused, ""},
		"door and nobody":      {turned(), unreached(), open, "pf", 503, fault.FacilitatorUnauthorized, ledger.Refused, ""},
		"nobody and door":      {unreached(), turned(), open, "pf", 503, fault.FacilitatorUnauthorized, ledger.Refused, ""},
		"fallback refuses":     {unreached(), declined(), open, "pf", 402, fault.PaymentRequired, ledger.Refused, fallbackName},
		"fallback lost, found": {unreached(), lost(), paid, "pfc", 200, "", ledger.Redeemed, ""},
		"fallback lost":        {turned(), lost(), open, "pfc", 503, fault.SettlementUncertain, ledger.Uncertain, ""},
		"fallback used, blind": {unreached(), usedNonce(), nil, "pf", 402, fault.PaymentRequired, ledger.Refused, fallbackName},
		"door, then used":      {turned(), usedNonce(), nil, "pf", 200, "", ledger.Redeemed, ""},
		"at the door twice": {
			turned(), x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorMisconfigured}, open, "pf", 503, fault.FacilitatorUnauthorized, ledger.Refused, "",
		},
		"door, then screened":   {turned(), screened(), open, "pf", 503, fault.FacilitatorUnauthorized, ledger.Refused, fallbackName},
		"lost, and the hash is": {x402.Settlement{Class: x402.Unknown, Transaction: tx}, moved(), paid, "pc", 200, "", ledger.Redeemed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				p := b.withFallback(c.chain)
				p.primary, p.fallback = says(c.primary), says(c.fallback)
				h := b.sign(nil)
				p.header = h
				out := b.ask(h, "GET /a")
				r := b.stored(h)
				code := fault.Code("")
				if out.Fault != nil {
					code = out.Fault.Code
				}
				if out.Status != c.status || code != c.code || r.State != c.state || p.asked != c.asked || r.RefusedBy != c.refusedBy {
					t.Errorf("%s: %d %s, %s, asked %s, refused by %q; want %d %s, %s, %s, %q",
						name, out.Status, code, r.State, p.asked, r.RefusedBy, c.status, c.code, c.state, c.asked, c.refusedBy)
				}
				turned := c.primary.Class == x402.TurnedAway || strings.Contains(p.asked, "f") && c.fallback.Class == x402.TurnedAway
				if turned && r.State == ledger.Refused && !r.Sent {
					t.Errorf("%s: turned away, and not on record as sent", name)
				}
				// What the first of them said about the payer holds for other processes, too.
				p.was()
				p.primary, p.fallback = says(unreached()), says(unreached())
				time.Sleep(time.Minute)
				p.restart()
				b.ask(h, "GET /a")
				if asked := strings.Trim(p.was(), "c"); c.refusedBy != "" && asked != c.refusedBy[:1] {
					t.Errorf("%s: refused by %s, and asked again: %s", name, c.refusedBy, asked)
				}
			})
		})
	}
}

// A fallback that is asked alone, because it refused the payment before, is not
// believed in doubt either, before the chain has the payment.
func TestFallbackAloneInDoubt(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(func() x402.Finding { return x402.Finding{Verdict: x402.StillOpen} })
		p.primary, p.fallback = says(unreached()), says(declined())
		h := b.sign(nil)
		p.header = h
		b.ask(h, "GET /a")
		time.Sleep(time.Minute)
		p.fallback = says(lost())
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		p.was()
		p.fallback = says(moved())
		b.expect("it boasts", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		if asked := p.was(); asked != "fccccc" {
			t.Errorf("asked %s", asked)
		}
		p.chain = func() x402.Finding { return x402.Finding{Verdict: x402.Paid, Transaction: tx} }
		b.expect("it is true", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	// The primary is believed, also where the row does not name it, as before there was a
	// fallback.
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(func() x402.Finding { return x402.Finding{Verdict: x402.StillOpen} })
		h := b.sign(nil)
		for _, s := range []x402.Settlement{declined(), unreached(), lost(), moved()} {
			p.primary = says(s)
			p.was()
			b.ask(h, "GET /a")
			time.Sleep(time.Minute)
			if asked := strings.Trim(p.was(), "c"); asked != "p" {
				t.Errorf("the primary alone: asked %s", asked)
			}
			if s.Class != x402.Moved {
				b.rewrite(h, func(r *ledger.Record) { r.Asked, r.RefusedBy = nil, "" })
			}
		}
		if r := b.stored(h); r.State != ledger.Redeemed {
			t.Errorf("the primary alone: %s", r.State)
		}
	})
}

// A signature is verified by the fallback when the primary gives no verdict. A
// reason about the payer is final.
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
		within(t, nil, func(t *testing.T, b *harness) {
			p := b.withFallback(nil)
			p.verifies = func(name string) x402.Verification {
				if name == primaryName {
					return c.primary
				}
				return c.fallback
			}
			out := b.ask(b.sign(contractPayer), "GET /a")
			if out.Status != c.status || p.asked != c.asked {
				t.Errorf("%s: %d, asked %s; want %d, %s", name, out.Status, p.asked, c.status, c.asked)
			}
			if p.left[0] != 1500*time.Millisecond {
				t.Errorf("%s: the primary had %s", name, p.left[0])
			}
		})
	}
}

// A primary that hangs delays five payments, each of which gets its answer; then its
// breaker is open. One payment at a time tries whether it answers again.
func TestPrimaryHangs(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		settled := false
		p := b.withFallback(func() x402.Finding {
			if settled {
				return x402.Finding{Verdict: x402.Paid, Transaction: tx}
			}
			return x402.Finding{Verdict: x402.StillOpen}
		})
		p.primary = hangs
		p.fallback = func(context.Context) x402.Settlement { settled = true; return moved() }
		for i := range 5 {
			settled = false
			begun := time.Now()
			b.expect("hangs", b.ask(b.sign(nil), fmt.Sprint("GET /", i)), 200, "", "true", false, true)
			if asked, took := p.was(), time.Since(begun); asked != "ppcfc" || took > 13*time.Second {
				t.Errorf("payment %d: asked %s, took %s", i, asked, took)
			}
		}
		begun := time.Now()
		b.expect("left alone", b.ask(b.sign(nil), "GET /5"), 200, "", "true", false, true)
		if asked, took := p.was(), time.Since(begun); asked != "f" || took > 0 {
			t.Errorf("breaker open: asked %s, took %s", asked, took)
		}
		time.Sleep(30 * time.Second)
		settled = false
		p.primary = func(ctx context.Context) x402.Settlement { // another comes while one tries
			p.primary = hangs
			b.expect("beside it", b.ask(b.sign(nil), "GET /7"), 200, "", "true", false, true)
			return hangs(ctx)
		}
		b.expect("one tries", b.ask(b.sign(nil), "GET /6"), 200, "", "true", false, true)
		b.expect("still down", b.ask(b.sign(nil), "GET /10"), 200, "", "true", false, true)
		if asked := p.was(); asked != "pfpcf" {
			t.Errorf("half open: asked %s", asked)
		}
		p.primary = says(moved())
		time.Sleep(30 * time.Second)
		b.expect("up again", b.ask(b.sign(nil), "GET /8"), 200, "", "true", false, true)
		b.expect("closed", b.ask(b.sign(nil), "GET /9"), 200, "", "true", false, true)
		if asked := p.was(); asked != "pp" {
			t.Errorf("closed: asked %s", asked)
		}
	})
}

// Every call hangs: the time limit of each. Their sum is what the longest lookup
// leaves of a request.
func TestBudgetsWithAFallback(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(nil)
		p.chain = func() x402.Finding { time.Sleep(p.left[len(p.left)-1]); return x402.Finding{} }
		p.restart()
		p.primary, p.fallback = hangs, hangs
		b.expect("hanging", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		want := []time.Duration{4 * time.Second, 2 * time.Second, 2 * time.Second, 4 * time.Second, 2 * time.Second}
		if fmt.Sprint(p.left) != fmt.Sprint(want) {
			t.Errorf("%s had %v, want %v", p.asked, p.left, want)
		}
	})
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(nil)
		p.fallback = hangs
		p.primary = func(ctx context.Context) x402.Settlement { time.Sleep(4 * time.Second); return unreached() }
		b.expect("hanging", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		if want := []time.Duration{4 * time.Second, 5 * time.Second}; fmt.Sprint(p.left) != fmt.Sprint(want) {
			t.Errorf("%s had %v, want %v", p.asked, p.left, want)
		}
	})
}

// Time-outs of payments whose signer was not recovered close no facilitator: the
// contract of a wallet can cause them.
func TestTimeoutsOfContractWallets(t *testing.T) {
	for asked, payer := range map[string]func(*x402test.Draft){"p": contractPayer, "f": nil} {
		within(t, nil, func(t *testing.T, b *harness) {
			p := b.withFallback(nil)
			p.primary = hangs
			p.verifies = func(string) x402.Verification { return x402.Verification{Valid: true} }
			for i := range 6 {
				b.ask(b.sign(payer), fmt.Sprint("GET /", i))
			}
			p.primary = says(moved())
			p.was()
			b.expect("an account", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
			if got := p.was(); got != asked {
				t.Errorf("asked %s, want %s", got, asked)
			}
		})
	}
}
