package reconcile_test

import (
	"context"
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

// TestReconcileOutstanding checks which payments are listed as in doubt, as owed, and as due
// for a refund. A payment that is decided, or that an attempt holds, is in none of these lists.
func TestReconcileOutstanding(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		d.makeOwed(1, mostLookups) // no more lookups are allowed
		d.makeOwed(2, 2)
		d.makeOwed(3, 0)      // settled late, and nobody asked for the answer
		redeem(d, d.claim(4)) // a payment that is answered
		d.makeUncertain(5)
		looking := d.claim(6)
		d.must(looking.Settled(t.Context(), ledger.Receipt{Transaction: tx}, true))
		d.claim(7)
		d.runAndCheck(reconcile.Summary{Listed: 1, Open: 1, StillOpen: 1, Owed: 3, RefundsDue: 1}) // the leases of 6 and 7 are live
		d.checkOutstanding("doubt 5", "due 1", "owed 2", "owed 3")
		time.Sleep(25 * time.Hour) // the debts are over a day old, so they are due for a refund; the leases of 6 and 7 have expired
		d.checkOutstanding("doubt 5", "doubt 7", "due 1", "due 2", "due 3", "due 6")
		d.runAndCheck(reconcile.Summary{Listed: 3, Open: 2, Skipped: 1, StillOpen: 2, Owed: 4, OwedLong: 4, RefundsDue: 4})
	})
}

// TestReconcilerEach checks that Each passes every record to its function, except one that
// cannot be read. If the time ends first, the records that were not read count as missed.
func TestReconcilerEach(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		for n := range 5 {
			d.claim(n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		missed, err := d.reconciler().Each(ctx, d.memory.Keys(), func(ledger.Payment) { cancel() })
		if missed != 4 || err != nil {
			t.Errorf("%d missed when the time is over, %v; want all but the first of 5", missed, err)
		}
		d.must(d.memory.Plant(t.Context(), "corrupt", []byte("{")))
		seen := 0
		missed, err = d.reconciler().Each(t.Context(), append([]string{"missing"}, d.memory.Keys()...), func(ledger.Payment) { seen++ })
		if seen != 5 || missed != 1 || err != nil {
			t.Errorf("%d seen, %d missed, %v; want all 5, and the corrupt one missed once", seen, missed, err)
		}
	})
}

// bought claims the mth and the nth payment for the same purchase. The mth payment opens the
// purchase before the nth is claimed. If m equals n, there is only this one payment. If m is
// negative, there is only the nth payment, and the purchase is never opened.
func (d *harness) bought(n, m int) {
	d.t.Helper()
	with := func(p *ledger.Submission) { p.Purchase = "purchase|" + payment(n).Key }
	if m >= 0 {
		must(d.ledger.OpenPurchase(d.t.Context(), d.claim(m, with)))
	}
	if n != m {
		d.claim(n, with)
	}
}

// TestReconcileUnsent checks payments whose process died. A payment that was not sent is
// closed some time after its window has ended. Before that, such a payment is not outstanding,
// and is not counted as in doubt. A payment that may have been sent stays in doubt until there
// is evidence. The test runs with evidence from the chain and without.
func TestReconcileUnsent(t *testing.T) {
	t.Parallel()
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprint("blind ", blind), func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *harness) {
				d.noEvidence = blind
				d.bought(1, 1)     // its process died while the payment owned its purchase
				d.bought(2, 12)    // its process died while the payment waited for payment 12
				d.bought(3, -1)    // its process died before the purchase was opened
				d.claim(4)         // its process died; the payment has no purchase
				d.makeUncertain(5) // a payment in doubt
				time.Sleep(time.Minute)
				before, undue := d.record(2), reconcile.Summary{Listed: 6, Open: 2, StillOpen: 2, Undue: 4}
				late := reconcile.Summary{Listed: 6, Open: 4, RefusedLate: 2, StillOpen: 4}
				if blind {
					undue.StillOpen, undue.CannotTell = 0, 2
					late = reconcile.Summary{Listed: 6, Open: 4, RefusedLate: 1, CannotTell: 4, Undue: 1}
				}
				d.checkOutstanding("doubt 4", "doubt 5")
				d.runAndCheck(undue)
				if r := d.record(2); r.Version != before.Version {
					t.Errorf("it was written: %+v", r)
				}
				d.find = func(_ context.Context, q x402.Question) x402.Finding {
					if q.Nonce[31] == 3 {
						return x402.Finding{Fate: x402.NeverPaid, Reason: "expired"}
					}
					return x402.Finding{Fate: x402.StillOpen}
				}
				time.Sleep(5*time.Minute + ledger.ClockSlack)
				d.checkOutstanding("doubt 1", "doubt 4", "doubt 5", "doubt c")
				d.runAndCheck(late)
				d.checkOutstanding("doubt 1", "doubt 4", "doubt 5", "doubt c")
				if r := d.record(2); r.State != ledger.Refused || r.Sent || r.Doubt {
					t.Errorf("who waited: %+v", r)
				}
			})
		})
	}
}

// TestReconcileUnopened checks a payment whose purchase is missing. A finding that decides
// nothing does not put the payment in doubt, and is not written. If the chain then shows that
// the payment is paid, the payment is settled.
func TestReconcileUnopened(t *testing.T) {
	t.Parallel()
	for _, f := range []x402.Finding{{Fate: x402.StillOpen}, {Cause: errors.New("down")}} {
		t.Run(f.Fate.String(), func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *harness) {
				d.bought(1, -1)
				time.Sleep(time.Hour)
				d.find = verdict(f)
				d.runAndCheck(reconcile.Summary{Listed: 1, Undue: 1})
				if r := d.record(1); r.Version != 1 || len(d.asked) != 1 {
					t.Errorf("%+v, asked %d times", r, len(d.asked))
				}
				d.find = verdict(x402.Finding{Fate: x402.Paid, Transaction: tx})
				d.runAndCheck(reconcile.Summary{Listed: 1, SettledLate: 1, Owed: 1})
			})
		})
	}
}

// TestReconcileSilence checks a payment whose lookups found a silent target. Run stores the
// silence as the answer even if nobody asks again, and the payment is then in no list.
func TestReconcileSilence(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		h := d.claim(1)
		d.must(h.Settled(t.Context(), ledger.Receipt{Transaction: tx}, true))
		d.must(h.Release(t.Context(), ledger.Failure{Code: "ssl_timeout", Message: "m", Silence: true}))
		d.makeOwed(2, 1)
		d.runAndCheck(reconcile.Summary{Owed: 2}) // the payer can still ask for the answer
		time.Sleep(25 * time.Hour)
		d.checkOutstanding("due 2")
		d.runAndCheck(reconcile.Summary{Owed: 1, OwedLong: 1, RefundsDue: 1, Silent: 1})
		r := d.record(1)
		if r.State != ledger.Redeemed || r.Answer.Status != 504 || string(must(r.Answer.Plain())) != "ssl_timeout, charged true, retryable false" {
			t.Errorf("%s, %+v", r.State, r.Answer)
		}
		d.runAndCheck(reconcile.Summary{Owed: 1, OwedLong: 1, RefundsDue: 1})
	})
}

// TestReconcileReadsToTheEnd checks that the lists are read to their end, even if they are
// long. If the time ends first, the summary says that the run is unfinished.
func TestReconcileReadsToTheEnd(t *testing.T) {
	last, stop := 0, func() {}
	withReconciler(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Fetch && n == last {
			stop()
		}
		return ledgertest.None
	}, func(t *testing.T, d *harness) {
		const n = 2500
		for i := range n {
			w := ledger.Witness{Key: payment(100 + i).Key, Terms: payment(1).Terms, At: time.Now(), Receipt: ledger.Receipt{Transaction: tx}}
			_, _, err := d.ledger.RecordTransfer(t.Context(), w)
			d.must(err)
		}
		time.Sleep(time.Hour)
		d.makeOwed(1, mostLookups)
		d.runAndCheck(reconcile.Summary{Owed: n + 1, OwedLong: n, RefundsDue: n + 1})
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		see := func(ledger.Payment) {
			if seen++; seen == n+1+1500 {
				cancel()
			}
		}
		if missed, err := d.reconciler().Outstanding(t.Context(), see); seen != n+1 || missed != 0 || err != nil {
			t.Errorf("%d are listed, %d missed, %v", seen, missed, err)
		}
		missed, err := d.reconciler().Outstanding(ctx, see)
		if missed != 500 || !errors.Is(err, context.Canceled) {
			t.Errorf("stopped: %d missed, %v", missed, err)
		}
		ctx, stop = context.WithCancel(t.Context())
		last = d.store.Calls(ledgertest.Fetch) + 1001
		if s, err := d.run(ctx); s.Owed != 1000 || s.Uncounted != 1000 || !s.Unfinished || err != nil {
			t.Errorf("stopped: %+v, %v", s, err)
		}
	})
}

// TestReconcileIsFair checks that every record in doubt gets its turn. A run asks about 1,000
// of 1,500 records, and the next run asks about the rest first.
func TestReconcileIsFair(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		const n = 1500
		for i := range n {
			d.makeUncertain(i)
		}
		seen, looks := map[[32]byte]int{}, 0
		d.find = func(_ context.Context, q x402.Question) x402.Finding {
			seen[q.Nonce]++
			looks++
			time.Sleep(time.Millisecond)
			return x402.Finding{Fate: []x402.Fate{x402.StillOpen, x402.CannotTell}[looks%2]}
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
			if times != 2 { // 3,000 questions about 1,500 records, so two about each
				t.Fatalf("%x was seen %d times, want 2", nonce, times)
			}
		}
		if n := strings.Count(d.log.String(), "no evidence"); n != 3*10 {
			t.Errorf("%d lines of doubt for three runs, want 10 each", n)
		}
	})
}

// TestReconcileTimeUp checks a run whose time is too short for all records in doubt. The
// records that it does not reach must not change, and the debts must still be counted.
func TestReconcileTimeUp(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		const n = 30
		for i := range n {
			d.makeUncertain(i)
		}
		d.makeOwed(100, 1)
		d.find = func(ctx context.Context, _ x402.Question) x402.Finding {
			select {
			case <-time.After(3 * time.Second):
				return x402.Finding{Fate: x402.StillOpen}
			case <-ctx.Done():
				return x402.Finding{Cause: ctx.Err()}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 42*time.Second)
		defer cancel()
		begun := time.Now()
		got, err := d.run(ctx)
		want := reconcile.Summary{Listed: n, Open: 11, StillOpen: 10, Left: 20, Owed: 1} // the eleventh question was interrupted
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("summary (-want +got), %v:\n%s", err, diff)
		}
		if took := time.Since(begun); took != 31500*time.Millisecond {
			t.Errorf("it took %v, want three quarters of 42 s", took)
		}
		for i := range n {
			if r := d.record(i); (r.Version == 2) != (i >= 10) {
				t.Errorf("record %d has version %d", i, r.Version)
			}
		}
	})
}

// TestReceiveBeforeTheRestIsCounted checks that incoming transfers are read as soon as the
// time for evidence is up. The rest of the list is counted only after that, so slow counting
// does not delay the reading.
func TestReceiveBeforeTheRestIsCounted(t *testing.T) {
	slow := false
	withReconciler(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if slow && op == ledgertest.Fetch {
			time.Sleep(time.Second)
		}
		return ledgertest.None
	}, func(t *testing.T, d *harness) {
		p := d.watchChain()
		for i := range 15 {
			d.makeUncertain(i)
		}
		d.find = func(ctx context.Context, _ x402.Question) x402.Finding { <-ctx.Done(); return x402.Finding{} }
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		begun, read := time.Now(), time.Duration(0)
		p.before = func(context.Context, string) error { read = time.Since(begun); return nil }
		slow = true
		if s, err := d.run(ctx); err != nil || s.Left < 10 || read < 20*time.Second || read > 22*time.Second {
			t.Errorf("%+v, %v; transfers are read after %s, want half of 40 s", s, err, read)
		}
	})
}

// TestReconcileFinishesAVerdict checks a run whose time ends while the chain is asked. The
// finding must still be written, and no further question may be asked.
func TestReconcileFinishesAVerdict(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		p := d.watchChain()
		p.readFrom = nil
		d.makeUncertain(1)
		time.Sleep(time.Second)
		d.makeUncertain(2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d.find = func(context.Context, x402.Question) x402.Finding {
			cancel()
			return x402.Finding{Fate: x402.NeverPaid, Reason: "r"}
		}
		s, err := d.run(ctx)
		if want := (reconcile.Summary{Listed: 2, Open: 1, RefusedLate: 1, Left: 1, Unfinished: true}); s != want || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v; want %+v, and that what is owed could not be listed", s, err, want)
		}
		if len(p.readFrom) > 0 {
			t.Error("the chain is read when there is no time left")
		}
		if d.record(1).State != ledger.Refused || d.record(2).Version != 2 {
			t.Errorf("%s, version %d", d.record(1).State, d.record(2).Version)
		}
	})
}

// TestUnproven checks which payments count as unproven. A payment counts if a facilitator
// refused it or turned it away while the seller had no node, even if another payment has taken
// over its purchase. The payment does not count if evidence disproves it, or once its money is
// found. Unproven must pass the payments that changed last to its function.
func TestUnproven(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		d.noEvidence = true
		noNode := func(p *ledger.Submission) { p.NoNode = true }
		end := func(n int, event ledger.Event, changes ...func(*ledger.Submission)) {
			d.must(d.claim(n, changes...).End(t.Context(), event, "no", ""))
			time.Sleep(time.Second)
		}
		end(1, ledger.EventRefused) // refused while there was a node
		end(2, ledger.EventNotSent, noNode)
		end(3, ledger.EventDisproved, noNode)
		for n := 4; n < 30; n++ {
			end(n, ledger.EventRefused, noNode)
		}
		end(30, ledger.EventTurnedAway, noNode)
		superseded := d.record(5)
		superseded.State, superseded.WriteID = ledger.Superseded, "superseded"
		superseded.Version++
		ledgertest.MustPut(t, d.memory, superseded)
		d.runAndCheck(reconcile.Summary{Unproven: 27})
		_, _, err := d.ledger.RecordTransfer(t.Context(), ledger.Witness{Key: payment(6).Key, At: time.Now(), Receipt: ledger.Receipt{Transaction: tx}})
		d.must(err)
		d.runAndCheck(reconcile.Summary{Unproven: 26, Owed: 1})
		var newest []string
		n, err := d.reconciler().Unproven(t.Context(), 3, func(r ledger.Payment) { newest = append(newest, r.Key) })
		want := []string{payment(28).Key, payment(29).Key, payment(30).Key}
		if diff := cmp.Diff(want, newest); n != 26 || err != nil || diff != "" {
			t.Errorf("%d, %v, the newest (-want +got):\n%s", n, err, diff)
		}
		d.noEvidence = false
		d.runAndCheck(reconcile.Summary{Owed: 1}) // there is a node now, so the chain shows whether a refused payment was paid
	})
}
