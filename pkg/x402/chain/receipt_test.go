package chain

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// Logs and receipts that are not what they should be.
func TestLyingLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 3)
	a, q, tx := w.settled(t)
	other := w.pay(t, w.authorize(t))
	payer, payee, token := topicOf(w.payer.Address()), topicOf(w.payee), strings.ToLower(testbed.BaseUSDC)
	block := hexQuantity(tx.Block)
	blockHash, _ := w.blockHash(t, tx.Block)
	otherHash, _ := w.blockHash(t, other.Block)
	twice := func(logs string) string { return logs + "," + logs }
	foreign := func(answer string) string {
		before, logs, _ := strings.Cut(answer, `"logs":[`)
		return before + `"logs":[` + strings.Replace(logs, tx.Hash, other.Hash, 1)
	}
	transfer, use := topicTransfer+`","`+payer+`","`+payee, topicUsed+`","`+payer+`","`+a.Nonce
	usedLast := strings.NewReplacer(topicUsed, topicOf(w.other), transfer, use).Replace
	const logs, receipt, header, topics = methodLogs, methodReceipt, methodHeader, `","topics":["`
	for name, c := range map[string]lie{
		"removed log":                {rewrite(logs, `"removed":false`, `"removed":true`), "removed by a reorganisation"},
		"removed is no boolean":      {rewrite(logs, `"removed":false`, `"removed":null`), "not a boolean"},
		"another token's":            {rewrite(logs, token, w.other.String()), "not asked for"},
		"another payer's":            {rewrite(logs, payer, payee), "not asked for"},
		"another event":              {rewrite(logs, topicUsed, topicTransfer), "not asked for"},
		"another block's":            {rewrite(logs, `"blockNumber":"`+block+`"`, `"blockNumber":"0xfffff"`), "not asked for"},
		"twice":                      {list(twice), "spent twice"},
		"cancelled in receipt":       {rewrite(receipt, topicUsed, topicCanceled), "not in its transaction's receipt"},
		"log of another transaction": {on(receipt, changed(foreign)), "log of another transaction"},
		"no receipt":                 {on(receipt, result("null")), "no receipt"},
		"no block":                   {on(header, about(block, result("null"))), "no block"},
		"receipt of another":         {rewrite(receipt, tx.Hash, other.Hash), "another transaction"},
		"receipt of another block":   {rewrite(receipt, blockHash, otherHash), "different blocks"},
		"receipt of another number":  {rewrite(receipt, `"blockNumber":"`+block+`"`, `"blockNumber":"0x1"`), "different blocks"},
		"block is not on the chain":  {atCall(4, rewrite(header, blockHash, otherHash)), "not on the chain"},
		"another block than asked":   {atCall(4, rewrite(header, `"number":"`+block+`"`, `"number":"0x1"`)), "gave block 1"},
		"failed transaction":         {rewrite(receipt, `"status":"0x1"`, `"status":"0x0"`), "failed transaction has logs"},
		"pending log":                {rewrite(logs, `"blockHash":"`+blockHash+`"`, `"blockHash":null`), "blockHash"},
		"an absurd block":            {rewrite(logs, `"`+block+`"`, `"0xffffffffffffffff"`), "blockNumber"},
		"no status":                  {rewrite(receipt, `"status":"0x1",`, ``), "status"},
		"pending receipt":            {rewrite(receipt, `"blockHash":"`+blockHash+`"`, `"blockHash":null`), "blockHash"},
		"transfer of another payer":  {rewrite(receipt, topicTransfer+`","`+payer, topicTransfer+`","`+payee), "another payer's"},
		"transfer to no account":     {rewrite(receipt, payee, strings.Replace(payee, "0x00", "0x01", 1)), "no account"},
		"another event follows":      {rewrite(receipt, topicTransfer, topicOf(w.other)), "right after"},
		"transfer without a value":   {rewrite(receipt, fmt.Sprintf(`"data":"0x%064x"`, price), `"data":"0x"`), "right after"},
		"transfer of another token":  {rewrite(receipt, token+topics+topicTransfer, w.other.String()+topics+topicTransfer), "right after"},
		"transfer after a gap":       {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x2"`), "right after"},
		"logs out of order":          {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x0"`), "out of order"},
		"used twice":                 {rewrite(receipt, transfer, use), "twice"},
		"used, and nothing after it": {on(receipt, changed(usedLast)), "no transfer after"},
		"five topics":                {rewrite(receipt, payee, payee+`","`+payee+`","`+payee+`","`+payee), "short list"},
		"logs are missing":           {rewrite(receipt, `"logs":`, `"slog":`), "logs are missing"},
		"a time out of all reason":   {atCall(4, member("timestamp", "0xffffffffffffffff")), "timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(c.rule)
			w.expectNothing(t, q, c.why)
		})
	}
	// What many nodes leave out, and what some add, does no harm; nor did the lies.
	for name, r := range map[string]rule{
		"honest":       nil,
		"no removed":   rewrite(logs, `,"removed":false`, ``, `"removed":false,`, ``),
		"more members": rewrite(receipt, `"status":"0x1"`, `"status":"0x1","l1Fee":"0x1","l1FeeScalar":"0"`),
		"upper case":   rewrite(logs, tx.Hash, "0x"+strings.ToUpper(tx.Hash[2:])),
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(r)
			w.expect(t, q, paid(tx.Hash), callsSearch)
		})
	}
}

// What real transactions have transferred, by a real token.
func TestReceivedBy(t *testing.T) {
	t.Parallel()
	b := newBooks(t, 0)
	b.deposit(t, b.other, 7)
	got, err := b.client.Received(t.Context(), "0x"+strings.ToUpper(b.sent[0].Transaction[2:]), b.payee)
	must(t, err)
	b.same(t, got)
	equal(t, "calls", callsHint, b.proxy.methods())
	if got, err := b.client.Received(t.Context(), b.sent[0].Transaction, b.other); got != nil || err != nil {
		t.Errorf("to somebody else: %v, %v", got, err)
	}

	// Several in one transaction are several. Who made them is not looked at.
	tx := b.Batch(t, true, b.payCall(t, b.authorize(t)), b.payCall(t, b.authorize(t)))
	b.sent = nil
	b.enter(t, tx, without(b.payer.Address(), price), without(b.payer.Address(), price))
	got, err = b.client.Received(t.Context(), tx.Hash, b.payee)
	must(t, err)
	b.same(t, got)

	failed := b.failToPay(t, b.authorize(t))
	if got, err := b.client.Received(t.Context(), failed.Hash, b.payee); got != nil || !errors.Is(err, ErrFailedTransaction) {
		t.Errorf("failed: %v, %v", got, err)
	}
	if got, err := b.client.Received(t.Context(), hash("77"), b.payee); got != nil || !errors.Is(err, ErrUnknownTransaction) {
		t.Errorf("unknown: %v, %v", got, err)
	}

	// A node that contradicts itself has said nothing. What is wrong with a receipt or
	// a log by itself is in TestLyingLogs, and with a transfer in TestLyingTransfers.
	blockHash, _ := b.blockHash(t, tx.Block)
	for says, r := range map[string]rule{
		"":                 rewrite(methodReceipt, strings.ToLower(testbed.BaseUSDC), b.other.String()), // another token's
		"no account":       rewrite(methodReceipt, topicOf(b.payer.Address()), hash("dd")),
		"not on the chain": rewrite(methodHeader, blockHash, hash("dd")),
		"no block":         on(methodHeader, result("null")),
	} {
		b.proxy.reset(r)
		got, err := b.client.Received(t.Context(), tx.Hash, b.payee)
		if got != nil || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v; want %q", got, err, says)
		}
	}
	b.proxy.reset(nil)
	if got, err := b.client.Received(t.Context(), tx.Hash[:64]+"zz", b.payee); got != nil || err == nil || len(b.proxy.methods()) > 0 {
		t.Errorf("of no hash: %v, %v, after %q", got, err, b.proxy.methods())
	}
}

// hash is 32 bytes that repeat one.
func hash(b string) string { return "0x" + strings.Repeat(b, 32) }
