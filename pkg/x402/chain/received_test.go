package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

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
	if err != nil {
		t.Fatal(err)
	}
	b.same(t, got)
	if diff := cmp.Diff([]string{"eth_getTransactionReceipt", "eth_getBlockByNumber"}, w.proxy.methods()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got, err := w.client.Received(t.Context(), deposit.Hash, w.other); got != nil || err != nil {
		t.Errorf("to somebody else: %v, %v", got, err)
	}

	// Several in one transaction are several.
	a, c := w.authorize(t), w.authorize(t)
	batch := w.Batch(t, true, chaintest.TransferCall(t, chaintest.Sign(t, w.payer, a)), chaintest.TransferCall(t, chaintest.Sign(t, w.payer, c)))
	got, err = w.client.Received(t.Context(), batch.Hash, w.payee)
	if err != nil || len(got) != 2 || got[0].Value.Int64() != price || got[1].LogIndex <= got[0].LogIndex {
		t.Errorf("a batch: %+v, %v", got, err)
	}

	w.Pause(t, true)
	failed := w.TryTransfer(t, chaintest.Sign(t, w.payer, w.authorize(t)))
	if got, err := w.client.Received(t.Context(), failed.Hash, w.payee); got != nil || !errors.Is(err, ErrFailedTransaction) {
		t.Errorf("failed: %v, %v", got, err)
	}
	if got, err := w.client.Received(t.Context(), hash("77"), w.payee); got != nil || !errors.Is(err, ErrUnknownTransaction) {
		t.Errorf("unknown: %v, %v", got, err)
	}
}

// hash is 32 bytes that repeat one.
func hash(b string) string { return "0x" + strings.Repeat(b, 32) }

// fixedNode answers as it was told, method by method.
func fixedNode(t *testing.T, replies map[string]string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c rpcCall
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,`+replies[c.Method]+`}`)
	}))
	t.Cleanup(server.Close)
	c, err := New(Config{URL: server.URL, Network: "eip155:8453", Asset: chaintest.USDC})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A node that contradicts itself, or says more than it can, has said nothing.
func TestReceivedByHostile(t *testing.T) {
	t.Parallel()
	tx, block, to := hash("aa"), hash("bb"), account(t, 3)
	topic := func(a x402.Address) string { return topicOf(a) }
	log := func(index int, address, event, from, to, value string) string {
		return fmt.Sprintf(`{"address":%q,"topics":[%q,%q,%q],"data":%q,"logIndex":"0x%x","blockNumber":"0x10","blockHash":%q,"transactionHash":%q,"removed":false}`,
			address, event, from, to, value, index, block, tx)
	}
	value := "0x" + fmt.Sprintf("%064x", price)
	ours := func(index int) string {
		return log(index, strings.ToLower(chaintest.USDC), topicTransfer, topic(account(t, 5)), topic(to), value)
	}
	receipt := func(logs ...string) string {
		return fmt.Sprintf(`"result":{"transactionHash":%q,"blockHash":%q,"blockNumber":"0x10","status":"0x1","logs":[%s]}`, tx, block, strings.Join(logs, ","))
	}
	header := fmt.Sprintf(`"result":{"number":"0x10","hash":%q,"timestamp":"0x60000000"}`, block)
	for name, c := range map[string]struct {
		chain, receipt, block string
		n                     int
		says                  string
	}{
		"honest":                   {"", receipt(ours(1), ours(3)), header, 2, ""},
		"no transfers":             {"", receipt(), header, 0, ""},
		"another token":            {"", receipt(log(1, hash("cc")[:42], topicTransfer, topic(to), topic(to), value)), header, 0, ""},
		"another event":            {"", receipt(log(1, strings.ToLower(chaintest.USDC), topicUsed, topic(to), topic(to), value)), header, 0, ""},
		"to somebody else":         {"", receipt(log(1, strings.ToLower(chaintest.USDC), topicTransfer, topic(to), topic(account(t, 4)), value)), header, 0, ""},
		"another chain":            {`"result":"0x1"`, receipt(ours(1)), header, 0, "must be on 8453"},
		"an error":                 {"", `"error":{"code":-32000,"message":"down"}`, header, 0, "node answered error"},
		"another transaction":      {"", strings.Replace(receipt(ours(1)), tx, hash("ab"), 1), header, 0, "of another transaction"},
		"a log of another one":     {"", receipt(strings.Replace(ours(1), tx, hash("ab"), 1)), header, 0, "of another transaction or block"},
		"one log twice":            {"", receipt(ours(1), ours(1)), header, 0, "out of order"},
		"a removed log":            {"", receipt(strings.Replace(ours(1), "false", "true", 1)), header, 0, "reorganisation"},
		"a failed one with logs":   {"", strings.Replace(receipt(ours(1)), `"0x1"`, `"0x0"`, 1), header, 0, "failed transaction has logs"},
		"a failed one":             {"", strings.Replace(receipt(), `"0x1"`, `"0x0"`, 1), header, 0, ErrFailedTransaction.Error()},
		"pending":                  {"", `"result":null`, header, 0, ErrUnknownTransaction.Error()},
		"a block of another chain": {"", receipt(ours(1)), strings.Replace(header, block, hash("bc"), 1), 0, "not on the chain"},
		"another block":            {"", receipt(ours(1)), strings.Replace(header, "0x10", "0x11", 1), 0, "node gave block 17"},
		"from no account":          {"", receipt(log(1, strings.ToLower(chaintest.USDC), topicTransfer, hash("dd"), topic(to), value)), header, 0, "no account"},
		"a value too wide":         {"", receipt(log(1, strings.ToLower(chaintest.USDC), topicTransfer, topic(to), topic(to), value+"00")), header, 0, ""},
		"endless":                  {"", `"result":{"x":"` + strings.Repeat("x", maxBody) + `"}`, header, 0, errTooLong.Error()},
		"no object":                {"", `"result":[]`, header, 0, "not a JSON object"},
		"no chain id":              {`"result":{}`, receipt(ours(1)), header, 0, "chain id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.chain == "" {
				c.chain = `"result":"0x2105"`
			}
			client := fixedNode(t, map[string]string{"eth_chainId": c.chain, "eth_getTransactionReceipt": c.receipt, "eth_getBlockByNumber": c.block})
			got, err := client.Received(t.Context(), tx, to)
			if len(got) != c.n || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%+v, %v; want %d and %q", got, err, c.n, c.says)
			}
			for _, x := range got {
				want := x402.Transfer{Transaction: tx, Block: 16, BlockHash: block, From: account(t, 5), To: to, Value: big.NewInt(price)}
				if diff := cmp.Diff(want, x, cmpopts.IgnoreFields(x402.Transfer{}, "LogIndex", "Time"), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" || x.Time.Unix() != 0x60000000 {
					t.Errorf("at %s (-want +got):\n%s", x.Time, diff)
				}
			}
		})
	}
	client := fixedNode(t, nil)
	for _, bad := range []string{"", "0x", tx[2:], tx + "00", tx[:64] + "zz"} {
		if got, err := client.Received(t.Context(), bad, to); got != nil || err == nil || slices.Contains([]error{ErrUnknownTransaction, ErrFailedTransaction}, err) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}
