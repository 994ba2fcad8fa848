package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

func (s *site) lookups() {
	progress("lookups with a round trip of %s", s.rtt)
	file := filepath.Join(s.dir, "lookups.json")
	s.output("infra/simnet", must(filepath.Abs("build/simnet.test")),
		"-rtt", s.rtt.String(), "-runs", strconv.Itoa(s.runs), "-peers", must(os.Executable()), "-rows", file)
	s.section("Lookups by a warm process: their time divided by the time of their round trips, and lookups of hosts with dead addresses").rows = readRows(file)
}

// The targets for the ratios. Each ratio is a figure of the service, divided by the same
// figure of the alternative. A ratio of rates (per second) must be at least its target. A
// ratio of times must be at most its target.
const (
	targetChallenges = 2.3  // challenges per second, divided by the middleware's
	targetPayments   = 1.5  // paid pings per second, divided by the middleware's
	targetAlone      = 1.3  // p50 of a paid ping by one client, divided by the middleware's
	targetSold       = 2.0  // paid calls per second of a sold handler, divided by the middleware's
	targetSoldAlone  = 1.2  // p50 of a paid call of a sold handler by one client, divided by the middleware's
	targetChallenge  = 1.4  // processor time of a challenge, divided by the time of a bare answer
	targetPaid       = 2.0  // processor time of a paid ping, divided by the time of its unavoidable steps
	targetGrowth     = 0.90 // paid pings per second on the largest ledger, divided by those on the smallest
	targetClients    = 32   // the targets for several clients apply to this number of clients or more
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

func formatCount(n int, what string) string {
	if n > 1 {
		what += "s"
	}
	return thousands(float64(n)) + " " + what
}

// middleware adds two sections to the table. The first compares the service with
// @x402/express. The second compares calls of MCP tools with calls over HTTP.
func (s *site) middleware() {
	mine, theirs := s.startService(filepath.Join(s.dir, "ledger.db")), s.startExpress()
	defer mine.stop()
	defer theirs.stop()
	b := newBuyer()
	paid := b.payments(mine)
	web := s.section("Requests a second over HTTP: a durable ledger in a file, compared with a middleware without a ledger")
	for _, c := range []struct {
		what         string
		ours, theirs target
		target       float64
	}{
		{"challenges", challenges(mine), challenges(theirs), targetChallenges},
		{"paid pings", paid, b.payments(theirs), targetPayments},
	} {
		for _, clients := range []int{1, 8, targetClients, 64, 256} {
			what := c.what + ", " + formatCount(clients, "client")
			progress("%s", what)
			rounds := s.runs / 3
			if clients == 1 { // one client sends few requests in a round, so more rounds are needed
				rounds = s.runs
			}
			m := s.measure(rounds, clients, c.ours, c.theirs)
			r := web.compare(what, m[0], "@x402/express", m[1])
			switch {
			case clients >= targetClients:
				r.setTarget(fmt.Sprintf("≥ %g", c.target), m[0].perSecond >= c.target*m[1].perSecond)
			case clients == 1 && c.ours.wantStatus == http.StatusOK:
				r.setTarget(fmt.Sprintf("p50 ≤ %g", targetAlone), m[0].p50.Seconds() <= targetAlone*m[1].p50.Seconds())
			}
		}
	}
	s.shop(web, b, b.payments(theirs), paid)
	tools := s.section("The Model Context Protocol compared with HTTP, %d clients", targetClients)
	for _, c := range []struct{ tool, plain target }{{calls(mine), challenges(mine)}, {b.paidCalls(mine), paid}} {
		progress("%s", c.tool.name)
		m := s.measure(s.runs/3, targetClients, c.tool, c.plain)
		tools.compare(c.tool.name, m[0], "HTTP "+c.plain.name, m[1])
	}
}

// shop measures paid calls of a handler that is sold with the library. It compares them with
// paid calls of the middleware (theirs) and with paid pings of the service.
func (s *site) shop(web *section, b buyer, theirs, pings target) {
	const what = "paid calls of a handler sold with the library, "
	progress("a shop")
	shop := s.startSelf("shop", filepath.Join(s.dir, "shop.db"))
	defer shop.stop()
	sold := b.payments(shop)
	one := s.measure(s.runs, 1, sold, theirs)
	web.compare(what+formatCount(1, "client"), one[0], "@x402/express", one[1]).
		setTarget(fmt.Sprintf("p50 ≤ %g", targetSoldAlone), one[0].p50.Seconds() <= targetSoldAlone*one[1].p50.Seconds())
	many := s.measure(s.runs/3, targetClients, sold, theirs, pings)
	web.compare(what+formatCount(targetClients, "client"), many[0], "@x402/express", many[1]).
		setTarget(fmt.Sprintf("≥ %g", targetSold), many[0].perSecond >= targetSold*many[1].perSecond)
	web.compare(what+formatCount(targetClients, "client"), many[0], "paid pings", many[2]).
		setTarget("≥ 1", many[0].perSecond >= many[2].perSecond)
}

// growth adds a section to the table. The section compares paid pings of services whose
// ledgers have different sizes.
func (s *site) growth() {
	grown := s.section("Paid pings a second as the ledger grows, %d clients", targetClients)
	b := newBuyer()
	paymentRecords := s.sample(b)
	sizes := []int{10, s.records / 10, s.records}
	var all []target
	for _, n := range sizes {
		progress("a ledger of %s", formatCount(n, "payment"))
		server := s.startService(s.fill(n, b.payer(), paymentRecords))
		defer server.stop()
		all = append(all, b.payments(server))
	}
	m := s.measure(s.runs, targetClients, all...) // many rounds, because a disk's speed varies
	for i, n := range sizes[1:] {
		grown.compare(formatCount(n, "payment")+" in the ledger", m[i+1], formatCount(sizes[0], "payment"), m[0]).
			setTarget(fmt.Sprintf("≥ %.2f", targetGrowth), m[i+1].perSecond >= targetGrowth*m[0].perSecond)
	}
}

// figures runs tests or benchmarks of a package. It returns a function that looks up the
// numbers that were reported under a name. The caller of that function says how many numbers
// there must be.
func (s *site) figures(pkg string, arguments ...string) func(count int, name string) []float64 {
	all := parseFigures(s.output(".", "go", append([]string{"test", "-vet=off", pkg}, arguments...)...))
	return func(count int, name string) []float64 {
		if len(all[name]) != count {
			check(fmt.Errorf("%s reported %v of %s, want %d figures", pkg, all[name], name, count))
		}
		return all[name]
	}
}

// benchmarks runs the benchmarks of a package that match a pattern. It returns a function that
// looks up the figure of one benchmark in one unit, such as ns/op.
func (s *site) benchmarks(pkg, pattern string) func(name, unit string) float64 {
	all := s.figures(pkg, "-run", "^$", "-bench", pattern, "-benchmem")
	return func(name, unit string) float64 { return all(1, name+" "+unit)[0] }
}

// parseFigures returns the numbers in the output of go test, by name. It reads the lines of
// benchmarks, such as "BenchmarkX-2  100  12345 ns/op  3 calls", and those of attributes, such
// as "=== ATTR  TestX name 1 2 3". The name of a benchmark's number has the unit in it, as in
// "X ns/op". The numbers of an attribute have the attribute's name. If a subtest has set the
// attribute, they have the subtest's name instead.
func parseFigures(out string) map[string][]float64 {
	all := map[string][]float64{}
	add := func(name, figure string) { all[name] = append(all[name], must(strconv.ParseFloat(figure, 64))) }
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "Benchmark"):
			name := strings.TrimSuffix(strings.TrimPrefix(fields[0], "Benchmark"), fmt.Sprint("-", runtime.GOMAXPROCS(0)))
			for i := 2; i+1 < len(fields); i += 2 {
				add(name+" "+fields[i+1], fields[i])
			}
		case len(fields) >= 5 && fields[1] == "ATTR":
			name := fields[3]
			if _, sub, ok := strings.Cut(fields[2], "/"); ok {
				name = sub
			}
			for _, figure := range fields[4:] {
				add(name, figure)
			}
		}
	}
	return all
}

func (s *site) handlers() {
	progress("handlers")
	b := s.benchmarks("./infra/local/e2e", "^Benchmark(Challenge|ToolChallenge|PaidDNS|Memory)$")
	micros := func(name string) float64 { return b(name, "ns/op") / 1000 }
	one := s.section("Handlers alone")
	for _, c := range []struct {
		what, name string
		most       float64
	}{{"challenge (402)", "Challenge", 50}, {"unpaid tools/call", "ToolChallenge", 100}} {
		calls := b(c.name, "network-calls")
		one.add(c.what, "%.0f µs, %.0f network calls", micros(c.name), calls).setTarget(fmt.Sprintf("≤ %g µs, 0 calls", c.most), micros(c.name) <= c.most && calls == 0)
	}
	const share = 512.0 / 1769 // Lambda gives a function with 1,769 MB one whole processor, so a function with 512 MB gets this share
	paid, memory := micros("PaidDNS")/1000/share, b("Memory", "MB/1000th")
	one.add("paid DNS lookup, ledger in memory, facilitator and resolver on loopback", "%.0f µs", micros("PaidDNS"))
	one.add("the same with the processor share of a function with 512 MB", "%.1f ms", paid).setTarget("≤ 20 ms", paid <= 20)
	one.add("memory of the dns function after 1,000 paid requests", "%.0f MB", memory).setTarget("≤ 64 MB", memory <= 64)
}

func (s *site) functions() {
	progress("cold starts")
	const starts = 15
	measured := s.figures("./infra/functions", "-v", "-run", "^TestColdStartAsksNobody$", fmt.Sprint("-count=", starts))
	slugs := []string{"discovery", "health", "mcp"}
	for _, op := range catalog.All() {
		slugs = append(slugs, op.Slug)
	}
	cold := s.section("Cold starts of functions: the built binary behind a Lambda Runtime API")
	for _, slug := range slugs {
		f, first := measured(2*starts, slug), 0.0 // f has microseconds at its even indexes and the binary's size in bytes at its odd ones
		for i := range starts {
			first += f[2*i] / 1000 / starts
		}
		size := f[1] / 1e6
		most := 13.0
		// These binaries may be larger: they contain a registry's client, or a TLS client with
		// every cipher suite.
		if slices.Contains([]string{"ssl-check", "whois", "host-intel", "uptime-check", "mcp"}, slug) {
			most = 17
		}
		cold.add(slug, "first answer after %.0f ms, binary %.1f MB", first, size).
			setTarget(fmt.Sprintf("≤ 30 ms, ≤ %.0f MB", most), first <= 30 && size <= most)
	}
}

func (s *site) table() {
	progress("write units")
	counted := s.figures("./pkg/service", "-count=1", "-v", "-run", "^TestPaidUnits$")
	units := s.section("A paid request on DynamoDB, all tables and the index included, with a receipt")
	for _, c := range []struct {
		name string
		most float64
	}{{"dns", 12}, {"ping", 10}} {
		f := counted(3, c.name)
		units.add("paid "+c.name, "%.0f write units in %.0f writes, %.0f calls in sequence: %.0f ms at 3 ms a call", f[0], f[1], f[2], 3*f[2]).
			setTarget(fmt.Sprintf("≤ %.0f units, ≤ 5 calls", c.most), f[0] <= c.most && f[2] <= 5)
	}
}

// limits adds a section to the table: how many payments succeed in a model of DynamoDB's
// limits, at several rates of payments.
func (s *site) limits() {
	progress("a model of DynamoDB's limits")
	sold := s.figures("./pkg/service", "-count=1", "-v", "-run", "^TestCapacity$", "-capacity")
	most := s.section("Paid lookups a second on a model of DynamoDB's limits: 1,000 write units a second for an item or an index partition")
	for _, name := range []string{"10_a_second", "100_a_second", "1000_a_second", "1000_a_second_and_ping", "10000_a_second", "10000_a_second_and_ping"} {
		f, ping := sold(7, name), strings.HasSuffix(name, "ping")
		what := thousands(f[0]) + " a second of dns"
		if ping {
			what += " and ping, half each"
		}
		r := most.add(what, "%.0f %% answered; %s write units a second; hottest item of concurrency slots: %.0f units, %.0f refused; hottest index partition: %s units, %.0f refused",
			f[1], thousands(f[2]), f[3], f[4], thousands(f[5]), f[6])
		if f[0] == 1000 {
			r.setTarget("100 %, none refused", f[1] == 100 && f[4]+f[6] == 0)
		}
	}
}

// cost adds a section to the table: what calls cost at AWS's list prices. The README also has
// these costs.
func (s *site) cost() {
	progress("what calls cost")
	counted := s.figures("./pkg/service", "-count=1", "-v", "-run", "^TestReadmeCosts$")
	prices := s.section("A million calls at AWS's list prices in us-east-1, with the memory that the template sets")
	for _, name := range []string{"challenge", "paid-call", "refused-payment"} {
		f := counted(6, name)
		prices.add(strings.ReplaceAll(name, "-", " "),
			"$%.2f; each call takes %.4g GB-s, %.0f write and %.0f read units, %.0f bytes of logs, and %.0f bytes out", f[5], f[0], f[1], f[2], f[3], f[4])
	}
}

// row is one line of the table. Met says whether the target is met; it is nil if there is no
// target.
type row struct {
	What   string `json:"what"`
	Ours   string `json:"ours"`
	Beside string `json:"beside,omitempty"` // the alternative and its figure
	Ratio  string `json:"ratio,omitempty"`
	Target string `json:"target,omitempty"`
	Met    *bool  `json:"met,omitempty"`
}

type section struct {
	title string
	rows  []row
}

// section begins a section of the table.
func (s *site) section(title string, values ...any) *section {
	s.sections = append(s.sections, &section{title: fmt.Sprintf(title, values...)})
	return s.sections[len(s.sections)-1]
}

func (s *section) add(what, ours string, values ...any) *row {
	s.rows = append(s.rows, row{What: what, Ours: fmt.Sprintf(ours, values...)})
	return &s.rows[len(s.rows)-1]
}

func (r *row) setTarget(target string, met bool) { r.Target, r.Met = target, &met }

const heading = "| What | Ours | Compared with | Ratio | Target |\n|---|---|---|---|---|\n"

func markdown(machine string, all []*section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What make bench printed\n\n%s\n", machine)
	for _, s := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s", s.title, heading)
		for _, r := range s.rows {
			if r.Met != nil {
				r.Target += map[bool]string{true: " ✓", false: " missed"}[*r.Met]
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.What, r.Ours, r.Beside, r.Ratio, r.Target)
		}
	}
	return b.String()
}

func readRows(file string) (rows []row) {
	for line := range strings.Lines(string(must(os.ReadFile(file)))) {
		var r row
		check(json.Unmarshal([]byte(line), &r))
		rows = append(rows, r)
	}
	return rows
}
