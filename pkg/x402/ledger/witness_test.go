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

// Money that is seen on the chain ends owed or as a refund, whatever was written about its
// payment before. A store that fails at any call loses nothing: the next time it is
// recorded.
func TestTestify(t *testing.T) {
	refused := func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventRefused, "no", "")) }
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
		"disproved": {func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventDisproved, "no", "")) }, ledger.RefundDue, ledger.Settled, ledger.MaxLookups},
		"uncertain": {func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventUncertain, "?", "")) }, ledger.Found, ledger.Settled, 0},
		"in flight": {func(d *testLedger) { d.hold(t) }, ledger.Found, ledger.Settled, 0},
		"settled":   {func(d *testLedger) { d.settled(t) }, ledger.Known, ledger.Settled, 1},
		"redeemed":  {func(d *testLedger) { must(t, d.settled(t).Redeem(t.Context(), answer(t, "x"), 0, false)) }, ledger.Known, ledger.Redeemed, 1},
	} {
		for _, fault := range faults {
			for at := range 4 { // the call that fails, none at first
				d := newTestLedger(t)
				c.before(d)
				n := 0
				d.decide = func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
					n++
					return map[bool]ledgertest.Fault{true: fault}[n == at]
				}
				if got, err := d.Testify(t.Context(), witness(d.payment().Key)); at == 0 && (got != c.want || err != nil) {
					t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
				}
				d.decide = nil
				_, err := d.Testify(t.Context(), witness(d.payment().Key))
				if r := d.state(t); r.State != c.state || r.Lookups != c.lookups || r.Receipt == nil || r.Disproved || err != nil {
					t.Errorf("%s, %v at call %d: %+v, %v", name, fault, at, r, err)
				}
				d.testifies(t, witness(d.payment().Key), ledger.Known)
			}
		}
	}
	// A transfer from before the claim is a refund. When the claim's lease ends, no lookup
	// has been cut off that would be given back.
	d := newTestLedger(t)
	d.hold(t)
	w := witness(d.payment().Key)
	w.At = d.at.Add(-time.Hour)
	d.testifies(t, w, ledger.RefundDue)
	d.pass(2 * lease)
	d.claim(t, ledger.Exhausted)
	// A transfer of the same nonce that is not the record's gets a separate record.
	d = newTestLedger(t)
	d.hold(t)
	w = witness(d.payment().Key)
	w.Of = func(ledger.Record) bool { return false }
	d.testifies(t, w, ledger.RefundDue)
	d.testifies(t, w, ledger.Known)
	other := d.record(t, d.payment().Key+"|"+w.Receipt.Transaction)
	if r := d.state(t); r.State != ledger.Settling || !ledger.Spent(other, d.at) {
		t.Errorf("the record became %+v, the other is %+v", r, other)
	}
}

// Other writers may come between a witness's reading and its writing: it reads again, and
// not for ever.
func TestTestifyMeetsOthers(t *testing.T) {
	uncertain := func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventUncertain, "?", "")) }
	expired := func(d *testLedger) {
		must(t, d.hold(t).End(t.Context(), ledger.EventRefused, "no", ""))
		d.pass(40 * day)
	}
	for name, c := range map[string]struct {
		before func(d *testLedger)
		op     ledgertest.Op // of the witness's call that something comes before
		times  int
		want   ledger.Testimony // 0 is a conflict
	}{
		"claimed meanwhile":                  {func(*testLedger) {}, ledgertest.Create, 1, ledger.Found},
		"claimed instead of the expired one": {expired, ledgertest.Replace, 1, ledger.Found},
		"others write twice":                 {uncertain, ledgertest.Replace, 2, ledger.Found},
		"others write whenever it does":      {uncertain, ledgertest.Replace, 3, 0},
		"deleted meanwhile":                  {func(d *testLedger) { d.hold(t) }, ledgertest.Replace, -1, ledger.RefundDue},
	} {
		d := newTestLedger(t)
		c.before(d)
		w := witness(d.payment().Key)
		w.At = w.At.Add(100 * day)
		d.decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			switch {
			case op != c.op || r.State != ledger.Settled || c.times == 0:
			case c.times < 0:
				c.times = 0
				d.memory.Delete(w.Key)
			default:
				c.times--
				uncertain(d)
			}
			return ledgertest.None
		}
		if got, err := d.Testify(t.Context(), w); got != c.want || errors.Is(err, ledger.ErrConflict) != (c.want == 0) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// A refund closes a debt that has no lookup left, once, and nothing else; so does an
// operator's word that it was answered, after which nothing is a refund. One whose
// writing fails may be repeated, and is one.
func TestRefund(t *testing.T) {
	const answered = "answered, says ann@desk" // instead of a transaction
	key := newTestLedger(t).payment().Key
	closes := func(d *testLedger, when, word string, want error) {
		t.Helper()
		closing, state := d.Refund, ledger.Refunded
		if word == answered {
			closing, state = d.Attest, ledger.Redeemed
		}
		r, err := closing(t.Context(), key, word)
		if !errors.Is(err, want) || want == nil && (r.State != state || r.Refund+r.Reason != word || r.Attested() != (word == answered) || r.ExpiresAt.IsZero()) {
			t.Fatalf("%s: %+v, %v; want %v", when, r, err, want)
		}
	}
	for word, c := range map[string]struct {
		other    string
		standing ledger.ClaimResult
	}{"0xback": {"0xother", ledger.Over}, answered: {"0xback", ledger.Answered}} {
		d := newTestLedger(t)
		closes(d, "no record", word, ledger.ErrIllegal)
		h := d.settled(t)
		closes(d, "in flight", word, ledger.ErrIllegal)
		must(t, h.Release(t.Context(), timedOut()))
		closes(d, "lookups left", word, ledger.ErrIllegal)
		d.pass(25 * time.Hour)
		closes(d, "due", word, nil)
		closes(d, "again", word, ledger.ErrIllegal)
		closes(d, "a second end", c.other, ledger.ErrIllegal)
		if r := d.claim(t, c.standing).Record; r.Attested() != (word == answered) {
			t.Errorf("%+v", r)
		}
		for _, op := range []ledgertest.Op{ledgertest.Fetch, ledgertest.Replace} {
			d := newTestLedger(t)
			d.testifies(t, witness(key), ledger.RefundDue)
			d.fails(op, ledgertest.FailBefore, 1)
			closes(d, "a failing "+string(op), word, ledgertest.ErrInjected)
			closes(d, "then", word, nil)
		}
	}
}

// What has the key of a payment is not a purchase, a cursor or a transfer.
func TestKinds(t *testing.T) {
	d := newTestLedger(t)
	p := d.payment()
	p.Key, p.Purchase = "other", d.hold(t).Record().Key
	wants(t, ledger.ErrCorrupt, errOf(d.OpenPurchase(t.Context(), d.claims(t, p, ledger.Held).Hold)))
	wants(t, ledger.ErrCorrupt, errOf(d.Purchase(t.Context(), p.Purchase)))
	wants(t, ledger.ErrCorrupt, errOf(d.Cursor(t.Context(), p.Purchase)))
	wants(t, ledger.ErrCorrupt, errOf(d.Reserve(t.Context(), p.Purchase, "one")))
}
