package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// ledgerSession is an open ledger, with the order of the command that opened it.
type ledgerSession struct {
	order
	boot.Reconciling
	name string // the name of the ledger
	node string // the host of the chain's node, or a text that says that there is none
	rows ledger.Rows
	// principal returns the AWS principal that runs the command. It is nil if the ledger is
	// not in AWS.
	principal func(context.Context) (string, error)
}

// errNoPayee is returned if PAY_TO is not set and the ledger is the table of a deployment.
// Without this error, transfers to the default payee, the published test address, would be
// recorded in that ledger.
var errNoPayee = errors.New("PAY_TO is not set: this compares the ledger of LEDGER_TABLE with what its payee received. " +
	"Set PAY_TO to the address that the deployment has as PayTo")

// withLedger opens the ledger that the environment names, calls the function do with that
// ledger, and closes the ledger. byPayee means that the command searches for transfers to the
// payee. In that case, PAY_TO must be set for a deployment's ledger.
func (o order) withLedger(byPayee bool, do func(ledgerSession) error) error {
	c, err := boot.ParseLocal(o.getenv)
	switch {
	case err != nil:
		return err
	case byPayee && c.Ledger.Name != "" && !c.PayeeGiven:
		return errNoPayee
	}
	l := ledgerSession{order: o, name: "DynamoDB table " + c.Ledger.Name, node: nodeHost(c.Nodes)}
	stores := boot.Stores{}
	if c.Ledger.Name == "" {
		if _, err := os.Stat(c.LedgerFile); err != nil {
			return fmt.Errorf("there is no ledger to look at: %w (LEDGER_FILE and LEDGER_TABLE name one)", err)
		}
		s, err := file.Open(c.LedgerFile, file.Accept(c.LedgerAccept))
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // every write is already durable
		stores.Ledger = s
		stores.Index = s
		l.rows = s
		l.name = c.LedgerFile
	} else {
		if l.principal, err = o.principalOf(c.Ledger); err != nil {
			return err
		}
		table := c.Ledger.Open()
		stores.Ledger = table
		stores.Index = table
		l.rows = table
	}
	log := slog.New(slog.NewTextHandler(o.notes, &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: untrusted.Attr}))
	if l.Reconciling, err = c.Reconciling(stores, log, o.now); err != nil {
		return err
	}
	return do(l)
}

// nodeHost returns the host of the first node, or a text that says that there is no node. It
// omits the rest of the node's URL, which may contain a key.
func nodeHost(nodes []string) string {
	if len(nodes) == 0 {
		return "not asked (RPC_URL)"
	}
	u, _ := url.Parse(nodes[0]) // the configuration contains only valid URLs
	return u.Host
}
