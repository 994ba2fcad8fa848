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

// Config is the valid configuration that was read from the environment.
type Config struct {
	// Offering is the offering of the deployment. Its Receipts and PlayMoney are not set here.
	service.Offering
	// BaseURL is the public origin. If it is empty on Lambda, the origin of each request is the
	// domain name that the gateway reports.
	BaseURL string
	// Paused means that SELLING is no. The deployment then has no facilitator, and this is
	// intended.
	Paused         bool
	FacilitatorURL string
	// FallbackURL is a second facilitator, which is used when the first one fails. It is empty
	// if there is no second one.
	FallbackURL string
	// Nodes are the URLs of the chain's nodes, in the order in which they are used. They may
	// contain keys. If nodesInSecret is true and the secret has nodes, the nodes in the secret
	// are used instead.
	Nodes     []string
	Ledger    Table
	Resolvers []string
	// BootstrapURL is the URL of the RDAP bootstrap file. If it is empty, IANA's file is used.
	BootstrapURL string
	LogLevel     slog.Level
	// Stack is the name of the deployment. It is part of the namespace of the deployment's
	// metrics, and may be empty.
	Stack string
	// Function and Version are the names that Lambda has for this code. They are empty outside
	// Lambda.
	Function, Version string

	// LowestPrice is nil if the ledger is this service's. If an operator inspects the ledger
	// of another shop, LowestPrice is that shop's lowest price, in atomic units.
	LowestPrice *big.Int

	credentials, fallbackCredentials facilitator.Credentials
	// secret is the facilitator's secret, which can contain nodes of the chain and the receipt
	// key as well. It is nil if there is no secret.
	secret *secret
	// nodesInSecret means that the nodes of the chain may be in the secret.
	nodesInSecret bool
	receiptKey    ed25519.PrivateKey // the key in the environment; if it is nil, the secret may have one
}

// Table is the DynamoDB table of the ledger. An empty Name means that there is none.
type Table struct {
	Name string
	AWS  aws.Config
}

// InAWS reports whether the table is in AWS, where payments are real. A table at another
// endpoint is for trials.
func (t Table) InAWS() bool { return t.Name != "" && t.AWS.BaseEndpoint == nil }

// Local is the configuration of the local runner.
type Local struct {
	Config
	LedgerFile string // the file of the embedded ledger
	// LedgerAccept is a code with which the operator accepts an incomplete ledger file. Such a
	// file is refused without the code.
	LedgerAccept string
	Addr         string // the address to listen on
	OriginGiven  bool   // whether BASE_URL is set; otherwise the origin is derived from Addr
	PayeeGiven   bool   // whether PAY_TO is set; otherwise the payee is LocalPayTo
}

// parseDocuments parses the configuration of the documents' function, which handles no
// payments.
func parseDocuments(get func(string) string) (Config, error) {
	e := readEnvironment(get, ReadByDocuments)
	e.require("PAY_TO")
	c := e.commonConfig(e.payTo)
	if c.Caps.PerMinute > 0 {
		e.require("LEDGER_TABLE")
		c.Ledger = e.table()
	}
	return c, e.err()
}

// parseFunction parses the configuration of a function other than the documents' function.
func parseFunction(get func(string) string, reader Readers) (Config, error) {
	e := readEnvironment(get, reader)
	e.require("PAY_TO")
	c := e.commonConfig(e.payTo)
	e.setFacilitators(&c)
	e.setPaymentSettings(&c, x402.Network(c.Terms.Network).PublicNode)
	e.require("LEDGER_TABLE")
	c.Ledger = e.table()
	return c, e.err()
}

// ParseAWS parses the region and the credentials with which an operator's command calls AWS. The
// argument endpoint names the variable that can set another URL for the AWS service, such as
// AWS_ENDPOINT_URL_SECRETS_MANAGER. It is "" if the command uses several services.
func ParseAWS(get func(string) string, endpoint string) (aws.Config, error) {
	e := readEnvironment(get, readByAWS)
	other := ""
	if endpoint != "" {
		other = e.text(endpoint)
	}
	c := e.aws(other)
	return c, e.err()
}

// ParseLocal parses the configuration of the local runner. Every setting has a default.
func ParseLocal(get func(string) string) (Local, error) {
	e := readEnvironment(get, ReadByLocal)
	payTo := e.payTo
	if payTo == "" {
		payTo = LocalPayTo
	}
	l := Local{
		Config:       e.commonConfig(payTo),
		OriginGiven:  e.text("BASE_URL") != "",
		PayeeGiven:   e.payTo != "",
		Addr:         e.localAddr,
		LedgerFile:   e.ledgerFile,
		LedgerAccept: e.ledgerAccept,
	}
	if !l.OriginGiven {
		l.BaseURL = "http://" + Reachable(l.Addr)
	}
	e.setFacilitators(&l.Config)
	defaultNode := wordNone
	if l.settlesElsewhere() {
		defaultNode = x402.Network(l.Terms.Network).PublicNode
	}
	e.setPaymentSettings(&l.Config, defaultNode)
	l.LowestPrice = e.lowestPrice
	l.MostKept = ledger.LargestKept // the limit of a ledger in a file
	if e.text("LEDGER_TABLE") != "" {
		l.Ledger = e.table()
		l.MostKept = ledger.LeastKept
	}
	return l, e.err()
}

// commonConfig returns the part of the configuration that all functions read.
func (e *environment) commonConfig(payTo string) Config {
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

// terms returns the payee, the network and the token of payments.
func (e *environment) terms(payTo string) x402.Terms {
	terms, incomplete := x402.Terms{
		PayTo:   payTo,
		Network: e.network,
		Asset:   e.asset,
		Name:    e.tokenName,
		Version: e.tokenVersion,
	}.Completed()
	if incomplete != nil && !e.hasFault["NETWORK"] && !e.hasFault["USDC_ASSET"] {
		e.addFault("USDC_ASSET, USDC_NAME and USDC_VERSION", "%v", incomplete)
	}
	e.checkPayee("PAY_TO", payTo, terms.Asset)
	return terms
}

// checkPayee adds a fault if the payee in a setting is invalid or is the token's contract.
func (e *environment) checkPayee(setting, payTo, asset string) {
	if payTo == "" {
		return
	}
	if err := x402.CheckAddress(payTo, asset); err != nil {
		e.addFault(setting, "%v", err)
	}
}

// formerTerms returns the terms before the last change: the current terms, but with the former
// values that FORMER_TERMS gives. It returns nil if former terms are not accepted.
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

// GivesAway reports whether real money would be paid to the published test address.
func (l Local) GivesAway() bool {
	return l.settlesElsewhere() && !l.PayeeGiven && !x402.Network(l.Terms.Network).Test
}

// settlesElsewhere reports whether there is a facilitator and it is on another machine. A
// facilitator on this machine is for trials and tests.
func (c Config) settlesElsewhere() bool {
	u, err := url.Parse(c.FacilitatorURL)
	return err == nil && c.FacilitatorURL != "" && !isOnThisMachine(u)
}

// setPaymentSettings sets the receipt key, the registries, the resolvers and the nodes of the
// chain. The comment of setNodes explains defaultNode.
func (e *environment) setPaymentSettings(c *Config, defaultNode string) {
	c.receiptKey = e.receiptKey
	c.BootstrapURL = e.bootstrapURL
	c.Resolvers = e.resolvers
	e.setNodes(c, defaultNode)
}

// table returns the ledger's table.
func (e *environment) table() Table {
	return Table{Name: e.ledgerTable, AWS: e.aws(e.dynamoEndpoint)}
}

// aws returns the configuration for an AWS service at the given endpoint. If no endpoint is
// given, AWS's own endpoint is used.
func (e *environment) aws(endpoint string) aws.Config {
	e.require("AWS_REGION")
	c := aws.Config{Region: e.region, Credentials: e.awsKeys()}
	if endpoint != "" {
		c.BaseEndpoint = &endpoint
	}
	return c
}

// awsKeys returns the AWS credentials of the service, which Lambda sets. They do not change
// while a process lives.
func (e *environment) awsKeys() aws.CredentialsProvider {
	e.require("AWS_ACCESS_KEY_ID")
	e.require("AWS_SECRET_ACCESS_KEY")
	return credentials.NewStaticCredentialsProvider(e.accessKeyID, e.secretAccessKey, e.sessionToken)
}

// userAgent returns the User-Agent of outgoing requests. It names the service, and the
// operator's contact or else the service's homepage.
func (c Config) userAgent() string {
	return catalog.Service + "/" + catalog.APIVersion + " (+" + cmp.Or(c.Contact, catalog.Homepage) + ")"
}

// warnings returns the warnings about the configuration that /ready gives, by name.
func (c Config) warnings() map[string]string {
	all := map[string]string{}
	if strings.EqualFold(c.Terms.PayTo, LocalPayTo) && c.Ledger.InAWS() {
		all["payee"] = "PAY_TO is the published test address: its key is public, and anybody can take what is paid to it"
	}
	if c.Former != nil {
		all["former_terms"] = "FORMER_TERMS is set: let the next deployment leave it out, so that releases are watched again"
	}
	if c.secret != nil && c.receiptKey == nil && len(c.ReceiptKeys) > 0 {
		all["offers"] = "the receipt key is in the secret, and challenges do not wait for the secret: a process does not sign its offers before it has signed a receipt. With RECEIPT_KEY, it signs all of them"
	}
	if len(c.Resolvers) == 1 {
		all["one_resolver"] = "DNS_RESOLVERS names one resolver: what it denies without proof, and every name of a top-level domain that does not exist, is owed and not answered. Name a second one"
	}
	if !c.hasChain() {
		all["chain"] = "RPC_URL is none: without a view of the chain a payment in doubt can stay in doubt, and a used nonce can pass for a payment"
	}
	return all
}
