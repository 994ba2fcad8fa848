package x402_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// What each call may take: /verify 3 s; a settlement 15 s, and 13 s in doubt,
// where 4 s are left for the chain, 8 s for the lookup and 2 s for the writes.
func TestBudgetOfEachCall(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		seen := &fakeEvidence{}
		b.withParts(nil, seen)
		b.verify = x402.Verification{Valid: true}
		b.work = func(ctx context.Context, _ int) ([]byte, error) {
			if had := left(ctx); had != 8*time.Second {
				t.Errorf("the lookup has %s, want 8 s", had)
			}
			return []byte("{}"), nil
		}
		h := b.sign(contractPayer)
		until := time.Now().Add(27*time.Second + 3*time.Second) // what has not ended by then is dead
		b.settle = func(context.Context, int) x402.Settlement {
			if r := b.stored(h); !r.LeaseUntil.Equal(until) {
				t.Errorf("the lease ends at %s, want %s", r.LeaseUntil, until)
			}
			return lost()
		}
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			<-ctx.Done()
			return x402.Settlement{Class: x402.Unknown}
		}
		seen.f = x402.Finding{Verdict: x402.Paid, Transaction: tx}
		b.expect("in doubt, at the last moment", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if got := fmt.Sprint(b.verifying, b.settling, seen.left); got != "[3s] [15s 13s] [4s 4s]" {
			t.Errorf("verify, settle, chain: %s", got)
		}
	})
}

// The chain is asked with what is left, if it is half a second or more.
func TestChainWithLittleTime(t *testing.T) {
	for late, want := range map[time.Duration]string{
		15 * time.Second:                          "[2s]",
		16500 * time.Millisecond:                  "[500ms]",
		16500*time.Millisecond + time.Microsecond: "[]",
		time.Minute:                               "[]",
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			seen := &fakeEvidence{f: x402.Finding{Verdict: x402.StillOpen}}
			b.withParts(nil, seen)
			b.settle = func(context.Context, int) x402.Settlement {
				time.Sleep(late)
				return x402.Settlement{Class: x402.Unknown}
			}
			b.expect("unknown", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
			if got := fmt.Sprint(seen.left); got != want {
				t.Errorf("settled after %s: the chain had %s, want %s", late, got, want)
			}
		})
	}
}
