package chain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

var fuzzToken, fuzzPayee = x402.Address{9}, x402.Address{2}

// fuzzScan is a scan that asks no node.
func fuzzScan() *scan {
	return &scan{
		session: &session{client: &Client{token: fuzzToken.String()}, head: &header{number: 200, time: time.Unix(5000, 0)}},
		to:      fuzzPayee, payee: topicOf(fuzzPayee), spent: map[spend]bool{},
	}
}

// FuzzTransferLogs reads any bytes as the answer to the search for transfers.
// What is taken must be the payee's, of the range, and in order.
func FuzzTransferLogs(f *testing.F) {
	one := logJSON(entry{
		address: fuzzToken.String(), topics: []string{topicTransfer, topicOf(x402.Address{1}), topicOf(fuzzPayee)},
		data: "0x" + strings.Repeat("0", 63) + "5", index: 3, number: 10, block: fuzzHash, tx: fuzzHash,
	})
	next := strings.Replace(one, `"logIndex":"0x3"`, `"logIndex":"0x4"`, 1)
	for _, seed := range []string{"[]", "[" + one + "]", "[" + one + "," + next + "]", "[" + next + "," + one + "]", "null", "[null]",
		"[" + strings.Replace(one, topicTransfer, topicUsed, 1) + "]", "[" + strings.Replace(one, `"0xa"`, `"0xb"`, 1) + "]"} {
		f.Add([]byte(seed), uint8(10), uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, low, wide uint8) {
		s := fuzzScan()
		from, to := uint64(low), uint64(low)+uint64(wide)
		blocks, err := s.decodeIncoming(raw, from, to)
		if err != nil {
			return
		}
		n := 0
		var last, at uint64
		for _, b := range blocks {
			if b.number < from || b.number > to || (n > 0 && b.number <= last) || len(b.txs) == 0 || len(b.logs) < len(b.txs) {
				t.Errorf("block %d with %d logs of %d transactions, from %d to %d", b.number, len(b.logs), len(b.txs), from, to)
			}
			last, at = b.number, 0
			wellFormed(t, b.logs)
			for i, l := range b.logs {
				if !s.reaches(l) || l.number != b.number || l.block != b.hash || i > 0 && l.index <= at || !slices.Contains(b.txs, l.tx) {
					t.Errorf("log %d = %+v of %+v", i, l, b)
				}
				at = l.index
				x, err := transferOf(l)
				if err != nil || x.Value.Sign() < 0 || x.Value.BitLen() > 256 || topicOf(x.From) != l.topics[1] {
					t.Errorf("transfer = %+v, %v", x, err)
				}
				n++
			}
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil || len(list) != n {
			t.Errorf("%d of %d logs, %v", n, len(list), err)
		}
		for _, item := range list {
			if o, err := parseObject(item); err != nil || string(o["removed"]) == "true" {
				t.Errorf("took %s", item)
			}
		}
	})
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

// FuzzScanPairing makes a block of payments, deposits, cancellations and noise
// in several transactions. Read from receipts and by a search, it must be what
// was put into it.
func FuzzScanPairing(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{0, 0, 4, 1, 0})
	f.Add([]byte{1, 0, 2, 3, 8, 16, 1, 24, 32, 0, 5})
	f.Add([]byte{4, 0, 20, 16, 17, 1, 0, 8, 0})
	f.Fuzz(func(t *testing.T, plan []byte) {
		if len(plan) > 40 {
			return
		}
		logs, want := fuzzBlock(plan)
		var incoming []string
		for _, l := range logs {
			if fuzzScan().reaches(l) {
				incoming = append(incoming, logJSON(l))
			}
		}
		blocks, err := fuzzScan().decodeIncoming(json.RawMessage("["+strings.Join(incoming, ",")+"]"), 10, 10)
		if err != nil || len(blocks) > 1 || (len(blocks) == 0) != (len(want) == 0) {
			t.Fatalf("%v: %d blocks, %v", plan, len(blocks), err)
		}
		for _, b := range blocks {
			for _, search := range []bool{false, true} {
				s := fuzzScan()
				b.search = search
				if err := s.add(b, fuzzProofs(b, logs)); err != nil {
					t.Errorf("%v, search %t: %v", plan, search, err)
				}
				if got := lines(s.batch.Transfers); !slices.Equal(got, lines(want)) || s.batch.Next != 11 {
					t.Errorf("%v, search %t: read\n%s\nwant\n%s", plan, search, strings.Join(got, "\n"), strings.Join(lines(want), "\n"))
				}
			}
		}
	})
}

// fuzzBlock is a block by a plan, each byte of which is a call of the token or
// of another contract, and the transfers that reach the payee with it.
func fuzzBlock(plan []byte) (logs []entry, want []x402.Transfer) {
	hash := "0x" + strings.Repeat("b", 64)
	index, tx := uint64(0), 0
	log := func(address, event, first, second string, value int) {
		data := "0x"
		if event == topicTransfer {
			data = fmt.Sprintf("0x%064x", value)
		}
		logs = append(logs, entry{
			address: address, topics: []string{event, first, second}, data: data,
			index: index, number: 10, block: hash, tx: fmt.Sprintf("0x%064x", tx),
		})
		index++
	}
	for i, step := range plan {
		from, to, token := x402.Address{1}, fuzzPayee, fuzzToken.String()
		if step&(1<<3) != 0 {
			from = x402.Address{3}
		}
		if step&(1<<2) != 0 {
			to = x402.Address{4}
		}
		if step&(1<<4) != 0 {
			tx++
		}
		if step&(1<<5) != 0 {
			index += 2 // of a transaction with nothing of ours
		}
		x := x402.Transfer{
			Transaction: fmt.Sprintf("0x%064x", tx), Block: 10, BlockHash: hash, Time: time.Unix(4000, 0),
			From: from, To: to, Value: big.NewInt(int64(i)),
		}
		nonce := fmt.Sprintf("0x%064x", i+1)
		switch step & 3 {
		case 0:
			x.Authorized, x.Nonce[31] = true, byte(i+1)
			log(token, topicUsed, topicOf(from), nonce, 0)
			log(token, topicTransfer, topicOf(from), topicOf(to), i)
		case 1:
			log(token, topicTransfer, topicOf(from), topicOf(to), i)
		case 2:
			log(token, topicCanceled, topicOf(from), nonce, 0)
		case 3: // another token does the same
			log(to.String(), topicUsed, topicOf(from), nonce, 0)
			log(to.String(), topicTransfer, topicOf(from), topicOf(fuzzPayee), i)
		}
		if step&3 < 2 && to == fuzzPayee {
			want = append(want, x)
		}
	}
	return logs, want
}

// fuzzProofs are what an honest node shows of a block.
func fuzzProofs(b block, logs []entry) []json.RawMessage {
	header := fmt.Sprintf(`{"number":"0xa","timestamp":"0xfa0","hash":"%s"}`, b.hash)
	proofs := []json.RawMessage{json.RawMessage(header)}
	list := func(keep func(entry) bool) string {
		var kept []string
		for _, l := range logs {
			if keep(l) {
				kept = append(kept, logJSON(l))
			}
		}
		return "[" + strings.Join(kept, ",") + "]"
	}
	if b.search {
		return append(proofs, json.RawMessage(list(func(l entry) bool { return isUse(l, fuzzToken.String()) })))
	}
	for _, tx := range b.txs {
		proofs = append(proofs, json.RawMessage(fmt.Sprintf(
			`{"transactionHash":"%s","blockHash":"%s","blockNumber":"0xa","status":"0x1","logs":%s}`,
			tx, b.hash, list(func(l entry) bool { return l.tx == tx }))))
	}
	return proofs
}

// logJSON is a log as a node sends it.
func logJSON(l entry) string {
	return fmt.Sprintf(`{"address":"%s","topics":["%s"],"data":"%s","blockHash":"%s","blockNumber":"%s","transactionHash":"%s","logIndex":"%s","removed":false}`,
		l.address, strings.Join(l.topics, `","`), l.data, l.block, hexQuantity(l.number), l.tx, hexQuantity(l.index))
}
