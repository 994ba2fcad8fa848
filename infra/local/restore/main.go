// Command restore brings the ledger's table back from its point-in-time recovery as
// a table of another name: what "make restore" runs. It gives the copy what a restored
// table lacks (the end of old items, recovery and protection of its own), and says
// what it holds beside the original. With -drill it deletes the copy then.
//
//	go run ./infra/local/restore -to NAME [-at 2026-11-20T08:00:00Z] [-drill]
//
// The table is LEDGER_TABLE, with the region and the keys of the environment, as for
// the other commands of the operator. The original is only read.
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
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
)

// pollEvery is how often a table that is being made is looked at: a restore takes
// minutes to hours.
const pollEvery = 10 * time.Second

// callTimeout is for calls that work on a whole table, or on a page of it.
const callTimeout = 30 * time.Second

// order is a command line.
type order struct {
	from, to string
	at       time.Time // zero is the latest time there is
	drill    bool
	poll     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, pollEvery)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the whole command.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer, poll time.Duration) error {
	o := order{poll: poll}
	flags := flag.NewFlagSet("restore", flag.ContinueOnError)
	flags.StringVar(&o.to, "to", "", "`name` of the copy")
	at := flags.String("at", "", "`time` to restore, as 2026-11-20T08:00:00Z; default: the latest that there is")
	flags.BoolVar(&o.drill, "drill", false, "delete the copy when it has been looked at")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *at != "" {
		var err error
		if o.at, err = time.Parse(time.RFC3339, *at); err != nil {
			return fmt.Errorf("-at %q is no time such as 2026-11-20T08:00:00Z", *at)
		}
	}
	c, err := boot.ReadLocal(getenv)
	if err != nil {
		return err
	}
	o.from = c.Ledger.Name
	switch {
	case o.from == "":
		return errors.New("LEDGER_TABLE is not set: it names the table to restore")
	case o.to == "" || o.to == o.from:
		return errors.New("-to must name a table that is not there yet")
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	t := c.Ledger
	return restore(ctx, dynamotable.NewClient(dynamotable.ClientConfig{
		Region: t.Region, Credentials: t.Credentials, Endpoint: t.Endpoint, AttemptTimeout: callTimeout,
	}), o, out)
}
