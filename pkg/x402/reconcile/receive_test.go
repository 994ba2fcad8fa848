package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// fakeScanner is a chain with one block for every second. Each block is safe at once.
type fakeScanner struct {
	d         *harness
	transfers []reconcile.Transfer
	width     uint64           // the number of blocks in a batch; 0 means any number
	readFrom  []uint64         // for each call of Transfers: the block from which it reads
	safe      uint64           // the safe block when a cursor is made; 0 means the present block
	constant  *reconcile.Batch // the batch that every call of Transfers returns; if nil, a call returns what it has read
	// before runs at the beginning of each call, and may make the call fail.
	before func(ctx context.Context, call string) error
}

func (p *fakeScanner) call(ctx context.Context, call string) error {
	if p.before == nil {
		return nil
	}
	return p.before(ctx, call)
}

// Transfers implements reconcile.Scanner.
func (p *fakeScanner) Transfers(ctx context.Context, payee x402.Address, from uint64) (reconcile.Batch, error) {
	p.d.t.Helper()
	p.readFrom = append(p.readFrom, from)
	if at := p.d.cursorOf(payee); at == nil || at.Next != from {
		p.d.t.Errorf("reading goes on for %s from block %d, the stored cursor is %+v", payee, from, at)
	}
	if err := p.call(ctx, "transfers"); err != nil {
		return reconcile.Batch{Next: from}, err
	}
	if p.constant != nil {
		return *p.constant, nil
	}
	b := reconcile.Batch{Next: from, Safe: uint64(time.Now().Unix()), SafeTime: time.Now()}
	if b.Safe < from {
		return b, nil
	}
	b.Next = b.Safe + 1
	if p.width > 0 {
		b.Next = min(b.Next, from+p.width)
	}
	for _, t := range p.transfers {
		if t.Block >= from && t.Block < b.Next && t.To == payee {
			b.Transfers = append(b.Transfers, t)
		}
	}
	return b, nil
}

// BlockAt implements reconcile.Scanner.
func (p *fakeScanner) BlockAt(ctx context.Context, t time.Time) (uint64, error) {
	now := uint64(time.Now().Unix())
	if uint64(t.Unix()) > now {
		return cmp.Or(p.safe, now) + 1, p.call(ctx, "safe block")
	}
	return uint64(t.Unix()), p.call(ctx, "block at")
}

// send puts the transfer of the nth payment on the chain at the current time.
func (p *fakeScanner) send(n int, change ...func(*reconcile.Transfer)) reconcile.Transfer {
	t := reconcile.Transfer{
		Transaction: fmt.Sprintf("0x%064x", 0xabc00+len(p.transfers)), Time: time.Now(), Value: big.NewInt(5000),
		From: address(payer), To: address(terms().PayTo), Authorized: true,
	}
	big.NewInt(int64(n)).FillBytes(t.Nonce[:])
	for _, c := range change {
		c(&t)
	}
	t.Block = uint64(t.Time.Unix())
	p.transfers = append(p.transfers, t)
	return t
}

func withValue(value int64) func(*reconcile.Transfer) {
	return func(t *reconcile.Transfer) { t.Value = big.NewInt(value) }
}

func madeEarlier(d time.Duration) func(*reconcile.Transfer) {
	return func(t *reconcile.Transfer) { t.Time = t.Time.Add(-d) }
}

func withoutAuthorization(t *reconcile.Transfer) { t.Authorized, t.Nonce = false, [32]byte{} }

// cursorOf returns the stored cursor of a payee.
func (d *harness) cursorOf(payee x402.Address) *ledger.Cursor {
	d.t.Helper()
	key := ledger.CursorKey(terms().Network, strings.ToLower(terms().Asset), payee.String())
	c, err := ledger.New(d.memory, time.Now, func() string { return "" }).Cursor(context.Background(), key)
	d.must(err)
	return c
}

func (d *harness) cursor() *ledger.Cursor {
	d.t.Helper()
	return d.cursorOf(address(terms().PayTo))
}

// watchChain gives the Reconciler a chain, runs it once so that it stores a cursor at the
// present block, and then waits an hour.
func (d *harness) watchChain() *fakeScanner {
	d.t.Helper()
	p := &fakeScanner{d: d}
	d.chain = p
	d.runAndCheck(reconcile.Summary{})
	if at := d.cursor(); at == nil || at.Next != uint64(time.Now().Unix())+1 {
		d.t.Fatalf("the cursor is %+v after the first run", at)
	}
	time.Sleep(time.Hour)
	return p
}

// makeRefused makes a payment that was refused by a facilitator or, if disproved is true, by
// evidence.
func (d *harness) makeRefused(n int, disproved bool) {
	d.t.Helper()
	if h := d.claim(n); disproved {
		d.must(h.End(d.t.Context(), ledger.EventDisproved, "cancelled", ""))
	} else {
		d.must(h.End(d.t.Context(), ledger.EventRefused, "insufficient_funds", ""))
	}
}

// TestReceive checks what a transfer does to its payment, for every state of the payment in the
// ledger.
func TestReceive(t *testing.T) {
	t.Parallel()
	undecided := reconcile.Summary{Listed: 1, Open: 1, StillOpen: 1, Received: 1, Found: 1, Owed: 1}
	found, known := reconcile.Summary{Received: 1, Found: 1, Owed: 1}, reconcile.Summary{Received: 1}
	for name, c := range map[string]receiveRow{
		"uncertain": {func(d *harness) { d.makeUncertain(1) }, undecided, ledger.Settled},
		"abandoned": {func(d *harness) { d.makeAbandoned(1) }, undecided, ledger.Settled},
		"refused":   {func(d *harness) { d.makeRefused(1, false) }, found, ledger.Settled},
		"in flight": {func(d *harness) { d.claim(1) }, reconcile.Summary{Received: 1, Found: 1}, ledger.Settled}, // the answer is not owed yet, because an attempt holds the lease
		"disproved": {func(d *harness) { d.makeRefused(1, true) }, reconcile.Summary{Received: 1, Unasked: 1, Owed: 1, RefundsDue: 1}, ledger.Settled},
		"settled":   {func(d *harness) { d.makeOwed(1, 1) }, reconcile.Summary{Received: 1, Owed: 1}, ""},
		"redeemed":  {func(d *harness) { redeem(d, d.claim(1)) }, known, ""},
		"refunded": {func(d *harness) {
			d.makeOwed(1, mostLookups)
			must(d.ledger.Apply(d.t.Context(), *must(d.ledger.Fetch(d.t.Context(), payment(1).Key)), ledger.EventRefund, ledger.Change{Transaction: "0xback"}))
		}, known, ""},
		"closed as answered": {func(d *harness) {
			d.makeOwed(1, mostLookups)
			must(d.ledger.Apply(d.t.Context(), *must(d.ledger.Fetch(d.t.Context(), payment(1).Key)), ledger.EventAttest, ledger.Change{Reason: "answered"}))
		}, known, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withReconciler(t, nil, func(t *testing.T, d *harness) {
				p := d.watchChain()
				c.before(d)
				before := d.record(1)
				sent := p.send(1)
				d.runAndCheck(c.want)
				c.checkRecord(t, before, d.record(1), sent.Transaction)
				if n := d.memory.Len(); n != 2 {
					t.Errorf("%d records, want the payment and the cursor", n)
				}
				if s, err := d.run(t.Context()); s.Received != 0 || err != nil {
					t.Errorf("read again: %+v, %v", s, err)
				}
			})
		})
	}
}

// receiveRow is the state of a payment in the ledger before its transfer is found, and the
// expected result.
type receiveRow struct {
	before func(d *harness)
	want   reconcile.Summary
	state  ledger.State // empty if the record does not change
}

// checkRecord checks the ledger's record of a payment after the payment's transfer was found.
func (c receiveRow) checkRecord(t *testing.T, before, r ledger.Payment, transaction string) {
	t.Helper()
	if c.state == "" {
		if diff := gocmp.Diff(before, r); diff != "" {
			t.Errorf("the record (-before +after):\n%s", diff)
		}
		return
	}
	if r.State != c.state || r.Receipt == nil || r.Receipt.Transaction != transaction {
		t.Errorf("the record is %+v", r)
	}
	if before.LeaseUntil.After(time.Now()) && r.LeaseUntil != before.LeaseUntil {
		t.Errorf("the lease of somebody else is until %v now, and was until %v", r.LeaseUntil, before.LeaseUntil)
	}
}

// TestReceiveWithoutARecord checks transfers that belong to no record. If such a
// transfer is a payment, its amount must be due for a refund. A deposit must only be counted.
func TestReceiveWithoutARecord(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		p := d.watchChain()
		d.makeRefused(2, false)
		d.claim(3)
		live := d.record(3)
		refused := d.record(2)
		p.send(1, withValue(123456789))
		other := p.send(2, withValue(6000)) // another authorization with the same nonce
		inFlight := p.send(3, withValue(4999))
		p.send(4, withValue(0))
		p.send(5, withValue(cheapest-1)) // anybody may send any number of such transfers
		p.send(2, withValue(cheapest-1))
		p.send(0, withoutAuthorization)
		p.send(0, withoutAuthorization, withValue(0))
		d.runAndCheck(reconcile.Summary{Received: 8, Deposits: 5, Unasked: 3, Owed: 3, RefundsDue: 3})
		want := map[string]string{
			payment(1).Key: "123456789", payment(2).Key + "|" + other.Transaction: "6000", payment(3).Key + "|" + inFlight.Transaction: "4999",
		}
		owed := map[string]string{} // the amounts to refund, by the key of the record
		missed, err := d.reconciler().Outstanding(t.Context(), func(r ledger.Payment) {
			var q x402.Requirements
			d.must(json.Unmarshal(r.Terms, &q))
			if r.DueBack != ledger.DueUnasked || r.Receipt == nil || r.Receipt.Payer != address(payer).Checksum() {
				t.Errorf("%s is not a debt of the payer's that has to go back", r.Key)
			}
			if q.Network != terms().Network || q.Asset != terms().Asset || q.PayTo != terms().PayTo || q.Scheme != x402.Scheme {
				t.Errorf("a debt's terms are %+v", q)
			}
			owed[r.Key] = q.Amount
		})
		if diff := gocmp.Diff(want, owed); diff != "" || missed != 0 || err != nil {
			t.Errorf("owed (-want +got), %d missed, %v:\n%s", missed, err, diff)
		}
		if diff := gocmp.Diff([]ledger.Payment{refused, live}, []ledger.Payment{d.record(2), d.record(3)}); diff != "" {
			t.Errorf("records of other authorizations (-before +after):\n%s", diff)
		}
		if n := d.memory.Len(); n != 6 {
			t.Errorf("%d records, want three debts, two payments and the cursor", n)
		}
		// Nobody gets an answer for this money, because no request came with it.
		c, err := d.ledger.Claim(t.Context(), payment(1), time.Now().Add(attemptTime))
		if err != nil || c.Result != ledger.OtherAuthorization {
			t.Errorf("a claim on it: %+v, %v", c, err)
		}
	})
}

// TestReceiveForgotten checks a transfer without a record that is older than 34 days. Such a
// transfer is counted and logged, and no refund is due: its payment may have been answered,
// and the record of the payment deleted.
func TestReceiveForgotten(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		p := d.watchChain()
		d.makeUncertain(1)
		const days = 24 * time.Hour
		time.Sleep(40 * days)
		p.send(1, madeEarlier(40*days)) // the payment is in doubt, so its record was not deleted
		p.send(2, madeEarlier(34*days+time.Second))
		p.send(3, madeEarlier(34*days))
		d.runAndCheck(reconcile.Summary{Listed: 1, Open: 1, StillOpen: 1, Received: 3, Found: 1, Unasked: 1, Unmatched: 1, Owed: 2, RefundsDue: 1})
		if r := d.record(3); r.State != ledger.Settled || d.memory.Len() != 3 {
			t.Errorf("it is %s among %v", r.State, d.memory.Keys())
		}
		if want := "before the ledger's memory\" key=" + payment(2).Key; !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, d.log.String())
		}
	})
}

// TestReceiveBeforeTheFirstCursor checks that a payee's first cursor begins before every
// payment that can still move money. A transfer from before the cursor was made counts only if
// its payment is on record; every later transfer counts.
func TestReceiveBeforeTheFirstCursor(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		p := &fakeScanner{d: d, width: 24 * 3600}
		d.makeRefused(1, false) // the facilitator refused the payment, and settled it nevertheless
		d.makeRefused(3, false)
		time.Sleep(2 * time.Second)
		p.send(1)
		p.send(2)
		p.send(3, withValue(6000)) // worth another amount than the payment on record
		p.send(4, withValue(1))
		p.send(0, withoutAuthorization)
		time.Sleep(3 * time.Minute)
		d.chain = p
		d.runAndCheck(reconcile.Summary{Received: 1, Found: 1, Owed: 1})
		if want := uint64(time.Now().Add(-25 * time.Hour).Unix()); len(p.readFrom) != 2 || p.readFrom[0] != want {
			t.Errorf("reading began at %v, want block %d", p.readFrom, want)
		}
		if r := d.record(1); r.State != ledger.Settled || d.memory.Len() != 3 {
			t.Errorf("it is %s among %v", r.State, d.memory.Keys())
		}
		p.readFrom = nil
		time.Sleep(time.Minute)
		p.send(5, madeEarlier(time.Minute-time.Second)) // in the first block after the cursor was made
		d.runAndCheck(reconcile.Summary{Received: 1, Unasked: 1, Owed: 2, RefundsDue: 1})
		if want := uint64(time.Now().Unix()) - 59; len(p.readFrom) != 1 || p.readFrom[0] != want {
			t.Errorf("the next run read from %v, want block %d", p.readFrom, want)
		}
	})
}

// TestReceiveFormerPayee checks that transfers to a former payee are read as long as a payment
// to that payee is undecided, and no longer.
func TestReceiveFormerPayee(t *testing.T) {
	withReconciler(t, nil, func(t *testing.T, d *harness) {
		former := address("0x70997970c51812dc3a010c7d01b50e0d17dc79c8")
		to := func(x *reconcile.Transfer) { x.To = former }
		paysFormer := func(p *ledger.Submission) {
			other := terms()
			other.PayTo = former.Checksum()
			p.Terms = must(json.Marshal(other.Requirements("5000")))
		}
		p := d.watchChain()
		d.makeUncertain(1, paysFormer)
		d.makeUncertain(2, paysFormer, toOtherChain, func(p *ledger.Submission) {
			p.Terms = json.RawMessage(strings.Replace(string(p.Terms), terms().Network, "eip155:84532", 1))
		})
		p.readFrom = nil
		d.runAndCheck(reconcile.Summary{Listed: 2, Open: 2, StillOpen: 1, CannotTell: 1})
		time.Sleep(time.Hour)
		p.send(1, to)
		p.send(3, to)
		d.runAndCheck(reconcile.Summary{Listed: 2, Open: 2, StillOpen: 1, CannotTell: 1, Received: 2, Found: 1, Unasked: 1, Owed: 2, RefundsDue: 1})
		if r := d.record(1); r.State != ledger.Settled || len(p.readFrom) != 4 {
			t.Errorf("it is %s, read from %v", r.State, p.readFrom)
		}
		time.Sleep(time.Hour)
		stands := d.cursorOf(former).Next
		p.send(4, to)
		d.runAndCheck(reconcile.Summary{Listed: 1, Open: 1, CannotTell: 1, Owed: 2, RefundsDue: 1})
		if at := d.cursorOf(former); at.Next != stands {
			t.Errorf("nothing is undecided, and the cursor went on from %d to %d", stands, at.Next)
		}
	})
}
