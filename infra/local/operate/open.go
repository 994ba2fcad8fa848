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
	boot.Reconciling
	name   string // of the ledger
	node   string // of the chain, for a person
	payers ledger.Payers
	rows   ledger.Rows
	// operator is the person who runs this, as user@host.
	operator string
	out      io.Writer
	notes    io.Writer
	close    func()
}

// operator names who runs this, for the person who comes next.
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
func (o order) open(byPayee bool) (opened, error) {
	c, err := boot.ReadLocal(o.getenv)
	if err != nil {
		return opened{}, err
	}
	if byPayee && c.Ledger.Name != "" && !c.OwnPayee {
		return opened{}, errNoPayee
	}
	l := opened{name: "DynamoDB table " + c.Ledger.Name, node: host(c.Nodes), operator: operator(), out: o.out, notes: o.notes, close: func() {}}
	stores := boot.Stores{}
	if c.Ledger.Name == "" {
		if _, err := os.Stat(c.LedgerFile); err != nil {
			return opened{}, fmt.Errorf("there is no ledger to look at: %w (LEDGER_FILE and LEDGER_TABLE name one)", err)
		}
		s, err := file.Open(c.LedgerFile)
		if err != nil {
			return opened{}, err
		}
		stores.Ledger, stores.Index, l.payers, l.rows, l.name = s, s, s, s, c.LedgerFile
		l.close = func() {
			if err := s.Close(); err != nil {
				fmt.Fprintln(o.notes, "close the ledger:", err)
			}
		}
	} else {
		table, said := c.Ledger.Open(), progress(o.notes)
		table.Progress = func(read, found int) { said("%d records read, %d found", read, found) }
		stores.Ledger, stores.Index, l.payers, l.rows = table, table, table, table
	}
	log := slog.New(slog.NewTextHandler(o.notes, &slog.HandlerOptions{Level: c.LogLevel}))
	if l.Reconciling, err = c.Reconciling(stores, log, time.Now); err != nil {
		l.close()
		return opened{}, err
	}
	return l, nil
}

// within opens the ledger for as long as something is done with it.
func (o order) within(byPayee bool, do func(opened) error) error {
	l, err := o.open(byPayee)
	if err != nil {
		return err
	}
	defer l.close()
	return do(l)
}

// host is where the first node is, without the key that its URL may hold.
func host(nodes []string) string {
	if len(nodes) == 0 {
		return "not asked (RPC_URL)"
	}
	u, err := url.Parse(nodes[0])
	if err != nil {
		return ""
	}
	return u.Host
}

// checkSound returns an error when the ledger's table lacks what protects it.
func (o order) checkSound(ctx context.Context) error {
	c, err := boot.ReadLocal(o.getenv)
	if err != nil || c.Ledger.Name == "" {
		return err
	}
	return checkTable(ctx, c.Ledger)
}
