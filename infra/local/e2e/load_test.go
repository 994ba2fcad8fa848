package e2e

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// The tests of this file run by themselves, before the parallel tests: a thousand
// requests would take the time budgets of everybody else.

// The sizes of crowds: what a machine gets through within a part of the
// service's own deadlines, but never fewer than meet each other, and no more
// than say anything new.
const (
	smallCrowd, largeCrowd = 50, 1000
	// crowdTime is half of what one lookup may take, which all the others of a
	// crowd may keep waiting.
	crowdTime = 4 * time.Second
)

// crowdSize measures how many paid requests a fleet answers in a second on this
// machine at this moment, and returns how many may come at once.
func crowdSize(tb testing.TB, l *lab, f *fleet) int {
	tb.Helper()
	const samples, atOnce = 24, 8
	b := newBatch(tb, l, f, samples, modeHealthy)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	if err := crowd(samples, atOnce, func(i int) error {
		return b.persist(ctx, &b.payments[i], func(exchange) {})
	}); err != nil {
		tb.Fatalf("measure the machine: %v", err)
	}
	rate := samples / time.Since(begun).Seconds()
	n := max(smallCrowd, min(largeCrowd, int(rate*crowdTime.Seconds())))
	tb.Logf("%.0f paid requests a second: a crowd of %d", rate, n)
	return n
}

// TestThousandPayments has many payments arrive at one service at the same
// moment, a thousand on a machine that can, and then as many copies of one. On a
// machine that is busy with something else somebody may be told to come back, and
// be looked up again.
func TestThousandPayments(t *testing.T) {
	verifyOnly(t, "sends a crowd of payments")
	l := newLab(t)
	s := l.setup()
	s.single, s.crowd = "0", true
	f := fleetOf(openLocal(t, l, s))
	n := crowdSize(t, l, f)
	payments(t, l, f, n)
	copies(t, l, f, n)
}

// TestLoad has one fleet serve the crowds, one after the other. The tool has no
// cap.
func TestLoad(t *testing.T) {
	verifyOnly(t, "needs Node for the DynamoDB server")
	l := newLab(t)
	s := l.setup()
	s.single, s.crowd = "0", true
	f := newFleet(t, l, s)
	t.Run("copies", func(t *testing.T) { copies(t, l, f, crowdSize(t, l, f)) })
	t.Run("payments", func(t *testing.T) { payments(t, l, f, crowdSize(t, l, f)) })
}

// copies spreads the copies of one payment over the processes of a fleet: one
// settlement, and one lookup.
func copies(t *testing.T, l *lab, f *fleet, n int) {
	t.Helper()
	b := emptyBatch(t, l, f)
	b.sign(b.fill(lookup("{healthy}", "A")), nil, nil)
	for range n {
		b.payments = append(b.payments, purchase{name: b.name, path: b.path, header: b.header})
	}
	b.sendOne(t)
	calls := l.settles(b.payer)
	b.booked(catalog.DNS(), calls, 1)
	if calls > 1+b.doubts() {
		t.Errorf("%d settlements, %d times in doubt", calls, b.doubts())
	}
	b.checkLookups(t, b.name, b.header)
}

// sendOne sends many payments for one purchase at one moment, over all processes of
// the fleet. Each gets the answer, or is told to come back by a 409, and then gets it.
func (b *batch) sendOne(t *testing.T) {
	t.Helper()
	// The one that settles is held up until a tenth of the others is answered:
	// they did arrive while it was under way. On a busy machine all of them take
	// their time, and a settlement has only so much of it.
	g := b.lab.hold(b.payer)
	defer openAfter(g, 5*time.Second)()
	var answered atomic.Int64
	var during atomic.Bool // a tenth was answered while it was under way
	n := len(b.payments)
	// A store that is too slow for a moment says nothing about the others, and
	// neither does a lookup: they say when to come again.
	busy := func(e exchange) bool { return e.status == http.StatusConflict }
	took := b.rush(t, busy, func() {
		if answered.Add(1) == int64(n/10) {
			during.Store(g.shut())
			g.open()
		}
	})
	first, replayed, waiting := b.tally(t)
	if during.Load() && len(waiting) < n/10 || first+replayed+len(waiting) != n {
		t.Errorf("%d answers and %d times 409 for %d payments", first+replayed, len(waiting), n)
	}
	b.comeAgain(t, waiting)
	if again, _, left := b.tally(t); again != first || len(left) > 0 {
		t.Errorf("%d answers were looked up and then %d, %d are still in progress", first, again, len(left))
	}
	t.Logf("%d payments of one purchase over %d processes in %s: %d looked up, %d answered by that, %d times 409, %s",
		n, len(b.f.members), took.Round(time.Millisecond), first, replayed, len(waiting), b.waits())
}

// tally holds all answers to being one answer, of which there is one receipt if it
// was looked up once; or to saying that the payment is in progress.
func (b *batch) tally(t *testing.T) (first, replayed int, waiting []int) {
	t.Helper()
	receipts := map[string]int{}
	for i, p := range b.payments {
		e := p.answer
		switch e.status {
		case http.StatusOK:
			w := result(b.fill(healthy().body))
			if e.header.Get(x402.HeaderReplayed) == "" {
				first++
			} else {
				replayed++
				w, b.first = w.replayed(), e // its receipt is held to the books
			}
			w.blind = b.doubts() > 0 && transactionOf(e) == ""
			b.check(e, w)
			receipts[e.header.Get(x402.HeaderResponse)]++
		case http.StatusConflict:
			waiting = append(waiting, i)
			w := fails(fault.PaymentInProgress)
			if e.header.Get(x402.HeaderResponse) != "" {
				w = w.charge(moved) // it came during the lookup
			}
			b.check(e, w)
		default:
			t.Errorf("a payment got %s", e)
		}
	}
	if first == 1 && len(receipts) > 1 {
		t.Errorf("%d receipts for one purchase: %v", len(receipts), receipts)
	}
	return first, replayed, waiting
}

// openAfter opens a gate some time after somebody came to it. What it returns
// ends the waiting.
func openAfter(g *gate, d time.Duration) (end func()) {
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-g.arrived:
		case <-over:
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			g.open()
		case <-over:
		}
	})
	return func() { close(over); waiting.Wait() }
}

// payments has many payments on their way at once: all are answered, each is
// charged once and looked up once, and each is used up in the ledger.
func payments(t *testing.T, l *lab, f *fleet, n int) {
	t.Helper()
	b := newBatch(t, l, f, n, modeHealthy)
	took := b.rush(t, func(exchange) bool { return false }, func() {})
	b.audit(t)
	// A store that is too slow to take the answer does not keep it from the
	// payer: the record may then be behind, and the log says so. It is made good
	// when the payer comes again.
	behind, said := b.unused(t), f.said("answer not recorded")
	if len(behind) > said {
		t.Fatalf("%d records are not redeemed, %d answers were served without", len(behind), said)
	}
	still := behind
	for deadline := time.Now().Add(2 * patience); len(still) > 0 && time.Now().Before(deadline); still = b.unused(t) {
		b.comeAgain(t, still)
	}
	if len(still) > 0 {
		t.Errorf("%d records are not redeemed although the payers came again: %v", len(still), still)
	}
	is(t, "transfers", len(l.facilitator.Moved(b.payer)), n)
	t.Logf("%d payments over %d processes in %s: %s; %d answers served that the store was too late for, %d of them not in it",
		n, len(f.members), took.Round(time.Millisecond), b.waits(), said, len(behind))
}
