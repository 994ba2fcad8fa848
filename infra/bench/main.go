// Command bench compares the service with the alternatives that a user has, and prints a table
// of ratios ("make bench"). Both figures of a ratio come from the same run. The command must run
// in the root folder of the repository.
//
//	bench table     measure everything, and write the table
//	bench peers     time a lookup by each third-party library and tool
//	bench tools     do a lookup many times, with the tools that users run
//	bench shop      sell a handler with the library
//	bench bare      repeat one answer with net/http
//
// The table compares the duration of a lookup with the duration of its necessary round trips
// and with that of the same lookup by well-known tools. It measures on a working network and
// on broken ones (infra/simnet). The table also compares challenges and paid calls with the
// x402 project's middleware for Express, calls over the Model Context Protocol with calls over
// HTTP, and a ledger of a million payments with a ledger of ten.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
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

// failure is the value with which check panics: an error after which nothing can be measured.
// During the panic, deferred calls stop everything that was started. Then recoverFailure ends
// the panic, and run returns the error.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// recoverFailure must be deferred. If check has made the deferring function panic,
// recoverFailure ends the panic, and stores the error in *err.
func recoverFailure(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.error
	default:
		panic(f)
	}
}

// site holds the settings of a run, and the sections of the table so far.
type site struct {
	ctx           context.Context
	dir           string // the folder for the files of this run
	facilitator   string
	runs, records int
	rtt           time.Duration
	sections      []*section
}

func run(ctx context.Context, arguments []string) (err error) {
	defer recoverFailure(&err)
	s := &site{ctx: ctx}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&s.runs, "runs", 15, "table: how often each thing is measured")
	flags.DurationVar(&s.rtt, "rtt", 50*time.Millisecond, "table: how far away everything is for the lookups")
	flags.IntVar(&s.records, "records", 1_000_000, "table: payments in the largest ledger")
	only := flags.String("only", "", "table: measure this part alone, and write nothing: lookups, broken, http, parts, growth, handlers, functions, table, limits, cost")
	resolver := flags.String("resolver", "1.1.1.1", "peers, tools: the resolver that a DNS question goes to; tools: several, with commas")
	times := flags.Int("times", 1, "tools: how often")
	beat := flags.Duration("beat", time.Second, "tools: how long after one the next begins")
	bootstrap := flags.String("bootstrap", "", "peers: URL of the RDAP bootstrap file")
	file := flags.String("file", "", "shop: the ledger; bare: the answer")
	flags.StringVar(&s.facilitator, "facilitator", "", "shop, bare: URL of the facilitator")
	command := append(arguments, "")[0]
	check(flags.Parse(arguments[min(1, len(arguments)):]))
	switch command {
	case "table":
		s.measureAll(*only)
	case "peers":
		return ask(peers(*resolver, *bootstrap)[flags.Arg(0)], flags.Arg(1))
	case "tools":
		return repeatLookup(tools(strings.Split(*resolver, ","))[flags.Arg(0)], flags.Arg(1), *times, *beat)
	case "shop":
		s.sell(*file)
	case "bare":
		s.runBareServer(*file)
	default:
		return errors.New("usage: bench table | bench peers | bench tools | bench shop | bench bare (make bench builds what they need)")
	}
	return nil
}

func progress(format string, v ...any) { fmt.Fprintf(os.Stderr, "measuring "+format+" ...\n", v...) }

func (s *site) output(dir, name string, arguments ...string) string {
	cmd := exec.CommandContext(s.ctx, name, arguments...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		check(fmt.Errorf("%s: %w\n%s", cmd, err, out))
	}
	return string(out)
}

// measureAll measures the parts of the table and prints the table. If its argument is the name
// of a part, it measures just that part. If the argument is empty, it measures all parts, and
// also writes the table to table.md.
func (s *site) measureAll(only string) {
	facilitator := newFacilitator()
	defer facilitator.Close()
	s.dir, s.facilitator = must(os.MkdirTemp("", "bench")), facilitator.URL
	defer func() { _ = os.RemoveAll(s.dir) }() // it is a temporary folder
	where := machine()
	for _, p := range []struct {
		name    string
		measure func()
	}{
		{"lookups", s.lookups}, {"broken", s.brokenNetworks}, {"http", s.middleware}, {"parts", s.parts}, {"growth", s.growth}, {"handlers", s.handlers},
		{"functions", s.functions}, {"table", s.table}, {"limits", s.limits}, {"cost", s.cost},
	} {
		namespaces := p.name == "lookups" || p.name == "broken" // these two parts need network namespaces, which only Linux has
		if only == p.name || only == "" && (!namespaces || runtime.GOOS == "linux") {
			p.measure()
		}
	}
	table := markdown(where, s.sections)
	must(os.Stdout.WriteString(table))
	if only == "" {
		check(os.WriteFile("infra/bench/table.md", []byte(table), 0o644)) //nolint:gosec // a file of the repository
	}
}

// machine returns a text that describes this machine and its load.
func machine() string {
	model, busy := "unknown processor", "unknown"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(b), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		busy, _, _ = strings.Cut(string(b), " ")
	}
	return fmt.Sprintf("%d × %s, %s/%s, %s; client, facilitator and server share these processors. Load at the start: %s. The numbers are medians of interleaved rounds.",
		runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version(), busy)
}
