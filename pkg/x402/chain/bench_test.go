package chain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// BenchmarkFind is one Find against a real node on loopback, on the same cores,
// for the ways that an answer takes.
func BenchmarkFind(b *testing.B) {
	w := newWorld(b)
	done, unused := w.authorize(b), w.authorize(b)
	searched, open := w.question(b, done), w.question(b, unused)
	hinted := searched
	hinted.Transaction = w.Transfer(b, chaintest.Sign(b, w.payer, done)).Hash
	now := w.Now(b)
	client, err := New(Config{
		URL: w.URL, Network: chaintest.Network, Asset: chaintest.USDC, Now: func() time.Time { return now },
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		q    x402.Question
		want x402.Verdict
	}{{"paid,hash known", hinted, x402.Paid}, {"paid,searched", searched, x402.Paid}, {"open", open, x402.StillOpen}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f := client.Find(b.Context(), c.q); f.Verdict != c.want {
					b.Fatalf("finding = %+v", f)
				}
			}
		})
	}
}

// BenchmarkTransferLogs reads the longest answer that a search for transfers
// may have: 10,000 logs of one block.
func BenchmarkTransferLogs(b *testing.B) {
	logs := make([]string, 10_000)
	for i := range logs {
		logs[i] = logJSON(entry{
			address: fuzzToken.String(), topics: []string{topicTransfer, topicOf(x402.Address{1}), topicOf(fuzzPayee)},
			data: fmt.Sprintf("0x%064x", i), index: uint64(i), number: 10, block: fuzzHash, tx: fmt.Sprintf("0x%064x", i/4),
		})
	}
	raw := json.RawMessage("[" + strings.Join(logs, ",") + "]")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if blocks, err := fuzzScan().decodeIncoming(raw, 10, 10); err != nil || len(blocks) != 1 {
			b.Fatal(len(blocks), err)
		}
	}
}
