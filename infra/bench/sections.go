package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// site is what the sections of the table work with.
type site struct {
	root        string // of the module
	dir         string // of this run's files
	facilitator string
	pace        pace
	progress    func(format string, v ...any)
}

// beside is a row that compares two medians of requests a second.
func compare(what string, ours round, name string, theirs round) row {
	return row{
		What: what, Ours: ours.String(), Beside: name + ": " + theirs.String(),
		Ratio: fmt.Sprintf("%.2f", ours.perSecond/theirs.perSecond),
	}
}

func (r round) String() string {
	return fmt.Sprintf("%s/s, p50 %s, p99 %s ms, %.2f CPU", thousands(r.perSecond), millis(r.p50), millis(r.p99), r.processors)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }

func thousands(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Targets of the design's table of numbers.
const (
	targetChallenges = 5.0
	targetPayments   = 2.0
	targetGrowth     = 0.90
	targetClients    = 32 // at how many clients they hold
)

// middleware compares challenges and paid pings with @x402/express, over HTTP and
// over the Model Context Protocol.
func (s site) middleware(ctx context.Context, program string) ([]section, error) {
	mine, err := ours(ctx, program, s.facilitator, filepath.Join(s.dir, "ledger.db"))
	if err != nil {
		return nil, err
	}
	defer mine.stop()
	theirs, err := express(ctx, filepath.Join(s.root, "infra/bench/testdata/express"), s.facilitator)
	if err != nil {
		return nil, err
	}
	defer theirs.stop()
	b, err := newBuyer()
	if err != nil {
		return nil, err
	}
	const name = "@x402/express"
	paid, err := b.payments(ctx, mine)
	if err != nil {
		return nil, err
	}
	paidTheirs, err := b.payments(ctx, theirs)
	if err != nil {
		return nil, err
	}
	levels := []int{1, 8, targetClients, 64, 256}
	web := section{title: "Requests a second over HTTP: a durable ledger in a file, beside a middleware that keeps none"}
	for _, c := range []struct {
		what         string
		ours, theirs target
		target       float64
	}{
		{"challenges", challenges(mine), challenges(theirs), targetChallenges},
		{"paid pings", paid, paidTheirs, targetPayments},
	} {
		for _, clients := range levels {
			s.progress("%s, %s", c.what, counted(clients, "client"))
			m, err := measure(ctx, s.pace, clients, c.ours, c.theirs)
			if err != nil {
				return nil, err
			}
			r := compare(fmt.Sprintf("%s, %s", c.what, counted(clients, "client")), m[0], name, m[1])
			if clients == targetClients {
				r = r.held(fmt.Sprintf("≥ %g", c.target), m[0].perSecond >= c.target*m[1].perSecond)
				r.README = true
			}
			web.rows = append(web.rows, r)
		}
	}
	tools, err := s.protocol(ctx, mine, b, paid)
	return []section{web, tools}, err
}

// protocol compares the same calls over the Model Context Protocol and over HTTP.
func (s site) protocol(ctx context.Context, mine *server, b buyer, paid target) (section, error) {
	tools := section{title: "The Model Context Protocol beside HTTP, 32 clients"}
	paidTool, err := b.paidCalls(ctx, mine)
	if err != nil {
		return tools, err
	}
	for _, c := range []struct{ tool, plain target }{{calls(mine), challenges(mine)}, {paidTool, paid}} {
		s.progress("%s", c.tool.name)
		m, err := measure(ctx, s.pace, targetClients, c.tool, c.plain)
		if err != nil {
			return tools, err
		}
		tools.rows = append(tools.rows, compare(c.tool.name, m[0], "HTTP "+c.plain.name, m[1]))
	}
	return tools, nil
}

// growth compares paid pings on ledgers of several sizes.
func (s site) growth(ctx context.Context, program string, sizes []int) (section, error) {
	grown := section{title: "Paid pings a second as the ledger grows, 32 clients"}
	b, err := newBuyer()
	if err != nil {
		return grown, err
	}
	left, err := s.sample(ctx, program, b)
	if err != nil {
		return grown, err
	}
	var all []target
	for _, n := range sizes {
		s.progress("a ledger of %s", counted(n, "payment"))
		file, err := fill(ctx, s.dir, n, b.payer(), left)
		if err != nil {
			return grown, err
		}
		server, err := ours(ctx, program, s.facilitator, file)
		if err != nil {
			return grown, err
		}
		defer server.stop()
		t, err := b.payments(ctx, server)
		if err != nil {
			return grown, err
		}
		all = append(all, t)
	}
	m, err := measure(ctx, s.pace, targetClients, all...)
	if err != nil {
		return grown, err
	}
	for i, n := range sizes[1:] {
		r := compare(counted(n, "payment")+" in the ledger", m[i+1], fmt.Sprint(sizes[0]), m[0])
		r = r.held(fmt.Sprintf("≥ %.2f", targetGrowth), m[i+1].perSecond >= targetGrowth*m[0].perSecond)
		r.README = i == len(sizes)-2
		grown.rows = append(grown.rows, r)
	}
	return grown, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(float64(n)) + " " + what + "s"
}

// machine says what measured, and beside what.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(b), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	busy := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		busy, _, _ = strings.Cut(string(b), " ")
	}
	return fmt.Sprintf("%d × %s, %s/%s, %s; client, facilitator and server share them. Load when it began: %s. Medians of interleaved rounds.",
		runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version(), busy)
}

// slugs are the functions behind the gateway.
func slugs() []string {
	list := []string{"discovery", "health", "mcp"}
	for _, op := range catalog.All() {
		list = append(list, op.Slug)
	}
	return list
}

// heavy says whether a function may be larger, because it holds a registry's client
// or a TLS client with every cipher suite.
func heavy(slug string) bool {
	switch slug {
	case "ssl-check", "whois", "host-intel", "uptime-check", "mcp":
		return true
	}
	return false
}
