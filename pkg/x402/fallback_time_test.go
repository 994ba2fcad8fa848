package x402_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

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
