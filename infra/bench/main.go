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
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
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
