package dns_test

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// BenchmarkLookup is a whole lookup against a server on loopback.
func BenchmarkLookup(b *testing.B) {
	c := dns.New(dns.Config{Resolvers: []string{resolver(b, answer(b, good))}})
	q := dns.Query{Domain: "example.com", Type: "A"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Lookup(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
}
