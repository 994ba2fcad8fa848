package x402_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// What is owed, and what of it is a refund.
func TestReconcileOwed(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.owed(1, ledger.MaxLookups) // no lookup left
		d.owed(2, 2)
		d.owed(3, 0)          // settled late, never asked for
		redeem(d, d.claim(4)) // has its answer
		d.uncertain(5)        // not known
		looking := d.claim(6) // somebody is at it
		d.must(looking.Settled(t.Context(), ledger.Receipt{Transaction: tx}, true))
		d.wants(x402.Summary{Listed: 1, Open: 1, StillOpen: 1, Owed: 3, Exhausted: 1}) // the lease of 6 runs
		var got []string
		missed, err := d.reconciler().Outstanding(t.Context(), func(r ledger.Record, spent bool) {
			got = append(got, fmt.Sprint(r.Key[len(r.Key)-1:], " spent: ", spent))
		}, func(ledger.Record) {})
		if want := []string{"1 spent: true", "2 spent: false", "3 spent: false"}; !slices.Equal(got, want) || missed != 0 || err != nil {
			t.Errorf("owed %v, %d missed, %v; want %v", got, missed, err, want)
		}
		time.Sleep(25 * time.Hour) // the time for lookups is over; the live one died
		d.wants(x402.Summary{Listed: 2, Open: 1, Skipped: 1, StillOpen: 1, Owed: 4, Exhausted: 4})
	})
}

// What is in doubt, and nothing that somebody holds or that is decided; a record
// that cannot be read is missed, and hides no other.
func TestReconcileInDoubt(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.uncertain(1)
		d.owed(2, 1)
		redeem(d, d.claim(3))
		d.claim(4)
		d.uncertain(5)
		for _, want := range [][]int{{1, 5}, {1, 4, 5}} {
			var got []int
			missed, err := d.reconciler().Outstanding(t.Context(), func(ledger.Record, bool) {}, func(r ledger.Record) {
				got = append(got, int(r.Key[len(r.Key)-1]-'0'))
			})
			if slices.Sort(got); !slices.Equal(got, want) || missed != 0 || err != nil {
				t.Errorf("in doubt %v, %d missed, %v; want %v", got, missed, err, want)
			}
			time.Sleep(time.Hour) // whoever held 4 has died
		}
		ctx, cancel := context.WithCancel(t.Context())
		missed, err := d.reconciler().Each(ctx, d.memory.Keys(), func(ledger.Record) { cancel() })
		if missed != 4 || err != nil {
			t.Errorf("%d missed when the time is over, %v; want all but the first of 5", missed, err)
		}
		d.must(d.memory.Plant(t.Context(), "corrupt", []byte("{")))
		seen := 0
		missed, err = d.reconciler().Each(t.Context(), append([]string{"corrupt", "missing"}, d.memory.Keys()...), func(ledger.Record) { seen++ })
		if seen != 5 || missed != 1 || err != nil {
			t.Errorf("%d seen, %d missed, %v; want all 5, and the corrupt one missed once", seen, missed, err)
		}
	})
}

func TestNewReconcilerPanics(t *testing.T) {
	t.Parallel()
	memory := new(ledgertest.Memory)
	whole := x402.ReconcilerConfig{
		Ledger: ledger.New(memory, time.Now, func() string { return "w" }), Index: memory, Scanner: &fakeScanner{},
		Network: terms().Network, Asset: addressOf(terms().Asset), Payee: addressOf(terms().PayTo),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	// A reconciler that reads the chain has to know for whom: the last three.
	needsEach(t, whole, x402.NewReconciler, "Ledger", "Index", "Now", "Log", "Network", "Asset", "Payee")
}

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
