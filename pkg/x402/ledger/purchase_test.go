package ledger_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const purchaseKey = "purchase|eip155:8453|0xa|0xb|request:1"

// submission returns a payment with the given name. All these payments are for one purchase,
// whose key is the constant purchaseKey.
func (d *testLedger) submission(name string) ledger.Submission {
	p := d.payment()
	p.Key, p.AuthDigest, p.Purchase, p.Payload = "eip155:8453|0xa|0xb|"+name, "auth "+name, purchaseKey, json.RawMessage(`{}`)
	return p
}

// pay claims the payment that submission returns for a name. It returns the hold.
func (d *testLedger) pay(t *testing.T, name string) *ledger.Hold {
	t.Helper()
	return d.claimPayment(t, d.submission(name), ledger.Held).Hold
}

// checkOpen calls OpenPurchase with h. After that, the payment of the second hold (owner) must
// own the purchase.
func (d *testLedger) checkOpen(t *testing.T, h, owner *ledger.Hold) *ledger.Purchase {
	t.Helper()
	p, err := d.OpenPurchase(t.Context(), h)
	if err != nil || p.Owner != owner.Record().Key || p.OwnedBy(h) != (h == owner) {
		t.Fatalf("open for %s: %+v, %v; want %s", h.Record().Key, p, err, owner.Record().Key)
	}
	return p
}

func (d *testLedger) owner(t *testing.T, p *ledger.Purchase) *ledger.Payment {
	t.Helper()
	r, err := d.Owner(t.Context(), p)
	must(t, err)
	return r
}

// checkReplaceOwner gives a purchase to the payment of h, and checks the error. If no error is
// wanted, h must own the purchase afterwards.
func (d *testLedger) checkReplaceOwner(t *testing.T, p *ledger.Purchase, owner *ledger.Payment, h *ledger.Hold, want error) {
	t.Helper()
	got, err := d.ReplaceOwner(t.Context(), p, owner, h)
	checkErr(t, want, err)
	if want == nil {
		if !got.OwnedBy(h) {
			t.Errorf("taken over: %+v", got)
		}
		d.checkOpen(t, h, h)
	}
}

// openFirst claims two payments for one purchase, opens the purchase for the first payment,
// and returns both holds.
func (d *testLedger) openFirst(t *testing.T) (first, second *ledger.Hold) {
	t.Helper()
	first, second = d.pay(t, "first"), d.pay(t, "second")
	d.checkOpen(t, first, first)
	return first, second
}

// TestTakeOver checks how a purchase gets another owner. The old owner's record must be closed
// first, and only if it has not changed since it was read. If a process ends after it has
// closed that record and before it has written the purchase, the next process must finish the
// change. The purchase must also get another owner if the old owner has no record any more.
func TestTakeOver(t *testing.T) {
	d := newTestLedger(t)
	first, second := d.openFirst(t)
	must(t, first.End(t.Context(), ledger.EventNotSent, "overloaded", ""))
	p := d.checkOpen(t, second, first)
	dead := d.owner(t, p)
	first = d.pay(t, "first") // another attempt changes the owner's record after it was read, so the purchase cannot be taken over
	d.checkReplaceOwner(t, p, dead, second, ledger.ErrConflict)
	d.checkOpen(t, first, first)
	must(t, first.End(t.Context(), ledger.EventNotSent, "overloaded", ""))
	p = d.checkOpen(t, second, first)
	dead = d.owner(t, p)
	d.store.Decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if op == ledgertest.Replace && r.Kind() == ledger.KindPurchase {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}
	d.checkReplaceOwner(t, p, dead, second, ledgertest.ErrInjected)
	d.store.Decide = nil
	third := d.pay(t, "third")
	p = d.checkOpen(t, third, first)
	r := d.owner(t, p)
	if r.State != ledger.Superseded || r.Owner != second.Record().Key || r.Payload != nil {
		t.Errorf("the old owner: %+v", r)
	}
	d.checkReplaceOwner(t, p, r, third, nil)
	d.claimPayment(t, d.submission("first"), ledger.Replaced)

	must(t, third.End(t.Context(), ledger.EventNotSent, "overloaded", ""))
	d.advance(20 * day)
	d.checkOpen(t, third, third)  // this keeps the purchase for another 70 days, but not the owner's record
	d.advance(15*day + time.Hour) // now the owner's record has expired, and the purchase has not
	p = d.checkOpen(t, second, third)
	if r := d.owner(t, p); r != nil {
		t.Fatalf("the owner has a record: %+v", r)
	}
	// A payment with the same nonce and another authorization is not the owner.
	another := d.submission("third")
	another.AuthDigest = "another"
	h := d.claimPayment(t, another, ledger.Held).Hold
	if p, err := d.OpenPurchase(t.Context(), h); err != nil || p.OwnedBy(h) || d.owner(t, p) != nil {
		t.Errorf("opened with another authorization: %+v, %v", p, err)
	}
	d.checkReplaceOwner(t, p, nil, second, nil)
}

// TestTakeOverOfPaid checks what happens to a paid owner that loses its purchase. A running
// attempt on this owner must lose its lease, even if the attempt repeats a failed write. If
// the owner has a complete answer, its record must not change.
func TestTakeOverOfPaid(t *testing.T) {
	for name, c := range map[string]struct {
		answer  *ledger.Answer
		nextErr error // the error of the owner's next write
	}{
		"looks up": {nil, ledger.ErrLost}, "too large to keep": {&ledger.Answer{Status: 200}, ledger.ErrLost},
		"answered": {&ledger.Answer{Status: 200, Stored: true}, ledger.ErrIllegal},
	} {
		d := newTestLedger(t)
		first, second := d.openFirst(t)
		must(t, first.Settled(t.Context(), receipt(), true))
		if c.answer != nil {
			must(t, first.Redeem(t.Context(), *c.answer, 0, false))
		}
		redeem := func() error { return first.Redeem(t.Context(), answer(t, "x"), 0, false) }
		if errors.Is(c.nextErr, ledger.ErrLost) {
			d.injectFault(ledgertest.Replace, ledgertest.FailBefore, 1)
			checkErr(t, ledgertest.ErrInjected, redeem())
		}
		p := d.checkOpen(t, second, first)
		owner := d.owner(t, p)
		d.checkReplaceOwner(t, p, owner, second, nil)
		if written := d.record(t, p.Owner).Version > owner.Version; written != errors.Is(c.nextErr, ledger.ErrLost) {
			t.Errorf("%s: written: %t", name, written)
		}
		if err := redeem(); !errors.Is(err, c.nextErr) {
			t.Errorf("%s: the attempt goes on: %v", name, err)
		}
	}
}

// TestSending checks what Sending says about an undecided payment. If the payment's record
// shows that it may have been sent, the result must be MayBeSent. Otherwise the result must be
// TooEarly until ClockSlack after the authorization has expired. After that, Sending must read
// the purchase. The result must depend on whether the payment is the owner, and on the age of
// the payment's record.
func TestSending(t *testing.T) {
	const window = 5*time.Minute + ledger.ClockSlack
	waits := func(d *testLedger) *ledger.Hold {
		_, second := d.openFirst(t)
		return second
	}
	owner := func(d *testLedger) *ledger.Hold {
		first, _ := d.openFirst(t)
		return first
	}
	unopened := func(d *testLedger) *ledger.Hold { return d.pay(t, "first") }
	for name, c := range map[string]struct {
		begin func(d *testLedger) *ledger.Hold
		after time.Duration
		want  ledger.Sending
		reads int // how often the purchase is read
	}{
		"waits for another, too early":     {waits, window, ledger.TooEarly, 0},
		"waits for another":                {waits, window + 1, ledger.NeverSent, 1},
		"waited for one, long ago":         {waits, 70 * day, ledger.MayBeSent, 1},
		"the owner, too early":             {owner, window, ledger.TooEarly, 0},
		"the owner":                        {owner, window + 1, ledger.MayBeSent, 1},
		"nobody has opened it, too early":  {unopened, window, ledger.TooEarly, 0},
		"nobody has opened it":             {unopened, window + 1, ledger.NoPurchase, 1},
		"nobody has opened it for a month": {unopened, 35 * day, ledger.NeverSent, 1},
		"or it has ended since":            {unopened, 70 * day, ledger.MayBeSent, 1},
		"without a purchase":               {func(d *testLedger) *ledger.Hold { return d.hold(t) }, lease, ledger.MayBeSent, 0},
		"in doubt": {func(d *testLedger) *ledger.Hold {
			h := waits(d)
			must(t, h.End(t.Context(), ledger.EventUncertain, "timeout", ""))
			return h
		}, window + 1, ledger.MayBeSent, 0},
		"turned away, then abandoned": {func(d *testLedger) *ledger.Hold {
			must(t, waits(d).End(t.Context(), ledger.EventTurnedAway, "quota", ""))
			return d.pay(t, "second")
		}, window + 1, ledger.MayBeSent, 0},
		"abandoned twice": {func(d *testLedger) *ledger.Hold {
			waits(d)
			d.advance(lease)
			return d.pay(t, "second")
		}, window + 1, ledger.MayBeSent, 0},
	} {
		d := newTestLedger(t)
		r := c.begin(d).Record()
		d.advance(c.after)
		before := d.store.Calls(ledgertest.Fetch)
		if got, err := d.Sending(t.Context(), r); got != c.want || err != nil || d.store.Calls(ledgertest.Fetch)-before != c.reads {
			t.Errorf("%s: %v, %v; want %v with %d reads", name, got, err, c.want, c.reads)
		}
	}
	// Sending must read the clock first, and then the purchase. Here another attempt opens
	// the purchase while Sending reads the clock. If Sending read the purchase first, it would
	// not find the purchase.
	d := newTestLedger(t)
	first := d.pay(t, "first")
	l := ledger.New(d.store, func() time.Time {
		d.checkOpen(t, first, first)
		return d.clock.Add(window + 1)
	}, func() string { return "w" })
	if got, err := l.Sending(t.Context(), first.Record()); got != ledger.MayBeSent || err != nil {
		t.Errorf("opened when the clock was read: %v, %v", got, err)
	}
	d.injectFault(ledgertest.Fetch, ledgertest.FailBefore, 1)
	d.advance(window + 1)
	checkErr(t, ledgertest.ErrInjected, errOf(d.Sending(t.Context(), first.Record())))
}

// TestProof checks what a repeated payment proves about its sender. If the first claim had a
// retry token, a sender with that token must count as the payer, and any other sender as a
// stranger. If the first claim had no token, a sender with the payer's key or the first
// signature must count as the payer until the payment may have been sent. After that, such a
// sender may only make the Gate send the payment again. Once the payment is paid, such a
// sender is a stranger. If the payment has no purchase, such a sender must count as the payer
// until the payment is paid.
func TestProof(t *testing.T) {
	for _, state := range ledger.States() {
		for _, sent := range []bool{false, true} {
			r := ledger.Payment{SigDigest: "s", State: state, Sent: sent, Purchase: purchaseKey}
			public := sent || state == ledger.Settling
			signed := ledger.FromPayer
			switch {
			case r.Paid():
				signed = ledger.Copied
			case public:
				signed = ledger.SettlesOnly
			}
			own := r // the same payment without a purchase
			own.Purchase = ""
			alone := ledger.FromPayer
			if r.Paid() {
				alone = ledger.Copied
			}
			with := r
			with.Token = "t"
			for _, brought := range []string{"", "?", "t"} {
				for _, p := range []ledger.Submission{{Recovered: true}, {SigDigest: "s"}} {
					p.Token = brought
					checkProof(t, r, p, signed)
					checkProof(t, own, p, alone)
				}
				checkProof(t, r, ledger.Submission{SigDigest: "x", Token: brought}, ledger.Copied)
			}
			checkProof(t, with, ledger.Submission{Recovered: true, Token: "?"}, ledger.Copied)
			checkProof(t, with, ledger.Submission{Recovered: true}, ledger.Copied)
			checkProof(t, with, ledger.Submission{SigDigest: "x", Token: "t"}, ledger.FromPayer)
		}
	}
}

func checkProof(t *testing.T, r ledger.Payment, p ledger.Submission, want ledger.Proof) {
	t.Helper()
	if got := r.Proof(p); got != want {
		t.Errorf("%s, sent %t, purchase %q, with %q by %+v: %d, want %d", r.State, r.Sent, r.Purchase, r.Token, p, got, want)
	}
}

// TestOpenPurchase checks that the first payment that opens a purchase becomes its owner, and that
// the owner can open the purchase again before each of its later attempts. Any other payment must
// learn who the owner is.
func TestOpenPurchase(t *testing.T) {
	d := newTestLedger(t)
	first, second := d.openFirst(t)
	p := d.checkOpen(t, second, first)
	d.checkOpen(t, first, first)
	d.checkReplaceOwner(t, p, d.owner(t, p), second, ledger.ErrConflict) // the owner has opened the purchase again since p was read
	d.checkOpen(t, second, first)
	// A purchase that expired before it was opened again must count as absent.
	d.advance(70*day + time.Minute)
	d.checkOpen(t, second, second)
}
