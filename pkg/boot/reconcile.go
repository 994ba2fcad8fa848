package boot

import (
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// Reconcile runs the scheduled function. It does not return.
func Reconcile() {
	config, err := readReconcile(os.Getenv)
	exitOn(err)
	deps, err := config.ReconcileDeps(config.Ledger.Store(), config.Ledger.Index(), config.Logger(os.Stdout))
	exitOn(err)
	lambda.Start(service.Reconcile(deps))
}

// ReconcileVars are the variables that the template sets for the reconcile
// function.
func ReconcileVars() []string { return append(sharedVars(), varLedgerTable, varRPCURL) }

// readReconcile reads what the reconcile function needs.
func readReconcile(get func(string) string) (Config, error) {
	e := &environment{get: get}
	c := e.shared(e.required(varPayTo, payToHelp))
	e.deployed(&c)
	return c, e.err()
}

// deployed reads what has another default on this machine: where the ledger
// is, and the view of the chain.
func (e *environment) deployed(c *Config) {
	e.ledgerTable(c)
	c.RPCURL = e.rpc(c.Terms.Network, publicNode(c.Terms.Network))
}

// ledgerTable reads where the ledger's table is.
func (e *environment) ledgerTable(c *Config) {
	c.Ledger.Name = e.required(varLedgerTable, "the DynamoDB table of the payment ledger")
	e.dynamo(c)
}

// noRPC is the RPC_URL that turns the view of the chain off.
const noRPC = "none"

// publicNode is the JSON-RPC node that the operator of a network runs for
// everybody; empty for a network that has none we know.
func publicNode(network string) string {
	switch network {
	case "eip155:8453":
		return "https://mainnet.base.org"
	case "eip155:84532":
		return "https://sepolia.base.org"
	}
	return ""
}

// rpc reads the chain's node; empty means none. A fault does not show it.
func (e *environment) rpc(network, fallback string) string {
	v := e.text(varRPCURL, fallback)
	u, err := url.Parse(v)
	switch _, unknown := x402.ChainID(network); {
	case v == noRPC:
		return ""
	case v == "" && unknown == nil:
		e.fault(varRPCURL, "is not set, and no public node of %s is known: name one, or none", network)
	case v != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")):
		e.fault(varRPCURL, "must be an http or https URL, or none")
	}
	return v
}

// Index opens the index of the ledger's table.
func (t Table) Index() ledger.Index {
	return dynamo.NewIndex(dynamo.IndexConfig{API: t.Client(), Table: t.Name})
}

// Payers looks up one payer in the ledger's table, all of which it reads; progress
// is told how far it is.
func (t Table) Payers(progress func(read, found int)) ledger.Payers {
	return dynamo.NewScan(dynamo.ScanConfig{API: t.Client(), Table: t.Name, Progress: progress})
}

// ReconcileDeps wires what the reconcile function needs, over a ledger store
// and its index.
func (c Config) ReconcileDeps(store ledger.Store, index ledger.Index, log *slog.Logger) (service.Deps, error) {
	d := c.free(log)
	d.Ledger = ledger.New(store, time.Now, randomID)
	d.Index = index
	err := c.watch(&d)
	return d, err
}

// Chain is the view of the chain; nil when there is none.
func (c Config) Chain() (*chain.Client, error) {
	if c.RPCURL == "" {
		return nil, nil
	}
	return chain.New(chain.Config{
		URL: c.RPCURL, Network: c.Terms.Network, Asset: c.Terms.Asset, Now: time.Now, UserAgent: UserAgent,
	})
}

// watch adds the view of the chain, if there is one, and a probe of it.
func (c Config) watch(d *service.Deps) error {
	client, err := c.Chain()
	if err != nil || client == nil {
		return err
	}
	d.Evidence, d.Scanner = client, client
	d.Probes = append(d.Probes, service.Probe{Name: "chain", Check: client.Probe, Optional: true})
	return nil
}
