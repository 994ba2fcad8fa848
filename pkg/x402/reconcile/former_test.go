package reconcile_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// seller is a seller whose payee has changed. Its payments are in the ledger of the harness.
type seller struct {
	d      *harness
	p      *fakeScanner
	former x402.Address
}

// sellerWithFormerPayee returns a seller whose payee has just changed. Nobody has run
// reconcile yet.
func sellerWithFormerPayee(d *harness) *seller {
	s := &seller{d: d, p: &fakeScanner{d: d}, former: address("0x70997970c51812dc3a010c7d01b50e0d17dc79c8")}
	d.chain = s.p
	return s
}

// recordSale records that the seller sold something for an amount, paid to the former payee.
func (s *seller) recordSale(amount string) {
	s.d.t.Helper()
	s.d.must(ledger.NewPayees(s.d.ledger).Record(s.d.t.Context(), terms().Network, strings.ToLower(terms().Asset), s.former.String(), amount))
}

// refusePayment claims the nth payment, which pays the former payee, and lets the facilitator
// refuse it.
func (s *seller) refusePayment(n int) {
	s.d.t.Helper()
	s.recordSale("5000")
	h := s.d.claim(n, func(p *ledger.Submission) {
		other := terms()
		other.PayTo = s.former.Checksum()
		p.Terms = must(json.Marshal(other.Requirements("5000")))
	})
	s.d.must(h.End(s.d.t.Context(), ledger.EventRefused, "insufficient_funds", ""))
}

// payeesOnRecord returns the former payees that are on record in the ledger.
func (s *seller) payeesOnRecord() []ledger.Payee {
	s.d.t.Helper()
	all, err := s.d.ledger.Sold(s.d.t.Context(), ledger.SoldKey(terms().Network, strings.ToLower(terms().Asset)))
	s.d.must(err)
	return all
}

func (s *seller) payFormer(t *reconcile.Transfer) { t.To = s.former }

// checkFinds plays a payment to the former payee. A facilitator wrongly refuses the payment,
// its money is sent nevertheless, and the given time passes. Then the next run must find the
// money.
func (s *seller) checkFinds(later time.Duration) {
	s.d.t.Helper()
	s.refusePayment(1)
	s.p.send(1, s.payFormer)
	time.Sleep(later)
	s.d.runAndCheck(reconcile.Summary{Received: 1, Found: 1, Owed: 1})
	if r := s.d.record(1); r.State != ledger.Settled {
		s.d.t.Errorf("it is %s", r.State)
	}
}

// checkForgotten checks that the former payee is not on record any more, and that transfers to
// that payee are no longer read.
func (s *seller) checkForgotten() {
	s.d.t.Helper()
	if all := s.payeesOnRecord(); len(all) > 0 {
		s.d.t.Errorf("%+v are still on record", all)
	}
	stands := s.d.cursorOf(s.former).Next
	time.Sleep(time.Hour)
	if got, err := s.d.run(s.d.t.Context()); err != nil || s.d.cursorOf(s.former).Next != stands {
		s.d.t.Errorf("it is read although it was forgotten: %+v, %v", got, err)
	}
}

// TestFormerPayee checks that the money of a wrongly refused payment is found after the payee
// has changed. This needs neither a setting nor an earlier run. Transfers to the former payee
// are read until nothing more can arrive there. Then the payee is forgotten.
func TestFormerPayee(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		s := sellerWithFormerPayee(d)
		s.checkFinds(time.Hour)
		time.Sleep(24 * time.Hour)
		s.p.send(1, s.payFormer, func(t *reconcile.Transfer) { t.Nonce[0] = 7 }) // with a nonce that no payment on record has
		if got, err := d.run(t.Context()); err != nil || got.Received != 1 || got.Unasked != 1 || len(s.payeesOnRecord()) != 1 {
			t.Errorf("the last transfer: %+v, %v, with %+v on record", got, err, s.payeesOnRecord())
		}
		time.Sleep(2 * time.Hour)
		if _, err := d.run(t.Context()); err != nil {
			t.Error(err)
		}
		s.checkForgotten()
	})
}

// TestFormerPayeeDaysLater checks that the money of a wrongly refused payment is found even if
// the first run comes days after the payee changed. This run reads everything, so it also
// forgets the former payee.
func TestFormerPayeeDaysLater(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		s := sellerWithFormerPayee(d)
		s.checkFinds(100 * time.Hour)
		s.checkForgotten()
	})
}

// TestFormerPrice checks that the lowest price that was paid to the former payee decides
// whether a transfer to that payee is a payment or a deposit.
func TestFormerPrice(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		s := sellerWithFormerPayee(d)
		s.recordSale("50")
		s.recordSale("10")
		s.recordSale("99")
		d.runAndCheck(reconcile.Summary{})
		time.Sleep(time.Minute)
		s.p.send(1, s.payFormer, withValue(10))
		s.p.send(2, s.payFormer, withValue(9))
		s.p.send(3, withValue(10))
		d.runAndCheck(reconcile.Summary{Received: 3, Unasked: 1, Deposits: 2, Owed: 1, RefundsDue: 1})
	})
}

// TestFormerPayeesUnread plays a ledger from which the former payees cannot be read. The run
// must return an error, and must still read the transfers to the present payee.
func TestFormerPayeesUnread(t *testing.T) {
	key := ledger.SoldKey(terms().Network, strings.ToLower(terms().Asset))
	unread := func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if op == ledgertest.Fetch && r.Head().Key == key {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}
	withReconciler(t, unread, func(t *testing.T, d *harness) {
		p := &fakeScanner{d: d}
		d.chain = p
		d.makeRefused(1, false)
		p.send(1)
		if got, err := d.run(t.Context()); err == nil || !strings.Contains(err.Error(), "former payees") || got.Found != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
