// Command demo shows in a terminal what happens when everything fails. The facilitator moves
// the money and answers 500; the seller is killed while it waits for the facilitator; then the
// seller is down; then the network loses the answer. After each failure the client signs a new
// payment. The same events happen to the service of this repository with its ledger file, and
// to a seller of thirty lines without a ledger (infra/demo/thirty). At the end the command
// counts the transfers on the facilitator's chain and the answers that the client has, and
// says what each client paid.
//
// Nothing is staged. The sellers are processes, and are killed by SIGKILL. Signatures are
// real, and an authorization moves money once, as on every chain. A fault is triggered by what
// the facilitator or the simulated network sees, never by the clock. The money is play money,
// and no other machine is involved.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service := flag.String("service", filepath.Join("build", "local"), "the program of the service (infra/local)")
	thirty := flag.String("thirty", filepath.Join("build", "thirty"), "the program of the other seller (infra/demo/thirty)")
	flag.Parse()
	err := play(ctx, os.Stdout, mayHaveColours(os.Stdout, os.Getenv), *service, *thirty)
	if errors.Is(err, context.Canceled) {
		os.Exit(130) // the usual status of a program ended by Ctrl-C
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mostTries limits how often a client tries to buy. Normally a client gets its answer at the
// fifth try.
const mostTries = 20

// play lets the same events happen to both sellers, and prints them in two columns.
func play(ctx context.Context, out io.Writer, colours bool, service, thirty string) error {
	page := &timeline{out: out, colours: colours}
	with, err := newSeller(ctx, service, page.printLeft)
	if err != nil {
		return err
	}
	defer with.close()
	without, err := newSeller(ctx, thirty, page.recordRight)
	if err != nil {
		return err
	}
	defer without.close()
	page.begin()
	for n := 1; !with.buyer.hasAnswer() || !without.buyer.hasAnswer(); n++ {
		if n > mostTries {
			return fmt.Errorf("the client has no answer after %d tries", mostTries)
		}
		page.try(n)
		// First the seller of the right column has its turn, and its events are recorded. Then
		// the seller of the left column has its turn. Its events are printed as they happen,
		// with the recorded events beside them.
		for _, s := range []*seller{without, with} {
			if err := s.turn(ctx); err != nil {
				return err
			}
		}
		page.end()
	}
	page.printTotals(with.sums(), without.sums())
	if s := with.sums(); !s.isPaidOnce() {
		return fmt.Errorf("transfers to the service: %d, answers from it: %d. Each should be 1: please report this bug", s.transfers, s.answers)
	}
	page.printVerdict(with.sums(), without.sums())
	return nil
}
