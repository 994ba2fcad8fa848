package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// Money that is seen on the chain ends owed or as a refund, whatever was written
// about its payment before.
func TestTestify(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(t *testing.T, d testLedger)
		want    ledger.Testimony
		state   ledger.State
		lookups int
	}{
		"no record": {func(*testing.T, testLedger) {}, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"expired": {func(t *testing.T, d testLedger) {
			must(t, d.hold(t).Refused(t.Context(), "no"))
			d.clock.pass(40 * 24 * time.Hour)
		}, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"refused":   {func(t *testing.T, d testLedger) { must(t, d.hold(t).Refused(t.Context(), "no")) }, ledger.Found, ledger.Settled, 0},
		"disproved": {func(t *testing.T, d testLedger) { must(t, d.hold(t).Disproved(t.Context(), "no")) }, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"uncertain": {func(t *testing.T, d testLedger) { must(t, d.hold(t).Uncertain(t.Context(), "?", "")) }, ledger.Found, ledger.Settled, 0},
		"in flight": {func(t *testing.T, d testLedger) { d.hold(t) }, ledger.Found, ledger.Settled, 0},
		"settled":   {func(t *testing.T, d testLedger) { d.settled(t) }, ledger.Known, ledger.Settled, 1},
		"redeemed": {func(t *testing.T, d testLedger) {
			must(t, d.settled(t).Redeem(t.Context(), answer(t, "x")))
		}, ledger.Known, ledger.Redeemed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t, nil)
			c.before(t, d)
			w := witness(d.payment().Key)
			got, err := d.Testify(t.Context(), w)
			if r := d.state(t); err != nil || got != c.want || r.State != c.state || r.Lookups != c.lookups || r.Receipt == nil || r.Disproved {
				t.Errorf("Testify = %v, %v; %+v", got, err, r)
			}
			if got, err := d.Testify(t.Context(), w); err != nil || got != ledger.Known {
				t.Errorf("again: %v, %v", got, err)
			}
		})
	}
}

// A live attempt keeps its lease when the money is seen before it says so.
func TestTestifyLeavesTheLease(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.claim(t, ledger.Held).Hold
	if got, err := d.Testify(t.Context(), witness(d.payment().Key)); err != nil || got != ledger.Found {
		t.Fatal(got, err)
	}
	d.claim(t, ledger.InFlight)
	must(t, h.Settled(t.Context(), receipt(), true))
	must(t, h.Redeem(t.Context(), answer(t, "x")))
}

// A transfer of the same nonce that is not the record's gets a record of its own.
func TestTestifyAnotherAuthorization(t *testing.T) {
	d := newTestLedger(t, nil)
	d.claim(t, ledger.Held)
	w := witness(d.payment().Key)
	w.Of = func(ledger.Record) bool { return false }
	for _, want := range []ledger.Testimony{ledger.RefundDue, ledger.Known} {
		if got, err := d.Testify(t.Context(), w); err != nil || got != want {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	if r := d.state(t); r.State != ledger.Settling {
		t.Errorf("the record became %s", r.State)
	}
	if r, err := d.Fetch(t.Context(), d.payment().Key+"|"+w.Receipt.Transaction); err != nil || r == nil || !ledger.Spent(*r, d.clock.now()) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A store that fails at any call loses nothing: the next time it is recorded.
func TestTestifyAgainstFaults(t *testing.T) {
	for _, refused := range []bool{false, true} {
		for _, fault := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
			for at := 1; at <= 3; at++ {
				n := 0
				d, armed := newArmed(t, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
					if n++; n == at {
						return fault
					}
					return ledgertest.None
				})
				if refused {
					must(t, d.claim(t, ledger.Held).Hold.Refused(t.Context(), "no"))
				}
				*armed = true
				w := witness(d.payment().Key)
				_, first := d.Testify(t.Context(), w)
				*armed = false
				if _, err := d.Testify(t.Context(), w); err != nil {
					t.Errorf("refused %v, %v at call %d: %v, then %v", refused, fault, at, first, err)
				}
				if r := d.state(t); r.State != ledger.Settled {
					t.Errorf("refused %v, %v at call %d: %s", refused, fault, at, r.State)
				}
			}
		}
	}
}

// Other writers may come between a witness's reading and its writing. Then it
// has no say, and the next time it has.
func TestTestifyMeetsOthers(t *testing.T) {
	uncertain := func(t *testing.T, d testLedger) { must(t, d.hold(t).Uncertain(t.Context(), "?", "")) }
	for name, c := range map[string]struct {
		before func(t *testing.T, d testLedger)
		op     ledgertest.Op // of the witness's write that another writer comes before
	}{
		"claimed meanwhile": {func(*testing.T, testLedger) {}, ledgertest.Create},
		"claimed instead of the expired one": {func(t *testing.T, d testLedger) {
			must(t, d.hold(t).Refused(t.Context(), "no"))
			d.clock.pass(40 * 24 * time.Hour)
		}, ledgertest.Replace},
		"others write whenever it does": {uncertain, ledgertest.Replace},
		"deleted meanwhile":             {func(t *testing.T, d testLedger) { d.hold(t) }, ledgertest.Fetch},
	} {
		t.Run(name, func(t *testing.T) {
			fetches := 0
			var d testLedger
			var armed *bool
			d, armed = newArmed(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				switch {
				case op != c.op:
				case op == ledgertest.Fetch:
					if fetches++; fetches == 2 {
						return ledgertest.Stale
					}
				case r.State == ledger.Settled:
					uncertain(t, d)
				}
				return ledgertest.None
			})
			c.before(t, d)
			w := witness(d.payment().Key)
			w.At = w.At.Add(100 * 24 * time.Hour)
			*armed = true
			_, err := d.Testify(t.Context(), w)
			wants(t, ledger.ErrConflict, err)
			*armed = false
			if got, err := d.Testify(t.Context(), w); got != ledger.Found || err != nil || d.state(t).State != ledger.Settled {
				t.Errorf("the next time: %v, %v, %+v", got, err, d.state(t))
			}
		})
	}
}

// A refund whose writing fails may be repeated, and is one.
func TestRefundAgainstFaults(t *testing.T) {
	for _, fault := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		for _, at := range []ledgertest.Op{ledgertest.Fetch, ledgertest.Replace} {
			d, armed := newArmed(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
				if op == at {
					return fault
				}
				return ledgertest.None
			})
			key := d.payment().Key
			_, err := d.Testify(t.Context(), witness(key))
			must(t, err)
			*armed = true
			if r, err := d.Refund(t.Context(), key, "0xback"); r != nil || !errors.Is(err, ledgertest.ErrInjected) {
				t.Errorf("%v at %s: %+v, %v", fault, at, r, err)
			}
			*armed = false
			if r, err := d.Refund(t.Context(), key, "0xback"); err != nil || r.State != ledger.Refunded || d.state(t).Refund != "0xback" {
				t.Errorf("%v at %s, repeated: %+v, %v", fault, at, r, err)
			}
		}
	}
}

// A refund closes a debt that has no lookup left, once, and nothing else.
func TestRefund(t *testing.T) {
	d := newTestLedger(t, nil)
	key := d.payment().Key
	refuses := func(when string) {
		t.Helper()
		if _, err := d.Refund(t.Context(), key, "0xback"); !errors.Is(err, ledger.ErrIllegal) {
			t.Errorf("%s: %v, want ErrIllegal", when, err)
		}
	}
	refuses("no record")
	h := d.claim(t, ledger.Held).Hold
	refuses("in flight")
	must(t, h.Settled(t.Context(), receipt(), true))
	must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
	refuses("lookups left")
	d.clock.pass(25 * time.Hour)
	for range 2 {
		r, err := d.Refund(t.Context(), key, "0xback")
		if err != nil || r.State != ledger.Refunded || r.Refund != "0xback" || r.ExpiresAt.IsZero() {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if _, err := d.Refund(t.Context(), key, "0xother"); !errors.Is(err, ledger.ErrIllegal) {
		t.Errorf("a second refund: %v", err)
	}
	if c := d.claim(t, ledger.Over); c.Record.State != ledger.Refunded {
		t.Errorf("%+v", c.Record)
	}
}

// A transfer is for one debt, whoever asks first, and stays so.
func TestReserve(t *testing.T) {
	d := newTestLedger(t, nil)
	key := ledger.RepaymentKey("eip155:8453", "0xa", "0xb", "0xc", 0)
	reserve := func(debt string, want bool) {
		t.Helper()
		if mine, err := d.Reserve(t.Context(), key, debt); mine != want || err != nil {
			t.Errorf("Reserve for %s = %v, %v", debt, mine, err)
		}
	}
	reserve("one", true)
	reserve("another", false)
	reserve("one", true)
	d.clock.pass(1000 * 24 * time.Hour)
	reserve("another", false)
	d.claim(t, ledger.Held)
	if mine, err := d.Reserve(t.Context(), d.payment().Key, "one"); mine || !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("a payment as a transfer: %v, %v", mine, err)
	}
}

// Of many who reserve one transfer at once, one gets it.
func TestReserveRace(t *testing.T) {
	d := newTestLedger(t, nil)
	key := ledger.RepaymentKey("eip155:8453", "0xa", "0xb", "0xc", 0)
	var all sync.WaitGroup
	var got atomic.Int32
	for i := range 20 {
		all.Go(func() {
			mine, err := d.Reserve(t.Context(), key, fmt.Sprint(i))
			if err != nil {
				t.Error(err)
			}
			if mine {
				got.Add(1)
			}
		})
	}
	all.Wait()
	if got.Load() != 1 {
		t.Errorf("%d of 20 got it", got.Load())
	}
}

// What evidence refused is final, and costs no write to say again.
func TestDisprovedIsFinal(t *testing.T) {
	d := newTestLedger(t, nil)
	must(t, d.claim(t, ledger.Held).Hold.Disproved(t.Context(), "cancelled"))
	before := d.state(t)
	if c := d.claim(t, ledger.Over); c.Record.Version != before.Version || c.Record.Reason != "cancelled" {
		t.Errorf("%+v", c.Record)
	}
}

// Debts and doubts have no end, also those that an earlier version gave one.
func TestDebtsHaveNoEnd(t *testing.T) {
	d := newTestLedger(t, nil)
	must(t, d.claim(t, ledger.Held).Hold.Settled(t.Context(), receipt(), false))
	old := d.state(t)
	old.Version, old.WriteID, old.ExpiresAt = old.Version+1, "old", d.clock.now().Add(30*24*time.Hour)
	must(t, d.store.Replace(t.Context(), old))
	d.clock.pass(31 * 24 * time.Hour)
	r := d.state(t)
	if r.State != ledger.Settled {
		t.Fatalf("%+v", r)
	}
	if _, err := d.Keep(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if r := d.state(t); !r.ExpiresAt.IsZero() || r.Version != old.Version+1 {
		t.Errorf("%+v", r)
	}
	if kept, err := d.Keep(t.Context(), d.state(t)); err != nil || kept.Version != old.Version+1 || d.state(t).Version != kept.Version {
		t.Errorf("a record without an end was written: %+v, %v", kept, err)
	}
	if kept, err := d.Keep(t.Context(), old); kept != nil || err != nil { // somebody else has written
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestCursor(t *testing.T) {
	d := newTestLedger(t, nil)
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
	begun := d.clock.now()
	d.clock.pass(1000 * 24 * time.Hour)
	if c, err := d.Cursor(t.Context(), key); err != nil || c == nil || c.Next != 20 || !c.Begun.Equal(begun) {
		t.Errorf("%+v, %v", c, err)
	}
	d.claim(t, ledger.Held)
	if _, err := d.Cursor(t.Context(), d.payment().Key); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("a payment as a cursor: %v", err)
	}
}
