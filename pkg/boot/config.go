package boot

import (
	"cmp"
	"crypto/ed25519"
	"log/slog"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Config is the environment, read and found valid.
type Config struct {
	// Offering is what is sold, without its Receipts. No variable sets PlayMoney.
	service.Offering
	// BaseURL is the public origin; empty on Lambda means the domain name of
	// each request.
	BaseURL string
	// Paused says that SELLING is no: there is no facilitator, by intent.
	Paused         bool
	FacilitatorURL string
	// FallbackURL is a second facilitator, which is asked when the first one
	// fails; empty is none.
	FallbackURL string
	// Nodes are the chain's, the first asked first. They may hold keys. Those that
	// the secret names come before them.
	Nodes     []string
	Ledger    Table
	Resolvers []string
	// BootstrapURL is the IANA RDAP bootstrap file; empty means IANA's own.
	BootstrapURL string
	LogLevel     slog.Level
	// Stack is the deployment's name, which its metrics are kept under; empty
	// is none.
	Stack string
	// Function and Version are Lambda's names of this code; empty elsewhere.
	Function, Version string

	// LowestPrice is that of another shop, whose ledger is looked at, in atomic units;
	// nil says that the ledger is this service's.
	LowestPrice *big.Int

	credentials, fallbackCredentials facilitator.Credentials
	// secret is the facilitator's, which can also have nodes of the chain and the
	// receipts' key; nil without one.
	secret *secret
	// nodesInSecret says that the secret is asked for nodes.
	nodesInSecret bool
	receiptKey    ed25519.PrivateKey // of the environment; nil: the secret's, if it has one
}

// Table says where the ledger is in DynamoDB; empty Name means nowhere.
type Table struct {
	Name string
	AWS  aws.Config
}

// InAWS reports whether the table is in AWS, where payments are real. One behind
// another endpoint is a trial.
func (t Table) InAWS() bool { return t.Name != "" && t.AWS.BaseEndpoint == nil }

// Local is what the local runner reads on top.
type Local struct {
	Config
	LedgerFile string // of the embedded ledger
	// LedgerAccept accepts a ledger file that was refused as a part of one.
	LedgerAccept string
	Addr         string // listening address
	OriginGiven  bool   // BASE_URL is set; without, the origin is that of Addr
	PayeeGiven   bool   // PAY_TO is set; without, the payee is LocalPayTo
}

// parseDocuments parses what the function of the documents needs: no money.
func parseDocuments(get func(string) string) (Config, error) {
	e := readEnvironment(get, ReadByDocuments)
	e.require("PAY_TO")
	c := e.shared(e.payTo)
	if c.Caps.PerMinute > 0 {
		e.require("LEDGER_TABLE")
		c.Ledger = e.table()
	}
	return c, e.err()
}

// parseFunction parses what another function needs.
func parseFunction(get func(string) string, reader Readers) (Config, error) {
	e := readEnvironment(get, reader)
	e.require("PAY_TO")
	c := e.shared(e.payTo)
	e.facilitators(&c)
	e.money(&c, x402.Network(c.Terms.Network).PublicNode)
	e.require("LEDGER_TABLE")
	c.Ledger = e.table()
	return c, e.err()
}

// ParseAWS parses how an operator's command reaches a service of AWS: the region, the
// credentials, and the endpoint to ask in place of AWS where the variable endpoint is set.
func ParseAWS(get func(string) string, endpoint string) (aws.Config, error) {
	e := readEnvironment(get, readByAWS)
	c := e.aws(e.text(endpoint))
	return c, e.err()
}

// ParseLocal parses what the local runner needs. Everything has a default.
func ParseLocal(get func(string) string) (Local, error) {
	e := readEnvironment(get, ReadByLocal)
	payTo := e.payTo
	if payTo == "" {
		payTo = LocalPayTo
	}
	l := Local{
		Config:       e.shared(payTo),
		OriginGiven:  e.text("BASE_URL") != "",
		PayeeGiven:   e.payTo != "",
		Addr:         e.localAddr,
		LedgerFile:   e.ledgerFile,
		LedgerAccept: e.ledgerAccept,
	}
	if !l.OriginGiven {
		l.BaseURL = "http://" + Reachable(l.Addr)
	}
	e.facilitators(&l.Config)
	usualNode := noNodes
	if l.settlesElsewhere() {
		usualNode = x402.Network(l.Terms.Network).PublicNode
	}
	e.money(&l.Config, usualNode)
	l.LowestPrice = e.lowestPrice
	l.MostKept = ledger.LargestKept // in a file
	if e.text("LEDGER_TABLE") != "" {
		l.Ledger = e.table()
		l.MostKept = ledger.LeastKept
	}
	return l, e.err()
}

// shared is what does not move money.
func (e *environment) shared(payTo string) Config {
	terms := e.terms(payTo)
	undecided, refused := limit.Weights(e.perMinute)
	return Config{
		Offering: service.Offering{
			Former: e.formerTerms(terms),
			Site: discovery.Site{
				Terms:           terms,
				OwnershipProofs: e.proofs,
				ReceiptKeys:     e.receiptKeys,
				Contact:         e.contact,
				Claims:          e.claims,
				DuplicateWindow: time.Duration(e.windowSeconds) * time.Second,
				Caps: discovery.Caps{
					PerMinute: e.perMinute,
					Undecided: undecided,
					Refused:   refused,
					Single:    e.single,
					Bundle:    e.bundle,
				},
			},
		},
		BaseURL:  e.baseURL,
		Paused:   !e.selling,
		LogLevel: e.logLevel,
		Stack:    e.stack,
		Function: e.function,
		Version:  e.version,
	}
}

// terms are who is paid, and in which token.
func (e *environment) terms(payTo string) x402.Terms {
	terms, incomplete := x402.Terms{
		PayTo:   payTo,
		Network: e.network,
		Asset:   e.asset,
		Name:    e.tokenName,
		Version: e.tokenVersion,
	}.Completed()
	if incomplete != nil && !e.faulty["NETWORK"] && !e.faulty["USDC_ASSET"] {
		e.fault("USDC_ASSET, USDC_NAME and USDC_VERSION", "%v", incomplete)
	}
	e.checkPayee("PAY_TO", payTo, terms.Asset)
	return terms
}

// checkPayee makes it a fault that the payee of a setting is the token's contract.
func (e *environment) checkPayee(setting, payTo, asset string) {
	if payTo == "" {
		return
	}
	if err := x402.CheckAddress(payTo, asset); err != nil {
		e.fault(setting, "%v", err)
	}
}

// formerTerms are the terms before the last change, which are those of now but for what
// changed; nil where they do not pass.
func (e *environment) formerTerms(now x402.Terms) *service.FormerTerms {
	if e.former == nil {
		return nil
	}
	former := &service.FormerTerms{Terms: now, Prices: e.former.prices, Until: e.former.until}
	if e.former.payTo != "" {
		former.Terms.PayTo = e.former.payTo
		e.checkPayee("FORMER_TERMS", e.former.payTo, now.Asset)
	}
	return former
}

// GivesAway says that payments would go to the published test address, as real money.
func (l Local) GivesAway() bool {
	return l.settlesElsewhere() && !l.PayeeGiven && !x402.Network(l.Terms.Network).Test
}

// settlesElsewhere says that the facilitator is not on this machine, where it would be one
// for trials and tests.
func (c Config) settlesElsewhere() bool {
	u, err := url.Parse(c.FacilitatorURL)
	return err == nil && c.FacilitatorURL != "" && !onThisMachine(u)
}

// money is who signs receipts and who is asked: registries, resolvers, and nodes. usual is
// as chain has it.
func (e *environment) money(c *Config, usual string) {
	c.receiptKey = e.receiptKey
	c.BootstrapURL = e.bootstrapURL
	c.Resolvers = e.resolvers
	e.chain(c, usual)
}

// table is how the ledger's table is reached.
func (e *environment) table() Table {
	return Table{Name: e.ledgerTable, AWS: e.aws(e.dynamoEndpoint)}
}

// aws is how a service of AWS is reached: at an endpoint, or where AWS has it if that is
// empty.
func (e *environment) aws(endpoint string) aws.Config {
	e.require("AWS_REGION")
	c := aws.Config{Region: e.region, Credentials: e.awsKeys()}
	if endpoint != "" {
		c.BaseEndpoint = &endpoint
	}
	return c
}

// awsKeys are our credentials for AWS, which Lambda sets. They do not change while a process
// lives.
func (e *environment) awsKeys() aws.CredentialsProvider {
	e.require("AWS_ACCESS_KEY_ID")
	e.require("AWS_SECRET_ACCESS_KEY")
	return credentials.NewStaticCredentialsProvider(e.accessKeyID, e.secretAccessKey, e.sessionToken)
}

// userAgent names the service to those it calls, with where its operator can be
// reached, or else where the service comes from.
func (c Config) userAgent() string {
	return catalog.Service + "/" + catalog.APIVersion + " (+" + cmp.Or(c.Contact, catalog.Homepage) + ")"
}

// warnings are what /ready says of the configuration, by name.
func (c Config) warnings() map[string]string {
	all := map[string]string{}
	if strings.EqualFold(c.Terms.PayTo, LocalPayTo) && c.Ledger.InAWS() {
		all["payee"] = "PAY_TO is the published test address: its key is public, and anybody can take what is paid to it"
	}
	if c.Former != nil {
		all["former_terms"] = "FORMER_TERMS is set: let the next deployment leave it out, so that releases are watched again"
	}
	if c.secret != nil && c.receiptKey == nil && len(c.ReceiptKeys) > 0 {
		all["offers"] = "the receipt key is in the secret, for which no challenge waits: the offers of a process are unsigned before its first answer, and signed from the start with RECEIPT_KEY"
	}
	if len(c.Resolvers) == 1 {
		all["one_resolver"] = "DNS_RESOLVERS names one resolver: what it denies without proof, and every name of a top-level domain that does not exist, is owed and not answered. Name a second one"
	}
	if !c.hasChain() {
		all["chain"] = "RPC_URL is none: without a view of the chain a payment in doubt can stay in doubt, and a used nonce can pass for a payment"
	}
	return all
}
