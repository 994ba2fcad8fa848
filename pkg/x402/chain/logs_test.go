package chain

import (
	"fmt"
	"io"
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
	other := w.Transfer(t, chaintest.Sign(t, w.payer, w.authorize(t)))
	payer, payee := topicOf(w.payer.Address()), topicOf(w.payee)
	block := hexQuantity(tx.Block)
	blockHash := func(number uint64) string {
		_, rest, _ := strings.Cut(string(w.Call(t, "eth_getBlockByNumber", hexQuantity(number), false)), `"hash":"`)
		hash, _, _ := strings.Cut(rest, `"`)
		return hash
	}
	null := func(method string) rule {
		return func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
			return c.Method == method && result(rw, c, "null")
		}
	}
	twice := func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		if c.Method != "eth_getLogs" {
			return false
		}
		body := string(node(c.body))
		_, rest, _ := strings.Cut(body, `"result":[`)
		list := rest[:strings.LastIndex(rest, "]")]
		return result(rw, c, "["+list+","+list+"]")
	}
	foreign := func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		if c.Method != "eth_getTransactionReceipt" {
			return false
		}
		before, list, _ := strings.Cut(string(node(c.body)), `"logs":[`)
		_, _ = io.WriteString(rw, before+`"logs":[`+strings.Replace(list, tx.Hash, other.Hash, 1))
		return true
	}
	const logs, receipt = "eth_getLogs", "eth_getTransactionReceipt"
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
		"twice":                 {twice, "spent twice"},
		"log says cancelled, receipt says used": {
			rewrite(receipt, topicUsed, topicCanceled), "not in its transaction's receipt"},
		"log of another transaction": {foreign, "log of another transaction"},
		"no receipt":                 {null(receipt), "no receipt"},
		"no block": {func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
			return c.at(block) && result(rw, c, "null")
		}, "no block"},
		"receipt of another":          {rewrite(receipt, tx.Hash, other.Hash), "another transaction"},
		"receipt of another block":    {rewrite(receipt, blockHash(tx.Block), blockHash(other.Block)), "different blocks"},
		"receipt of another number":   {rewrite(receipt, `"blockNumber":"`+block+`"`, `"blockNumber":"0x1"`), "different blocks"},
		"block is not on the chain":   {atCall(4, rewrite("eth_getBlockByNumber", blockHash(tx.Block), blockHash(other.Block))), "not on the chain"},
		"another block than asked":    {atCall(4, rewrite("eth_getBlockByNumber", `"number":"`+block+`"`, `"number":"0x1"`)), "gave block 1"},
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

// timestamp replaces a block's time.
func timestamp(at string) rule {
	return func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		before, rest, _ := strings.Cut(string(node(c.body)), `"timestamp":"`)
		_, after, _ := strings.Cut(rest, `"`)
		_, _ = io.WriteString(rw, before+`"timestamp":"`+at+`"`+after)
		return true
	}
}
