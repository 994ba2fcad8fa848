package ledger_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func witness(key string) ledger.Witness {
	return ledger.Witness{
		Key: key, Receipt: receipt(), At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Terms: json.RawMessage(`{"amount":"5000"}`),
		Of: func(ledger.Record) bool { return true },
	}
}

// testifies has a witness speak, who comes to what is wanted.
func (d *testLedger) testifies(t *testing.T, w ledger.Witness, want ledger.Testimony) {
	t.Helper()
	if got, err := d.Testify(t.Context(), w); err != nil || got != want {
		t.Errorf("Testify = %v, %v; want %v", got, err, want)
	}
}

// Money that is seen on the chain ends owed or as a refund, whatever was written
// about its payment before.
func TestTestify(t *testing.T) {
	refused := func(d *testLedger) { must(t, d.hold(t).Refused(t.Context(), "no")) }
	for name, c := range map[string]struct {
		before  func(d *testLedger)
		want    ledger.Testimony
		state   ledger.State
		lookups int
	}{
		"no record": {func(*testLedger) {}, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"expired": {func(d *testLedger) {
			refused(d)
			d.pass(40 * day)
		}, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"refused":   {refused, ledger.Found, ledger.Settled, 0},
		"disproved": {func(d *testLedger) { must(t, d.hold(t).Disproved(t.Context(), "no")) }, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"uncertain": {func(d *testLedger) { must(t, d.hold(t).Uncertain(t.Context(), "?", "")) }, ledger.Found, ledger.Settled, 0},
		"in flight": {func(d *testLedger) { d.hold(t) }, ledger.Found, ledger.Settled, 0},
		"settled":   {func(d *testLedger) { d.settled(t) }, ledger.Known, ledger.Settled, 1},
		"redeemed":  {func(d *testLedger) { must(t, d.settled(t).Redeem(t.Context(), answer(t, "x"))) }, ledger.Known, ledger.Redeemed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			c.before(d)
			d.testifies(t, witness(d.payment().Key), c.want)
			if r := d.state(t); r.State != c.state || r.Lookups != c.lookups || r.Receipt == nil || r.Disproved {
				t.Errorf("%+v", r)
			}
			d.testifies(t, witness(d.payment().Key), ledger.Known)
		})
	}
	// A live attempt keeps its lease when the money is seen before it says so.
	d := newTestLedger(t)
	h := d.hold(t)
	d.testifies(t, witness(d.payment().Key), ledger.Found)
	d.claim(t, ledger.InFlight)
	must(t, h.Settled(t.Context(), receipt(), true))
	must(t, h.Redeem(t.Context(), answer(t, "x")))
	// A transfer of the same nonce that is not the record's gets a record of its own.
	d = newTestLedger(t)
	d.hold(t)
	w := witness(d.payment().Key)
	w.Of = func(ledger.Record) bool { return false }
	d.testifies(t, w, ledger.RefundDue)
	d.testifies(t, w, ledger.Known)
	other := d.record(t, d.payment().Key+"|"+w.Receipt.Transaction)
	if r := d.state(t); r.State != ledger.Settling || !ledger.Spent(other, d.at) {
		t.Errorf("the record became %+v, the other is %+v", r, other)
	}
}

// A store that fails at any call loses nothing: the next time it is recorded.
func TestTestifyAgainstFaults(t *testing.T) {
	for _, refused := range []bool{false, true} {
		for _, fault := range faults {
			for at := 1; at <= 3; at++ {
				d := newTestLedger(t)
				if refused {
					must(t, d.hold(t).Refused(t.Context(), "no"))
				}
				n := 0
				d.decide = func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
					n++
					return map[bool]ledgertest.Fault{true: fault}[n == at]
				}
				w := witness(d.payment().Key)
				_, first := d.Testify(t.Context(), w)
				d.decide = nil
				if _, err := d.Testify(t.Context(), w); err != nil || d.state(t).State != ledger.Settled {
					t.Errorf("refused %v, %v at call %d: %v, then %v, %+v", refused, fault, at, first, err, d.state(t))
				}
			}
		}
	}
}

// Other writers may come between a witness's reading and its writing. Then it
// has no say, and the next time it has.
func TestTestifyMeetsOthers(t *testing.T) {
	uncertain := func(d *testLedger) { must(t, d.hold(t).Uncertain(t.Context(), "?", "")) }
	for name, c := range map[string]struct {
		before func(d *testLedger)
		op     ledgertest.Op // of the witness's call that something comes before
	}{
		"claimed meanwhile": {func(*testLedger) {}, ledgertest.Create},
		"claimed instead of the expired one": {func(d *testLedger) {
			must(t, d.hold(t).Refused(t.Context(), "no"))
			d.pass(40 * day)
		}, ledgertest.Replace},
		"others write whenever it does": {uncertain, ledgertest.Replace},
		"deleted meanwhile":             {func(d *testLedger) { d.hold(t) }, ledgertest.Fetch},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			c.before(d)
			fetches := 0
			d.decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				switch {
				case op != c.op:
				case op == ledgertest.Fetch:
					if fetches++; fetches == 2 {
						return ledgertest.Stale
					}
				case r.State == ledger.Settled:
					uncertain(d)
				}
				return ledgertest.None
			}
			w := witness(d.payment().Key)
			w.At = w.At.Add(100 * day)
			_, err := d.Testify(t.Context(), w)
			wants(t, ledger.ErrConflict, err)
			d.decide = nil
			d.testifies(t, w, ledger.Found)
			if r := d.state(t); r.State != ledger.Settled {
				t.Errorf("the next time: %+v", r)
			}
		})
	}
}

// A refund closes a debt that has no lookup left, once, and nothing else. One whose
// writing fails may be repeated, and is one.
func TestRefund(t *testing.T) {
	d := newTestLedger(t)
	key := d.payment().Key
	refuses := func(when, transaction string) {
		t.Helper()
		if _, err := d.Refund(t.Context(), key, transaction); !errors.Is(err, ledger.ErrIllegal) {
			t.Errorf("%s: %v, want ErrIllegal", when, err)
		}
	}
	refuses("no record", "0xback")
	h := d.hold(t)
	refuses("in flight", "0xback")
	must(t, h.Settled(t.Context(), receipt(), true))
	must(t, h.Release(t.Context(), timedOut()))
	refuses("lookups left", "0xback")
	d.pass(25 * time.Hour)
	refunds := func(d *testLedger) {
		t.Helper()
		if r, err := d.Refund(t.Context(), key, "0xback"); err != nil || r.State != ledger.Refunded || r.Refund != "0xback" || r.ExpiresAt.IsZero() {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	refunds(d)
	refunds(d)
	for _, fault := range faults {
		for _, op := range []ledgertest.Op{ledgertest.Fetch, ledgertest.Replace} {
			d := newTestLedger(t)
			d.testifies(t, witness(key), ledger.RefundDue)
			d.fails(op, fault, 1)
			if r, err := d.Refund(t.Context(), key, "0xback"); r != nil || !errors.Is(err, ledgertest.ErrInjected) {
				t.Errorf("%v at %s: %+v, %v", fault, op, r, err)
			}
			refunds(d)
		}
	}
	refuses("a second refund", "0xother")
	if c := d.claim(t, ledger.Over); c.Record.State != ledger.Refunded {
		t.Errorf("%+v", c.Record)
	}
}

// A transfer is for one debt, whoever asks first, and stays so.
func TestReserve(t *testing.T) {
	d := newTestLedger(t)
	key := ledger.RepaymentKey("eip155:8453", "0xa", "0xb", "0xc", 0)
	for _, c := range []struct {
		debt string
		mine bool
		wait time.Duration
	}{{"one", true, 0}, {"another", false, 0}, {"one", true, 1000 * day}, {"another", false, 0}} {
		if mine, err := d.Reserve(t.Context(), key, c.debt); mine != c.mine || err != nil {
			t.Errorf("Reserve for %s = %v, %v", c.debt, mine, err)
		}
		d.pass(c.wait)
	}
	d.hold(t)
	if mine, err := d.Reserve(t.Context(), d.payment().Key, "one"); mine || !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("a payment as a transfer: %v, %v", mine, err)
	}
}

// Debts and doubts have no end, also those that an earlier version gave one.
func TestDebtsHaveNoEnd(t *testing.T) {
	d := newTestLedger(t)
	must(t, d.hold(t).Settled(t.Context(), receipt(), false))
	old := d.state(t)
	old.Version, old.WriteID, old.ExpiresAt = old.Version+1, "old", d.at.Add(30*day)
	must(t, d.store.Replace(t.Context(), old))
	d.pass(31 * day)
	for range 2 { // the second time there is nothing to write
		kept, err := d.Keep(t.Context(), d.state(t))
		if r := d.state(t); err != nil || kept.Version != old.Version+1 || r.State != ledger.Settled || !r.ExpiresAt.IsZero() || r.Version != kept.Version {
			t.Errorf("%+v, %v; %+v", kept, err, r)
		}
	}
	if kept, err := d.Keep(t.Context(), old); kept != nil || err != nil { // somebody else has written
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestCursor(t *testing.T) {
	d := newTestLedger(t)
	key := ledger.CursorKey("eip155:8453", "0xa", "0xb")
	if c, err := d.Cursor(t.Context(), key); c != nil || err != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	first, err := d.Begin(t.Context(), key, 7)
	must(t, err)
	if _, err := d.Begin(t.Context(), key, 9); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("begun twice: %v", err)
	}
	second, err := d.Advance(t.Context(), *first, 20)
	must(t, err)
	if _, err := d.Advance(t.Context(), *first, 30); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("moved from behind: %v", err)
	}
	if _, err := d.Advance(t.Context(), *second, 19); err == nil {
		t.Error("a cursor went back")
	}
	begun := d.at
	d.pass(1000 * day)
	if c, err := d.Cursor(t.Context(), key); err != nil || c == nil || c.Next != 20 || !c.Begun.Equal(begun) {
		t.Errorf("%+v, %v", c, err)
	}
	d.claim(t, ledger.Held)
	if _, err := d.Cursor(t.Context(), d.payment().Key); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("a payment as a cursor: %v", err)
	}
}
