package x402_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

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
