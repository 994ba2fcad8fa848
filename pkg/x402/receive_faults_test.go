package x402_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// When the time is up in the middle of a batch, the next run goes on behind the
// last block that was finished; every transfer is recorded once.
func TestReceiveTimeUp(t *testing.T) {
	slow := false
	withReconciler(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if slow && op == ledgertest.Create {
			time.Sleep(time.Second)
		}
		return ledgertest.None
	}, func(t *testing.T, d *reconcilerHarness) {
		p := d.watched()
		const n = 41
		for i := range n {
			p.send(i)
			if i%3 == 2 {
				time.Sleep(time.Second) // three in a block
			}
		}
		time.Sleep(time.Minute)
		slow = true
		unasked, runs := 0, 0
		for ; unasked < n && runs < 10; runs++ {
			was := d.cursor().Next
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			s, err := d.run(ctx)
			cancel()
			if err != nil || s.Unread || s.Unasked == 0 || s.Received != s.Unasked && runs == 0 || s.Owed != unasked+s.Unasked {
				t.Errorf("run %d: %+v, %v", runs, s, err)
			}
			if d.cursor().Next <= was {
				t.Errorf("run %d left the cursor at %d", runs, was)
			}
			unasked += s.Unasked
		}
		if unasked != n || runs != 5 { // 10 s of each run, in whole seconds
			t.Errorf("%d transfers in %d runs", unasked, runs)
		}
		slow = false
		d.wants(x402.Summary{Owed: n, Exhausted: n})
		if got := d.memory.Len(); got != n+1 {
			t.Errorf("%d records, want %d and the cursor", got, n)
		}
	})
}

// A node that is unreachable or hangs is reported once and is not an error; the rest of
// the run is done.
func TestReceiveNodeDown(t *testing.T) {
	t.Parallel()
	down := errors.New("node is down")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		first string // the call that fails
		fails func(context.Context) error
		moves bool // the cursor, before that
	}{
		"transfers":                   {"transfers", func(context.Context) error { return down }, false},
		"later transfers":             {"transfers", func(context.Context) error { return down }, true},
		"the block of a time":         {"block at", func(context.Context) error { return down }, false},
		"the safe block":              {"safe block", func(context.Context) error { return down }, false},
		"transfers hang":              {"transfers", hang, false},
		"the block of a time hangs":   {"block at", hang, false},
		"later transfers, no time up": {"transfers", hang, true},
	} {
		t.Run(name, func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
				if c.first != "safe block" {
					d.uncertain(1)
				}
				d.owed(2, 1)
				time.Sleep(time.Minute)
				p := &fakeScanner{d: d, width: 30, safe: uint64(time.Now().Unix())}
				d.chain = p
				p.before = func(ctx context.Context, call string) error {
					if call == c.first && (!c.moves || len(p.asked) > 1) {
						return c.fails(ctx)
					}
					return nil
				}
				want := x402.Summary{Owed: 1, Unread: true}
				if c.first != "safe block" {
					want.Listed, want.Open, want.StillOpen = 1, 1, 1
				}
				if strings.HasSuffix(name, "time up") {
					want.Unread = false // it was read, and there was no time for more
				}
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				if s, err := d.run(ctx); s != want || err != nil {
					t.Errorf("%+v, %v; want %+v", s, err, want)
				}
				if said := strings.Count(d.log.String(), "could not be read"); said != 1 && want.Unread || said != 0 && !want.Unread {
					t.Errorf("said %d times:\n%s", said, d.log.String())
				}
				p.before = nil
				time.Sleep(time.Second)
				p.send(3)
				if s, err := d.run(t.Context()); err != nil || s.Unread || s.Unasked != 1 {
					t.Errorf("the next run: %+v, %v", s, err)
				}
			})
		})
	}
}

// The store fails at each of a run's calls, before and after it took effect: the
// run's error says so, and the next run finds everything on record, once.
func TestReceiveStoreFails(t *testing.T) {
	t.Parallel()
	calls := 0
	scenario := func(t *testing.T, at int, fault ledgertest.Fault) {
		n, armed := 0, false
		withReconciler(t, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
			if !armed {
				return ledgertest.None
			}
			if n++; n == at {
				return fault
			}
			return ledgertest.None
		}, func(t *testing.T, d *reconcilerHarness) {
			d.find = func(_ context.Context, q x402.Question) x402.Finding {
				return x402.Finding{Verdict: map[byte]x402.Verdict{1: x402.Paid, 6: x402.StillOpen}[q.Nonce[31]], Transaction: tx}
			}
			d.uncertain(1)
			d.uncertain(6)
			d.refused(2, false)
			d.refused(3, true)
			d.refused(4, false)
			p := &fakeScanner{d: d, width: 30 * 3600, safe: uint64(time.Now().Unix())}
			d.chain = p
			p.send(2)
			time.Sleep(time.Second)
			p.send(3)
			other := p.send(4, worth(6000))
			time.Sleep(10 * time.Minute)
			p.send(5)
			p.send(0, unauthorized)
			armed = true
			s, err := d.run(t.Context())
			armed = false
			if at == 0 {
				calls = n
				want := x402.Summary{Listed: 2, Open: 2, SettledLate: 1, StillOpen: 1, Received: 5, Deposits: 1, Found: 1, Unasked: 3, Owed: 5, Exhausted: 3}
				if s != want || err != nil {
					t.Errorf("without faults: %+v, %v", s, err)
				}
			} else if logged := strings.Contains(d.log.String(), "not reconciled"); !errors.Is(err, ledgertest.ErrInjected) || s.Unread || s.Failed > 0 && !logged {
				t.Errorf("%+v, %v; want the store's error", s, err)
			}
			time.Sleep(time.Minute)
			if s, err = d.run(t.Context()); err != nil || s.Owed != 5 || s.Exhausted != 3 {
				t.Errorf("the next run: %+v, %v", s, err)
			}
			for n, lookups := range map[int]int{1: 0, 2: 0, 3: ledger.MaxLookups, 5: ledger.MaxLookups} {
				if r := d.stored(n); r.State != ledger.Settled || r.Lookups != lookups {
					t.Errorf("payment %d is %s after %d lookups", n, r.State, r.Lookups)
				}
			}
			if r, err := d.ledger.Fetch(t.Context(), payment(4).Key+"|"+other.Transaction); err != nil || r == nil || d.stored(4).State != ledger.Refused {
				t.Errorf("the other authorization is %+v, %v", r, err)
			}
			if d.memory.Len() != 8 || d.cursor().Next != uint64(time.Now().Unix())+1 {
				t.Errorf("cursor at %d, records %v", d.cursor().Next, d.memory.Keys())
			}
		})
	}
	// The subtests are not parallel to this one, which needs what they count.
	if !t.Run("no fault", func(t *testing.T) { serially(t, func(t *testing.T) { scenario(t, 0, ledgertest.None) }) }) || calls < 20 {
		t.Fatalf("%d calls", calls)
	}
	for _, fault := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		for at := 1; at <= calls; at++ {
			t.Run(fmt.Sprintf("fault %d at call %d", fault, at), func(t *testing.T) { scenario(t, at, fault) })
		}
	}
}

// serially waits for a test that is parallel to others.
func serially(t *testing.T, test func(t *testing.T)) { t.Run("", test) }

// A record that cannot be read does not prevent the handling of other transfers. Its
// own transfer is counted and logged, since it is unknown whether it was answered.
func TestReceiveCorrupt(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
		p := d.watched()
		d.must(d.memory.Plant(t.Context(), payment(1).Key, []byte(`{"key":`)))
		d.refused(2, false)
		strange := d.stored(2)
		strange.State = ledger.Bought
		d.must(d.memory.Plant(t.Context(), payment(2).Key, must(json.Marshal(strange))))
		for n := range 3 {
			p.send(n + 1)
		}
		d.wants(x402.Summary{Received: 3, Unasked: 1, Unmatched: 2, Owed: 1, Exhausted: 1})
		for n := range 2 {
			if want := "cannot be read\" key=" + payment(n+1).Key; !strings.Contains(d.log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, d.log.String())
			}
		}
	})
}

// Two runs at one time record everything once: the one whose cursor was moved
// stops.
func TestReceiveTwoRuns(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"transfers", "safe block"} {
		t.Run("at "+call, func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *reconcilerHarness) {
				d.refused(1, false)
				p := &fakeScanner{d: d, safe: uint64(time.Now().Unix()) - 1}
				if call == "transfers" {
					p = d.watched()
				}
				d.chain = p
				p.send(1)
				p.send(2)
				var other x402.Summary
				p.before = func(_ context.Context, now string) (err error) {
					if now == call {
						p.before = nil
						other, err = d.run(t.Context())
					}
					return err
				}
				s, err := d.run(t.Context())
				if err != nil || other.Received != 2 || other.Found+s.Found != 1 || other.Unasked+s.Unasked != 1 || s.Unread || s.Owed != 2 {
					t.Errorf("%+v and %+v, %v", other, s, err)
				}
				if !strings.Contains(d.log.String(), "another writer came first") {
					t.Errorf("logged:\n%s", d.log.String())
				}
				d.wants(x402.Summary{Owed: 2, Exhausted: 1})
				if n := d.memory.Len(); n != 3 {
					t.Errorf("%d records", n)
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
