package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

func (s site) lookups() []section {
	progress("lookups with a round trip of %s", s.rtt)
	file := filepath.Join(s.dir, "lookups.json")
	s.output("infra/simnet", must(filepath.Abs("build/simnet.test")),
		"-rtt", s.rtt.String(), "-runs", strconv.Itoa(s.runs), "-peers", must(os.Executable()), "-rows", file)
	rows := readRows(file)
	return []section{{"Lookups over their round trips, from a warm process", rows}}
}

// Targets of the design's table of numbers.
const (
	targetChallenges = 2.3  // challenges a second beside the middleware's
	targetPayments   = 1.5  // paid pings
	targetAlone      = 1.3  // p50 of a paid ping of one client beside the middleware's
	targetChallenge  = 1.4  // processor time of a challenge beside that of a bare answer
	targetPaid       = 2.0  // processor time of a paid ping beside that of its parts
	targetGrowth     = 0.90 // paid pings a second on the largest ledger beside those on the smallest
	targetClients    = 32   // at how many clients they hold
)

func (s *section) compare(what string, ours round, name string, theirs round) *row {
	r := s.add(what, "%s", ours)
	r.Beside, r.Ratio = name+": "+theirs.String(), fmt.Sprintf("%.2f", ours.perSecond/theirs.perSecond)
	return r
}

func (r round) String() string {
	millis := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
	return fmt.Sprintf("%s/s, p50 %s, p99 %s ms, %.2f CPU", thousands(r.perSecond), millis(r.p50), millis(r.p99), r.processors)
}

func thousands(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func counted(n int, what string) string {
	if n > 1 {
		what += "s"
	}
	return thousands(float64(n)) + " " + what
}

// middleware compares challenges and paid pings with @x402/express, and the same calls
// over the Model Context Protocol with those over HTTP.
func (s site) middleware() []section {
	mine, theirs := s.ours(filepath.Join(s.dir, "ledger.db")), s.express()
	defer mine.stop()
	defer theirs.stop()
	b := newBuyer()
	paid := b.payments(mine)
	web := section{title: "Requests a second over HTTP: a durable ledger in a file, beside a middleware that keeps none"}
	for _, c := range []struct {
		what         string
		ours, theirs target
		target       float64
	}{
		{"challenges", challenges(mine), challenges(theirs), targetChallenges},
		{"paid pings", paid, b.payments(theirs), targetPayments},
	} {
		for _, clients := range []int{1, 8, targetClients, 64, 256} {
			what := c.what + ", " + counted(clients, "client")
			progress("%s", what)
			m := s.measure(clients, c.ours, c.theirs)
			r := web.compare(what, m[0], "@x402/express", m[1])
			switch {
			case clients == targetClients:
				r.held(fmt.Sprintf("≥ %g", c.target), m[0].perSecond >= c.target*m[1].perSecond)
			case clients == 1 && c.ours.status == http.StatusOK:
				r.held(fmt.Sprintf("p50 ≤ %g", targetAlone), m[0].p50.Seconds() <= targetAlone*m[1].p50.Seconds())
			}
		}
	}
	progress("a shop")
	shop := s.shop(filepath.Join(s.dir, "shop.db"))
	defer shop.stop()
	m := s.measure(targetClients, b.payments(shop), paid)
	web.compare("paid calls of a handler that is sold, "+counted(targetClients, "client"), m[0], "paid pings", m[1]).
		held("≥ 1", m[0].perSecond >= m[1].perSecond)
	tools := section{title: fmt.Sprintf("The Model Context Protocol beside HTTP, %d clients", targetClients)}
	for _, c := range []struct{ tool, plain target }{{calls(mine), challenges(mine)}, {b.paidCalls(mine), paid}} {
		progress("%s", c.tool.name)
		m := s.measure(targetClients, c.tool, c.plain)
		tools.compare(c.tool.name, m[0], "HTTP "+c.plain.name, m[1])
	}
	return []section{web, tools}
}

// growth compares paid pings on ledgers of several sizes.
func (s site) growth() []section {
	grown := section{title: fmt.Sprintf("Paid pings a second as the ledger grows, %d clients", targetClients)}
	b := newBuyer()
	left := s.sample(b)
	sizes := []int{10, s.records / 10, s.records}
	var all []target
	for _, n := range sizes {
		progress("a ledger of %s", counted(n, "payment"))
		server := s.ours(s.fill(n, b.payer(), left))
		defer server.stop()
		all = append(all, b.payments(server))
	}
	m := s.measure(targetClients, all...)
	for i, n := range sizes[1:] {
		grown.compare(counted(n, "payment")+" in the ledger", m[i+1], fmt.Sprint(sizes[0]), m[0]).
			held(fmt.Sprintf("≥ %.2f", targetGrowth), m[i+1].perSecond >= targetGrowth*m[0].perSecond)
	}
	return []section{grown}
}

// figures are what one Go benchmark reports by unit: ns/op, B/op and its own; or a test
// by name.
type figures map[string]float64

// benchmarks runs benchmarks of a package and returns what each reports.
func (s site) benchmarks(pkg, pattern string) map[string]figures {
	all := parseBenchmarks(s.output(".", "go", "test", "-vet=off", "-run", "^$", "-bench", pattern, "-benchmem", pkg))
	if len(all) == 0 {
		check(fmt.Errorf("no benchmark of %s is called %s", pkg, pattern))
	}
	return all
}

// parseBenchmarks reads lines such as "BenchmarkX-2  100  12345 ns/op  3 calls".
func parseBenchmarks(out string) map[string]figures {
	all := map[string]figures{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		all[name] = figures{}
		for i := 2; i+1 < len(fields); i += 2 {
			all[name][fields[i+1]] = must(strconv.ParseFloat(fields[i], 64))
		}
	}
	return all
}

// attributes runs a test of a package and returns the figures that it reports, by
// their names; there have to be so many.
func (s site) attributes(count int, pkg, test string, arguments ...string) func(name string) []int {
	arguments = append([]string{"test", "-vet=off", "-count=1", "-v", "-run", "^" + test + "$", pkg}, arguments...)
	all := parseAttributes(s.output(".", "go", arguments...), test)
	return func(name string) []int {
		if len(all[name]) != count {
			check(fmt.Errorf("%s reported %v of %s, want %d figures", test, all[name], name, count))
		}
		return all[name]
	}
}

// parseAttributes reads the lines "=== ATTR  TestX/case name 1 2 3" of a test, and
// of its subtests, whose names come before that of the attribute.
func parseAttributes(out, test string) map[string][]int {
	all := map[string][]int{}
	for line := range strings.Lines(out) {
		rest, ok := strings.CutPrefix(line, "=== ATTR  "+test)
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 {
			continue
		}
		name := fields[0]
		if sub, ok := strings.CutPrefix(name, "/"); ok {
			name, fields = sub, fields[1:]
		}
		for _, f := range fields[1:] {
			all[name] = append(all[name], must(strconv.Atoi(f)))
		}
	}
	return all
}

func (s site) handlers() []section {
	progress("handlers")
	b := s.benchmarks("./infra/local/e2e", "^Benchmark(Challenge|ToolChallenge|PaidDNS|Memory)$")
	micros := func(name string) float64 { return b[name]["ns/op"] / 1000 }
	one := section{title: "Handlers alone"}
	for _, c := range []struct {
		what, name string
		most       float64
	}{{"challenge (402)", "Challenge", 50}, {"unpaid tools/call", "ToolChallenge", 100}} {
		calls := b[c.name]["network-calls"]
		one.add(c.what, "%.0f µs, %.0f network calls", micros(c.name), calls).held(fmt.Sprintf("≤ %g µs, 0 calls", c.most), micros(c.name) <= c.most && calls == 0)
	}
	const share = 512.0 / 1769 // of a processor, which Lambda gives to 512 MB: 1,769 MB is one
	paid, memory := micros("PaidDNS")/1000/share, b["Memory"]["MB/1000th"]
	one.add("paid DNS lookup, ledger in memory, facilitator and resolver on loopback", "%.0f µs", micros("PaidDNS"))
	one.add("the same with 512 MB's share of a processor", "%.1f ms", paid).held("≤ 20 ms", paid <= 20)
	one.add("memory of the dns function after 1,000 paid requests", "%.0f MB", memory).held("≤ 64 MB", memory <= 64)
	return []section{one}
}

func (s site) functions() []section {
	progress("cold starts")
	const starts = 15
	measured := s.attributes(2*starts, "./infra", "TestColdStartAsksNobody", fmt.Sprint("-count=", starts))
	slugs := []string{"discovery", "health", "mcp"}
	for _, op := range catalog.All() {
		slugs = append(slugs, op.Slug)
	}
	cold := section{title: "Functions started from nothing: the built binary behind a Runtime API"}
	for _, slug := range slugs {
		f, first := measured(slug), 0.0 // microseconds and bytes, in turn
		for i := range starts {
			first += float64(f[2*i]) / 1000 / starts
		}
		size := float64(f[1]) / 1e6
		most := 13.0
		// They hold a registry's client or a TLS client with every cipher suite.
		if slices.Contains([]string{"ssl-check", "whois", "host-intel", "uptime-check", "mcp"}, slug) {
			most = 17
		}
		cold.add(slug, "first answer after %.0f ms, binary %.1f MB", first, size).
			held(fmt.Sprintf("≤ 30 ms, ≤ %.0f MB", most), first <= 30 && size <= most)
	}
	return []section{cold}
}

func (s site) table() []section {
	progress("write units")
	counted := s.attributes(3, "./pkg/service", "TestPaidUnits")
	units := section{title: "A paid request on DynamoDB, all tables and the index included, with a receipt"}
	for _, c := range []struct {
		name string
		most int
	}{{"dns", 12}, {"ping", 10}} {
		f := counted(c.name)
		units.add("paid "+c.name, "%d write units in %d writes, %d calls in sequence: %d ms at 3 ms a call", f[0], f[1], f[2], 3*f[2]).
			held(fmt.Sprintf("≤ %d units, ≤ 5 calls", c.most), f[0] <= c.most && f[2] <= 5)
	}
	return []section{units}
}

// limits are payments at growing rates over a model of DynamoDB's limits.
func (s site) limits() []section {
	progress("a model of DynamoDB's limits")
	sold := s.attributes(7, "./pkg/service", "TestCapacity", "-capacity")
	most := section{title: "Paid lookups a second on a model of DynamoDB's limits: 1,000 write units a second for an item or an index partition"}
	for _, name := range []string{"10_a_second", "100_a_second", "1000_a_second", "1000_a_second_and_ping", "10000_a_second", "10000_a_second_and_ping"} {
		f, ping := sold(name), strings.HasSuffix(name, "ping")
		what := thousands(float64(f[0])) + " a second of dns" + map[bool]string{true: " and ping, half each"}[ping]
		r := most.add(what, "%d %% answered; %s write units a second; hottest slots item %d, refused %d; hottest index partition %s, refused %d",
			f[1], thousands(float64(f[2])), f[3], f[4], thousands(float64(f[5])), f[6])
		if f[0] == 1000 {
			r.held("100 %, none refused", f[1] == 100 && f[4]+f[6] == 0)
		}
	}
	return []section{most}
}

// cost is what calls cost by AWS's list prices, as a benchmark counts them. The
// README has a table of it.
func (s site) cost() []section {
	progress("what calls cost")
	b := s.benchmarks("./pkg/service", "^BenchmarkCost$")
	prices := section{title: "A million calls by AWS's list prices in us-east-1, at the memory of the template"}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		f := b[name]
		prices.add(strings.ReplaceAll(strings.TrimPrefix(name, "Cost/"), "-", " "),
			"$%.2f: %.4g GB-s, %.0f write and %.0f read units, %.0f bytes of logs, %.0f bytes out, each",
			f["$/million"], f["GB-s"], f["write-units"], f["read-units"], f["log-bytes"], f["out-bytes"])
	}
	return []section{prices}
}
