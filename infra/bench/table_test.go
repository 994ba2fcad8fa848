package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fails says whether a function ends with an error.
func fails(f func()) (err error) {
	defer caught(&err)
	f()
	return nil
}

// What is printed by go test is read as it is printed.
func TestReadsFigures(t *testing.T) {
	t.Parallel()
	b := parseBenchmarks("goos: linux\nBenchmarkX-2   \t 100\t  12345 ns/op\t 3.5 MB/peak\nBenchmarkCold/dns-16  3  9 ms/init\nPASS\n")
	if d := cmp.Diff(map[string]figures{"X": {"ns/op": 12345, "MB/peak": 3.5}, "Cold/dns": {"ms/init": 9}}, b); d != "" {
		t.Error(d)
	}
	a := parseAttributes("=== RUN   TestY\n=== ATTR  TestY dns 11 8 5\n=== ATTR  TestY/ten sold 10 100\n", "TestY")
	if d := cmp.Diff(map[string][]int{"dns": {11, 8, 5}, "ten": {10, 100}}, a); d != "" {
		t.Error(d)
	}
	if fails(func() { parseBenchmarks("BenchmarkX-2 100 many ns/op") }) == nil || fails(func() { parseAttributes("=== ATTR  TestY dns eleven\n", "TestY") }) == nil {
		t.Error("a figure that is not a number was taken")
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
