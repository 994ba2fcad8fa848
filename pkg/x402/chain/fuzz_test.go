package chain

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	fuzzID    = 7
	fuzzHash  = "0x00000000000000000000000000000000000000000000000000000000000000aa"
	fuzzPlace = `"blockHash":"` + fuzzHash + `","blockNumber":"0xa","transactionHash":"` + fuzzHash + `"`
)

var (
	fuzzToken, fuzzPayee = x402.Address{9}, x402.Address{2}

	wordForm    = regexp.MustCompile(`^0x[0-9a-f]{64}$`)
	addressForm = regexp.MustCompile(`^0x[0-9a-f]{40}$`)
	dataForm    = regexp.MustCompile(`^0x([0-9a-f]{2})*$`)
)

// fuzzScan is a scan that asks no node.
func fuzzScan() *scan {
	return &scan{
		session: &session{client: &Client{token: fuzzToken.String()}, head: &header{number: 200, time: time.Unix(5000, 0)}},
		to:      fuzzPayee, payee: topicOf(fuzzPayee), spent: map[spend]bool{},
	}
}

// fuzzLog is a transfer of one atomic unit to the payee, as a node sends it.
func fuzzLog(index int) string {
	return fmt.Sprintf(`{"address":"%s","topics":["%s","%s","%s"],"data":"0x%064x","logIndex":"0x%x","removed":false,%s}`,
		fuzzToken, topicTransfer, topicOf(x402.Address{1}), topicOf(fuzzPayee), 1, index, fuzzPlace)
}

// FuzzReply reads any bytes as the reply to each of the calls. What is taken
// must be in form and in its bounds, and must be what another reader of JSON
// sees.
func FuzzReply(f *testing.F) {
	receipt := `{` + fuzzPlace + `,"status":"0x1","logs":[` + fuzzLog(3) + `]}`
	for _, result := range []string{
		`"0x2105"`, `"0xA"`, `"0x0a"`, `"0x"`, `null`, `[[]]`, `[null]`, `{"number":"0x10","hash":"` + fuzzHash + `","timestamp":"0x6b00f0a8"}`,
		`[` + fuzzLog(3) + `]`, `[` + fuzzLog(3) + `,` + fuzzLog(4) + `]`, `[` + fuzzLog(4) + `,` + fuzzLog(3) + `]`, receipt,
		strings.Replace(receipt, `"0x1"`, `"0x0"`, 1), strings.Replace(receipt, `"0xa"`, `"0xb"`, 1),
	} {
		f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`))
		f.Add(201, []byte(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`))
	}
	for _, body := range []string{
		``, `<html>`, `"0x1"`, `{"jsonrpc":"2.0","id":7,"result":`, `{"jsonrpc":"2.0","id":8,"result":"0x1"}`, `{"jsonrpc":"2.0","id":7}`,
		`{"jsonrpc":"2.0","id":"7","result":"0x1"}`, `{"jsonrpc":"2.0","result":"0x1"}`, `{"jsonrpc":"2.0","id":1,"id":7,"result":"0x1"}`,
		`{"jsonrpc":"1.0","id":7,"result":"0x1"}`, `{"id":7,"result":"0x1"}`, `{"jsonrpc":"2.0","id":7,"Result":"0x1"}`,
		`{"jsonrpc":"2.0","id":null,"result":"0x1"}`,
		`{"jsonrpc":"2.0","id":7,"result":"0x1","error":{"code":1}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32614,"message":"limited"}}`,
		`{"jsonrpc":"2.0","id":7,"result":"0x1"}{"jsonrpc":"2.0","id":7,"result":"0x1"}`,
	} {
		f.Add(200, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		raw, err := decodeReply(status, body, fuzzID)
		if err != nil {
			if raw != nil {
				t.Errorf("a result with the error %v", err)
			}
			return
		}
		var plain map[string]json.RawMessage
		if err := json.Unmarshal(body, &plain); err != nil || status != 200 || string(plain["jsonrpc"]) != `"2.0"` || plain["error"] != nil ||
			string(plain["id"]) != strconv.Itoa(fuzzID) || plain["result"] == nil || string(plain["result"]) != string(raw) {
			t.Fatalf("took %s from HTTP %d %q: %v", raw, status, body, err)
		}
		if h, err := decodeHeader(raw); err == nil && h != nil &&
			(h.number > maxNumber || h.time.Unix() < 0 || h.time.Unix() > maxTime || !wordForm.MatchString(h.hash)) {
			t.Errorf("header = %+v", h)
		}
		if n, err := quantity(raw, maxNumber); err == nil && string(raw) != `"`+hexQuantity(n)+`"` &&
			!strings.ContainsAny(string(raw), `ABCDEF\`) {
			t.Errorf("quantity of %s = %d", raw, n)
		}
		logs, err := decodeLogs(raw)
		if err == nil {
			wellFormed(t, logs)
		}
		if blocks, err := fuzzScan().decodeIncoming(raw, 10, 20); err == nil {
			inOrder(t, blocks, logs)
		}
		if r, err := decodeReceipt(raw, fuzzHash); err == nil && r != nil {
			wellFormed(t, r.logs)
			if r.tx != fuzzHash || !wordForm.MatchString(r.block) || (!r.success && len(r.logs) > 0) {
				t.Errorf("receipt = %+v", r)
			}
			for i, l := range r.logs {
				if l.tx != r.tx || l.block != r.block || l.number != r.number || i > 0 && l.index <= r.logs[i-1].index {
					t.Errorf("log %d = %+v of %+v", i, l, r)
				}
			}
		}
	})
}

func wellFormed(t *testing.T, logs []entry) {
	t.Helper()
	for i, l := range logs {
		ok := addressForm.MatchString(l.address) && dataForm.MatchString(l.data) &&
			wordForm.MatchString(l.block) && wordForm.MatchString(l.tx) && len(l.topics) <= maxTopics
		for _, topic := range l.topics {
			ok = ok && wordForm.MatchString(topic)
		}
		if !ok {
			t.Errorf("log %d = %+v", i, l)
		}
	}
}

// inOrder holds what is true of the transfers to the payee in blocks 10 to 20: they
// are all of the logs, in order.
func inOrder(t *testing.T, blocks []block, logs []entry) {
	t.Helper()
	n, last, at := 0, uint64(9), uint64(0)
	for _, b := range blocks {
		if b.number > 20 || b.number <= last || len(b.txs) == 0 || len(b.logs) < len(b.txs) {
			t.Errorf("block %d with %d logs of %d transactions", b.number, len(b.logs), len(b.txs))
		}
		last = b.number
		for i, l := range b.logs {
			x, err := transferOf(l)
			if err != nil || x.Value.Sign() < 0 || x.Value.BitLen() > 256 || topicOf(x.From) != l.topics[1] {
				t.Errorf("transfer = %+v, %v", x, err)
			}
			if !fuzzScan().reaches(l) || l.number != b.number || l.block != b.hash || i > 0 && l.index <= at || !slices.Contains(b.txs, l.tx) {
				t.Errorf("log %d = %+v of %+v", i, l, b)
			}
			at = l.index
			n++
		}
	}
	if n != len(logs) {
		t.Errorf("%d of %d logs", n, len(logs))
	}
}

// FuzzBatch reads any bytes as the answer to a batch. Each result that is taken
// must be the one that its reply would have given by itself.
func FuzzBatch(f *testing.F) {
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"},{"jsonrpc":"2.0","id":8,"result":null}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":8,"result":"0x1"},{"jsonrpc":"2.0","id":7,"result":{}}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"},{"jsonrpc":"2.0","id":7,"result":"0x1"}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"no"}},{"jsonrpc":"2.0","id":8,"result":"0x1"}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"}]`))
	f.Add(400, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch"}}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		requests := []request{{ID: 7, Method: "a"}, {ID: 8, Method: "b"}}
		results, err := decodeBatch(status, body, requests)
		if err != nil {
			if results != nil {
				t.Errorf("results with the error %v", err)
			}
			return
		}
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil || status != 200 || len(list) != 2 || len(results) != 2 {
			t.Fatalf("took HTTP %d %q", status, body)
		}
		for i, r := range requests {
			own := 0
			for _, reply := range list {
				if single, err := decodeReply(200, reply, r.ID); err == nil && string(single) == string(results[i]) {
					own++
				}
			}
			if own != 1 {
				t.Errorf("result %d = %s has %d replies in %q", i, results[i], own, body)
			}
		}
	})
}
