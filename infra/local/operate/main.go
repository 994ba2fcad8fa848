// Command operate has the commands for the operator of a deployment. In a clone they are make
// targets, which "make help" lists. Without a clone,
//
//	go run github.com/hostfacts/hostfacts/infra/local/operate@latest owed
//
// runs the command owed. Messages suggest further commands in the form that the operator typed:
// as make targets, or as commands of this program. With -version instead of a command, the
// program prints its version.
//
// The configuration comes from the environment, as for "make run". Without LEDGER_TABLE, the
// ledger is LEDGER_FILE, which a service may have open at the same time. The ledger can be that
// of any shop built with package x402http. Without RPC_URL, the chain is not queried.
//
// The exit status is 1 when the command failed, 2 for a wrong command line, and 3 when the
// ledger and the chain differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/called"
)

// The exit statuses other than 0.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
)

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], order{
		invocation: called.Here(os.Getenv, os.Args[0]),
		getenv:     os.Getenv,
		now:        time.Now,
		out:        os.Stdout,
		notes:      os.Stderr,
	})
	stop()
	os.Exit(code)
}

// order has the arguments, the configuration and the streams of a command.
type order struct {
	args                  []string
	json                  bool   // print JSON for a program
	force                 bool   // do what the command otherwise refuses, such as closing a record without evidence from the chain
	copyName, restoreTime string // the name for a restored copy of the ledger, and the time whose state the copy gets
	isDrill               bool   // delete the copy after comparing it
	invocation            called.As
	getenv                func(string) string
	now                   func() time.Time
	out, notes            io.Writer
}

// command is one of the program's commands. A command checks its arguments before it opens a
// ledger.
type command struct {
	usage       string // the command's name, its flags as -name, and its arguments
	least, most int    // the smallest and the largest number of arguments
	do          func(context.Context, order) error
}

func commands() []command {
	return []command{
		{"reconcile", 0, 0, reconcileOnce},
		{"owed [-json]", 0, 0, listOwed},
		{"payer [-json] WALLET", 1, 1, listPayer},
		{"refund [-force] KEY [TRANSACTION]", 1, 2, func(ctx context.Context, o order) error { return refund(ctx, o, false) }},
		{"answered [-force] KEY TRANSACTION", 2, 2, func(ctx context.Context, o order) error { return refund(ctx, o, true) }},
		{"books [-json] DAY", 1, 1, listBooks},
		{"backup [FILE]", 0, 1, backup},
		{"restore [-to NAME] [-at TIME] [-drill]", 0, 0, restore},
		{"mark-ledger [-force] [ORIGIN]", 0, 1, markLedger},
		{"try-page", 0, 0, tryPage},
		{"smoke ORIGIN", 1, 1, smoke},
	}
}

// run runs the command that args begin with, and returns the exit status.
func run(ctx context.Context, args []string, o order) int {
	var names []string
	for _, c := range commands() {
		name, _, _ := strings.Cut(c.usage, " ")
		if len(args) > 0 && args[0] == name {
			return c.run(ctx, args[1:], o)
		}
		names = append(names, name)
	}
	fmt.Fprintf(o.notes, "usage: %s %s ...", o.invocation.Program(self), strings.Join(names, "|"))
	if o.invocation.ByMake() {
		fmt.Fprint(o.notes, "; make help lists what runs them")
	} else {
		fmt.Fprintf(o.notes, "\n       %s -version", o.invocation.Program(self))
	}
	fmt.Fprintln(o.notes)
	return exitUsage
}

// self is the name of this program in usage messages when make runs it.
const self = "operate"

// run parses the arguments of the command, executes it, and returns the exit status.
func (c command) run(ctx context.Context, args []string, o order) int {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(o.notes)
	flags.Usage = func() { fmt.Fprintln(o.notes, "usage:", o.invocation.Program(self), c.usage) }
	for name, to := range map[string]any{
		"json":  &o.json,
		"force": &o.force,
		"drill": &o.isDrill,
		"to":    &o.copyName,
		"at":    &o.restoreTime,
	} {
		if !strings.Contains(c.usage, "-"+name) {
			continue
		}
		switch to := to.(type) {
		case *bool:
			flags.BoolVar(to, name, false, "")
		case *string:
			flags.StringVar(to, name, "", "")
		}
	}
	err := flags.Parse(args)
	o.args = flags.Args()
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case len(o.args) < c.least || len(o.args) > c.most:
		flags.Usage()
		return exitUsage
	}
	if err = c.do(ctx, o); err == nil {
		return 0
	}
	fmt.Fprintln(o.notes, err)
	if errors.Is(err, errDifferences) {
		return exitDiffers
	}
	return exitFailed
}
