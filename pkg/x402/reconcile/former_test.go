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

// formerly returns a seller whose payee has just changed. Nobody has run reconcile yet.
func formerly(d *harness) *seller {
	s := &seller{d: d, p: &fakeScanner{d: d}, former: address("0x70997970c51812dc3a010c7d01b50e0d17dc79c8")}
	d.chain = s.p
	return s
}

// sold records that the seller sold something for an amount, paid to the former payee.
func (s *seller) sold(amount string) {
	s.d.t.Helper()
	s.d.must(ledger.NewPayees(s.d.ledger).Record(s.d.t.Context(), terms().Network, strings.ToLower(terms().Asset), s.former.String(), amount))
}

// refuses claims the nth payment, which pays the former payee, and lets the facilitator refuse
// it.
func (s *seller) refuses(n int) {
	s.d.t.Helper()
	s.sold("5000")
	h := s.d.claim(n, func(p *ledger.Submission) {
		other := terms()
		other.PayTo = s.former.Checksum()
		p.Terms = must(json.Marshal(other.Requirements("5000")))
	})
	s.d.must(h.End(s.d.t.Context(), ledger.EventRefused, "insufficient_funds", ""))
}

// onRecord returns the former payees that are on record in the ledger.
func (s *seller) onRecord() []ledger.Payee {
	s.d.t.Helper()
	all, err := s.d.ledger.Sold(s.d.t.Context(), ledger.SoldKey(terms().Network, strings.ToLower(terms().Asset)))
	s.d.must(err)
	return all
}

func (s *seller) receives(t *reconcile.Transfer) { t.To = s.former }

// finds lets a facilitator wrongly refuse a payment to the former payee, sends the payment's
// money, waits for the given time, and checks that the next run finds the money.
func (s *seller) finds(later time.Duration) {
	s.d.t.Helper()
	s.refuses(1)
	s.p.send(1, s.receives)
	time.Sleep(later)
	s.d.wants(reconcile.Summary{Received: 1, Found: 1, Owed: 1})
	if r := s.d.stored(1); r.State != ledger.Settled {
		s.d.t.Errorf("it is %s", r.State)
	}
}

// isForgotten checks that the former payee is not on record any more, and that transfers to
// that payee are no longer read.
func (s *seller) isForgotten() {
	s.d.t.Helper()
	if all := s.onRecord(); len(all) > 0 {
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
		s := formerly(d)
		s.finds(time.Hour)
		time.Sleep(24 * time.Hour)
		s.p.send(1, s.receives, func(t *reconcile.Transfer) { t.Nonce[0] = 7 }) // with a nonce that no payment on record has
		if got, err := d.run(t.Context()); err != nil || got.Received != 1 || got.Unasked != 1 || len(s.onRecord()) != 1 {
			t.Errorf("the last transfer: %+v, %v, with %+v on record", got, err, s.onRecord())
		}
		time.Sleep(2 * time.Hour)
		if _, err := d.run(t.Context()); err != nil {
			t.Error(err)
		}
		s.isForgotten()
	})
}

// TestFormerPayeeDaysLater checks that the money of a wrongly refused payment is found even if
// the first run comes days after the payee changed. This run reads everything, so it also
// forgets the former payee.
func TestFormerPayeeDaysLater(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		s := formerly(d)
		s.finds(100 * time.Hour)
		s.isForgotten()
	})
}

// TestFormerPrice checks that the lowest price that was paid to the former payee decides
// whether a transfer to that payee is a payment or a deposit.
func TestFormerPrice(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		s := formerly(d)
		s.sold("50")
		s.sold("10")
		s.sold("99")
		d.wants(reconcile.Summary{})
		time.Sleep(time.Minute)
		s.p.send(1, s.receives, worth(10))
		s.p.send(2, s.receives, worth(9))
		s.p.send(3, worth(10))
		d.wants(reconcile.Summary{Received: 3, Unasked: 1, Deposits: 2, Owed: 1, RefundsDue: 1})
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
		d.refused(1, false)
		p.send(1)
		if got, err := d.run(t.Context()); err == nil || !strings.Contains(err.Error(), "former payees") || got.Found != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
