package ledgertest

import (
	"strconv"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// BenchCreate measures creates of new keys, one after the other.
func BenchCreate(b *testing.B, s ledger.Store) {
	r := Full("")
	run := r.WriteID // keys of another run of the same store are taken
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		r.Key = "bench|" + run + "|" + strconv.Itoa(n)
		if existing, err := s.Create(b.Context(), r); existing != nil || err != nil {
			b.Fatalf("Create = %v, %v", existing, err)
		}
	}
}

// BenchReplace measures replaces of one record, one after the other.
func BenchReplace(b *testing.B, s ledger.Store) {
	r := Full("bench|replace")
	r.Key += r.WriteID
	if existing, err := s.Create(b.Context(), r); existing != nil || err != nil {
		b.Fatalf("Create = %v, %v", existing, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r = Next(r)
		if err := s.Replace(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
