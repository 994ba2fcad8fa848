package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/user"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// opened is a ledger, ready to be looked at.
type opened struct {
	name   string // of the ledger
	node   string // of the chain; empty for none
	parts  boot.Reconciling
	payers ledger.Payers
	rows   ledger.Rows
	notes  io.Writer
	// operator is who runs this, as user@host.
	operator string
	sound    func(context.Context) error // whether the ledger can be relied on
	close    func()
}

// operator names who runs this, for whoever comes next.
func operator() string {
	const unknown = "unknown"
	name, at := unknown, unknown
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		at = h
	}
	return plain(name + "@" + at)
}

// errNoPayee keeps what others paid to the published test address, which stands for
// a payee that is not given, out of the ledger of a deployment.
var errNoPayee = errors.New("PAY_TO is not set: this compares the ledger of LEDGER_TABLE with what its payee received. " +
	"Set PAY_TO to the address that the deployment has as PayTo")

// open opens the ledger that the environment names. byPayee says that transfers to
// the payee will be looked for.
func open(getenv func(string) string, notes io.Writer, byPayee bool) (opened, error) {
	c, err := boot.ReadLocal(getenv)
	if err != nil {
		return opened{}, err
	}
	if byPayee && c.Ledger.Name != "" && !c.OwnPayee {
		return opened{}, errNoPayee
	}
	o := opened{name: "DynamoDB table " + c.Ledger.Name, node: host(c.Nodes), notes: notes, operator: operator(),
		sound: func(context.Context) error { return nil }, close: func() {}}
	var store ledger.Store
	var index ledger.Index
	if c.Ledger.Name == "" {
		s, err := openFile(c.LedgerFile)
		if err != nil {
			return opened{}, err
		}
		store, index, o.payers, o.rows, o.name = s, s, s, s, c.LedgerFile
		o.close = func() {
			if err := s.Close(); err != nil {
				fmt.Fprintln(notes, "close the ledger:", err)
			}
		}
	} else {
		table := c.Ledger.Open()
		table.Progress = progress(notes)
		o.sound = func(ctx context.Context) error { return checkTable(ctx, c.Ledger) }
		store, index, o.payers, o.rows = table, table, table, table
	}
	log := slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: c.LogLevel}))
	if o.parts, err = c.Reconciling(store, index, log, time.Now); err != nil {
		o.close()
		return opened{}, err
	}
	return o, nil
}

// progress says how far a scan of a table is, from its second second on.
func progress(notes io.Writer) func(read, found int) {
	last := time.Now()
	return func(read, found int) {
		if time.Since(last) >= time.Second {
			last = time.Now()
			fmt.Fprintf(notes, "%d records read, %d found ...\n", read, found)
		}
	}
}

// openFile opens the ledger of "make run", also while that runs. It makes no new one.
func openFile(path string) (*file.Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("there is no ledger to look at: %w (LEDGER_FILE and LEDGER_TABLE name one)", err)
	}
	return file.Open(path)
}

// host is where the first node is, without the key that its URL may hold.
func host(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	u, err := url.Parse(nodes[0])
	if err != nil {
		return ""
	}
	return u.Host
}
