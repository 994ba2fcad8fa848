package boot

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
)

// Base USDC, what is asked for unless the operator says otherwise (design §10).
const (
	defaultNetwork = "eip155:8453"
	defaultAsset   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	defaultName    = "USD Coin"
	defaultVersion = "2"

	defaultRate   = 300
	defaultSingle = 50
	defaultBundle = 20

	defaultWindow = 45 // seconds
)

// Config is the environment, read and found valid.
type Config struct {
	// BaseURL is the public origin; empty on Lambda means the domain name of
	// each request.
	BaseURL string
	// Paused says that SELLING is no: there is no facilitator, by intent.
	Paused bool
	Terms  x402.Terms
	// Former are the terms before the last change; nil is none.
	Former          *service.FormerTerms
	OwnershipProofs []string
	// Contact is an https or mailto URL at which the operator can be reached; empty
	// is none. Claims are files below /.well-known/, by name.
	Contact string
	Claims  map[string]string
	// PlayMoney says that the facilitator moves no real money. No variable sets it.
	PlayMoney bool
	// DuplicateWindow is how long after an answer another payment for the same
	// request, without a purchase key, counts as the same purchase; 0 is off.
	DuplicateWindow time.Duration
	FacilitatorURL  string
	Credentials     facilitator.Credentials
	// FallbackURL is a second facilitator, which is asked when the first one
	// fails; empty is none. It has credentials of its own.
	FallbackURL         string
	FallbackCredentials facilitator.Credentials
	// RPCURL are the chain's nodes, separated by commas, the first asked first;
	// empty means none. They may hold keys. Those that the secret names come
	// before them.
	RPCURL    string
	Ledger    Table
	Resolvers []string
	// BootstrapURL is the IANA RDAP bootstrap file; empty means IANA's own.
	BootstrapURL string
	Limits       Limits
	LogLevel     slog.Level
	// ReceiptKeys are the set of public keys of offers and receipts.
	ReceiptKeys []ed25519.PublicKey
	// Warnings are what /ready says of the configuration, by name.
	Warnings map[string]string
	// Stack is the deployment's name, which its metrics are kept under; empty
	// is none.
	Stack string
	// Function and Version are what Lambda calls this code; empty elsewhere.
	Function, Version string

	secret        *sharedSecret                                            // the facilitator's; nil: none
	readNodes     func(context.Context, time.Time, bool) ([]string, error) // of the chain, from the secret; nil: none
	receiptKey    func(ctx context.Context, now time.Time, failed bool) (ed25519.PrivateKey, error)
	hasReceiptKey bool
	// keyInSecret: receiptKey asks for the secret.
	keyInSecret bool
}

// Limits are the numbers of design §6; 0 turns one off.
type Limits struct {
	PerMinute      int // units of one client
	Single, Bundle int // paid lookups at once of one operation
}

// Table says where the ledger is in DynamoDB; empty Name means nowhere.
type Table struct {
	Name, Region, Endpoint string
	Credentials            func(context.Context) (aws.Credentials, error)
}

// InAWS reports whether the table is in AWS, where payments are real. One behind
// another endpoint is a trial.
func (t Table) InAWS() bool { return t.Name != "" && t.Endpoint == "" }

// Local is what the local runner reads on top.
type Local struct {
	Config
	LedgerFile string // of the embedded ledger
	Addr       string // listening address
	OwnPayee   bool   // PAY_TO is set; without, the payee is LocalPayTo
}

// Defaults of the local runner (design §10, §11).
const (
	LocalAddr       = "127.0.0.1:8402"
	LocalLedgerFile = ".local/ledger.db"
	// LocalPayTo is the second account of the well-known development mnemonic.
	// Its key is public: nothing of value may ever be paid to it.
	LocalPayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
)

func (e *environment) shared(payTo string) Config {
	asset := e.address(varAsset, e.text(varAsset, defaultAsset))
	terms := x402.Terms{
		Network: e.network(defaultNetwork),
		Asset:   asset,
		PayTo:   e.payee(varPayTo, payTo, asset),
		Name:    e.text(varAssetName, defaultName),
		Version: e.text(varAssetVersion, defaultVersion),
	}
	return Config{
		BaseURL:         e.origin(varBaseURL, ""),
		Paused:          e.paused(),
		Terms:           terms,
		Former:          e.formerTerms(terms),
		Function:        e.text(varFunction, ""),
		Version:         e.text(varVersion, ""),
		OwnershipProofs: e.list(varOwnershipProofs),
		Contact:         e.contact(),
		Claims:          e.claims(),
		DuplicateWindow: e.duplicateWindow(),
		LogLevel:        e.level(),
		Stack:           e.stack(),
		ReceiptKeys:     e.receiptKeys(),
	}
}

const payToHelp = "the address that receives the payments, 0x and 40 hexadecimal digits"

// readDiscovery reads what the discovery function needs.
func readDiscovery(get func(string) string) (Config, error) {
	e := &environment{get: get}
	c := e.shared(e.required(varPayTo, payToHelp))
	if c.Limits = e.limits(); c.Limits.PerMinute > 0 {
		e.ledgerTable(&c)
	}
	return c, e.err()
}

// readPriced reads what a priced function and health need.
func readPriced(get func(string) string) (Config, error) {
	e := &environment{get: get}
	c := e.shared(e.required(varPayTo, payToHelp))
	e.money(&c)
	e.deployed(&c)
	if strings.EqualFold(c.Terms.PayTo, LocalPayTo) && c.Ledger.InAWS() {
		c.Warnings = map[string]string{"payee": "PAY_TO is the published test address: its key is public, and anybody can take what is paid to it"}
	}
	return c, e.err()
}

// ReadLocal reads what the local runner needs. Everything has a default.
func ReadLocal(get func(string) string) (Local, error) {
	e := &environment{get: get}
	l := Local{Config: e.shared(e.text(varPayTo, LocalPayTo)), OwnPayee: e.text(varPayTo, "") != ""}
	l.Addr = e.text(varLocalAddr, LocalAddr)
	l.LedgerFile = e.text(varLedgerFile, LocalLedgerFile)
	if l.BaseURL == "" {
		l.BaseURL = "http://" + Reachable(l.Addr)
	}
	e.money(&l.Config)
	e.rpc(&l.Config, noRPC)
	l.Ledger.Name = e.text(varLedgerTable, "")
	if l.Ledger.Name != "" {
		e.dynamo(&l.Config)
	}
	return l, e.err()
}

// Reachable is how this machine reaches what listens on an address: one that
// stands for every address of the machine is reached at the loopback one.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // listening on it says what is wrong
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip.Unmap() == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip.WithZone("") == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// facilitators reads where the facilitators are and who we are to each. The secret
// of the first one can also have the nodes of the chain and the receipts' key.
func (e *environment) facilitators(c *Config) {
	c.FacilitatorURL = e.peerURL(varFacilitatorURL)
	c.Credentials, c.secret = e.credentials(primaryCredentials())
	e.fallback(c)
	if c.Paused || c.FacilitatorURL == "" { // the template refuses a fallback alone
		c.FacilitatorURL, c.FallbackURL = "", ""
	}
}

// money reads facilitators, receipts, registries, resolvers and limits.
func (e *environment) money(c *Config) {
	e.facilitators(c)
	shared := c.secret
	given := e.text(varReceiptKey, "") != ""
	c.receiptKey, c.hasReceiptKey, c.keyInSecret = e.receiptKey(shared), shared != nil || given, shared != nil && !given
	c.BootstrapURL = e.text(varBootstrap, "")
	if _, err := whois.ParseBootstrapURL(c.BootstrapURL); c.BootstrapURL != "" && err != nil {
		e.fault(varBootstrap, "is %v", err)
	}
	c.Resolvers = e.resolvers()
	c.Limits = e.limits()
}

func (e *environment) limits() Limits {
	return Limits{
		PerMinute: e.number(varRate, defaultRate),
		Single:    e.number(varSingle, defaultSingle),
		Bundle:    e.number(varBundle, defaultBundle),
	}
}

// dynamo reads how to reach the table. On Lambda the platform sets region and
// keys; they do not change while a process lives.
func (e *environment) dynamo(c *Config) {
	t := &c.Ledger
	t.Name = e.table(t.Name)
	t.Region = e.required(varRegion, "the region of the ledger table, such as us-east-1")
	t.Endpoint = e.text(varEndpoint, "")
	t.Credentials = e.awsKeys()
}

// awsKeys reads who we are to AWS.
func (e *environment) awsKeys() func(context.Context) (aws.Credentials, error) {
	keys := aws.Credentials{
		AccessKeyID: e.get(varAccessKey), SecretAccessKey: e.get(varSecretKey), SessionToken: e.get(varSessionToken),
		Source: "environment",
	}
	return func(context.Context) (aws.Credentials, error) {
		if !keys.HasKeys() {
			return aws.Credentials{}, errors.New(varAccessKey + " and " + varSecretKey + " are not set")
		}
		return keys, nil
	}
}
