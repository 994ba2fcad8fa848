package x402_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// Without a view of the chain nothing is written, and everything is counted.
func TestReconcileWithoutEvidence(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.blind = true
		d.uncertain(1)
		d.owed(2, 1)
		d.abandoned(3)
		writes := d.store.Calls(ledgertest.Replace)
		d.wants(x402.Summary{Listed: 2, Open: 2, CannotTell: 2, Owed: 1})
		if n := d.store.Calls(ledgertest.Replace) - writes; n != 0 {
			t.Errorf("%d writes", n)
		}
		if d.log.Len() != 0 {
			t.Errorf("logged:\n%s", d.log.String())
		}
	})
}

// A table outlives a change of terms. What was paid under others is left in
// doubt: this chain has never heard of it, and that proves nothing.
func TestReconcileOtherTerms(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.find = verdict(x402.Finding{Verdict: x402.NeverPaid})
		d.uncertain(1, elsewhere, func(p *ledger.Payment) {
			other := terms()
			other.Network = "eip155:84532"
			p.Terms = must(json.Marshal(other.Requirements("5000")))
		})
		d.wants(x402.Summary{Listed: 1, Open: 1, CannotTell: 1})
		if len(d.asked) != 0 {
			t.Error("the wrong chain was asked")
		}
	})
}

// The store fails at each step: the record is counted, the run goes on, the
// error says so, and the next run finishes the work.
func TestReconcileStoreFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op    ledgertest.Op
		n     int // of the run's calls: read 1, take 1, decide 1, read 2, ...
		fault ledgertest.Fault
	}{
		"read":                {ledgertest.Fetch, 1, ledgertest.FailBefore},
		"lease not taken":     {ledgertest.Replace, 1, ledgertest.FailBefore},
		"lease taken unheard": {ledgertest.Replace, 1, ledgertest.FailAfter},
		"verdict not written": {ledgertest.Replace, 2, ledgertest.FailBefore},
		"verdict unheard":     {ledgertest.Replace, 2, ledgertest.FailAfter},
	} {
		t.Run(name, func(t *testing.T) {
			begun := math.MaxInt32
			withReconciler(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
				if op == c.op && n == begun+c.n {
					return c.fault
				}
				return ledgertest.None
			}, func(t *testing.T, d *reconcilerHarness) {
				d.uncertain(1)
				time.Sleep(time.Second)
				d.uncertain(2)
				d.find = verdict(x402.Finding{Verdict: x402.Paid, Transaction: tx})
				begun = d.store.Calls(c.op)
				s, err := d.run(t.Context())
				if !errors.Is(err, ledgertest.ErrInjected) || s.Failed != 1 || s.SettledLate != 1 || s.Listed != 2 {
					t.Errorf("%+v, %v; want one failed, one settled, and the error", s, err)
				}
				if !strings.Contains(d.log.String(), "not reconciled") {
					t.Error("the failure was not logged")
				}
				time.Sleep(5 * time.Minute)
				if s, err = d.run(t.Context()); err != nil || s.Failed != 0 || s.Owed != 2 {
					t.Errorf("the next run: %+v, %v; want both paid", s, err)
				}
			})
		})
	}
}

// The store is down for good: the run ends, with everything counted as failed.
func TestReconcileStoreDown(t *testing.T) {
	down := false
	withReconciler(t, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
		if down {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}, func(t *testing.T, d *reconcilerHarness) {
		for i := range 5 {
			d.uncertain(i)
		}
		d.owed(10, 1)
		down = true
		s, err := d.run(t.Context())
		if want := (x402.Summary{Listed: 5, Failed: 5, Uncounted: 1}); s != want || !errors.Is(err, ledgertest.ErrInjected) {
			t.Errorf("%+v, %v; want %+v and the store's error", s, err, want)
		}
	})
}

// An index that fails is the run's error, and half of the work is still done.
func TestReconcileIndexFails(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.uncertain(1)
		d.owed(2, 1)
		broken := errors.New("throttled")
		p := &fakeScanner{d: d}
		d.chain = p
		for _, c := range []struct {
			index lists
			want  x402.Summary
		}{
			{lists{openFails: broken, owed: []string{payment(2).Key}}, x402.Summary{Owed: 1, Unfinished: true}},
			{lists{open: []string{payment(1).Key}, owedFails: broken}, x402.Summary{Listed: 1, Open: 1, StillOpen: 1, Unfinished: true}},
			{lists{openFails: broken, owedFails: broken}, x402.Summary{Unfinished: true}},
		} {
			d.index = c.index
			if s, err := d.run(t.Context()); s != c.want || !errors.Is(err, broken) {
				t.Errorf("%+v, %v; want %+v and the index's error", s, err, c.want)
			}
			if len(p.asked) == 0 {
				t.Error("the chain was not read")
			}
			p.asked = nil
		}
	})
}

// A corrupt record is counted, named in the log, never written to, and stops
// nothing. It is not a failure of the ledger.
func TestReconcileCorruptRecord(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		d.find = verdict(x402.Finding{Verdict: x402.NeverPaid})
		unreadable := payment(1)
		d.must(d.memory.Plant(t.Context(), unreadable.Key, []byte(`{"key":`)))
		strange := map[string]string{} // readable records that no payment can have made
		for name, change := range map[string]func(p *ledger.Payment){
			"key":   func(p *ledger.Payment) { p.Key = "strange" },
			"terms": func(p *ledger.Payment) { p.Terms = json.RawMessage(`[]`) },
			"other": func(p *ledger.Payment) { p.Terms = json.RawMessage(`{}`) },
			"value": func(p *ledger.Payment) { p.Terms, _ = json.Marshal(terms().Requirements("-5")) },
			"nonce": func(p *ledger.Payment) { p.Key = p.Key[:len(p.Key)-1] },
		} {
			d.uncertain(10+len(strange), change, func(p *ledger.Payment) { strange[name] = p.Key })
		}
		d.uncertain(2)
		d.owed(3, 1)
		index := lists{open: []string{unreadable.Key}, owed: []string{unreadable.Key, payment(3).Key}}
		for _, key := range strange {
			index.open = append(index.open, key)
		}
		index.open = append(index.open, payment(2).Key)
		d.index = index
		writes := d.store.Calls(ledgertest.Replace)
		d.wants(x402.Summary{Listed: 7, Open: 6, Failed: 6, RefusedLate: 1, Owed: 1, Uncounted: 1})
		if n := d.store.Calls(ledgertest.Replace) - writes; n != 2 {
			t.Errorf("%d writes, want those of the sound record", n)
		}
		for name, key := range strange {
			if !strings.Contains(d.log.String(), key) {
				t.Errorf("%s: the log does not name it", name)
			}
		}
	})
}

// The lease is lost between taking it and the verdict. Evidence of payment is
// recorded all the same; any other verdict is somebody else's now.
func TestReconcileLosesTheLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f     x402.Finding
		want  x402.Summary
		state ledger.State
	}{
		"paid":       {x402.Finding{Verdict: x402.Paid, Transaction: tx}, x402.Summary{SettledLate: 1}, ledger.Settled},
		"never paid": {x402.Finding{Verdict: x402.NeverPaid}, x402.Summary{Skipped: 1}, ledger.Settling},
		"still open": {x402.Finding{Verdict: x402.StillOpen}, x402.Summary{Skipped: 1}, ledger.Settling},
	} {
		t.Run(name, func(t *testing.T) {
			var d *reconcilerHarness
			withReconciler(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				// The first write of the verdict: another attempt was quicker.
				if op == ledgertest.Replace && r.Version == 4 {
					other := d.stored(1)
					if other.Version == 3 {
						other.Version, other.WriteID, other.LeaseUntil = 4, "other", time.Now().Add(attemptTime)
						d.must(d.memory.Replace(t.Context(), other))
					}
				}
				return ledgertest.None
			}, func(t *testing.T, inner *reconcilerHarness) {
				d = inner
				d.uncertain(1)
				d.find = verdict(c.f)
				want := c.want
				want.Listed, want.Open = 1, 1
				d.wants(want)
				if r := d.stored(1); r.State != c.state || c.state == ledger.Settling && r.WriteID != "other" {
					t.Errorf("the record is %+v", r)
				}
			})
		})
	}
}
