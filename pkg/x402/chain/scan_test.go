package chain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Every way in which the token can reach the payee, and many in which it does
// not.
func TestTransfers(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	second := wallet(t)
	b.Mint(t, second.Address(), 1_000_000)
	theirs := func() x402.Authorization {
		return testbed.Authorization(second, b.payee, price, b.Now(t).Add(window))
	}
	call := func(w *x402test.Wallet, a x402.Authorization) []byte {
		return testbed.TransferCall(t, testbed.SignTransfer(t, w, a))
	}
	zero := x402.Address{}

	b.payment(t)
	b.move(t, again(b.authorize(t), b.payee, "0"))
	b.deposit(t, b.other, 77)
	b.deposit(t, b.other, price)
	b.deposit(t, b.payee, 5) // to itself
	b.Mint(t, b.other, 1)
	b.Deposit(t, b.payee.Checksum(), b.other, 3) // going out
	b.pay(t, again(b.authorize(t), b.other, "9"))
	b.Cancel(t, b.payer, b.authorize(t).Nonce)
	b.failToPay(t, b.authorize(t))

	// Several in one transaction, with the same values, other people's beside
	// them, and plain transfers between them.
	for _, noisy := range []bool{false, true} {
		a1, a2, a3, b1, b2 := b.authorize(t), b.authorize(t), b.authorize(t), theirs(), theirs()
		b.enter(t, b.Batch(t, noisy,
			testbed.MintCall(b.payee, price),
			call(second, b1), call(b.payer, a1),
			testbed.CancelCall(t, b.payer, b.authorize(t).Nonce),
			call(b.payer, again(a3, b.other, "5000")), testbed.MintCall(b.payee, price),
			call(b.payer, a2), testbed.MintCall(b.other, price), call(second, b2),
			testbed.MintCall(b.payee, 1),
		), without(zero, price), by(t, b1), by(t, a1), without(zero, price), by(t, a2), by(t, b2), without(zero, 1))
	}
	safe := b.finish(t)
	b.payment(t) // not safe yet
	late := b.sent[len(b.sent)-1]
	b.sent = b.sent[:len(b.sent)-1]

	safe++
	got, err := b.next(t, 0)
	if err != nil || got.Next != safe+1 || got.Safe != safe || !got.Done() {
		t.Errorf("read up to %d of %d: %v", got.Next, safe, err)
	}
	b.same(t, got.Transfers)
	if b.messages() != 4 {
		t.Errorf("%d messages, want 4: latest, safe, logs with the last header, headers with receipts", b.messages())
	}

	got, err = b.next(t, got.Next)
	if err != nil || len(got.Transfers) > 0 || got.Next != safe+1 {
		t.Errorf("with nothing new: %+v, %v", got, err)
	}

	// Wherever a reader stops, the next goes on from its cursor, and together they
	// have read what was sent: for any budget, cap and size of batches.
	b.sent = append(b.sent, late)
	for i := range 20 {
		b.payment(t)
		b.Mine(t, i/2+1)
	}
	b.finish(t)
	for _, c := range []struct {
		calls, batch int
		most         uint64
		several      bool
	}{
		{48, 0, 10_000, false}, {4, 0, 10_000, false}, {48, 10, 10_000, false},
		{7, 10, 10_000, true}, {9, 3, 10_000, true}, {12, 2, 10_000, true}, {8, 1, 10_000, true},
		{12, 0, 99, true}, {22, 0, 10, true}, {30, 1, 10, true}, {48, 3, 1, true},
	} {
		t.Run(fmt.Sprintf("%d calls, batches of %d, %d blocks", c.calls, c.batch, c.most), func(t *testing.T) {
			b.proxy.reset(capped(t, c.most, tooWide()))
			b.proxy.batch = c.batch
			b.client.maxCalls = c.calls
			runs := b.readsOn(t, 0)
			if c.several && runs == 1 {
				t.Error("one run was enough: nothing was interrupted")
			}
		})
	}

	// A refused search leaves batches as they are, and a node that has had enough is
	// not asked again at once.
	b.client.maxCalls, b.proxy.batch = defaultMaxCalls, 0
	at := b.sent[len(b.sent)-8].Block
	b.proxy.reset(capped(t, 10, tooWide()))
	if got, err := b.next(t, at); err != nil || len(got.Transfers) != 8 {
		t.Errorf("%d transfers, %v", len(got.Transfers), err)
	}
	if trips, searches := b.messages(), b.proxy.count(methodLogs); trips > 2+searches+8 { // latest, safe, and a batch for each transfer
		t.Errorf("%d messages for %d searches", trips, searches)
	}
	b.proxy.reset(capped(t, 0, slowDown()))
	b.refuses(t, at, "429")
	if b.messages() != 3 {
		t.Errorf("%d messages, want 3: latest, safe, and the search that was refused", b.messages())
	}
}

func TestBlockAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 40)
	w.IncreaseTime(t, time.Hour) // blocks do not come evenly
	w.Mine(t, 300)
	w.SetBlockInterval(t, 0)
	w.Mine(t, 3) // of one time, where the node lets them
	w.SetBlockInterval(t, time.Second)
	w.Mine(t, 200)
	safe, youngest := w.Block(t, "safe")
	if n, err := w.client.SafeBlock(t.Context()); err != nil || n != safe {
		t.Errorf("safe block = %d, %v, want %d", n, err, safe)
	}
	made := make([]time.Time, safe+1)
	for n := range made {
		_, made[n] = w.Block(t, hexQuantity(uint64(n)))
	}
	times := []time.Time{made[0].Add(-time.Hour), {}, youngest.Add(time.Hour)}
	for _, n := range []uint64{0, 1, 2, 20, 40, 41, 42, 43, 200, 340, 343, 345, 346, 400, safe - 1, safe} {
		times = append(times, made[n], made[n].Add(-time.Second), made[n].Add(time.Nanosecond))
	}
	for _, at := range times {
		want := slices.IndexFunc(made, func(m time.Time) bool { return !m.Before(at) })
		if want < 0 {
			want = len(made)
		}
		w.proxy.reset(nil)
		n, err := w.client.BlockAt(t.Context(), at)
		if err != nil || n != uint64(want) {
			t.Errorf("block at %s = %d, %v, want %d", at, n, err, want)
		}
		if calls := len(w.proxy.methods()); calls > 20 {
			t.Errorf("%d calls for %s", calls, at)
		}
	}
}
