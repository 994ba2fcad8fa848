package main

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// What is printed by go test is read as it is printed.
func TestReadsFigures(t *testing.T) {
	t.Parallel()
	got := parseFigures(fmt.Sprintf("goos: linux\nBenchmarkX-%d   \t 100\t  12345 ns/op\t 3.5 MB/peak\nBenchmarkCold/a-dns  3  9 ms/init\nPASS\n"+
		"=== RUN   TestY\n=== ATTR  TestY dns 11 8 5\n=== ATTR  TestY/ten sold 10 100\n", runtime.GOMAXPROCS(0)))
	want := map[string][]float64{"X ns/op": {12345}, "X MB/peak": {3.5}, "Cold/a-dns ms/init": {9}, "dns": {11, 8, 5}, "ten": {10, 100}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Medians and percentiles are of the nearest rank.
func TestOrder(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	var rounds []round
	for i := range time.Duration(100) {
		took, rounds = append(took, i+1), append(rounds, round{p50: 100 - i})
	}
	p50 := func(r round) time.Duration { return r.p50 }
	got := []time.Duration{percentile(took, 50), percentile(took, 99), percentile(took, 100), percentile(took, 0), percentile(took[:3], 50), median(rounds, p50), median(rounds[:99], p50)}
	if want := []time.Duration{50, 99, 100, 1, 2, 50, 51}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
	if got := thousands(1234567); got != "1,234,567" {
		t.Error(got)
	}
}

// Families take turns, and IPv4 begins.
func TestTakingTurns(t *testing.T) {
	t.Parallel()
	a, b, c, d := net.IPv4(1, 1, 1, 1), net.IPv4(1, 1, 1, 2), net.IPv4(1, 1, 1, 3), net.ParseIP("2606:4700::1")
	if diff := cmp.Diff([]net.IP{a, d, b, c}, takingTurns([]net.IP{d, a, b, c})); diff != "" {
		t.Error(diff)
	}
}

// Peers are of operations that there are.
func TestPeers(t *testing.T) {
	for slug := range peers("1.1.1.1", "http://127.0.0.1:1/rdap/dns.json") {
		if _, known := catalog.BySlug(slug); !known && slug != broken {
			t.Errorf("there is no operation %s", slug)
		}
	}
}
