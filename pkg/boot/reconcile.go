package boot

import (
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
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
	parts, err := config.Reconciling(config.Ledger.Store(), config.Ledger.Index(), config.Logger(os.Stdout), time.Now)
	exitOn(err)
	settle, err := config.settlers(parts.Platform)
	exitOn(err)
	probes := config.probes(parts.Ledger, settle, dns.New(dns.Config{Resolvers: config.Resolvers}), parts.Chain)
	lambda.Start(service.Reconcile(parts.Platform, parts.Reconciler, parts.Chain != nil, probes...))
}

// readReconcile reads what the reconcile function needs.
func readReconcile(get func(string) string) (Config, error) {
	e := &environment{get: get}
	c := e.shared(e.required(varPayTo, payToHelp))
	e.facilitators(&c)
	c.Resolvers = e.resolvers()
	e.deployed(&c)
	return c, e.err()
}

// deployed reads what has another default on this machine: where the ledger
// is, and the view of the chain.
func (e *environment) deployed(c *Config) {
	e.ledgerTable(c)
	e.rpc(c, x402.Network(c.Terms.Network).PublicNode)
}

// ledgerTable reads where the ledger's table is.
func (e *environment) ledgerTable(c *Config) {
	c.Ledger.Name = e.required(varLedgerTable, "the DynamoDB table of the payment ledger")
	e.dynamo(c)
}

// Index opens the index of the ledger's table.
func (t Table) Index() ledger.Index {
	return dynamo.NewIndex(dynamo.Config{API: t.Client(), Table: t.Name})
}

// Scan reads all of the ledger's table, for one payer or page by page; progress is
// told how far it is with a payer.
func (t Table) Scan(progress func(read, found int)) *dynamo.Scan {
	return dynamo.NewScan(dynamo.ScanConfig{API: t.Client(), Table: t.Name, Progress: progress})
}

// Reconciling is what the reconcile function and the operator's tools are made
// of.
type Reconciling struct {
	Platform   service.Platform
	Terms      x402.Terms
	Ledger     *ledger.Ledger
	Chain      *chain.Nodes // nil without a view of the chain
	Reconciler *x402.Reconciler
}

// Reconciling makes them, over a ledger store and its index.
func (c Config) Reconciling(store ledger.Store, index ledger.Index, log *slog.Logger, now func() time.Time) (Reconciling, error) {
	client, err := c.chain(now)
	if err != nil {
		return Reconciling{}, err
	}
	r := Reconciling{Platform: c.platform(log, now), Terms: c.Terms, Ledger: ledger.New(store, now, randomID), Chain: client}
	evidence, scanner := watchers(client)
	r.Reconciler = service.Reconciler(r.Platform, c.Terms, c.Former, r.Ledger, index, evidence, scanner)
	return r, nil
}
