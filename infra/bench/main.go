// Command bench measures the service beside what a user would pick instead, and
// prints one table, as ratios in one run (make bench).
//
//	bench table     measure everything; write the table, and its lines in the README
//	bench peers     do the lookups of the service by libraries and tools of others
//
// It compares: lookups with their round trips and with well-known tools
// (infra/simnet), challenges and paid calls with the middleware for Express of the
// x402 project, calls over the Model Context Protocol with calls over HTTP, and a
// ledger of a million payments with one of ten.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 {
		switch arguments[0] {
		case "table":
			return runTable(ctx, arguments[1:])
		case "peers":
			return runPeers(arguments[1:])
		}
	}
	return errors.New("usage: bench table | bench peers (make bench builds what they need)")
}

// share is the part of a processor that Lambda gives to 512 MB: 1,769 MB is one.
const share = 512.0 / 1769

// runTable measures everything and writes the table.
func runTable(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	root := flags.String("root", ".", "folder of the module")
	local := flags.String("local", "build/local", "the built local runner")
	simnet := flags.String("simnet", "build/simnet.test", "the built tests of infra/simnet")
	runs := flags.Int("runs", 15, "how often each thing is measured")
	rtt := flags.Duration("rtt", 50*time.Millisecond, "how far away everything is for the lookups")
	each := flags.Duration("each", time.Second, "how long a round of requests lasts")
	records := flags.Int("records", 1_000_000, "payments in the largest ledger")
	only := flags.String("only", "", "measure this part alone, and write nothing: "+strings.Join(partNames, ", "))
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of a temporary folder
	facilitator := newFacilitator()
	defer facilitator.Close()
	s := site{
		root: *root, dir: dir, facilitator: facilitator.URL, pace: pace{rounds: max(1, *runs/3), each: *each},
		progress: func(format string, v ...any) { fmt.Fprintf(os.Stderr, "measuring "+format+" ...\n", v...) },
	}
	where := machine()
	var all []section
	for _, p := range s.parts(*local, *simnet, *runs, *rtt, *records) {
		if *only != "" && p.name != *only {
			continue
		}
		measured, err := p.measure(ctx)
		if err != nil {
			return err
		}
		all = append(all, measured...)
	}
	if *only != "" {
		return writeTable(os.Stdout, where, all)
	}
	return publish(*root, where, all)
}

// publish prints the table, keeps it, and puts its excerpt into the README.
func publish(root, where string, all []section) error {
	var table bytes.Buffer
	if err := writeTable(&table, where, all); err != nil {
		return err
	}
	if _, err := os.Stdout.Write(table.Bytes()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "infra/bench/table.md"), table.Bytes(), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	return putExcerpt(filepath.Join(root, "README.md"), excerpt(all))
}

// partNames are the parts of the table in their order.
var partNames = []string{"lookups", "http", "growth", "handlers", "functions", "table", "limits", "cost"}

// part measures some sections of the table.
type part struct {
	name    string
	measure func(context.Context) ([]section, error)
}

// parts are all that can be measured on this system.
func (s site) parts(local, simnet string, runs int, rtt time.Duration, records int) []part {
	one := func(measure func(context.Context) (section, error)) func(context.Context) ([]section, error) {
		return func(ctx context.Context) ([]section, error) {
			measured, err := measure(ctx)
			return []section{measured}, err
		}
	}
	all := []part{
		{partNames[0], one(func(ctx context.Context) (section, error) { return s.lookups(ctx, simnet, runs, rtt) })},
		{partNames[1], func(ctx context.Context) ([]section, error) { return s.middleware(ctx, local) }},
		{partNames[2], one(func(ctx context.Context) (section, error) {
			return s.growth(ctx, local, []int{10, records / 10, records})
		})},
		{partNames[3], one(s.handlers)},
		{partNames[4], one(s.functions)},
		{partNames[5], one(s.table)},
		{partNames[6], one(s.limits)},
		{partNames[7], one(s.cost)},
	}
	if runtime.GOOS != "linux" {
		return all[1:] // network namespaces are Linux's
	}
	return all
}

// lookups are the times of every lookup over its round trips, in a small internet.
func (s site) lookups(ctx context.Context, simnet string, runs int, rtt time.Duration) (section, error) {
	far := section{title: "Lookups over their round trips, from a warm process"}
	s.progress("lookups with a round trip of %s", rtt)
	self, err := os.Executable()
	if err != nil {
		return far, err
	}
	program, err := filepath.Abs(simnet)
	if err != nil {
		return far, err
	}
	file := filepath.Join(s.dir, "lookups.json")
	cmd := exec.CommandContext(ctx, program, "-rtt", rtt.String(), "-runs", strconv.Itoa(runs), "-peers", self, "-rows", file)
	cmd.Dir = filepath.Join(s.root, "infra/simnet")
	if out, err := cmd.CombinedOutput(); err != nil {
		return far, fmt.Errorf("%s: %w\n%s", simnet, err, out)
	}
	far.rows, err = readRows(file)
	for i := range far.rows {
		far.rows[i].README = i == 0
	}
	return far, err
}

// handlers are Go benchmarks of the handlers in one process.
func (s site) handlers(ctx context.Context) (section, error) {
	one := section{title: "Handlers alone"}
	s.progress("handlers")
	b, err := goBenchmarks(ctx, s.root, "./infra/local/e2e", "^Benchmark(Challenge|ToolChallenge|PaidDNS|ToolPaid|Memory)$")
	if err != nil {
		return one, err
	}
	micros := func(name string) float64 { return b[name]["ns/op"] / 1000 }
	paid := micros("PaidDNS") / 1000 / share
	one.rows = []row{
		row{What: "challenge (402)", Ours: fmt.Sprintf("%.0f µs, %.0f network calls", micros("Challenge"), b["Challenge"]["network-calls"])}.
			held("≤ 50 µs, 0 calls", micros("Challenge") <= 50 && b["Challenge"]["network-calls"] == 0),
		row{What: "unpaid tools/call", Ours: fmt.Sprintf("%.0f µs, %.0f network calls", micros("ToolChallenge"), b["ToolChallenge"]["network-calls"])}.
			held("≤ 100 µs, 0 calls", micros("ToolChallenge") <= 100 && b["ToolChallenge"]["network-calls"] == 0),
		{What: "paid DNS lookup, ledger in memory, facilitator and resolver on loopback", Ours: fmt.Sprintf("%.0f µs", micros("PaidDNS"))},
		row{What: "the same with 512 MB's share of a processor", Ours: fmt.Sprintf("%.1f ms", paid)}.held("≤ 20 ms", paid <= 20),
		{What: "the same by tools/call", Ours: fmt.Sprintf("%.0f µs", micros("ToolPaid"))},
		row{What: "memory of the dns function after 1,000 paid requests", Ours: fmt.Sprintf("%.0f MB", b["Memory"]["MB/1000th"]), README: true}.
			held("≤ 64 MB", b["Memory"]["MB/1000th"] <= 64),
	}
	return one, nil
}

// functions are the deployed binaries, started from nothing.
func (s site) functions(ctx context.Context) (section, error) {
	cold := section{title: "Functions started from nothing: the built binary behind a Runtime API"}
	s.progress("cold starts")
	b, err := goBenchmarks(ctx, s.root, "./infra/local/e2e", "^BenchmarkColdStart$")
	if err != nil {
		return cold, err
	}
	for _, slug := range slugs() {
		f, ok := b["ColdStart/"+slug]
		if !ok {
			return cold, fmt.Errorf("the cold start of %s was not measured", slug)
		}
		most := 13.0
		if heavy(slug) {
			most = 17
		}
		first := f["ms/first-answer"]
		r := row{What: slug, Ours: fmt.Sprintf("first answer after %.0f ms, %.0f MB resident, binary %.1f MB", first, f["MB/resident"], f["MB/binary"])}
		r = r.held(fmt.Sprintf("≤ 30 ms, ≤ %.0f MB", most), first <= 30 && f["MB/binary"] <= most)
		r.README = slug == "dns"
		cold.rows = append(cold.rows, r)
	}
	return cold, nil
}

// attributes runs a test of pkg/service and returns the figures that it reports, by
// their names.
func (s site) attributes(ctx context.Context, test string, arguments ...string) (map[string][]int, error) {
	arguments = append([]string{"test", "-vet=off", "-count=1", "-v", "-run", "^" + test + "$", "./pkg/service"}, arguments...)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = s.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -run %s: %w\n%s", test, err, out)
	}
	return parseAttributes(out, test)
}

// parseAttributes reads the lines "=== ATTR  TestX/case name 1 2 3" of a test, and
// of its subtests, whose names come before that of the attribute.
func parseAttributes(out []byte, test string) (map[string][]int, error) {
	all := map[string][]int{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "=== ATTR  "+test)
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 {
			continue
		}
		name := fields[0]
		if sub, ok := strings.CutPrefix(name, "/"); ok {
			name, fields = sub, fields[1:]
		}
		for _, f := range fields[1:] {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], n)
		}
	}
	return all, nil
}

// table is what a paid request takes of DynamoDB, as a test counts it.
func (s site) table(ctx context.Context) (section, error) {
	units := section{title: "A paid request on DynamoDB, all tables and the index included, with a receipt"}
	s.progress("write units")
	counted, err := s.attributes(ctx, "TestPaidUnits")
	if err != nil {
		return units, err
	}
	for _, c := range []struct {
		name string
		most int
	}{{"dns", 12}, {"ping", 10}} {
		f := counted[c.name]
		if len(f) != 3 {
			return units, fmt.Errorf("TestPaidUnits reported %v of %s, want three figures", f, c.name)
		}
		r := row{What: "paid " + c.name, Ours: fmt.Sprintf("%d write units in %d writes, %d calls in sequence: %d ms at 3 ms a call", f[0], f[1], f[2], 3*f[2])}
		r = r.held(fmt.Sprintf("≤ %d units, ≤ 5 calls", c.most), f[0] <= c.most && f[2] <= 5)
		r.README = c.name == "dns"
		units.rows = append(units.rows, r)
	}
	return units, nil
}

// limits are payments at growing rates over a model of DynamoDB's limits.
func (s site) limits(ctx context.Context) (section, error) {
	most := section{title: "Paid lookups a second on a model of DynamoDB's limits: 1,000 write units a second for an item or an index partition"}
	s.progress("a model of DynamoDB's limits")
	sold, err := s.attributes(ctx, "TestCapacity", "-capacity")
	if err != nil {
		return most, err
	}
	for _, name := range []string{"10_a_second", "100_a_second", "1000_a_second", "1000_a_second_and_ping", "10000_a_second", "10000_a_second_and_ping"} {
		f := sold[name]
		if len(f) != 7 {
			return most, fmt.Errorf("TestCapacity reported %v of %s, want seven figures", f, name)
		}
		what := thousands(float64(f[0])) + " a second of dns"
		if strings.HasSuffix(name, "ping") {
			what += " and ping, half each"
		}
		r := row{What: what, Ours: fmt.Sprintf("%d %% answered; %s write units a second; hottest slots item %d, refused %d; hottest index partition %s, refused %d",
			f[1], thousands(float64(f[2])), f[3], f[4], thousands(float64(f[5])), f[6])}
		if f[0] == 1000 {
			r = r.held("100 %, none refused", f[1] == 100 && f[4]+f[6] == 0)
			r.README = !strings.HasSuffix(name, "ping")
		}
		most.rows = append(most.rows, r)
	}
	return most, nil
}

// cost is what calls come to by AWS's list prices, as a benchmark counts them. The
// README has a table of its own of it.
func (s site) cost(ctx context.Context) (section, error) {
	prices := section{title: "A million calls by AWS's list prices in us-east-1, at the memory of the template"}
	s.progress("what calls cost")
	b, err := goBenchmarks(ctx, s.root, "./pkg/service", "^BenchmarkCost$")
	if err != nil {
		return prices, err
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		f := b[name]
		prices.rows = append(prices.rows, row{
			What: strings.ReplaceAll(strings.TrimPrefix(name, "Cost/"), "-", " "),
			Ours: fmt.Sprintf("$%.2f: %.4g GB-s, %.0f write and %.0f read units, %.0f bytes of logs, %.0f bytes out, each",
				f["$/million"], f["GB-s"], f["write-units"], f["read-units"], f["log-bytes"], f["out-bytes"]),
		})
	}
	return prices, nil
}
