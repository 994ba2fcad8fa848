// Package boot turns the environment into a running function: configuration,
// wired dependencies, the Lambda runtime. It is the only package that reads
// the environment, and the only one that knows that it runs on Lambda.
//
// Every fault of the configuration is reported at once, at init, in words that
// name the variable.
package boot

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Store opens the ledger's table.
func (t Table) Store() ledger.Store {
	return dynamo.NewLedger(dynamo.Config{API: t.Client(), Table: t.Name})
}

// Client is a client for the table's region or endpoint.
func (t Table) Client() *dynamodb.Client {
	return dynamo.NewClient(dynamo.ClientConfig{Region: t.Region, Credentials: t.Credentials, Endpoint: t.Endpoint})
}

// Parts is what the functions of a deployment are made of. A function takes the
// clients that its operation needs and links no others.
type Parts struct {
	Platform service.Platform
	Offering service.Offering
	Limits   service.Limits
	// Seller sells by that offering, within these limits.
	Seller *service.Seller
	// Resolver answers DNS lookups, and finds the hosts of Connector, which
	// reaches public hosts and no others.
	Resolver  *dns.Client
	Connector *guard.Dialer

	config Config
	probes []service.Probe
}

// Parts makes them, over the stores. What is logged of a peer's text is fit to be
// read, whatever handler log has.
func (c Config) Parts(stores Stores, log *slog.Logger, now func() time.Time) (Parts, error) {
	signs := c.receipts(now)
	p := Parts{Platform: c.platform(log, now), Offering: c.offering(signs), Limits: c.limits(stores.Limits, now), config: c}
	settle, err := c.settlers(p.Platform)
	if err = errors.Join(err, c.checkFormer(now())); err != nil {
		return Parts{}, err
	}
	view, err := c.chain(now)
	if err != nil {
		return Parts{}, err
	}
	books := ledger.New(stores.Ledger, now, randomID)
	p.Resolver = dns.New(dns.Config{Resolvers: c.Resolvers})
	p.Connector = guard.NewDialer(guard.DialerConfig{Resolver: p.Resolver})
	p.probes = append(c.probes(books, settle, p.Resolver, view), service.Probe{Name: service.ProbeReceipts, Check: signs.check, Optional: true})
	p.probes = append(p.probes, settle.each(c.Terms.Network)...)
	evidence, _ := watchers(view)
	p.Seller, err = service.NewSeller(p.Platform, p.Offering, stores.Ledger, settle.primary, settle.fallbackOf(p.Platform), evidence, p.Limits)
	return p, err
}

// Origins is the client that asks web origins.
func (p Parts) Origins() *origin.Client {
	return origin.New(origin.Config{Connector: p.Connector, UserAgent: p.config.userAgent()})
}

// bootstrapKey is the key of the RDAP bootstrap file in the ledger's table. The keys
// of payments begin with a CAIP-2 network.
const bootstrapKey = "rdap|bootstrap"

// Registries says how the domain registries are reached. The bootstrap file is
// kept in the ledger's table where there is one, so that a new process need not
// ask IANA.
func (p Parts) Registries() whois.Config {
	c := whois.Config{
		Connector: p.Connector, BootstrapURL: p.config.BootstrapURL, Now: p.Platform.Now, UserAgent: p.config.userAgent(), Log: p.Platform.Log,
	}
	if t := p.config.Ledger; t.Name != "" {
		c.Cache = dynamo.NewFile(dynamo.Config{API: t.Client(), Table: t.Name}, bootstrapKey)
	}
	return c
}

// Health is /health and /ready, which asks what the functions are made of.
func (p Parts) Health() http.Handler {
	return service.Health(p.Platform, p.Offering, p.Limits.Rate, p.probes, p.config.warnings())
}

// Documents is every static document.
func (p Parts) Documents() http.Handler {
	return service.Discovery(p.Platform, p.Offering, p.Limits.Rate)
}

// warnings are what /ready says of the configuration, by name.
func (c Config) warnings() map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.Warnings)
	if c.Former != nil {
		all["former_terms"] = "FORMER_TERMS is set: let the next deployment leave it out, so that releases are watched again"
	}
	if c.keyInSecret && len(c.ReceiptKeys) > 0 {
		all["offers"] = "the receipt key is in the secret, for which no challenge waits: the offers of a process are unsigned before its first answer, and signed from the start with RECEIPT_KEY"
	}
	if !c.watched() {
		all["chain"] = "RPC_URL is none: without a view of the chain a payment in doubt can stay in doubt, and a used nonce can pass for a payment"
	}
	return all
}

// offering says what is sold; signs is nil where nothing is.
func (c Config) offering(signs x402.Receipts) service.Offering {
	return service.Offering{
		Terms: c.Terms, Former: c.Former, OwnershipProofs: c.OwnershipProofs, DuplicateWindow: c.DuplicateWindow, Receipts: signs, ReceiptKeys: c.ReceiptKeys,
		Caps: c.Limits.caps(), Contact: c.Contact, Claims: c.Claims, PlayMoney: c.PlayMoney,
	}
}

func (c Config) platform(log *slog.Logger, now func() time.Time) service.Platform {
	return service.Platform{
		Log: printable.Log(log), Now: now, Random: rand.Reader, Origin: c.origin, RequestID: requestID,
		Stack: c.Stack, Function: c.Function, Version: c.Version, Paused: c.Paused,
	}
}

// origin is configuration or the domain name that the gateway vouches for:
// NewEventHandler puts that one into Host, never the Host header.
func (c Config) origin(r *http.Request) string {
	if c.BaseURL != "" {
		return c.BaseURL
	}
	return "https://" + r.Host
}

// origins are those that are known before the first request.
func (c Config) origins() []string {
	if c.BaseURL == "" {
		return nil
	}
	return []string{c.BaseURL}
}

// requestID is the gateway's, or one of our own.
func requestID(r *http.Request) string {
	if id := RequestID(r.Context()); id != "" {
		return id
	}
	return randomID()
}

// randomID is 128 random bits in hex.
func randomID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Logger writes one JSON record a line, as Lambda and CloudWatch read them. The
// time has the name that Lambda looks for: to a line without it Lambda gives a
// time and the level INFO of its own.
func (c Config) Logger(w io.Writer) *slog.Logger {
	return identifies(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: lambdaNames})))
}

func lambdaNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		a.Key = "timestamp"
	}
	return a
}

// LimitStore counts requests and keeps leases.
type LimitStore interface {
	limit.Counter
	limit.Leases
}

// Stores are where a deployment keeps what it must not forget.
type Stores struct {
	Ledger ledger.Store
	Limits LimitStore
}

// Stores opens the table: the ledger, and the limits, which share it.
func (t Table) Stores() Stores {
	client := t.Client()
	return Stores{
		Ledger: dynamo.NewLedger(dynamo.Config{API: client, Table: t.Name}),
		Limits: dynamo.NewLimits(dynamo.Config{API: client, Table: t.Name}),
	}
}

// caps are the limits as the documents name them.
func (l Limits) caps() catalog.Caps {
	c := catalog.Caps{PerMinute: l.PerMinute, Single: l.Single, Bundle: l.Bundle}
	c.Undecided, c.Refused = limit.Weights(l.PerMinute)
	return c
}

// limits wires the caps over a store.
func (c Config) limits(store LimitStore, now func() time.Time) service.Limits {
	return service.Limits{
		Rate:   c.rate(store, now),
		Leases: store, Single: c.Limits.Single, Bundle: c.Limits.Bundle,
	}
}

// rate wires the clients' limit over a store; nil without one.
func (c Config) rate(store limit.Counter, now func() time.Time) *limit.Rate {
	if c.Limits.PerMinute == 0 {
		return nil
	}
	return limit.NewRate(limit.RateConfig{PerMinute: c.Limits.PerMinute, Counter: store, Now: now})
}
