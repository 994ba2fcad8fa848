// Command operate is what the operator of a deployment runs, with the name of a
// command in front:
//
//	go run ./infra/local/operate reconcile
//	go run ./infra/local/operate owed [-json]
//	go run ./infra/local/operate payer [-json] 0x...
//	go run ./infra/local/operate refund [-force] 'network|asset|payer|nonce' [0x...]
//	go run ./infra/local/operate answered [-force] 'network|asset|payer|nonce' 0x...
//	go run ./infra/local/operate books [-json] 2026-11-20
//	go run ./infra/local/operate restore -to NAME [-at 2026-11-20T08:00:00Z] [-drill]
//	go run ./infra/local/operate smoke https://api.example.com
//
// The configuration is that of "make run", from the environment. Without LEDGER_TABLE
// the ledger is LEDGER_FILE, also while a service has it open; it can be that of any
// shop that package x402http sells for. Without RPC_URL the chain is not asked.
//
// The exit status is 1 when it could not be done, 2 for a wrong command line, and 3
// when the ledger and the chain differ.
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
)

// The exit statuses other than 0.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
)

// pollEvery is how often a table that is being made is looked at: a restore takes
// minutes to hours.
const pollEvery = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// order is a command with what it was given.
type order struct {
	args       []string
	json       bool   // print JSON for a program
	force      bool   // close a record without what the chain says
	to, at     string // the name of a copy, and the time to restore
	drill      bool   // delete the copy when it has been looked at
	getenv     func(string) string
	out, notes io.Writer
}

// command is one thing to do. It checks what was typed before it opens a ledger.
type command struct {
	name, usage string
	flags       string // their names, separated by spaces
	least, most int    // arguments
	do          func(context.Context, order) error
}

func commands() []command {
	return []command{
		{name: "reconcile", do: reconcile},
		{name: "owed", usage: "[-json]", flags: "json", do: listOwed},
		{name: "payer", usage: "[-json] WALLET", flags: "json", least: 1, most: 1, do: listPayer},
		{name: "refund", usage: "[-force] KEY [TRANSACTION]", flags: "force", least: 1, most: 2, do: refund},
		{name: "answered", usage: "[-force] KEY TRANSACTION", flags: "force", least: 2, most: 2, do: answer},
		{name: "books", usage: "[-json] DAY", flags: "json", least: 1, most: 1, do: listBooks},
		{name: "restore", usage: "-to NAME [-at TIME] [-drill]", flags: "to at drill", do: restore},
		{name: "smoke", usage: "ORIGIN", least: 1, most: 1, do: smoke},
	}
}

// run is the whole program; it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, out, notes io.Writer) int {
	var names []string
	for _, c := range commands() {
		if len(args) > 0 && args[0] == c.name {
			return c.run(ctx, args[1:], order{getenv: getenv, out: out, notes: notes})
		}
		names = append(names, c.name)
	}
	fmt.Fprintf(notes, "usage: operate %s ...; make help lists what runs them\n", strings.Join(names, "|"))
	return exitUsage
}

// run reads the command line and does what it says; it returns the exit status.
func (c command) run(ctx context.Context, args []string, o order) int {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(o.notes)
	flags.Usage = func() { fmt.Fprintf(o.notes, "usage: operate %s %s\n", c.name, c.usage) }
	for name := range strings.FieldsSeq(c.flags) {
		switch name {
		case "json":
			flags.BoolVar(&o.json, name, false, "")
		case "force":
			flags.BoolVar(&o.force, name, false, "")
		case "drill":
			flags.BoolVar(&o.drill, name, false, "")
		case "to":
			flags.StringVar(&o.to, name, "", "")
		case "at":
			flags.StringVar(&o.at, name, "", "")
		}
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() < c.least || flags.NArg() > c.most:
		flags.Usage()
		return exitUsage
	}
	o.args = flags.Args()
	err := c.do(ctx, o)
	if err == nil {
		return 0
	}
	fmt.Fprintln(o.notes, err)
	if errors.Is(err, errDifferences) {
		return exitDiffers
	}
	return exitFailed
}
