package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// A reply that no honest node gives is an error, and no transfer. What is wrong with
// a log, receipt or header by itself is in TestLyingLogs.
func TestLyingTransfers(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	b.Mine(t, 3)
	a := b.payment(t)
	first := b.sent[0]
	b.payment(t)
	b.deposit(t, b.other, 77)
	safe := b.finish(t)
	const logs, receipt, header = methodLogs, methodReceipt, methodHeader
	second, third := b.sent[1], b.sent[2]
	payer, payee := topicOf(b.payer.Address()), topicOf(b.payee)
	number, last := hexQuantity(first.Block), hexQuantity(safe)
	lastHash, _ := b.blockHash(t, safe)
	token := `"address":"` + strings.ToLower(testbed.BaseUSDC) + `"`
	transfer, use := topicTransfer+`","`+payer+`","`+payee, topicUsed+`","`+payer+`","`+a.Nonce
	entries := func(list string) []string { return strings.SplitAfter(list, "},") }
	backwards := func(list string) string {
		e := entries(list + ",")
		return e[1] + e[0] + strings.TrimSuffix(e[2], ",")
	}
	b.refusesEach(t, first.Block, map[string]lie{
		"another token's":           {rewrite(logs, token, `"address":"`+b.other.String()+`"`), "not asked for"},
		"another event":             {rewrite(logs, topicTransfer, topicUsed), "not asked for"},
		"another payee's":           {rewrite(logs, payee, topicOf(b.other)), "not asked for"},
		"from no account":           {rewrite(logs, payer, strings.Replace(payer, "0x0", "0x1", 1)), "not asked for"},
		"a fourth topic":            {rewrite(logs, payee, payee+`","`+payee), "not asked for"},
		"no value":                  {rewrite(logs, fmt.Sprintf(`"data":"0x%064x"`, price), `"data":"0x"`), "not asked for"},
		"a block before the range":  {rewrite(logs, `"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not asked for"},
		"a block after the range":   {rewrite(logs, `"`+hexQuantity(third.Block)+`"`, `"`+hexQuantity(safe+1)+`"`), "not asked for"},
		"one twice":                 {list(func(l string) string { return entries(l)[0] + l }), "twice, or not in order"},
		"backwards":                 {list(backwards), "not in order"},
		"two blocks of one hash":    {rewrite(logs, second.BlockHash, first.BlockHash), "about a block's hash"},
		"one transaction, 2 blocks": {rewrite(logs, second.Transaction, first.Transaction), "in two places"},
		"another transaction's":     {rewrite(logs, first.Transaction, hash("11")), "no receipt"},

		"no receipt":                {on(receipt, result("null")), "no receipt"},
		"receipt of another block":  {rewrite(receipt, first.BlockHash, second.BlockHash), "different blocks"},
		"receipt of another number": {rewrite(receipt, `"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "different blocks"},
		"receipt of another value":  {rewrite(receipt, fmt.Sprintf("%064x", price), fmt.Sprintf("%064x", price+1)), "different transfers"},
		"receipt of another payer":  {rewrite(receipt, payer, topicOf(b.other)), "different transfers"},
		"receipt of another payee":  {rewrite(receipt, payee, topicOf(b.other)), "not in its transaction's receipt"},
		"receipt with one more":     {rewrite(receipt, use, transfer, `"data":"0x"`, `"data":"`+hash("00")+`"`), "different transfers"},

		"header without a number":        {about(number, rewrite(header, `"number"`, `"nummer"`)), "number is not"},
		"block is not on the chain":      {about(number, rewrite(header, first.BlockHash, second.BlockHash)), "not on the chain"},
		"a time after the latest":        {about(number, on(header, member("timestamp", "0xfffffffff"))), "order of their times"},
		"last block of the range absent": {about(last, on(header, result("null"))), "no block"},
		"two safe blocks":                {about(last, rewrite(header, lastHash, first.BlockHash)), "two safe blocks"},
		"safe after latest":              {about("safe", on(header, member("timestamp", "0xfffffffff"))), "younger than its latest"},
		"no safe block":                  {either(about("safe", result("null")), about("finalized", result("null"))), errNoSafe.Error()},
	})
	b.proxy.reset(nil)
	b.readsOn(t, first.Block)
}

// Two transfers of one block that contradict each other.
func TestLyingBlock(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	a1, a2 := b.authorize(t), b.authorize(t)
	b.enter(t, b.Batch(t, false, b.payCall(t, a1), b.payCall(t, a2)), by(t, a1), by(t, a2))
	b.finish(t)
	at := b.sent[0].Block
	const logs, receipt = methodLogs, methodReceipt
	otherBlock := func(answer string) string { return strings.Replace(answer, b.sent[0].BlockHash, hash("33"), 1) }
	firstOnly := func(logs string) string {
		first, _, _ := strings.Cut(logs, "},")
		return first + "}"
	}
	b.refusesEach(t, at, map[string]lie{
		"one authorization twice":  {rewrite(receipt, a2.Nonce, a1.Nonce), "spent twice"},
		"two blocks of one number": {on(logs, changed(otherBlock)), "about a block's hash"},
		"less than in the receipt": {list(firstOnly), "different transfers"},
		"two uses in a row":        {rewrite(receipt, topicTransfer, topicUsed), "right after"},
	})
	// What another token says of an authorization makes no payment of a transfer.
	token, other := strings.ToLower(testbed.BaseUSDC), b.other.String()
	b.proxy.reset(rewrite(receipt, token+`","topics":["`+topicUsed, other+`","topics":["`+topicUsed))
	got, err := b.next(t, at)
	if err != nil || len(got.Transfers) != 2 || got.Transfers[0].Authorized || got.Transfers[1].Authorized {
		t.Errorf("by another token's authorizations: %+v, %v", got, err)
	}
	b.proxy.reset(nil)
	b.readsOn(t, at)
}

// What was read before an error is kept, and the error is met by the next run.
func TestTransfersBeforeError(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 4)
	b.finish(t)
	first, bad := b.sent[0].Block, b.sent[2]
	for name, r := range map[string]rule{
		"receipt": about(bad.Transaction, refused()), "header": about(hexQuantity(bad.Block), on(methodHeader, result("null"))),
	} {
		for _, b.proxy.batch = range []int{0, 1} {
			b.proxy.reset(r)
			got, err := b.next(t, first)
			for err == nil && got.Next < bad.Block && len(got.Transfers) > 0 {
				got, err = b.next(t, got.Next)
			}
			if err == nil && got.Next != bad.Block {
				t.Errorf("no %s, batches of %d: stopped before block %d, want %d", name, b.proxy.batch, got.Next, bad.Block)
			}
			b.refuses(t, bad.Block, "")
		}
	}
	// The same where the time is up.
	ctx, cancel := context.WithCancel(t.Context())
	b.proxy.reset(about(bad.Transaction, func(*call) bool {
		cancel()
		<-t.Context().Done()
		return true
	}))
	if got, err := b.client.Transfers(ctx, b.payee, first); err != nil || got.Next != bad.Block || len(got.Transfers) != 2 {
		t.Errorf("out of time: %d transfers up to block %d, %v", len(got.Transfers), got.Next, err)
	}
}

// A reorganisation while a run goes on, deeper than what the node had called
// safe, gives an error, and afterwards only what is on the chain.
func TestTransfersReorganised(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	b.Mine(t, 2)
	start, _ := b.Block(t, "latest")
	a := b.payment(t)
	b.payment(t)
	b.finish(t)
	for _, at := range []string{methodReceipt, methodLogs} {
		b.proxy.reset(on(at, func(*call) bool {
			if n, _ := b.Block(t, "latest"); n > start {
				b.Call(t, "anvil_rollback", n-start)
			}
			return false
		}))
		b.refuses(t, start+1, "")
		// The first payment comes again, in another block, and the second not.
		b.Mine(t, 5)
		b.sent = nil
		b.move(t, a)
		b.finish(t)
		b.proxy.reset(nil)
		b.readsOn(t, start+1)
	}
}

// A node that is behind moves no cursor, and hides nothing.
func TestTransfersLagging(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	b.Mine(t, 10)
	b.payment(t)
	safe := b.finish(t)
	b.proxy.reset(instead("safe", "0x5"))
	for _, from := range []uint64{6, 7, safe, safe + 1, 1 << 40, 1<<64 - 1} {
		if got, err := b.next(t, from); err != nil || got.Next != from || got.Safe != 5 || len(got.Transfers) > 0 || !got.Done() {
			t.Errorf("from %d: %+v, %v", from, got, err)
		}
	}
	// It takes part of the range for all of it.
	b.proxy.reset(either(on(methodLogs, result("[]")), about(hexQuantity(safe), result("null"))))
	b.refuses(t, 1, "node has no block")
	b.proxy.reset(instead("latest", "0x5"))
	b.refuses(t, 1, "younger than its latest")
	b.proxy.reset(nil)
	b.readsOn(t, 1)
	// Of several nodes, one that is not behind is asked.
	behind := startProxy(t, b.URL, instead("safe", "0x5"))
	got, err := b.several(t, nil, behind.url(), b.proxy.url()).Transfers(t.Context(), b.payee, safe)
	if err != nil || got.Next != safe+1 {
		t.Errorf("of two nodes: %+v, %v", got, err)
	}
}

// Each way of asking checks the chain, and does not ask a node again that is asked too
// often.
func TestScanAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 40)
	_, _, tx := w.settled(t)
	for name, ask := range map[string]func(*Client) error{
		"received":  func(c *Client) error { _, err := c.Received(t.Context(), tx.Hash, w.payee); return err },
		"transfers": func(c *Client) error { _, err := c.Transfers(t.Context(), w.payee, 1); return err },
		"block at":  func(c *Client) error { _, err := c.BlockAt(t.Context(), w.Now(t).Add(-time.Minute)); return err },
		"safe":      func(c *Client) error { _, err := c.SafeBlock(t.Context()); return err },
	} {
		w.proxy.reset(on(methodChain, result(`"0x1"`)))
		var wrong *wrongChainError
		if err := ask(w.coldClient(t)); !errors.As(err, &wrong) {
			t.Errorf("%s: another chain: %v", name, err)
		}
		w.proxy.reset(slowDown())
		if err := ask(w.client); err == nil || w.messages() != 1 {
			t.Errorf("%s: rate limited: %v after %d messages", name, err, w.messages())
		}
		w.proxy.reset(nil)
		w.ahead = defaultHeadAge + time.Second
		var old *staleError
		if err := ask(w.client); errors.As(err, &old) == (name == "received") { // which needs no head
			t.Errorf("%s: an old head: %v", name, err)
		}
		w.ahead = 0
	}
	w.proxy.reset(about("0x0", on(methodHeader, member("timestamp", "0xfffffffff"))))
	if _, err := w.client.BlockAt(t.Context(), time.Unix(0, 0)); err == nil {
		t.Error("took blocks that go back in time")
	}
}
