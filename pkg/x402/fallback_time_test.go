package x402_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// The primary is unreachable for an hour: every payer is served, each is settled
// once, by the fallback, and the primary is tried with one payment in 30 s only.
func TestPrimaryDownForAnHour(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(func() x402.Finding { return x402.Finding{Verdict: x402.StillOpen} })
		paid := 0
		p.fallback = func(context.Context) x402.Settlement { paid++; return moved() }
		for _, down := range []x402.Settlement{unreached(), turned()} {
			p.restart()
			p.primary = says(down)
			p.was()
			begun, payers := time.Now(), 0
			paid = 0
			for time.Since(begun) < time.Hour {
				out := b.ask(b.sign(nil), fmt.Sprint("GET /", payers, down.Reason))
				b.expect("primary down", out, 200, "", "true", false, true)
				payers++
				time.Sleep(3 * time.Second)
			}
			if asked := strings.Count(p.was(), "p"); paid != payers || asked > 4+int(time.Hour/(30*time.Second)) {
				t.Errorf("%d payers, %d settled by the fallback, the primary was asked %d times", payers, paid, asked)
			}
			p.primary = says(moved())
			time.Sleep(30 * time.Second)
			b.expect("primary up", b.ask(b.sign(nil), fmt.Sprint("GET /up", down.Reason)), 200, "", "true", false, true)
			if asked := p.was(); asked != "p" {
				t.Errorf("primary up again: asked %s", asked)
			}
		}
	})
}

// A primary that hangs delays five payments, each of which gets its answer; then its
// breaker is open. One payment at a time tries whether it answers again.
func TestPrimaryHangs(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(func() x402.Finding {
			return x402.Finding{Verdict: x402.StillOpen}
		})
		p.primary = hangs
		settled := false
		p.fallback = func(context.Context) x402.Settlement { settled = true; return moved() }
		p.chain = func() x402.Finding {
			if settled {
				return x402.Finding{Verdict: x402.Paid, Transaction: tx}
			}
			return x402.Finding{Verdict: x402.StillOpen}
		}
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
		b.expect("one tries", b.ask(b.sign(nil), "GET /6"), 200, "", "true", false, true)
		b.expect("still down", b.ask(b.sign(nil), "GET /7"), 200, "", "true", false, true)
		if asked := p.was(); asked != "ppcfcf" {
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

// Every call hangs: the time limit of each, and that their sum fits into the time
// that the longest lookup leaves.
func TestBudgetsWithAFallback(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(nil)
		p.chain = func() x402.Finding { time.Sleep(p.left[len(p.left)-1]); return x402.Finding{} }
		p.restart()
		p.primary, p.fallback = hangs, hangs
		begun := time.Now()
		b.expect("hanging", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		want := []time.Duration{4 * time.Second, 2 * time.Second, 2 * time.Second, 4 * time.Second, 2 * time.Second}
		if fmt.Sprint(p.left) != fmt.Sprint(want) {
			t.Errorf("%s had %v, want %v", p.asked, p.left, want)
		}
		if took := time.Since(begun); took > 27*time.Second-8*time.Second-2*time.Second {
			t.Errorf("took %s", took)
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

// A bundle, whose lookup takes longest, still has its 12 s after everything that
// can hang has hung, and the fallback settled at the last moment.
func TestBundleAfterASlowFallback(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		p := b.withFallback(nil)
		settled := false
		p.chain = func() x402.Finding {
			if settled {
				return x402.Finding{Verdict: x402.Paid, Transaction: tx}
			}
			time.Sleep(p.left[len(p.left)-1])
			return x402.Finding{}
		}
		p.restart()
		p.primary = hangs
		p.fallback = func(context.Context) x402.Settlement {
			time.Sleep(4*time.Second - time.Millisecond)
			settled = true
			return moved()
		}
		b.budget = 12 * time.Second
		begun := time.Now()
		b.work = func(ctx context.Context, _ int) ([]byte, error) {
			if had := left(ctx); had < 12*time.Second {
				t.Errorf("the lookup had %s", had)
			}
			<-ctx.Done()
			return nil, fault.New(fault.HostIntelTimeout, nil)
		}
		b.expect("slow", b.ask(b.sign(nil), "GET /a"), 504, fault.HostIntelTimeout, "true", true, true)
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("took %s of 27 s, and 2 s are for the writes", took)
		}
	})
}
