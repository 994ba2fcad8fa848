package chain

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/chaintest"
)

// Logs and receipts that are not what they should be.
func TestLyingLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 3)
	a, q, tx := w.settled(t)
	other := w.pay(t, w.authorize(t))
	payer, payee := topicOf(w.payer.Address()), topicOf(w.payee)
	block := hexQuantity(tx.Block)
	blockHash := func(number uint64) string {
		hash, _ := w.blockHash(t, number)
		return hash
	}
	twice := func(logs string) string { return logs + "," + logs }
	foreign := func(answer string) string {
		before, logs, _ := strings.Cut(answer, `"logs":[`)
		return before + `"logs":[` + strings.Replace(logs, tx.Hash, other.Hash, 1)
	}
	const logs, receipt, header = methodLogs, "eth_getTransactionReceipt", "eth_getBlockByNumber"
	for name, c := range map[string]struct {
		rule rule
		why  string
	}{
		"removed log":           {rewrite(logs, `"removed":false`, `"removed":true`), "removed by a reorganisation"},
		"removed in receipt":    {rewrite(receipt, `"removed":false`, `"removed":true`), "removed by a reorganisation"},
		"removed is no boolean": {rewrite(logs, `"removed":false`, `"removed":null`), "not a boolean"},
		"another token's":       {rewrite(logs, strings.ToLower(chaintest.USDC), w.other.String()), "not asked for"},
		"another payer's":       {rewrite(logs, payer, payee), "not asked for"},
		"another event":         {rewrite(logs, topicUsed, topicTransfer), "not asked for"},
		"another block's":       {rewrite(logs, `"blockNumber":"`+block+`"`, `"blockNumber":"0xfffff"`), "not asked for"},
		"twice":                 {list(twice), "spent twice"},
		"log says cancelled, receipt says used": {
			rewrite(receipt, topicUsed, topicCanceled), "not in its transaction's receipt"},
		"log of another transaction":  {on(receipt, changed(foreign)), "log of another transaction"},
		"no receipt":                  {on(receipt, result("null")), "no receipt"},
		"no block":                    {on(header, about(block, result("null"))), "no block"},
		"receipt of another":          {rewrite(receipt, tx.Hash, other.Hash), "another transaction"},
		"receipt of another block":    {rewrite(receipt, blockHash(tx.Block), blockHash(other.Block)), "different blocks"},
		"receipt of another number":   {rewrite(receipt, `"blockNumber":"`+block+`"`, `"blockNumber":"0x1"`), "different blocks"},
		"block is not on the chain":   {atCall(4, rewrite(header, blockHash(tx.Block), blockHash(other.Block))), "not on the chain"},
		"another block than asked":    {atCall(4, rewrite(header, `"number":"`+block+`"`, `"number":"0x1"`)), "gave block 1"},
		"failed transaction":          {rewrite(receipt, `"status":"0x1"`, `"status":"0x0"`), "failed transaction has logs"},
		"no status":                   {rewrite(receipt, `"status":"0x1",`, ``), "status"},
		"pending receipt":             {rewrite(receipt, `"blockHash":"`+blockHash(tx.Block)+`"`, `"blockHash":null`), "blockHash"},
		"transfer of another payer":   {rewrite(receipt, topicTransfer+`","`+payer, topicTransfer+`","`+payee), "another payer's"},
		"transfer to no account":      {rewrite(receipt, payee, strings.Replace(payee, "0x00", "0x01", 1)), "no account"},
		"another event follows":       {rewrite(receipt, topicTransfer, topicOf(w.other)), "right after"},
		"transfer without a value":    {rewrite(receipt, fmt.Sprintf(`"data":"0x%064x"`, price), `"data":"0x"`), "right after"},
		"transfer of another token":   {rewrite(receipt, `"address":"`+strings.ToLower(chaintest.USDC)+`","topics":["`+topicTransfer, `"address":"`+w.other.String()+`","topics":["`+topicTransfer), "right after"},
		"transfer after a gap":        {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x2"`), "right after"},
		"logs out of order":           {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x0"`), "out of order"},
		"used twice":                  {rewrite(receipt, topicTransfer+`","`+payer+`","`+payee, topicUsed+`","`+payer+`","`+a.Nonce), "twice"},
		"used and nothing after it":   {rewrite(receipt, topicUsed+`","`+payer+`","`+a.Nonce, topicOf(w.other)+`","`+payer+`","`+payee, topicTransfer+`","`+payer+`","`+payee, topicUsed+`","`+payer+`","`+a.Nonce), "no transfer after"},
		"five topics":                 {rewrite(receipt, payee, payee+`","`+payee+`","`+payee+`","`+payee), "short list"},
		"logs are missing":            {rewrite(receipt, `"logs":`, `"slog":`), "logs are missing"},
		"leading zeros in a quantity": {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x01"`), "logIndex"},
		"number instead of hex":       {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":1`), "logIndex"},
		"a time out of all reason":    {atCall(4, timestamp("0xffffffffffffffff")), "timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(nil)
			w.expect(t, q, paid(tx.Hash), callsSearch)
			w.proxy.reset(c.rule)
			w.expectNothing(t, q, c.why)
		})
	}
	// What many nodes leave out, and what some add, does no harm.
	for name, r := range map[string]rule{
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
	w := newWorld(t)
	sender := account(t, 5)
	w.Mint(t, sender, 100_000)
	deposit := w.Deposit(t, sender.Checksum(), w.payer.Address(), price)
	b := &books{world: w}
	b.enter(t, deposit, without(sender, price))
	b.sent[0].To = w.payer.Address()
	got, err := w.client.Received(t.Context(), "0x"+strings.ToUpper(deposit.Hash[2:]), w.payer.Address())
	must(t, err)
	b.same(t, got)
	equal(t, "calls", callsHint, w.proxy.methods())
	if got, err := w.client.Received(t.Context(), deposit.Hash, w.other); got != nil || err != nil {
		t.Errorf("to somebody else: %v, %v", got, err)
	}

	// Several in one transaction are several.
	a, c := w.authorize(t), w.authorize(t)
	batch := w.Batch(t, true, w.payCall(t, a), w.payCall(t, c))
	got, err = w.client.Received(t.Context(), batch.Hash, w.payee)
	if err != nil || len(got) != 2 || got[0].Value.Int64() != price || got[1].LogIndex <= got[0].LogIndex {
		t.Errorf("a batch: %+v, %v", got, err)
	}

	w.Pause(t, true)
	failed := w.tryPay(t, w.authorize(t))
	if got, err := w.client.Received(t.Context(), failed.Hash, w.payee); got != nil || !errors.Is(err, ErrFailedTransaction) {
		t.Errorf("failed: %v, %v", got, err)
	}
	if got, err := w.client.Received(t.Context(), hash("77"), w.payee); got != nil || !errors.Is(err, ErrUnknownTransaction) {
		t.Errorf("unknown: %v, %v", got, err)
	}
}

// hash is 32 bytes that repeat one.
func hash(b string) string { return "0x" + strings.Repeat(b, 32) }

// A node that contradicts itself, or says more than it can, has said nothing. What is
// wrong with a receipt or a log by itself is in TestLyingLogs.
func TestReceivedByHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, tx := w.settled(t)
	other := w.pay(t, w.authorize(t))
	const receipt, header = "eth_getTransactionReceipt", "eth_getBlockByNumber"
	token := `"address":"` + strings.ToLower(chaintest.USDC) + `"`
	payer, payee, value := topicOf(w.payer.Address()), topicOf(w.payee), fmt.Sprintf(`"data":"0x%064x"`, price)
	blockHash, _ := w.blockHash(t, tx.Block)
	otherHash, _ := w.blockHash(t, other.Block)
	for name, c := range map[string]struct {
		rule rule
		n    int
		says string
	}{
		"honest":              {nil, 1, ""},
		"another token":       {rewrite(receipt, token, `"address":"`+w.other.String()+`"`), 0, ""},
		"another event":       {rewrite(receipt, topicTransfer, topicUsed), 0, ""},
		"to somebody else":    {rewrite(receipt, payee, topicOf(w.other)), 0, ""},
		"no value":            {rewrite(receipt, value, `"data":"0x"`), 0, ""},
		"a value too wide":    {rewrite(receipt, value, strings.TrimSuffix(value, `"`)+`00"`), 0, ""},
		"from no account":     {rewrite(receipt, payer, hash("dd")), 0, "no account"},
		"another chain":       {on("eth_chainId", result(`"0x1"`)), 0, "must be on 8453"},
		"no chain id":         {on("eth_chainId", result("{}")), 0, "chain id"},
		"an error":            {on(receipt, refusal(http.StatusOK, `{"code":-32000,"message":"down"}`)), 0, "node answered error"},
		"another transaction": {rewrite(receipt, tx.Hash, other.Hash), 0, "of another transaction"},
		"pending":             {on(receipt, result("null")), 0, ErrUnknownTransaction.Error()},
		"of another chain":    {rewrite(header, blockHash, otherHash), 0, "not on the chain"},
		"another block":       {rewrite(header, `"number":"`+hexQuantity(tx.Block)+`"`, `"number":"0x11"`), 0, "node gave block 17"},
		"no block":            {on(header, result("null")), 0, "no block"},
		"no object":           {on(receipt, result("[]")), 0, "not a JSON object"},
		"endless":             {on(receipt, result(`{"x":"`+strings.Repeat("x", maxBody)+`"}`)), 0, errTooLong.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(c.rule)
			got, err := w.coldClient(t, Config{}).Received(t.Context(), tx.Hash, w.payee)
			if len(got) != c.n || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%+v, %v; want %d and %q", got, err, c.n, c.says)
			}
		})
	}
	w.proxy.reset(nil)
	for _, bad := range []string{"", "0x", tx.Hash[2:], tx.Hash + "00", tx.Hash[:64] + "zz"} {
		got, err := w.client.Received(t.Context(), bad, w.payee)
		if got != nil || err == nil || errors.Is(err, ErrUnknownTransaction) || errors.Is(err, ErrFailedTransaction) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	if calls := w.proxy.methods(); len(calls) > 0 {
		t.Errorf("the node was asked: %q", calls)
	}
}
