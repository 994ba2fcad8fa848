// Command deploy deploys a stack as its file describes it, and verifies the result. The targets
// "make deploy", "make rollback" and "make smoke" run this command. ../RUNBOOK.md says when to
// use them.
//
// The command is in a separate module because it needs the AWS clients. So a program that
// imports the main module does not depend on these clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// The exit statuses other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := desk{
		in:     os.Stdin,
		out:    os.Stdout,
		notes:  os.Stderr,
		now:    time.Now,
		client: &http.Client{CheckRedirect: noRedirect},
		run:    execute,
		pause:  pause,
	}
	code := run(ctx, os.Args[1:], d)
	stop()
	os.Exit(code)
}

// noRedirect prevents the client from following redirects. A deployed service never redirects.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// pause waits for a duration. It returns early with an error if the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// desk is what a command works with: a person's terminal, a checkout, and the ways to run
// programs and send requests.
type desk struct {
	root           string // the root of the checkout
	skipConsent    bool   // whether to deploy without asking
	rollbackCommit string // the commit to roll back to; empty means the previous release
	in             io.Reader
	out, notes     io.Writer // out gets what other programs read; notes gets what a person reads
	now            func() time.Time
	client         *http.Client
	// run runs a program and shows its output.
	run   func(ctx context.Context, c program) error
	pause func(context.Context, time.Duration) error
}

// command is one of the program's commands. It takes the name of a stack.
type command struct {
	name, usage string
	do          func(desk, context.Context, string) error
}

func commands() []command {
	return []command{
		{"check", "STACK", desk.checkFile},
		{"deploy", "[-yes] STACK", desk.deploy},
		{"rollback", "[-yes] [-to COMMIT] STACK", desk.rollBack},
		{"smoke", "STACK", desk.smoke},
	}
}

// run runs the whole program and returns its exit status.
func run(ctx context.Context, args []string, d desk) int {
	if len(args) > 0 && args[0] == commandSells {
		return d.report(d.printOwnCode())
	}
	for _, c := range commands() {
		if len(args) > 0 && args[0] == c.name {
			return d.carryOut(ctx, c, args[1:])
		}
	}
	fmt.Fprintln(d.notes, "usage: make deploy STACK=name, make rollback STACK=name, make smoke STACK=name")
	return exitUsage
}

// carryOut parses the command line, runs the command and returns the exit status.
func (d desk) carryOut(ctx context.Context, c command, args []string) int {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(d.notes)
	flags.Usage = func() { fmt.Fprintf(d.notes, "usage: deploy %s %s\n", c.name, c.usage) }
	flags.StringVar(&d.root, "root", filepath.Join("..", ".."), "")
	flags.BoolVar(&d.skipConsent, "yes", false, "")
	flags.StringVar(&d.rollbackCommit, "to", "", "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() != 1 {
		flags.Usage()
		return exitUsage
	}
	if err != nil {
		return exitUsage
	}
	root, err := filepath.Abs(d.root)
	if err != nil {
		return d.report(err)
	}
	d.root = root
	return d.report(c.do(d, ctx, flags.Arg(0)))
}

// report prints the error, if any, and returns the exit status.
func (d desk) report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(d.notes, err)
	return exitFailed
}
