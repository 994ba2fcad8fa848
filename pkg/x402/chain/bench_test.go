package chain

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain/chaintest"
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
