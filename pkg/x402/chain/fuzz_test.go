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
	return &scan{session: &session{Nodes: &Nodes{token: fuzzToken.String()}}, payee: topicOf(fuzzPayee)}
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
		results, err := decodeReplies(status, body, []query{{ID: fuzzID}})
		if err != nil {
			if results != nil {
				t.Errorf("a result with the error %v", err)
			}
			return
		}
		raw := results[0]
		var plain map[string]json.RawMessage
		if err := json.Unmarshal(body, &plain); err != nil || status != 200 || string(plain["jsonrpc"]) != `"2.0"` || plain["error"] != nil ||
			string(plain["id"]) != strconv.Itoa(fuzzID) || plain["result"] == nil || string(plain["result"]) != string(raw) {
			t.Fatalf("took %s from HTTP %d %q: %v", raw, status, body, err)
		}
		if h, err := decodeHeader(raw, "latest"); err == nil && (h.Number > maxQuantity || h.Seconds > maxQuantity || !wordForm.MatchString(h.Hash)) {
			t.Errorf("header = %+v", h)
		}
		if n, err := decodeQuantity(raw); err == nil && string(raw) != `"`+hexQuantity(n)+`"` && !strings.ContainsAny(string(raw), `ABCDEF\`) {
			t.Errorf("quantity of %s = %d", raw, n)
		}
		if blocks, err := fuzzScan().decodeIncoming(raw, 10, 20); err == nil {
			wellFormed(t, slices.Concat(blocks...), 10, 20)
			for _, b := range blocks {
				wellFormed(t, b, b[0].Number, b[0].Number)
				for _, l := range b {
					if x := l.transfer(time.Time{}); x.To != fuzzPayee || topicOf(x.From) != l.Topics[1] {
						t.Errorf("log %+v, transfer %+v", l, x)
					}
				}
			}
		}
		if r, err := decodeReceipt(raw, fuzzHash); err == nil {
			wellFormed(t, r.Logs, r.Number, r.Number)
			others := func(l entry) bool { return l.Tx != r.Tx || l.Block != r.Block }
			if r.Tx != fuzzHash || !wordForm.MatchString(r.Block) || r.Status == 0 && len(r.Logs) > 0 || r.Status > 1 ||
				slices.ContainsFunc(r.Logs, others) {
				t.Errorf("receipt = %+v", r)
			}
		}
	})
}

// wellFormed holds logs to their form, to a range of blocks, and to the order of the chain.
func wellFormed(t *testing.T, logs []entry, low, high uint64) {
	t.Helper()
	for i, l := range logs {
		ok := addressForm.MatchString(l.Address) && dataForm.MatchString(l.Data) &&
			wordForm.MatchString(l.Block) && wordForm.MatchString(l.Tx) && len(l.Topics) <= maxTopics
		for _, topic := range l.Topics {
			ok = ok && wordForm.MatchString(topic)
		}
		if i > 0 {
			before := logs[i-1]
			ok = ok && (l.Number > before.Number || l.Number == before.Number && l.Index > before.Index)
		}
		if !ok || l.Removed || l.Number < low || l.Number > high {
			t.Errorf("log %d = %+v", i, l)
		}
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
		queries := []query{{ID: 7, Method: "a"}, {ID: 8, Method: "b"}}
		results, err := decodeReplies(status, body, queries)
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
		for i := range queries {
			own := 0
			for _, reply := range list {
				if single, err := decodeReplies(200, reply, queries[i:i+1]); err == nil && string(single[0]) == string(results[i]) {
					own++
				}
			}
			if own != 1 {
				t.Errorf("result %d = %s has %d replies in %q", i, results[i], own, body)
			}
		}
	})
}
