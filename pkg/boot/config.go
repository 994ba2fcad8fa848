package boot

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
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
	OwnPayee     bool   // PAY_TO is set; without, the payee is LocalPayTo
}

// readDocuments reads what the function of the documents needs: no money.
func readDocuments(get func(string) string) (Config, error) {
	e := &environment{get: get, settings: Settings()}
	c := e.shared(e.required("PAY_TO"))
	if c.Caps.PerMinute > 0 {
		c.Ledger = e.ledger(e.required("LEDGER_TABLE"))
	}
	return c, e.err()
}

// readFunction reads what every other function needs.
func readFunction(get func(string) string) (Config, error) {
	e := &environment{get: get, settings: Settings()}
	c := e.shared(e.required("PAY_TO"))
	e.facilitators(&c)
	e.money(&c, x402.Network(c.Terms.Network).PublicNode)
	c.Ledger = e.ledger(e.required("LEDGER_TABLE"))
	return c, e.err()
}

// ReadAWS reads how an operator's command reaches a service of AWS: the region, the
// credentials, and the endpoint to ask in place of AWS where the variable endpoint is set.
func ReadAWS(get func(string) string, endpoint string) (aws.Config, error) {
	e := &environment{get: get, settings: Settings()}
	c := aws.Config{Region: e.required("AWS_REGION"), Credentials: e.awsKeys()}
	if local := e.text(endpoint); local != "" {
		c.BaseEndpoint = &local
	}
	return c, e.err()
}

// ReadLocal reads what the local runner needs. Everything has a default.
func ReadLocal(get func(string) string) (Local, error) {
	e := &environment{get: get, settings: Settings()}
	payTo := e.text("PAY_TO")
	l := Local{
		Config:       e.shared(cmp.Or(payTo, LocalPayTo)),
		OwnPayee:     payTo != "",
		Addr:         e.text("LOCAL_ADDR"),
		LedgerFile:   e.text("LEDGER_FILE"),
		LedgerAccept: e.text("LEDGER_ACCEPT"),
	}
	l.BaseURL = cmp.Or(l.BaseURL, "http://"+Reachable(l.Addr))
	e.facilitators(&l.Config)
	usualNode := noNodes
	if l.settlesElsewhere() {
		usualNode = x402.Network(l.Terms.Network).PublicNode
	}
	e.money(&l.Config, usualNode)
	if price := e.text("LOWEST_PRICE"); price != "" {
		l.LowestPrice, _ = new(big.Int).SetString(price, 10) // it has its form
	}
	l.MostKept = ledger.LargestKept // in a file
	if name := e.text("LEDGER_TABLE"); name != "" {
		l.Ledger = e.ledger(name)
		l.MostKept = ledger.LeastKept
	}
	return l, e.err()
}

// shared reads what does not move money.
func (e *environment) shared(payTo string) Config {
	terms := e.terms(payTo)
	c := Config{
		Offering: service.Offering{Former: e.formerTerms(terms), Site: discovery.Site{
			Terms:           terms,
			OwnershipProofs: e.list("OWNERSHIP_PROOFS"),
			ReceiptKeys:     parsed(e, "RECEIPT_PUBLIC_KEYS", parseReceiptKeys),
			Contact:         parsed(e, "CONTACT", parseContact),
			Claims:          parsed(e, "WELL_KNOWN_FILES", parseClaims),
			DuplicateWindow: time.Duration(e.number("DUPLICATE_WINDOW_SECONDS", int(ledger.KeptFor/time.Second))) * time.Second,
			Caps: discovery.Caps{
				PerMinute: e.number("RATE_LIMIT_PER_MINUTE", 1_000_000),
				Single:    e.number("CONCURRENCY_SINGLE", limit.MaxCap),
				Bundle:    e.number("CONCURRENCY_BUNDLE", limit.MaxCap),
			},
		}},
		BaseURL:  parsed(e, "BASE_URL", parseOrigin),
		Paused:   e.text("SELLING") == "no",
		Stack:    e.text("STACK_NAME"),
		Function: e.text("AWS_LAMBDA_FUNCTION_NAME"),
		Version:  e.text("AWS_LAMBDA_FUNCTION_VERSION"),
	}
	c.Caps.Undecided, c.Caps.Refused = limit.Weights(c.Caps.PerMinute)
	_ = c.LogLevel.UnmarshalText([]byte(e.text("LOG_LEVEL"))) // what has its form is a level
	return c
}

// terms reads who is paid, and in which token.
func (e *environment) terms(payTo string) x402.Terms {
	const asset = "USDC_ASSET"
	terms, incomplete := x402.Terms{
		PayTo:   payTo,
		Network: e.text("NETWORK"),
		Asset:   e.text(asset),
		Name:    e.text("USDC_NAME"),
		Version: e.text("USDC_VERSION"),
	}.Completed()
	_, unknown := x402.ChainID(terms.Network)
	var malformed error
	if terms.Asset != "" {
		malformed = x402.CheckAddress(terms.Asset, "")
	}
	if unknown != nil {
		e.fault("NETWORK", "must be a CAIP-2 id such as %s", x402.Base)
	}
	if malformed != nil {
		e.fault(asset, "%v", malformed)
	}
	if incomplete != nil && unknown == nil && malformed == nil {
		e.fault("USDC_ASSET, USDC_NAME and USDC_VERSION", "%v", incomplete)
	}
	if err := x402.CheckAddress(payTo, terms.Asset); err != nil && payTo != "" {
		e.fault("PAY_TO", "%v", err)
	}
	return terms
}

// GivesAway says that payments would go to the published test address, as real money.
func (l Local) GivesAway() bool {
	return l.settlesElsewhere() && !l.OwnPayee && !x402.Network(l.Terms.Network).Test
}

// settlesElsewhere says that the facilitator is not on this machine, where it would be one
// for trials and tests.
func (c Config) settlesElsewhere() bool {
	u, err := url.Parse(c.FacilitatorURL)
	return err == nil && c.FacilitatorURL != "" && !onThisMachine(u)
}

// money reads who signs receipts and who is asked: registries, resolvers, and nodes, which
// are usual where none is named.
func (e *environment) money(c *Config, usual string) {
	c.receiptKey = parsed(e, "RECEIPT_KEY", receipt.ParseKey)
	e.nodes(c, usual)
	c.BootstrapURL = parsed(e, "RDAP_BOOTSTRAP_URL", func(text string) (string, error) {
		if _, err := whois.ParseBootstrapURL(text); err != nil {
			return "", fmt.Errorf("is %w", err)
		}
		return text, nil
	})
	c.Resolvers = parsed(e, "DNS_RESOLVERS", dns.ParseResolvers)
}

// ledger reads how to reach a table.
func (e *environment) ledger(table string) Table {
	t := Table{table, aws.Config{Region: e.required("AWS_REGION"), Credentials: e.awsKeys()}}
	if endpoint := e.text("AWS_ENDPOINT_URL_DYNAMODB"); endpoint != "" {
		t.AWS.BaseEndpoint = &endpoint
	}
	return t
}

// awsKeys reads our credentials for AWS, which Lambda sets. They do not change while a
// process lives.
func (e *environment) awsKeys() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(e.required("AWS_ACCESS_KEY_ID"), e.required("AWS_SECRET_ACCESS_KEY"), e.text("AWS_SESSION_TOKEN"))
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
