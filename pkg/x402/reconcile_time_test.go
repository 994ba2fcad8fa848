package x402_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// 1,500 records in doubt and runs of 1,000: the second run sees the rest.
func TestReconcileIsFair(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		const n = 1500
		for i := range n {
			d.uncertain(i)
		}
		seen, looks := map[[32]byte]int{}, 0
		d.find = func(_ context.Context, q x402.Question) x402.Finding {
			seen[q.Nonce]++
			looks++
			time.Sleep(time.Millisecond)
			return x402.Finding{Verdict: []x402.Verdict{x402.StillOpen, x402.CannotTell}[looks%2]}
		}
		for run := range 3 {
			time.Sleep(5 * time.Minute)
			s, err := d.run(t.Context())
			if err != nil || s.Listed != n || s.StillOpen+s.CannotTell != 1000 || s.Left != n-1000 {
				t.Fatalf("run %d: %+v, %v", run, s, err)
			}
			if want := []int{1000, n, n}[run]; len(seen) != want {
				t.Errorf("after run %d %d records were seen, want %d", run, len(seen), want)
			}
		}
		for nonce, times := range seen {
			if times != 2 { // 3,000 looks at 1,500
				t.Fatalf("%x was seen %d times, want 2", nonce, times)
			}
		}
		if n := strings.Count(d.log.String(), "no evidence"); n != 3*10 {
			t.Errorf("%d lines of doubt for three runs, want 10 each", n)
		}
	})
}

// When the time is up the rest is left, untouched, and what is owed is counted
// all the same.
func TestReconcileTimeUp(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		const n = 30
		for i := range n {
			d.uncertain(i)
		}
		d.owed(100, 1)
		d.find = func(ctx context.Context, _ x402.Question) x402.Finding {
			select {
			case <-time.After(3 * time.Second):
				return x402.Finding{Verdict: x402.StillOpen}
			case <-ctx.Done():
				return x402.Finding{Cause: ctx.Err()}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 42*time.Second)
		defer cancel()
		begun := time.Now()
		got, err := d.run(ctx)
		want := x402.Summary{Listed: n, Open: 11, StillOpen: 10, Left: 20, Owed: 1} // the eleventh was begun
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("summary (-want +got), %v:\n%s", err, diff)
		}
		if took := time.Since(begun); took != 31500*time.Millisecond {
			t.Errorf("it took %v, want three quarters of 42 s", took)
		}
		for i := range n {
			if r := d.stored(i); (r.Version == 2) != (i >= 10) {
				t.Errorf("record %d has version %d", i, r.Version)
			}
		}
	})
}

// A verdict that is known is written even when the run ends at that moment; nothing
// is asked any more.
func TestReconcileFinishesAVerdict(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		p := d.watched()
		p.asked = nil
		d.uncertain(1)
		time.Sleep(time.Second)
		d.uncertain(2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d.find = func(context.Context, x402.Question) x402.Finding {
			cancel()
			return x402.Finding{Verdict: x402.NeverPaid, Reason: "r"}
		}
		s, err := d.run(ctx)
		if want := (x402.Summary{Listed: 2, Open: 1, RefusedLate: 1, Left: 1}); s != want || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v; want %+v, and that what is owed could not be listed", s, err, want)
		}
		if len(p.asked) > 0 {
			t.Error("the chain is read when there is no time left")
		}
		if d.stored(1).State != ledger.Refused || d.stored(2).Version != 2 {
			t.Errorf("%s, version %d", d.stored(1).State, d.stored(2).Version)
		}
	})
}
