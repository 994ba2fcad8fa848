package ledger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const bought = "purchase|eip155:8453|0xa|0xb|request:1"

// offer is a payment for the purchase.
func (d *testLedger) offer(name string) ledger.Payment {
	p := d.payment()
	p.Key, p.AuthDigest, p.Purchase, p.Payload = "eip155:8453|0xa|0xb|"+name, "auth "+name, bought, json.RawMessage(`{}`)
	return p
}

// pay claims a payment for the purchase.
func (d *testLedger) pay(t *testing.T, name string) *ledger.Hold {
	t.Helper()
	return d.claims(t, d.offer(name), ledger.Held).Hold
}

// opens opens the purchase and says whose it is.
func (d *testLedger) opens(t *testing.T, h, owner *ledger.Hold) *ledger.Purchase {
	t.Helper()
	p, err := d.Open(t.Context(), h)
	if err != nil || p.Owner != owner.Record().Key || p.Mine(h) != (h == owner) {
		t.Fatalf("open for %s: %+v, %v; want %s", h.Record().Key, p, err, owner.Record().Key)
	}
	return p
}

func (d *testLedger) owner(t *testing.T, p *ledger.Purchase) *ledger.Record {
	t.Helper()
	r, err := d.Owner(t.Context(), p)
	must(t, err)
	return r
}

// takesOver has a payment take a purchase over, and fails as it must; nil is success.
func (d *testLedger) takesOver(t *testing.T, p *ledger.Purchase, owner *ledger.Record, h *ledger.Hold, want error) {
	t.Helper()
	got, err := d.TakeOver(t.Context(), p, owner, h)
	wants(t, want, err)
	if want == nil {
		if !got.Mine(h) {
			t.Errorf("taken over: %+v", got)
		}
		d.opens(t, h, h)
	}
}

// opened is two payments for one purchase, which the first has opened.
func (d *testLedger) opened(t *testing.T) (first, second *ledger.Hold) {
	t.Helper()
	first, second = d.pay(t, "first"), d.pay(t, "second")
	d.opens(t, first, first)
	return first, second
}

// Whoever opens a purchase first owns it, and opens it again before every attempt;
// others learn who it is.
func TestOpenPurchase(t *testing.T) {
	d := newTestLedger(t)
	first, second := d.opened(t)
	p := d.opens(t, second, first)
	d.opens(t, first, first)
	d.takesOver(t, p, d.owner(t, p), second, ledger.ErrConflict) // the owner has opened it since
	d.opens(t, second, first)
	// A purchase that nobody has opened for its time is as good as none.
	d.pass(35*day + time.Minute)
	d.opens(t, second, second)
}

// The owner is closed before the purchase is swapped, on the very version that was read. A
// process that ends between the two writes leaves a purchase that the next one takes over,
// and so does an owner that has no record any more.
func TestTakeOver(t *testing.T) {
	d := newTestLedger(t)
	first, second := d.opened(t)
	must(t, first.NotSent(t.Context(), "overloaded"))
	p := d.opens(t, second, first)
	dead := d.owner(t, p)
	first = d.pay(t, "first") // once more in between: nothing is taken over
	d.takesOver(t, p, dead, second, ledger.ErrConflict)
	d.opens(t, first, first)
	must(t, first.NotSent(t.Context(), "overloaded"))
	p = d.opens(t, second, first)
	dead = d.owner(t, p)
	d.decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		return map[bool]ledgertest.Fault{true: ledgertest.FailBefore}[op == ledgertest.Replace && r.State == ledger.Bought]
	}
	d.takesOver(t, p, dead, second, ledgertest.ErrInjected)
	d.decide = nil
	third := d.pay(t, "third")
	p = d.opens(t, third, first)
	r := d.owner(t, p)
	if r.State != ledger.Superseded || r.Owner != second.Record().Key || r.Payload != nil {
		t.Errorf("the old owner: %+v", r)
	}
	d.takesOver(t, p, r, third, nil)
	d.claims(t, d.offer("first"), ledger.Replaced)

	must(t, third.NotSent(t.Context(), "overloaded"))
	d.pass(20 * day)
	d.opens(t, third, third)   // prolonged
	d.pass(15*day + time.Hour) // the record ends before the purchase does
	p = d.opens(t, second, third)
	if r := d.owner(t, p); r != nil {
		t.Fatalf("the owner has a record: %+v", r)
	}
	d.takesOver(t, p, nil, second, nil)
}

// A purchase does not end before a payment in doubt that owns it.
func TestKeepPurchase(t *testing.T) {
	d := newTestLedger(t)
	owner, other := d.opened(t)
	must(t, owner.Uncertain(t.Context(), "timeout", ""))
	for range 10 { // as reconcile does, every now and then
		d.pass(7 * day)
		r := d.record(t, owner.Record().Key)
		must(t, d.KeepPurchase(t.Context(), r))
		must(t, d.KeepPurchase(t.Context(), r))
	}
	if r := d.owner(t, d.opens(t, other, owner)); r == nil || r.State != ledger.Uncertain {
		t.Errorf("after 70 days: %+v", r)
	}
	d.pass(36 * day) // nobody has looked
	if p, err := d.Purchase(t.Context(), bought); p != nil || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

// A payment that waited for another one when its process ended was never sent; the
// owner of a purchase may have been.
func TestWithdraw(t *testing.T) {
	d := newTestLedger(t)
	owner, waits := d.opened(t)
	early := d.pay(t, "early")
	d.opens(t, waits, owner)
	is := func(what string, h *ledger.Hold, want bool) {
		t.Helper()
		if got, err := d.Withdraw(t.Context(), d.record(t, h.Record().Key)); got != want || err != nil {
			t.Errorf("%s: withdrawn %t, %v", what, got, err)
		}
	}
	d.pass(lease + ledger.ClockSlack - time.Nanosecond)
	is("a clock may be wrong", waits, false)
	d.pass(time.Nanosecond)
	is("the owner", owner, false)
	is("before the purchase was opened for it", early, true)
	is("waits", waits, true)
	if r := d.record(t, waits.Record().Key); r.State != ledger.Refused || r.Sent || r.Doubt {
		t.Errorf("%+v", r)
	}
	must(t, d.pay(t, "second").Uncertain(t.Context(), "timeout", ""))
	is("in doubt", waits, false)
	d.pay(t, "second")
	d.pass(lease + ledger.ClockSlack)
	is("in doubt, and abandoned", waits, false)
}

// Who is taken for the payer of a record, by what comes with the payment: the token of
// the first claim; where that came with none, whoever has the key or the very
// signature, until money has moved.
func TestVouches(t *testing.T) {
	for _, state := range ledger.States() {
		paid := state == ledger.Settled || state == ledger.Redeemed || state == ledger.Refunded
		for _, kept := range []string{"", "t"} {
			for _, brought := range []string{"", "?", "t"} {
				for _, p := range []ledger.Payment{{Recovered: true}, {SigDigest: "s"}, {SigDigest: "x"}} {
					p.Token = brought
					want := brought == kept
					if kept == "" {
						want = p.SigDigest != "x" && !paid
					}
					r := ledger.Record{SigDigest: "s", State: state, Token: kept}
					if got := r.Vouches(p); got != want {
						t.Errorf("%s with %q by %+v: %t", state, kept, p, got)
					}
				}
			}
		}
	}
}
