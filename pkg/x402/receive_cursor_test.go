package x402_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Reading begins where the oldest payment in doubt was claimed, and where there
// is none, at the safe block.
func TestReceiveFirstCursor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(d *reconcilerHarness)
		want   time.Duration // after the test began
	}{
		"nothing in doubt": {func(d *reconcilerHarness) {
			d.refused(1, false)
			d.owed(2, 1)
			time.Sleep(3 * time.Hour)
		}, 3 * time.Hour},
		"the oldest": {func(d *reconcilerHarness) {
			d.refused(1, false)
			time.Sleep(time.Hour)
			d.uncertain(2)
			time.Sleep(time.Hour)
			d.uncertain(3)
			d.claim(2) // the longest untouched is not the oldest
			time.Sleep(time.Hour)
		}, time.Hour - ledger.ClockSlack},
		"one in flight": {func(d *reconcilerHarness) {
			time.Sleep(time.Hour)
			d.claim(1)
		}, time.Hour - ledger.ClockSlack},
		"another network's": {func(d *reconcilerHarness) {
			p := payment(1)
			p.Key = strings.Replace(p.Key, terms().Network, "eip155:84532", 1)
			c, err := d.ledger.Claim(d.t.Context(), p, time.Now())
			d.must(err)
			d.must(c.Hold.Uncertain(d.t.Context(), "timeout", ""))
			time.Sleep(time.Hour)
			d.uncertain(2)
			time.Sleep(time.Hour)
		}, time.Hour - ledger.ClockSlack},
		"one that is gone, and one that cannot be read": {func(d *reconcilerHarness) {
			d.must(d.memory.Plant(d.t.Context(), payment(1).Key, []byte(`{"key":`)))
			time.Sleep(time.Hour)
			d.uncertain(2)
			d.index = lists{open: []string{payment(1).Key, payment(2).Key, payment(3).Key}}
			time.Sleep(time.Hour)
		}, time.Hour - ledger.ClockSlack},
	} {
		t.Run(name, func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
				begun := time.Now()
				p := &fakeScanner{d: d}
				d.chain = p
				c.before(d)
				if _, err := d.run(t.Context()); err != nil {
					t.Error(err)
				}
				if want := uint64(begun.Add(c.want).Unix()); len(p.asked) == 0 || p.asked[0] != want {
					t.Errorf("reading began at %v, want block %d", p.asked, want)
				}
				p.asked = nil
				time.Sleep(time.Minute)
				if _, err := d.run(t.Context()); err != nil || len(p.asked) != 1 || p.asked[0] != uint64(time.Now().Unix())-59 {
					t.Errorf("the next run read from %v, %v", p.asked, err)
				}
			})
		})
	}
}

// One run reads batch after batch, and moves the cursor after each (fakeScanner
// compares it at every call).
func TestReceiveManyBatches(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		p := d.watched()
		first := d.cursor().Next
		for n := range 30 {
			p.send(n)
			time.Sleep(7 * time.Second)
		}
		p.width, p.asked = 100, nil
		d.wants(x402.Summary{Received: 30, Unasked: 30, Owed: 30, Exhausted: 30})
		last := uint64(time.Now().Unix())
		if batches := int((last-first)/100) + 1; len(p.asked) != batches || d.cursor().Next != last+1 {
			t.Errorf("%d batches up to block %d, want %d up to %d", len(p.asked), d.cursor().Next, batches, last)
		}
		if n := strings.Count(d.log.String(), "no record"); n != 10 {
			t.Errorf("%d lines for 30 transfers, want 10", n)
		}
	})
}

// A node that is behind, or has nothing to say, ends the run and moves nothing.
func TestReceiveNothingNew(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		p := d.watched()
		d.wants(x402.Summary{})
		at := d.cursor()
		for _, b := range []x402.Batch{{Next: at.Next, Safe: at.Next - 1}, {Next: at.Next, Safe: at.Next - 50}, {Next: at.Next, Safe: at.Next + 50}} {
			p.constant = &b
			d.wants(x402.Summary{})
			if diff := cmp.Diff(at, d.cursor(), cmp.AllowUnexported(ledger.Cursor{})); diff != "" {
				t.Errorf("the cursor (-before +after):\n%s", diff)
			}
		}
		p.constant = &x402.Batch{Next: at.Next - 1, Safe: at.Next}
		if _, err := d.run(t.Context()); err == nil || d.cursor().Next != at.Next {
			t.Errorf("a scanner that goes back moved the cursor to %d, %v", d.cursor().Next, err)
		}
	})
}
