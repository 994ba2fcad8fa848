package chain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// crowd sends many transfers in one transaction.
func (b *books) crowd(t *testing.T, to x402.Address, n int) {
	t.Helper()
	calls := make([][]byte, n)
	var expected []x402.Transfer
	for i := range calls {
		calls[i] = testbed.MintCall(to, int64(i))
		if to == b.payee {
			expected = append(expected, without(x402.Address{}, int64(i)))
		}
	}
	b.enter(t, b.Batch(t, false, calls...), expected...)
}

// Ten thousand transfers to others cost nothing, and thousands to the payee are
// read in bounded runs, with the payments between them.
func TestTransfersCrowd(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	start, _ := b.Block(t, "latest")
	b.payment(t)
	for range 10 {
		b.crowd(t, b.other, 1000)
	}
	b.payment(t)
	b.finish(t)
	b.proxy.reset(nil)
	runs := b.readsOn(t, start+1)
	if runs != 1 || b.messages() != 4 {
		t.Errorf("%d runs and %d messages for two payments among foreign transfers", runs, b.messages())
	}

	for range 3 {
		b.crowd(t, b.payee, 900)
		b.payment(t)
	}
	b.finish(t)
	b.proxy.reset(nil)
	runs = b.readsOn(t, start+1)
	if runs != 2 || b.messages() > 4*runs {
		t.Errorf("%d runs and %d messages for %d transfers, %d a run", runs, b.messages(), len(b.sent), maxTransfers)
	}

	// The same with replies so short that no range holds two crowds: one
	// block's transfers are read, and the search is made wider again.
	b.client.maxScan = 700 << 10
	b.proxy.reset(nil)
	b.readsOn(t, start+1)
}

// Many transactions in one block are not asked for one by one.
func TestTransfersManyInBlock(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	for _, n := range []int{manyTransactions, manyTransactions + 1} {
		b.sent = nil
		b.SetAutomine(t, false)
		waiting := map[string]x402.Transfer{} // by their transactions
		for i := range n {
			if i%3 == 2 {
				waiting[b.Deposit(t, b.other.Checksum(), b.payee, price).Hash] = without(b.other, price)
			} else {
				a := b.authorize(t)
				waiting[b.pay(t, a).Hash] = by(t, a)
			}
			// Money for others, with an authorization.
			b.pay(t, again(b.authorize(t), b.other, "1"))
		}
		b.Mine(t, 1)
		b.SetAutomine(t, true)
		var mined struct{ Transactions []string }
		must(t, json.Unmarshal(b.Call(t, methodHeader, "latest", false), &mined))
		for _, hash := range mined.Transactions {
			if x, ok := waiting[hash]; ok {
				b.enter(t, b.Receipt(t, hash), x)
			}
		}
		b.finish(t)
		at := b.sent[0].Block
		for _, b.proxy.batch = range []int{0, 10, 1} {
			b.proxy.reset(nil)
			runs, receipts := b.readsOn(t, at), b.proxy.count(methodReceipt)
			if runs != 1 || (receipts == 0) != (n > manyTransactions) {
				t.Errorf("%d transactions, batches of %d: %d runs, %d receipts", n, b.proxy.batch, runs, receipts)
			}
		}
		if n <= manyTransactions {
			continue
		}
		b.refusesEach(t, at, map[string]lie{ // in the second search
			"refused":          {about(topicUsed, refusal(http.StatusOK, `{"code":-32005,"message":"too many"}`)), "too many"},
			"another event":    {about(topicUsed, rewrite(methodLogs, topicUsed, topicCanceled)), "not asked for"},
			"another block":    {about(topicUsed, rewrite(methodLogs, b.sent[0].BlockHash, hash("11"))), "not asked for"},
			"another payer's":  {about(topicUsed, rewrite(methodLogs, topicOf(b.payer.Address()), topicOf(b.other))), "another payer's"},
			"of no account":    {about(topicUsed, rewrite(methodLogs, topicOf(b.payer.Address()), topicUsed)), "not asked for"},
			"a transaction's":  {about(topicUsed, rewrite(methodLogs, b.sent[0].Transaction, hash("11"))), "different transactions"},
			"two of one index": {about(topicUsed, rewrite(methodLogs, `"logIndex":"0x0"`, `"logIndex":"0x1"`)), ""},
		})
	}
}

// A transaction that logs a lot beside its transfer hides neither its own nor its
// neighbours', and stops nothing. What cannot be read stops the cursor before it, and is
// named.
func TestTransfersTooLarge(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 1)
	start, a := b.sent[0].Block, b.authorize(t)
	calls := [][]byte{b.payCall(t, a)}
	for range 200 {
		calls = append(calls, testbed.MintCall(b.other, 1))
	}
	b.enter(t, b.Batch(t, true, calls...), by(t, a))
	b.payment(t)
	b.finish(t)
	b.client.maxScan = 64 << 10
	for _, b.proxy.batch = range []int{0, 1} {
		if runs := b.readsOn(t, start); runs != 1 {
			t.Errorf("%d runs", runs)
		}
	}

	b.proxy.batch = 0
	b.crowd(t, b.payee, 300)
	b.payment(t)
	b.finish(t)
	at := b.sent[3].Block
	got, err := b.next(t, start)
	if err != nil || got.Next != at || len(got.Transfers) != 3 {
		t.Errorf("before it: %d transfers up to block %d, %v; want block %d", len(got.Transfers), got.Next, err, at)
	}
	b.refuses(t, at, fmt.Sprintf("blocks %d to %d: batch: %s", at, at, errTooLong))
	b.client.maxScan = maxScanBody

	// The same for calls: enough to look, and too few to read.
	for calls := 1; calls < 4; calls++ {
		b.client.maxCalls = calls
		b.refuses(t, at, errOutOfCalls.Error())
	}
	b.client.maxCalls = 4
	b.readsOn(t, got.Next, got.Transfers...)
}

// A search that was made narrow for one place becomes wide again behind it, and
// not with every step.
func TestWider(t *testing.T) {
	t.Parallel()
	s := fuzzScan()
	s.chunk = 1
	var all []uint64
	for range easy * len(widths()) {
		s.wider()
		all = append(all, s.chunk)
	}
	want := slices.Repeat([]uint64{1, 10, 100, 500, 1000, 2000, 5000, 10_000, 10_000}, easy)
	slices.Sort(want)
	if want = want[1 : 1+len(all)]; !slices.Equal(all, want) {
		t.Errorf("widths = %v, want %v", all, want)
	}
}
