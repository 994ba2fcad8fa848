// Command reconcile looks once at every payment in doubt, as the scheduled
// function does every few minutes, or lists what is owed: what "make reconcile"
// and "make owed" run.
//
//	go run ./infra/local/reconcile
//	go run ./infra/local/reconcile -owed [-json]
//
// It reads the configuration of "make run": without LEDGER_TABLE the ledger is
// the file, which one process at a time can have open, so the service has to be
// stopped first. Without RPC_URL nothing is decided and nothing is written.
//
// The exit status is 1 when the ledger or its index failed, 2 for a wrong
// command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole command.
func run(ctx context.Context, args []string, getenv func(string) string, out, notes io.Writer) int {
	flags := flag.NewFlagSet("reconcile", flag.ContinueOnError)
	flags.SetOutput(notes)
	owed := flags.Bool("owed", false, "list what is owed instead, and to whom")
	asJSON := flags.Bool("json", false, "with -owed: a JSON array instead of a table")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0 || *asJSON && !*owed:
		flags.Usage()
		return exitUsage
	}
	l, err := open(getenv, notes)
	if err != nil {
		fmt.Fprintln(notes, err)
		return exitFailed
	}
	defer l.close()
	if *owed {
		err = l.listOwed(ctx, out, notes, *asJSON)
	} else {
		err = l.reconcile(ctx, out)
	}
	if err != nil {
		fmt.Fprintln(notes, err)
		return exitFailed
	}
	return 0
}

// opened is a ledger, ready to be looked at.
type opened struct {
	name  string // of the ledger
	node  string // of the chain; empty for none
	deps  service.Deps
	close func()
}

func open(getenv func(string) string, notes io.Writer) (opened, error) {
	c, err := boot.ReadLocal(getenv)
	if err != nil {
		return opened{}, err
	}
	o := opened{name: "DynamoDB table " + c.Ledger.Name, node: host(c.RPCURL), close: func() {}}
	var store ledger.Store
	var index ledger.Index
	if c.Ledger.Name == "" {
		s, err := openFile(c.LedgerFile)
		if err != nil {
			return opened{}, err
		}
		store, index, o.name = s, s, c.LedgerFile
		o.close = func() {
			if err := s.Close(); err != nil {
				fmt.Fprintln(notes, "close the ledger:", err)
			}
		}
	} else {
		store, index = c.Ledger.Stores().Ledger, c.Ledger.Index()
	}
	log := slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: c.LogLevel}))
	if o.deps, err = c.ReconcileDeps(store, index, log); err != nil {
		o.close()
	}
	return o, err
}

// openFile opens the ledger of "make run". It makes no new one.
func openFile(path string) (*embedded.Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("there is no ledger to look at: %w (LEDGER_FILE and LEDGER_TABLE name one)", err)
	}
	s, err := embedded.Open(path, embedded.Options{})
	if errors.Is(err, embedded.ErrLocked) {
		return nil, fmt.Errorf("%w\nA file can be open once: stop the service (make run) first", err)
	}
	return s, err
}

// host is where a node is, without the key that its URL may hold.
func host(rpc string) string {
	u, err := url.Parse(rpc)
	if err != nil {
		return ""
	}
	return u.Host
}

// reconcile runs once and prints what it came to.
func (o opened) reconcile(ctx context.Context, out io.Writer) error {
	begun := o.deps.Now()
	s, err := o.deps.Reconciler().Run(ctx)
	evidence := o.node
	if o.deps.Evidence == nil {
		evidence = "none (RPC_URL): nothing is decided, and nothing written"
	}
	fmt.Fprintf(out, "ledger    %s\nevidence  %s\n", o.name, evidence)
	printSummary(out, s)
	fmt.Fprintf(out, "took      %s\n", o.deps.Now().Sub(begun).Round(time.Millisecond))
	return err
}

func printSummary(out io.Writer, s x402.Summary) {
	fmt.Fprintf(out, "in doubt  %d of %d listed\n", s.Open, s.Listed)
	for _, row := range []struct {
		what string
		n    int
	}{
		{"found paid", s.SettledLate}, {"found never paid", s.RefusedLate}, {"can still be paid", s.StillOpen},
		{"no evidence", s.CannotTell}, {"decided or held meanwhile", s.Skipped}, {"failed", s.Failed}, {"not reached", s.Left},
	} {
		if row.n > 0 {
			fmt.Fprintf(out, "          %d %s\n", row.n, row.what)
		}
	}
	fmt.Fprintf(out, "owed      %d, refunds due: %d (make owed lists them)\n", s.Owed, s.Exhausted)
	if s.Uncounted > 0 {
		fmt.Fprintf(out, "          %d not counted\n", s.Uncounted)
	}
}
