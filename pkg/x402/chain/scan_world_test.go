package chain

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// safeDepth is how many blocks make a block of the node safe.
const safeDepth = 32

// books are what was really sent to the payee.
type books struct {
	*world
	sent []x402.Transfer
}

// newBooks are those of a new world, in which some payments were made.
func newBooks(t testing.TB, payments int) *books {
	t.Helper()
	b := &books{world: newWorld(t)}
	for range payments {
		b.payment(t)
	}
	return b
}

// by is an authorization's transfer, as it is expected.
func by(t testing.TB, a x402.Authorization) x402.Transfer {
	t.Helper()
	value, _ := new(big.Int).SetString(a.Value, 10)
	return x402.Transfer{From: testbed.Address(t, a.From), Value: value, Authorized: true, Nonce: testbed.NonceBytes(t, a.Nonce)}
}

// without is a transfer without an authorization.
func without(from x402.Address, value int64) x402.Transfer {
	return x402.Transfer{From: from, Value: big.NewInt(value)}
}

// enter notes the transfers to the payee that a transaction made, in order.
func (b *books) enter(t testing.TB, tx testbed.ChainReceipt, transfers ...x402.Transfer) {
	t.Helper()
	if tx.Pending || !tx.Success {
		t.Fatalf("transaction %+v did not succeed", tx)
	}
	hash, at := b.blockHash(t, tx.Block)
	for _, x := range transfers {
		x.Transaction, x.Block, x.BlockHash, x.Time, x.To = tx.Hash, tx.Block, hash, at, b.payee
		b.sent = append(b.sent, x)
	}
}

func (w *world) blockHash(t testing.TB, number uint64) (string, time.Time) {
	t.Helper()
	h, err := decodeHeader(w.Call(t, methodHeader, hexQuantity(number), false))
	must(t, err)
	return h.hash, h.time
}

// move has an authorization's transfer made, and enters it.
func (b *books) move(t testing.TB, a x402.Authorization) testbed.ChainReceipt {
	t.Helper()
	r := b.pay(t, a)
	b.enter(t, r, by(t, a))
	return r
}

// payment is one of the price, made and entered.
func (b *books) payment(t testing.TB) x402.Authorization {
	t.Helper()
	a := b.authorize(t)
	b.move(t, a)
	return a
}

// deposit transfers what one of the node's accounts has, without an authorization.
func (b *books) deposit(t testing.TB, from x402.Address, value int64) {
	t.Helper()
	b.enter(t, b.Deposit(t, from.Checksum(), b.payee, value), without(from, value))
}

// finish makes everything safe that was sent, and returns the safe block.
func (b *books) finish(t testing.TB) uint64 {
	t.Helper()
	b.Mine(t, safeDepth+1)
	safe, _ := b.Block(t, "safe")
	return safe
}

// same compares transfers with what was sent. The node's own numbers of logs
// are only looked at for their order.
func (b *books) same(t testing.TB, got []x402.Transfer) {
	t.Helper()
	equal(t, "transfers that were sent, and read", lines(b.sent), lines(got))
	if !slices.IsSortedFunc(got, func(a, b x402.Transfer) int {
		return cmp.Or(cmp.Compare(a.Block, b.Block), cmp.Compare(a.LogIndex, b.LogIndex))
	}) {
		t.Errorf("transfers are not in order: %+v", got)
	}
}

// lines are transfers as text, which is quick to compare.
func lines(transfers []x402.Transfer) []string {
	all := make([]string, len(transfers))
	for i, x := range transfers {
		all[i] = fmt.Sprintf("%s in %d %s at %s: %s to %s %s, %t %x", x.Transaction, x.Block, x.BlockHash,
			x.Time.UTC().Format(time.RFC3339Nano), x.From, x.To, x.Value, x.Authorized, x.Nonce)
	}
	return all
}

// next makes one run, and holds what is true of every run.
func (w *world) next(t testing.TB, from uint64) (x402.Batch, error) {
	t.Helper()
	before := w.messages()
	got, err := w.client.Transfers(t.Context(), w.payee, from)
	switch trips := w.messages() - before; {
	case trips > w.client.maxCalls:
		t.Errorf("%d messages, permitted are %d", trips, w.client.maxCalls)
	case got.Next < from:
		t.Errorf("the cursor went back from %d to %d", from, got.Next)
	case err != nil && (got.Next != from || len(got.Transfers) > 0):
		t.Errorf("an error with something read: %+v", got)
	case err == nil && got.Next == from && got.Safe >= from:
		t.Errorf("nothing was read from block %d on, and no error says why", from)
	case got.Next > from && got.Next > got.Safe+1:
		t.Errorf("read up to block %d, and block %d is safe", got.Next-1, got.Safe)
	case err != nil && strings.Contains(err.Error(), secret):
		t.Errorf("the error tells the URL's secret: %v", err)
	}
	for _, x := range got.Transfers {
		if x.Block < from || x.Block >= got.Next {
			t.Errorf("a transfer of block %d in a batch from %d to before %d", x.Block, from, got.Next)
		}
	}
	return got, err
}

// messages are those since the last reset.
func (w *world) messages() int {
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	return w.proxy.trips
}

// readsOn reads from a block on until there is no more, each time as a process that
// knows only the cursor, compares all of it with what was sent, and returns the number
// of runs. before is what was read already.
func (b *books) readsOn(t testing.TB, from uint64, before ...x402.Transfer) (runs int) {
	t.Helper()
	for all := before; ; {
		got, err := b.next(t, from)
		if err != nil {
			t.Fatalf("run %d: %v", runs+1, err)
		}
		all, from, runs = append(all, got.Transfers...), got.Next, runs+1
		if got.Done() {
			b.same(t, all)
			return runs
		}
	}
}

// refuses makes one run and wants an error that says why.
func (w *world) refuses(t testing.TB, from uint64, why string) {
	t.Helper()
	got, err := w.next(t, from)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("batch of %d up to %d, error %v; want an error that says %q", len(got.Transfers), got.Next, err, why)
	}
}

// lie is a rule, and why what is read under it is refused.
type lie struct {
	rule rule
	why  string
}

// refusesEach is refuses for each of several lies, with batches and without.
func (w *world) refusesEach(t *testing.T, from uint64, lies map[string]lie) {
	t.Helper()
	for name, l := range lies {
		t.Run(name, func(t *testing.T) {
			for _, w.proxy.batch = range []int{0, 1} {
				w.proxy.reset(l.rule)
				w.refuses(t, from, l.why)
			}
		})
	}
	w.proxy.batch = 0
}
