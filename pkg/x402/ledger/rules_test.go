package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// An attempt whose lease ran out goes on from nobody's evidence: the next
// claim may have begun.
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
		d := newTestLedger(t, nil)
		old := d.claim(t, ledger.Held)
		d.clock.pass(lease)
		taken := d.claim(t, ledger.Held)
		if err := old.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, ledger.ErrLost) {
			t.Fatal(err)
		}
		d.clock.pass(c.late)
		if err := taken.Hold.Settled(t.Context(), receipt(), c.begins); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The same when its own write of the settlement failed: the lookup that it
// began goes on.
func TestAdoptsAfterAFailedWrite(t *testing.T) {
	d := newTestLedger(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, 2))
	old := d.claim(t, ledger.Held)
	d.clock.pass(lease)
	taken := d.claim(t, ledger.Held).Hold
	if err := taken.Settled(t.Context(), receipt(), true); !errors.Is(err, ledgertest.ErrInjected) {
		t.Fatal(err)
	}
	if err := old.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, ledger.ErrLost) {
		t.Fatal(err)
	}
	must(t, taken.Redeem(t.Context(), answer(t, "x")))
	if r := d.claim(t, ledger.Answered).Record; r.Lookups != 1 {
		t.Errorf("%d lookups", r.Lookups)
	}
}

// Nor from evidence that a third attempt has gone on from already.
func TestAdoptsItsOwnAttemptOnly(t *testing.T) {
	d := newTestLedger(t, nil)
	first := d.claim(t, ledger.Held)
	d.clock.pass(lease)
	second := d.claim(t, ledger.Held)
	if err := first.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, ledger.ErrLost) {
		t.Fatal(err)
	}
	d.clock.pass(lease)
	third := d.claim(t, ledger.Held)
	if err := second.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("the second goes on beside the third: %v", err)
	}
	must(t, third.Hold.Redeem(t.Context(), answer(t, "x")))
}

// A receipt that comes when the answer is there already changes nothing.
func TestEvidenceAfterTheAnswer(t *testing.T) {
	d := newTestLedger(t, nil)
	old := d.claim(t, ledger.Held)
	d.clock.pass(lease)
	taken := d.claim(t, ledger.Held).Hold
	must(t, taken.Settled(t.Context(), receipt(), true))
	must(t, taken.Redeem(t.Context(), answer(t, "x")))
	before := d.state(t)
	late := receipt()
	late.Transaction = "0x02"
	if err := old.Hold.Settled(t.Context(), late, true); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
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
			must(t, d.claim(t, ledger.Held).Hold.Uncertain(t.Context(), "?", "")) // it comes first
			armed = true
			return ledgertest.None
		})
		old := d.claim(t, ledger.Held)
		d.clock.pass(lease)
		must(t, d.claim(t, ledger.Held).Hold.Uncertain(t.Context(), "?", ""))
		// The first write of the old holder is on a version that is gone.
		if err := old.Hold.Refused(t.Context(), "no"); !errors.Is(err, ledger.ErrLost) {
			t.Fatal(err)
		}
		armed = others > 0
		if err := old.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, want) {
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
	h := d.claim(t, ledger.Held).Hold
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
			must(t, d.claim(t, ledger.Held).Hold.Uncertain(t.Context(), "?", ""))
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
		c.make(d, d.claim(t, ledger.Held).Hold)
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
	h := d.claim(t, ledger.Held).Hold
	must(t, h.Settled(t.Context(), receipt(), true))
	must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
	d.clock.pass(23 * time.Hour)
	must(t, d.claim(t, ledger.Held).Hold.Redeem(t.Context(), answer(t, "x")))
	d.clock.pass(35*day - time.Nanosecond)
	d.state(t)
}

// Every lookup that a payment buys: counted from the outside.
func TestFiveLookups(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.claim(t, ledger.Held).Hold
	must(t, h.Settled(t.Context(), receipt(), true))
	for n := 1; ; n++ {
		must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
		if spent := ledger.Spent(h.Record(), d.clock.now()); spent != (n == 5) {
			t.Fatalf("after %d lookups: spent %t", n, spent)
		}
		if n == 5 {
			break
		}
		d.clock.pass(10 * time.Minute)
		h = d.claim(t, ledger.Held).Hold
	}
	d.claim(t, ledger.Exhausted)
}

// A payment that is not known to be on record has every lookup left.
func TestSpentBeforeItIsRecorded(t *testing.T) {
	d := newTestLedger(t, nil)
	if r := d.claim(t, ledger.Held).Record; ledger.Spent(r, d.clock.now()) {
		t.Errorf("spent: %+v", r)
	}
}

// The reconciler's lease is a write like any other.
func TestReclaimFaults(t *testing.T) {
	armed := false
	d := newTestLedger(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if armed && op == ledgertest.Replace {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	must(t, d.claim(t, ledger.Held).Hold.Uncertain(t.Context(), "?", ""))
	armed = true
	if h, err := d.Reclaim(t.Context(), d.state(t), d.clock.now().Add(lease)); h != nil || !errors.Is(err, ledgertest.ErrInjected) {
		t.Errorf("%v, %v", h, err)
	}
}
