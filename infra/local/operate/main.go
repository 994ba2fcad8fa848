// Command operate is what the operator of a deployment runs, with the name of a
// command in front: reconcile looks at the ledger and at what it owes, restore
// brings its table back, smoke asks a deployment whether it is ready.
//
//	go run ./infra/local/operate reconcile
//	go run ./infra/local/operate reconcile -owed [-json]
//	go run ./infra/local/operate reconcile -payer 0x... [-json]
//	go run ./infra/local/operate reconcile -refund 'network|asset|payer|nonce' [-transaction 0x... [-force]]
//	go run ./infra/local/operate reconcile -answered 'network|asset|payer|nonce' -transaction 0x... [-force]
//	go run ./infra/local/operate reconcile -books 2026-11-20 [-json]
//	go run ./infra/local/operate restore -to NAME [-at 2026-11-20T08:00:00Z] [-drill]
//	go run ./infra/local/operate smoke https://api.example.com
//
// The configuration is that of "make run", from the environment. The exit status
// is 1 when it could not be done, 2 for a wrong command line of reconcile, and 3
// when reconcile finds that the ledger and the chain differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit statuses other than 0.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program; it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, out, notes io.Writer) int {
	if len(args) == 0 {
		args = []string{""}
	}
	switch args[0] {
	case "reconcile":
		return runReconcile(ctx, args[1:], getenv, out, notes)
	case "restore":
		return exitStatus(runRestore(ctx, args[1:], getenv, out, notes, pollEvery), notes)
	case "smoke":
		return exitStatus(runSmoke(ctx, args[1:], getenv, notes), notes)
	}
	fmt.Fprintln(notes, "usage: operate reconcile|restore|smoke ...; make help lists what runs them")
	return exitUsage
}

// exitStatus prints an error, and is 0 without one and for a question for help.
func exitStatus(err error, notes io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(notes, err)
	return exitFailed
}
