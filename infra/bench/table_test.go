package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestReadsFigures checks that parseFigures finds the figures of benchmarks and of attributes
// in the output of go test.
func TestReadsFigures(t *testing.T) {
	t.Parallel()
	got := parseFigures(fmt.Sprintf("goos: linux\nBenchmarkX-%d   \t 100\t  12345 ns/op\t 3.5 MB/peak\nBenchmarkCold/a-dns  3  9 ms/init\nPASS\n"+
		"=== RUN   TestY\n=== ATTR  TestY dns 11 8 5\n=== ATTR  TestY/ten sold 10 100\n", runtime.GOMAXPROCS(0)))
	want := map[string][]float64{"X ns/op": {12345}, "X MB/peak": {3.5}, "Cold/a-dns ms/init": {9}, "dns": {11, 8, 5}, "ten": {10, 100}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestOrder checks medians, percentiles (by the nearest rank), and the format of large
// numbers.
func TestOrder(t *testing.T) {
	t.Parallel()
	var durations []time.Duration
	var rounds []round
	for i := range time.Duration(100) {
		durations, rounds = append(durations, i+1), append(rounds, round{p50: 100 - i})
	}
	p50 := func(r round) time.Duration { return r.p50 }
	got := []time.Duration{percentile(durations, 50), percentile(durations, 99), percentile(durations, 100), percentile(durations, 0), percentile(durations[:3], 50), median(rounds, p50), median(rounds[:99], p50)}
	if want := []time.Duration{50, 99, 100, 1, 2, 50, 51}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
	if got := thousands(1234567); got != "1,234,567" {
		t.Error(got)
	}
}

// TestTakingTurns checks that the address families alternate, beginning with IPv4.
func TestTakingTurns(t *testing.T) {
	t.Parallel()
	a, b, c, d := net.IPv4(1, 1, 1, 1), net.IPv4(1, 1, 1, 2), net.IPv4(1, 1, 1, 3), net.ParseIP("2606:4700::1")
	if diff := cmp.Diff([]net.IP{a, d, b, c}, alternateFamilies([]net.IP{d, a, b, c})); diff != "" {
		t.Error(diff)
	}
}

// TestPeers checks that each peer and each tool belongs to an operation that exists.
func TestPeers(t *testing.T) {
	for slug := range peers("1.1.1.1", "http://127.0.0.1:1/rdap/dns.json") {
		if _, known := catalog.BySlug(slug); !known && slug != deadAddressesKey {
			t.Errorf("there is no operation %s", slug)
		}
	}
	for slug, p := range tools([]string{"1.1.1.1"}) {
		if _, known := catalog.BySlug(slug); !known || p.ask == nil {
			t.Errorf("there is no operation %s, or nothing to measure it beside", slug)
		}
	}
}

// TestAsDig checks that lookupLikeDig queries the next resolver if a resolver does not reply.
// lookupLikeDig must return an error if no resolver replies, or if the reply has no records.
func TestAsDig(t *testing.T) {
	t.Parallel()
	resolver := testbed.Must(testbed.ListenDNS("127.0.0.1:0", testbed.ReadZone(t, "example.com. 60 IN A 192.0.2.1\n")))
	t.Cleanup(func() { _ = resolver.Close() })
	closed := testbed.Must(testbed.ListenDNS("127.0.0.1:0", testbed.Zone{}))
	testbed.Check(closed.Close())
	for _, c := range []struct {
		resolvers []string
		domain    string
		answers   bool
	}{
		{[]string{closed.Addr, resolver.Addr}, "example.com", true},
		{[]string{closed.Addr, resolver.Addr}, "gone.example.com", false},
		{[]string{closed.Addr}, "example.com", false},
		{nil, "example.com", false},
	} {
		if _, err := lookupLikeDig(c.resolvers)(t.Context(), c.domain); (err == nil) != c.answers {
			t.Errorf("%v about %s: %v", c.resolvers, c.domain, err)
		}
	}
}

// TestTimeOfFailed checks that a failed lookup counts with the time until it failed. The tool
// itself reports no duration in this case.
func TestTimeOfFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := peer{"it", func(context.Context, string) (time.Duration, error) {
			time.Sleep(3 * time.Second)
			return 0, errors.New("broken")
		}}
		if got, want := failing.timeOf("example.com"), (answer{"it", 3000, "failed: broken"}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
