package chain

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// BenchmarkFind is one Find against a real node on loopback, on the same cores,
// for the ways that an answer takes.
func BenchmarkFind(b *testing.B) {
	w := newWorld(b)
	_, searched, tx := w.settled(b)
	_, unused := w.claimed(b)
	hinted := searched
	hinted.Transaction = tx.Hash
	client, err := New(w.config(b, w.URL))
	must(b, err)
	w.client = client
	w.stopClock(b)
	for _, c := range []struct {
		name string
		q    x402.Question
		want x402.Verdict
	}{{"paid,hash known", hinted, x402.Paid}, {"paid,searched", searched, x402.Paid}, {"open", unused, x402.StillOpen}} {
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
