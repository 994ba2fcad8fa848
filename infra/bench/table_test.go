package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is printed by go test is read as it is printed.
func TestReadsFigures(t *testing.T) {
	t.Parallel()
	b, err := parseBenchmarks([]byte("goos: linux\nBenchmarkX-2   \t 100\t  12345 ns/op\t 3.5 MB/peak\nBenchmarkCold/dns-16  3  9 ms/init\nPASS\n"))
	if err != nil || len(b) != 2 || !maps.Equal(b["X"], figures{"ns/op": 12345, "MB/peak": 3.5}) || b["Cold/dns"]["ms/init"] != 9 {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := parseBenchmarks([]byte("BenchmarkX-2 100 many ns/op")); err == nil {
		t.Error("a figure that is no number was taken")
	}
	a, err := parseAttributes([]byte("=== RUN   TestY\n=== ATTR  TestY dns 11 8 5\n=== ATTR  TestY/ten sold 10 100\n"), "TestY")
	if err != nil || !slices.Equal(a["dns"], []int{11, 8, 5}) || !slices.Equal(a["ten"], []int{10, 100}) {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := parseAttributes([]byte("=== ATTR  TestY dns eleven\n"), "TestY"); err == nil {
		t.Error("a figure that is no number was taken")
	}
}

// Medians and percentiles are of the nearest rank.
func TestOrder(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[float64]int64{50: 50, 99: 99, 100: 100, 0: 1} {
		if got := percentile(took, p); got.Milliseconds() != want {
			t.Errorf("percentile %v is %s, want %d ms", p, got, want)
		}
	}
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("median of four %v", m)
	}
	if got := thousands(1234567); got != "1,234,567" {
		t.Error(got)
	}
}

// The README shows lines of the table that the command wrote last, and no others.
func TestReadmeHasTheTable(t *testing.T) {
	t.Parallel()
	root := "../.."
	table, err := os.ReadFile("table.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), begins)
	lines, _, closed := strings.Cut(rest, ends)
	if !ok || !closed || !strings.HasPrefix(lines, heading) {
		t.Fatalf("the README has no table between %q and %q", begins, ends)
	}
	shown := 0
	for line := range strings.Lines(strings.TrimPrefix(lines, heading)) {
		if shown++; !strings.Contains(string(table), line) {
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
	if err := os.WriteFile(file, []byte("before\n"+begins+"old\n"+ends+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	met := row{What: "a", Ours: "1", README: true}.held("≤ 2", true)
	missed := row{What: "b", Ours: "3", README: true}.held("≤ 2", false)
	all := []section{{"s", []row{met, missed, {What: "hidden"}}}}
	if err := putExcerpt(file, excerpt(all)); err != nil {
		t.Fatal(err)
	}
	want := "before\n" + begins + heading + "| a | 1 |  |  | ≤ 2 ✓ |\n| b | 3 |  |  | ≤ 2 missed |\n" + ends + "after\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if err := os.WriteFile(file, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := putExcerpt(file, "x"); err == nil {
		t.Error("a file without the markers was written")
	}
}
