package reconcile_test

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
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// TestReconcileIndexFails checks that Run returns the error of a failing index, and still does
// all work that does not need the index. If the store fails instead, Run returns the first
// error of the store.
func TestReconcileIndexFails(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		d.makeUncertain(1)
		d.makeOwed(2, 1)
		broken := errors.New("throttled")
		p := &fakeScanner{d: d}
		d.chain = p
		for _, c := range []struct {
			index lists
			want  reconcile.Summary
		}{
			{lists{openFails: broken, owed: []string{payment(2).Key}}, reconcile.Summary{Owed: 1, Unfinished: true}},
			{lists{open: []string{payment(1).Key}, owedFails: broken}, reconcile.Summary{Listed: 1, Open: 1, StillOpen: 1, Unfinished: true}},
			{lists{openFails: broken, owedFails: broken}, reconcile.Summary{Unfinished: true}},
		} {
			d.index = c.index
			if s, err := d.run(t.Context()); s != c.want || !errors.Is(err, broken) {
				t.Errorf("%+v, %v; want %+v and the index's error", s, err, c.want)
			}
			if len(p.readFrom) == 0 {
				t.Error("the chain was not read")
			}
			p.readFrom = nil
		}
		d.makeUncertain(3)
		d.index, d.store.Decide = d.memory, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
			return map[bool]ledgertest.Fault{true: ledgertest.FailBefore}[op == ledgertest.Fetch]
		}
		s, err := d.run(t.Context())
		if want := (reconcile.Summary{Listed: 2, Failed: 2, Uncounted: 1}); s != want || !errors.Is(err, ledgertest.ErrInjected) {
			t.Errorf("%+v, %v; want %+v and the store's error", s, err, want)
		} else if text := err.Error(); !strings.Contains(text, payment(1).Key) || strings.Contains(text, payment(3).Key) {
			t.Errorf("%v; want the first record's", err)
		}
	})
}

// TestReconcileCorruptRecord checks that a corrupt record does not stop the run. The record is
// counted, named in the log, and never written. Run returns no error for the record.
func TestReconcileCorruptRecord(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		d.find = verdict(x402.Finding{Fate: x402.NeverPaid})
		unreadable := payment(1)
		d.must(d.memory.Plant(t.Context(), unreadable.Key, []byte(`{"key":`)))
		strange := map[string]string{} // records that can be read, but that no payment can have made
		for name, change := range map[string]func(p *ledger.Submission){
			"key":   func(p *ledger.Submission) { p.Key = "strange" },
			"terms": func(p *ledger.Submission) { p.Terms = json.RawMessage(`[]`) },
			"other": func(p *ledger.Submission) { p.Terms = json.RawMessage(`{}`) },
			"value": func(p *ledger.Submission) { p.Terms, _ = json.Marshal(terms().Requirements("-5")) },
			"nonce": func(p *ledger.Submission) { p.Key = p.Key[:len(p.Key)-1] },
		} {
			d.makeUncertain(10+len(strange), change, func(p *ledger.Submission) { strange[name] = p.Key })
		}
		d.makeUncertain(2)
		d.makeOwed(3, 1)
		index := lists{open: []string{unreadable.Key}, owed: []string{unreadable.Key, payment(3).Key}}
		for _, key := range strange {
			index.open = append(index.open, key)
		}
		index.open = append(index.open, payment(2).Key)
		d.index = index
		writes := d.store.Calls(ledgertest.Replace)
		d.runAndCheck(reconcile.Summary{Listed: 7, Open: 6, Failed: 6, RefusedLate: 1, Owed: 1, Uncounted: 1})
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

// TestReceiveTimeUp checks runs whose time ends in the middle of a batch. The next run must
// continue after the last block that was finished, and every transfer must be recorded once.
func TestReceiveTimeUp(t *testing.T) {
	slow := false
	withReconciler(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if slow && op == ledgertest.Create {
			time.Sleep(time.Second)
		}
		return ledgertest.None
	}, func(t *testing.T, d *harness) {
		const n = 41
		sendThreeASecond(d.watchChain(), n)
		slow = true
		unasked, runs := 0, 0
		for ; unasked < n && runs < 10; runs++ {
			unasked += d.runOutOfTime(fmt.Sprint("run ", runs), unasked)
		}
		if unasked != n || runs != 5 { // each run has 10 s to record transfers, and a transfer takes one second
			t.Errorf("%d transfers in %d runs", unasked, runs)
		}
		slow = false
		d.runAndCheck(reconcile.Summary{Owed: n, RefundsDue: n})
		if got := d.memory.Len(); got != n+1 {
			t.Errorf("%d records, want %d and the cursor", got, n)
		}
	})
}

// sendThreeASecond makes n transfers, three in each block, and then waits a minute.
func sendThreeASecond(p *fakeScanner, n int) {
	for i := range n {
		p.send(i)
		if i%3 == 2 {
			time.Sleep(time.Second)
		}
	}
	time.Sleep(time.Minute)
}

// runOutOfTime runs reconcile for 20 s, which is too short for all transfers but long enough
// for some. It checks that the cursor has moved, and returns how many transfers without a
// record this run has found. foundBefore is how many such transfers the earlier runs have
// found.
func (d *harness) runOutOfTime(what string, foundBefore int) (unasked int) {
	d.t.Helper()
	was := d.cursor().Next
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	s, err := d.run(ctx)
	if err != nil || s.Unread || s.Unasked == 0 || s.Owed != foundBefore+s.Unasked {
		d.t.Errorf("%s: %+v, %v", what, s, err)
	}
	if foundBefore == 0 && s.Received != s.Unasked {
		d.t.Errorf("%s: %d were received, and %d of them not asked about", what, s.Received, s.Unasked)
	}
	if d.cursor().Next <= was {
		d.t.Errorf("%s left the cursor at %d", what, was)
	}
	return s.Unasked
}

// TestReceiveNodeDown checks a node that is unreachable, or that hangs before it has returned
// a batch. The summary and the log must say that the chain could not be read. The run must do
// all its other work without an error, and the next run must read the transfers.
func TestReceiveNodeDown(t *testing.T) {
	t.Parallel()
	down := errors.New("node is down")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]nodeFault{
		"transfers":                 {"transfers", func(context.Context) error { return down }, 1},
		"later transfers":           {"transfers", func(context.Context) error { return down }, 2},
		"the block of a time":       {"block at", func(context.Context) error { return down }, 0},
		"the safe block":            {"safe block", func(context.Context) error { return down }, 0},
		"transfers hang":            {"transfers", hang, 1},
		"the block of a time hangs": {"block at", hang, 0},
		"later transfers hang":      {"transfers", hang, 2},
	} {
		t.Run(name, func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *harness) {
				d.makeUncertain(1)
				d.makeOwed(2, 1)
				time.Sleep(time.Minute)
				p := &fakeScanner{d: d, width: 30, safe: uint64(time.Now().Unix())}
				d.chain = p
				p.before = c.beforeCall(p)
				// Unread is not set if the node hangs only after a first batch: the next run
				// reads the rest.
				want := reconcile.Summary{Listed: 1, Open: 1, StillOpen: 1, Owed: 1, Unread: name != "later transfers hang"}
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				if s, err := d.run(ctx); s != want || err != nil {
					t.Errorf("%+v, %v; want %+v", s, err, want)
				}
				if said := strings.Contains(d.log.String(), "could not be read"); said != want.Unread {
					t.Errorf("said: %s", d.log.String())
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

// nodeFault says which call of a scanner fails, and how.
type nodeFault struct {
	call       string
	fail       func(context.Context) error
	afterReads int // the call does not fail before Transfers has been called this many times
}

// beforeCall returns the function that the scanner runs at the beginning of each call.
func (c nodeFault) beforeCall(p *fakeScanner) func(context.Context, string) error {
	return func(ctx context.Context, call string) error {
		if call == c.call && len(p.readFrom) >= c.afterReads {
			return c.fail(ctx)
		}
		return nil
	}
}

// TestReceiveNothingNew checks that a run ends without moving the cursor if the node is behind
// or returns nothing new. If the scanner returns a block before the cursor, the run returns an
// error.
func TestReceiveNothingNew(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		p := d.watchChain()
		d.runAndCheck(reconcile.Summary{})
		at := d.cursor()
		for _, b := range []reconcile.Batch{{Next: at.Next, Safe: at.Next - 1}, {Next: at.Next, Safe: at.Next - 50}, {Next: at.Next, Safe: at.Next + 50}} {
			p.constant = &b
			d.runAndCheck(reconcile.Summary{})
			if diff := cmp.Diff(at, d.cursor(), cmp.AllowUnexported(ledger.Cursor{})); diff != "" {
				t.Errorf("the cursor (-before +after):\n%s", diff)
			}
		}
		p.constant = &reconcile.Batch{Next: at.Next - 1, Safe: at.Next}
		if _, err := d.run(t.Context()); err == nil || d.cursor().Next != at.Next {
			t.Errorf("a scanner that goes back moved the cursor to %d, %v", d.cursor().Next, err)
		}
	})
}
