package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		t.Error("a figure that is no number was taken")
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

// The README shows lines of the table that the command wrote last, and no others.
func TestReadmeHasTheTable(t *testing.T) {
	t.Parallel()
	table, readme := string(must(os.ReadFile("table.md"))), string(must(os.ReadFile("../../README.md")))
	_, rest, ok := strings.Cut(readme, begins)
	lines, _, closed := strings.Cut(rest, ends)
	if !ok || !closed || !strings.HasPrefix(lines, heading) {
		t.Fatalf("the README has no table between %q and %q", begins, ends)
	}
	shown := 0
	for line := range strings.Lines(strings.TrimPrefix(lines, heading)) {
		if shown++; !strings.Contains(table, line) {
			t.Errorf("table.md has no line %q", line)
		}
	}
	if shown < 8 || shown > 12 {
		t.Errorf("the README shows %d lines, want about ten", shown)
	}
}

// A file keeps what stands around its table.
func TestPutExcerpt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.md")
	check(os.WriteFile(file, []byte("before\n"+begins+"old\n"+ends+"after\n"), 0o600))
	s := section{title: "s"}
	s.add("a", "%d", 1).held("≤ 2", true).shown(true)
	s.add("b", "%d", 3).held("≤ 2", false).shown(true)
	s.add("hidden", "").shown(false)
	putExcerpt(file, excerpt([]section{s}))
	want := "before\n" + begins + heading + "| a | 1 |  |  | ≤ 2 ✓ |\n| b | 3 |  |  | ≤ 2 missed |\n" + ends + "after\n"
	if got := string(must(os.ReadFile(file))); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	check(os.WriteFile(file, []byte("nothing\n"), 0o600))
	if fails(func() { putExcerpt(file, "x") }) == nil {
		t.Error("a file without the markers was written")
	}
}
