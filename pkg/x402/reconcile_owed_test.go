package x402_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

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
		type debt struct {
			n     int
			spent bool
		}
		var got []debt
		missed, err := d.reconciler().Outstanding(t.Context(), func(r ledger.Record, spent bool) {
			got = append(got, debt{int(r.Key[len(r.Key)-1] - '0'), spent})
		}, func(ledger.Record) {})
		if want := []debt{{1, true}, {2, false}, {3, false}}; !slices.Equal(got, want) || missed != 0 || err != nil {
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
		if err := d.memory.Plant(t.Context(), "corrupt", []byte("{")); err != nil {
			t.Fatal(err)
		}
		seen := 0
		missed, err := d.reconciler().Each(t.Context(), append([]string{"corrupt", "missing"}, d.memory.Keys()...), func(ledger.Record) { seen++ })
		if seen != 5 || missed != 1 || err != nil {
			t.Errorf("%d seen, %d missed, %v; want all 5, and the corrupt one missed once", seen, missed, err)
		}
	})
}

// Counting ends with the time, too, and says how much is missing.
func TestReconcileOwedTimeUp(t *testing.T) {
	var cancel context.CancelFunc
	withReconciler(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Fetch && n == 3 {
			cancel()
			return ledgertest.Block
		}
		return ledgertest.None
	}, func(t *testing.T, d *reconcilerHarness) {
		for i := range 5 {
			d.owed(i, 1)
		}
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		if s, err := d.run(ctx); s != (x402.Summary{Owed: 2, Uncounted: 3}) || err != nil {
			t.Errorf("%+v, %v", s, err)
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
	needsEach(t, whole, x402.NewReconciler, map[string]func(*x402.ReconcilerConfig){
		"ledger": func(c *x402.ReconcilerConfig) { c.Ledger = nil },
		"index":  func(c *x402.ReconcilerConfig) { c.Index = nil },
		"clock":  func(c *x402.ReconcilerConfig) { c.Now = nil },
		"log":    func(c *x402.ReconcilerConfig) { c.Log = nil },
		// A reconciler that reads the chain has to know for whom.
		"network": func(c *x402.ReconcilerConfig) { c.Network = "" },
		"asset":   func(c *x402.ReconcilerConfig) { c.Asset = x402.Address{} },
		"payee":   func(c *x402.ReconcilerConfig) { c.Payee = x402.Address{} },
	})
}
