package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// An attempt that finds its own receipt on record already goes on, within its lease:
// the lookup that it began counts, and nobody runs beside it. Afterwards it goes on from
// nobody's evidence: the next claim may have begun.
func TestAdoptsWithinTheLeaseOnly(t *testing.T) {
	for name, c := range map[string]struct {
		late   time.Duration
		begins bool
		want   error
	}{
		"in time":                {0, true, nil},
		"in time, not beginning": {0, false, ledger.ErrLost},
		"too late":               {lease, true, ledger.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t, nil)
			old, taken := d.overtaken(t)
			wants(t, ledger.ErrLost, old.Settled(t.Context(), receipt(), true))
			d.clock.pass(c.late)
			wants(t, c.want, taken.Settled(t.Context(), receipt(), c.begins))
			if c.want != nil {
				return
			}
			d.claim(t, ledger.InFlight)
			must(t, taken.Redeem(t.Context(), answer(t, "x")))
			if r := d.claim(t, ledger.Answered).Record; r.Lookups != 1 {
				t.Errorf("%d lookups", r.Lookups)
			}
		})
	}
}

// The same when its own write of the settlement failed: the lookup that it
// began goes on.
func TestAdoptsAfterAFailedWrite(t *testing.T) {
	d := newTestLedger(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, 2))
	old, taken := d.overtaken(t)
	wants(t, ledgertest.ErrInjected, taken.Settled(t.Context(), receipt(), true))
	wants(t, ledger.ErrLost, old.Settled(t.Context(), receipt(), true))
	must(t, taken.Redeem(t.Context(), answer(t, "x")))
	if r := d.claim(t, ledger.Answered).Record; r.Lookups != 1 {
		t.Errorf("%d lookups", r.Lookups)
	}
}

// Nor from evidence that a third attempt has gone on from already.
func TestAdoptsItsOwnAttemptOnly(t *testing.T) {
	d := newTestLedger(t, nil)
	first, second := d.overtaken(t)
	wants(t, ledger.ErrLost, first.Settled(t.Context(), receipt(), true))
	d.clock.pass(lease)
	third := d.hold(t)
	wants(t, ledger.ErrLost, second.Settled(t.Context(), receipt(), true)) // it would go on beside the third
	must(t, third.Redeem(t.Context(), answer(t, "x")))
}

// A receipt that comes when the answer is there already changes nothing.
func TestEvidenceAfterTheAnswer(t *testing.T) {
	d := newTestLedger(t, nil)
	old, taken := d.overtaken(t)
	must(t, taken.Settled(t.Context(), receipt(), true))
	must(t, taken.Redeem(t.Context(), answer(t, "x")))
	before := d.state(t)
	late := receipt()
	late.Transaction = "0x02"
	wants(t, ledger.ErrLost, old.Settled(t.Context(), late, true))
	if r := d.state(t); r.State != ledger.Redeemed || r.Version != before.Version || r.Receipt.Transaction != "0x01" {
		t.Errorf("%+v", r)
	}
}

// Evidence is written against two other writers, and not for ever. The first
// of those here comes before the write that finds the lease lost.
func TestEvidenceAgainstWriters(t *testing.T) {
	for others, want := range map[int]error{0: ledger.ErrLost, 3: ledger.ErrLost, 4: ledger.ErrConflict} {
		var d testLedger
		n, armed := 0, false
		d = newTestLedger(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if op != ledgertest.Replace || !armed || r.State != ledger.Settled || n >= others {
				return ledgertest.None
			}
			n++
			armed = false
			must(t, d.hold(t).Uncertain(t.Context(), "?", "")) // it comes first
			armed = true
			return ledgertest.None
		})
		old, taken := d.overtaken(t)
		must(t, taken.Uncertain(t.Context(), "?", ""))
		// The first write of the old holder is on a version that is gone.
		wants(t, ledger.ErrLost, old.Refused(t.Context(), "no"))
		armed = others > 0
		if err := old.Settled(t.Context(), receipt(), true); !errors.Is(err, want) {
			t.Errorf("%d other writers: %v, want %v", others, err, want)
		}
		if r := d.state(t); (r.State == ledger.Settled) != errors.Is(want, ledger.ErrLost) {
			t.Errorf("%d other writers: %s", others, r.State)
		}
	}
}

// A lease that was given back already is not given back again.
func TestReturnAfterRelease(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), false))
	before := d.state(t)
	must(t, h.Return(t.Context()))
	if r := d.state(t); r.Version != before.Version || r.Lookups != 0 {
		t.Errorf("%d lookups, version %d after %d", r.Lookups, r.Version, before.Version)
	}
}

// What is in doubt, or paid and not answered, is remembered until that ends; what
// is decided for 35 days after its authorization and its last write.
func TestKept(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		make func(d testLedger, h *ledger.Hold)
		keep time.Duration // 0: without an end
	}{
		"abandoned": {func(testLedger, *ledger.Hold) {}, 0},
		"uncertain": {func(_ testLedger, h *ledger.Hold) { must(t, h.Uncertain(t.Context(), "?", "")) }, 0},
		"settled":   {func(_ testLedger, h *ledger.Hold) { must(t, h.Settled(t.Context(), receipt(), false)) }, 0},
		"uncertain once more": {func(d testLedger, h *ledger.Hold) {
			must(t, h.Uncertain(t.Context(), "?", ""))
			d.clock.pass(time.Hour)
			must(t, d.hold(t).Uncertain(t.Context(), "?", ""))
			d.clock.pass(-time.Hour)
		}, 0},
		"refused": {func(_ testLedger, h *ledger.Hold) { must(t, h.Refused(t.Context(), "no")) }, 35 * day},
		"redeemed": {func(_ testLedger, h *ledger.Hold) {
			must(t, h.Settled(t.Context(), receipt(), true))
			must(t, h.Redeem(t.Context(), answer(t, "x")))
		}, 35 * day},
	} {
		d := newTestLedger(t, nil)
		p := d.payment()
		c.make(d, d.hold(t))
		if c.keep == 0 {
			d.clock.pass(1000 * day)
			d.state(t)
			continue
		}
		d.clock.pass(p.ValidBefore.Sub(d.clock.now()) + c.keep - time.Nanosecond)
		if r, err := d.Fetch(t.Context(), p.Key); r == nil || err != nil {
			t.Errorf("%s: forgotten too early: %v", name, err)
		}
		d.clock.pass(time.Nanosecond)
		if r, err := d.Fetch(t.Context(), p.Key); r != nil || err != nil {
			t.Errorf("%s: kept too long: %+v, %v", name, r, err)
		}
	}
	// A decided one is kept from its last write on.
	d := newTestLedger(t, nil)
	h := d.settled(t)
	must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
	d.clock.pass(23 * time.Hour)
	must(t, d.hold(t).Redeem(t.Context(), answer(t, "x")))
	d.clock.pass(35*day - time.Nanosecond)
	d.state(t)
}

// The reconciler's lease is a write like any other.
func TestReclaimFaults(t *testing.T) {
	d := newTestLedger(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, 2))
	must(t, d.hold(t).Uncertain(t.Context(), "?", ""))
	if h, err := d.Reclaim(t.Context(), d.state(t), d.clock.now().Add(lease)); h != nil || !errors.Is(err, ledgertest.ErrInjected) {
		t.Errorf("%v, %v", h, err)
	}
}
