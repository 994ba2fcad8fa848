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
		Of: func(ledger.Payment) bool { return true },
	}
}

// These are the results of recordTransfer.
const resultKnown, resultFound, resultRefundDue, resultFailed = "known", "found", "a refund is due", "failed"

// recordTransfer calls RecordTransfer with a witness, and returns one of these results.
func (d *testLedger) recordTransfer(t *testing.T, w ledger.Witness) (string, error) {
	r, written, err := d.RecordTransfer(t.Context(), w)
	switch {
	case err != nil:
		return resultFailed, err
	case !written:
		return resultKnown, nil
	case r.DueBack != "":
		return resultRefundDue, nil
	}
	return resultFound, nil
}

func (d *testLedger) checkRecordTransfer(t *testing.T, w ledger.Witness, want string) {
	t.Helper()
	if got, err := d.recordTransfer(t, w); got != want {
		t.Errorf("RecordTransfer = %s, %v; want %s", got, err, want)
	}
}

// TestRecordTransfer checks that money which is seen on the chain becomes an owed answer or a
// refund, whatever the payment's record said before. If the store fails at any call, nothing
// must be lost: the next RecordTransfer must record the money.
func TestRecordTransfer(t *testing.T) {
	refused := func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventRefused, "no", "")) }
	for name, c := range map[string]struct {
		setUp   func(d *testLedger)
		want    string
		state   ledger.State
		lookups int
	}{
		"no record": {func(*testLedger) {}, resultRefundDue, ledger.Settled, 0},
		"expired": {func(d *testLedger) {
			refused(d)
			d.advance(40 * day)
		}, resultRefundDue, ledger.Settled, 0},
		"refused":   {refused, resultFound, ledger.Settled, 0},
		"disproved": {func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventDisproved, "no", "")) }, resultRefundDue, ledger.Settled, 0},
		"uncertain": {func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventUncertain, "?", "")) }, resultFound, ledger.Settled, 0},
		"in flight": {func(d *testLedger) { d.hold(t) }, resultFound, ledger.Settled, 0},
		"settled":   {func(d *testLedger) { d.settle(t) }, resultKnown, ledger.Settled, 1},
		"redeemed":  {func(d *testLedger) { must(t, d.settle(t).Redeem(t.Context(), answer(t, "x"), 0, false)) }, resultKnown, ledger.Redeemed, 1},
	} {
		for _, fault := range faults {
			for at := range 4 { // the number of the call that fails; 0 means none
				d := newTestLedger(t)
				c.setUp(d)
				n := 0
				d.store.Decide = func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
					n++
					return map[bool]ledgertest.Fault{true: fault}[n == at]
				}
				if got, err := d.recordTransfer(t, witness(d.payment().Key)); at == 0 && got != c.want {
					t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
				}
				d.store.Decide = nil
				_, err := d.recordTransfer(t, witness(d.payment().Key))
				if r := d.recorded(t); r.State != c.state || r.Lookups != c.lookups || r.Receipt == nil || r.Disproved || err != nil {
					t.Errorf("%s, %v at call %d: %+v, %v", name, fault, at, r, err)
				}
				d.checkRecordTransfer(t, witness(d.payment().Key), resultKnown)
			}
		}
	}
	// If a transfer is older than the claim, its amount must be refunded.
	d := newTestLedger(t)
	d.hold(t)
	w := witness(d.payment().Key)
	w.At = d.clock.Add(-time.Hour)
	d.checkRecordTransfer(t, w, resultRefundDue)
	d.advance(2 * lease)
	d.claim(t, ledger.GoesBack)
	// If a transfer has the nonce of a record but does not belong to that record, the transfer
	// must get a separate record.
	d = newTestLedger(t)
	d.hold(t)
	w = witness(d.payment().Key)
	w.Of = func(ledger.Payment) bool { return false }
	d.checkRecordTransfer(t, w, resultRefundDue)
	d.checkRecordTransfer(t, w, resultKnown)
	other := d.record(t, d.payment().Key+"|"+w.Receipt.Transaction)
	if r := d.recorded(t); r.State != ledger.Settling || other.DueBack != ledger.DueUnasked {
		t.Errorf("the record became %+v, the other is %+v", r, other)
	}
}

// TestRecordTransferReplaced checks a payment that another payment has replaced for its
// purchase. Then the chain shows that the replaced payment moved money. If the replacement is
// known to be paid, this money must be refunded. It must also be refunded if the payer had
// been told for certain that no money moves. Otherwise an answer must be owed.
func TestRecordTransferReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		endEvent  ledger.Event // the event with which the attempt to settle ends
		ownerStep func(d *testLedger, owner *ledger.Hold)
		want      string
	}{
		"paid":     {ledger.EventUncertain, func(_ *testLedger, h *ledger.Hold) { must(t, h.Settled(t.Context(), receipt(), true)) }, resultRefundDue},
		"not paid": {ledger.EventUncertain, func(*testLedger, *ledger.Hold) {}, resultFound},
		"expired": {ledger.EventUncertain, func(d *testLedger, h *ledger.Hold) {
			must(t, h.End(t.Context(), ledger.EventNotSent, "no", ""))
			d.advance(36 * day)
		}, resultFound},
		"not even the purchase is there": {ledger.EventUncertain, func(d *testLedger, _ *ledger.Hold) { d.advance(71 * day) }, resultFound},
		"not paid, and told for good":    {ledger.EventDisproved, func(*testLedger, *ledger.Hold) {}, resultRefundDue},
	} {
		d := newTestLedger(t)
		owner, replaced := d.openFirst(t)
		if c.endEvent == ledger.EventDisproved {
			owner, replaced = replaced, owner
		}
		must(t, replaced.End(t.Context(), c.endEvent, "?", ""))
		if c.endEvent == ledger.EventDisproved {
			p := d.checkOpen(t, owner, replaced)
			d.checkReplaceOwner(t, p, d.owner(t, p), owner, nil)
		} else {
			must(t, d.pay(t, "second").Supersede(t.Context(), owner.Record().Key))
		}
		c.ownerStep(d, owner)
		if got, err := d.recordTransfer(t, witness(replaced.Record().Key)); got != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestRecordTransferMeetsOthers checks RecordTransfer when somebody else writes or deletes the
// record between its read and its write. RecordTransfer must then read the record again. After
// the third conflict it must fail with ErrConflict.
func TestRecordTransferMeetsOthers(t *testing.T) {
	uncertain := func(d *testLedger) { must(t, d.hold(t).End(t.Context(), ledger.EventUncertain, "?", "")) }
	expired := func(d *testLedger) {
		must(t, d.hold(t).End(t.Context(), ledger.EventRefused, "no", ""))
		d.advance(40 * day)
	}
	for name, c := range map[string]struct {
		setUp func(d *testLedger)
		op    ledgertest.Op // somebody else writes just before RecordTransfer makes a call of this kind
		times int
		want  string
	}{
		"claimed meanwhile":                  {func(*testLedger) {}, ledgertest.Create, 1, resultFound},
		"claimed instead of the expired one": {expired, ledgertest.Replace, 1, resultFound},
		"others write twice":                 {uncertain, ledgertest.Replace, 2, resultFound},
		"others write whenever it does":      {uncertain, ledgertest.Replace, 3, resultFailed},
		"deleted meanwhile":                  {func(d *testLedger) { d.hold(t) }, ledgertest.Replace, -1, resultRefundDue},
	} {
		d := newTestLedger(t)
		c.setUp(d)
		w := witness(d.payment().Key)
		w.At = w.At.Add(100 * day)
		d.store.Decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			switch {
			case op != c.op || r.Status() != string(ledger.Settled) || c.times == 0:
			case c.times < 0:
				c.times = 0
				d.memory.Delete(w.Key)
			default:
				c.times--
				uncertain(d)
			}
			return ledgertest.None
		}
		if got, err := d.recordTransfer(t, w); got != c.want || errors.Is(err, ledger.ErrConflict) != (c.want == resultFailed) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// TestRefund checks that a refund closes a debt, and only once. A refund must be possible only
// for a debt, and only while no lookup runs. If an operator states that the payer got the
// answer, the debt must be closed in the same way, and a refund must then be impossible.
func TestRefund(t *testing.T) {
	for event, want := range map[ledger.Event]ledger.State{
		ledger.EventRefund: ledger.Refunded, ledger.EventAttest: ledger.Redeemed, ledger.EventSendBack: ledger.Settled,
	} {
		d := newTestLedger(t)
		closes := func(event ledger.Event, want error) {
			t.Helper()
			checkErr(t, want, errOf(d.Apply(t.Context(), d.recorded(t), event, ledger.Change{Reason: "r", Transaction: "0xback", Operator: "o"})))
		}
		h := d.settle(t)
		closes(event, ledger.ErrIllegal)
		must(t, h.Release(t.Context(), timedOut()))
		closes(event, nil)
		r := d.recorded(t)
		closed := event != ledger.EventSendBack
		if r.State != want || r.Attested() != (event == ledger.EventAttest) || r.ExpiresAt.IsZero() == closed || (r.Refund == "0xback") != (event == ledger.EventRefund) {
			t.Errorf("%s: %+v", event, r)
		}
		if !closed {
			if by := r.SendingBack; by == nil || by.By != "o" || !by.At.Equal(d.clock) {
				t.Errorf("%s: %+v", event, r)
			}
			continue
		}
		closes(ledger.EventRefund, ledger.ErrIllegal)
		closes(ledger.EventAttest, ledger.ErrIllegal)
		d.claim(t, ledger.Over)
	}
	// One transfer must close only one debt.
	d := newTestLedger(t)
	for i, debt := range []string{"one", "one", "another"} {
		if mine, err := d.Reserve(t.Context(), "transfer", debt); mine != (i < 2) || err != nil {
			t.Errorf("Reserve for %s = %v, %v", debt, mine, err)
		}
	}
}
