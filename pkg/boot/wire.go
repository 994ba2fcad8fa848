// Package boot turns the environment into a running function: it reads the configuration,
// connects the components, and runs them on Lambda. No other package of the service reads the
// environment, or knows about Lambda.
//
// All configuration errors are reported together, at init, and each names its variable.
package boot

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Components are the parts from which the functions of a deployment are made. Each function
// takes only the clients that its operation needs, and links no others.
type Components struct {
	Platform service.Platform
	Offering service.Offering
	Limits   service.Limits
	// Seller sells according to Offering, within Limits.
	Seller *service.Seller
	// Resolver answers DNS lookups, and resolves host names for Connector. Connector connects
	// only to public hosts.
	Resolver  *dns.Client
	Connector *guard.Dialer

	config Config
	probes []service.Probe
}

// Components returns the components of a deployment that uses the given stores. The logger's
// handler must make text from others safe to read, as untrusted.Attr does.
func (c Config) Components(stores Stores, log *slog.Logger, now func() time.Time) (Components, error) {
	const longestFormer = 24 * time.Hour // this limit catches a mistyped time, which would keep the old payee valid for too long
	if c.Former != nil && c.Former.Until.After(now().Add(longestFormer)) {
		return Components{}, errors.New("FORMER_TERMS ends more than a day from now: five minutes after the deployment are enough")
	}
	signing := &receipts{configuredKey: c.receiptKey, secret: c.secret, publishedKeys: c.ReceiptKeys, now: now}
	if c.receiptKey != nil {
		_, _ = signing.loadSigner(context.Background()) // this loads the key now; an error is ignored here, because /ready reports it
	}
	platform := c.platform(log, now)
	settle, err := c.facilitators(platform)
	if err != nil {
		return Components{}, err
	}
	view, err := c.chainView(now)
	if err != nil {
		return Components{}, err
	}
	resolver := dns.New(dns.Config{Resolvers: c.Resolvers})
	probes := c.probes(ledger.New(stores.Ledger, now, rand.Text), settle, resolver, view)
	probes = append(probes, service.Probe{
		Name:     service.ProbeReceipts,
		Optional: true,
		Check:    signing.check,
	})
	if mark, ok := c.markProbe(); ok {
		probes = append(probes, mark)
	}
	offering := c.Offering
	offering.Receipts = signing
	limits := c.limits(stores, now)
	watches, _ := evidence(view)
	seller, err := service.NewSeller(platform, offering, stores.Ledger, settle.settler, watches, limits)
	return Components{
		Platform:  platform,
		Offering:  offering,
		Limits:    limits,
		Seller:    seller,
		Resolver:  resolver,
		Connector: &guard.Dialer{Resolver: resolver},
		config:    c,
		probes:    probes,
	}, err
}

// probes returns the probes of everything that the service needs. The ledger's probe reads a
// key that no record has, because that is the only key that the function of /ready may read.
// A facilitator's probe sends the facilitator's credentials and asks which payments are
// supported. The other probes check the resolvers and the chain. The chain's probe is optional,
// because the service works without the chain. If view is nil, there is no probe of the chain.
func (c Config) probes(payments *ledger.Ledger, settle facilitators, resolver *dns.Client, view *chain.Nodes) []service.Probe {
	checkLedger := func(ctx context.Context) error {
		_, err := payments.Fetch(ctx, "ready")
		return err
	}
	all := []service.Probe{
		{Name: service.ProbeLedger, Check: checkLedger},
		{Name: service.ProbeResolvers, Check: resolver.Probe},
	}
	all = append(all, settle.probes...)
	if view != nil {
		all = append(all, service.Probe{
			Name:     service.ProbeChain,
			Check:    view.Probe,
			Optional: true,
		})
	}
	return all
}

// Origins returns the client that requests web origins.
func (c Components) Origins() *origin.Client {
	return &origin.Client{Connector: c.Connector, UserAgent: c.config.userAgent()}
}

// Registries returns the configuration for reaching the domain registries. If there is a ledger
// table, it stores the RDAP bootstrap file, so that a new process need not ask IANA for the
// file.
func (c Components) Registries() whois.Config {
	config := whois.Config{
		Connector:    c.Connector,
		BootstrapURL: c.config.BootstrapURL,
		Now:          c.Platform.Now,
		UserAgent:    c.config.userAgent(),
		Log:          c.Platform.Log,
	}
	if t := c.config.Ledger; t.Name != "" {
		config.Cache = bootstrapFile{dynamo.APIOf(dynamo.NewClient(t.AWS)), t.Name}
	}
	return config
}

// Health returns the handler of /health and of /ready, which probes the components.
func (c Components) Health() http.Handler {
	return service.Health(c.Platform, c.Offering, c.Limits.Rate, c.probes, c.config.readyStore(), c.config.warnings())
}

// Documents returns the handler of all static documents.
func (c Components) Documents() http.Handler {
	return service.Discovery(c.Platform, c.Offering, c.Limits.Rate)
}

func (c Config) platform(log *slog.Logger, now func() time.Time) service.Platform {
	return service.Platform{
		Log:        log,
		Now:        now,
		Random:     rand.Reader,
		Origin:     c.origin,
		RequestID:  requestID,
		Stack:      c.Stack,
		Deployment: service.Deployment(c.Stack, c.Ledger.Name),
		Function:   c.Function,
		Version:    c.Version,
		Paused:     c.Paused,
	}
}

// origin returns BASE_URL if it is set, or else the domain name that the gateway reports.
// eventHandler puts that name into r.Host and drops the Host header.
func (c Config) origin(r *http.Request) string {
	if c.BaseURL != "" {
		return c.BaseURL
	}
	return "https://" + strings.ToLower(r.Host)
}

// requestID returns the gateway's id of the request, or a random id.
func requestID(r *http.Request) string {
	if id, ok := r.Context().Value(requestIDKey{}).(string); ok {
		return id
	}
	return rand.Text()
}

// Stores are the places where a deployment stores its payments and its limits.
type Stores struct {
	Ledger ledger.Store
	Index  ledger.Index // only the reconcile function and the operator's tools read it
	Limits limit.Store
}

// Stores opens the table, which holds the ledger, its index and the limits.
func (t Table) Stores() Stores {
	table := t.Open()
	return Stores{Ledger: table, Index: table, Limits: table}
}

// Open returns the ledger's table without checking it, because the functions have no
// permission to describe it.
func (t Table) Open() *dynamo.Table { return dynamo.New(dynamo.APIOf(dynamo.NewClient(t.AWS)), t.Name) }

// limits returns the configured limits, which keep their counts in the given stores.
func (c Config) limits(s Stores, now func() time.Time) service.Limits {
	l := service.Limits{Leases: s.Limits, Single: c.Caps.Single, Bundle: c.Caps.Bundle}
	if c.Caps.PerMinute > 0 {
		l.Rate = limit.NewRate(c.Caps.PerMinute, s.Limits, now)
	}
	return l
}

// Reconciling holds the components that the reconcile function and the operator's tools use.
type Reconciling struct {
	Platform   service.Platform
	Terms      x402.Terms
	Ledger     *ledger.Ledger
	Chain      *chain.Nodes // nil if no nodes are used
	Reconciler *reconcile.Reconciler
	Cheapest   *big.Int // the lowest price of the shop whose ledger this is, in atomic units
}

// Reconciling returns the components for reconciling a ledger with its index.
func (c Config) Reconciling(stores Stores, log *slog.Logger, now func() time.Time) (Reconciling, error) {
	view, err := c.chainView(now)
	if err != nil {
		return Reconciling{}, err
	}
	r := Reconciling{
		Platform: c.platform(log, now),
		Terms:    c.Terms,
		Ledger:   ledger.New(stores.Ledger, now, rand.Text),
		Chain:    view,
		Cheapest: catalog.Cheapest(),
	}
	reconciler := reconcile.Reconciler{
		Ledger: r.Ledger,
		Index:  stores.Index,
		Terms:  c.Terms,
		Now:    now,
		Log:    r.Platform.Log,
	}
	reconciler.Evidence, reconciler.Scanner = evidence(view)
	if c.LowestPrice == nil {
		r.Reconciler = service.Reconciler(reconciler, c.Former)
		return r, nil
	}
	// The ledger belongs to another shop, which has different prices.
	r.Cheapest = c.LowestPrice
	reconciler.Cheapest = c.LowestPrice
	r.Reconciler = storefront.Reconciler(reconciler)
	return r, nil
}

// errNoReceiptKey is the text in /ready when no key is configured.
var errNoReceiptKey error = service.Public("RECEIPT_KEY is not set: answers come without a signed receipt; make receipt-key makes a key")

// receipts signs offers and answers with the receipt key. If the key is in the environment, it
// is available at once. If the key is in the secret, it is read for the first answer, and
// offers are unsigned until then. Without a key, nothing is signed. Nothing is signed with an
// unpublished key either, because nobody could verify the signature.
type receipts struct {
	configuredKey ed25519.PrivateKey // the key in the environment; if nil, the secret may have one
	secret        *secret
	publishedKeys []ed25519.PublicKey
	now           func() time.Time
	signer        atomic.Pointer[receipt.Signer] // nil until the key is loaded
}

// Sign implements x402.Receipts.
func (r *receipts) Sign(ctx context.Context, statement receipt.Statement) (string, error) {
	signer, err := r.loadSigner(ctx)
	if errors.Is(err, errNoReceiptKey) {
		return "", nil // /ready reports the missing key, so it is not logged for each answer
	}
	if err != nil {
		return "", err
	}
	return signer.Sign(statement)
}

// SignOffer implements x402.Receipts.
func (r *receipts) SignOffer(o receipt.Offer) (string, error) {
	signer := r.signer.Load()
	if signer == nil {
		return "", nil
	}
	return signer.SignOffer(o)
}

// loadSigner returns the signer, which it loads on its first call. The error is
// errNoReceiptKey if there is no key.
func (r *receipts) loadSigner(ctx context.Context) (*receipt.Signer, error) {
	if signer := r.signer.Load(); signer != nil {
		return signer, nil
	}
	signer, err := r.findSigner(ctx)
	if err != nil {
		return nil, err
	}
	r.signer.Store(signer)
	return signer, nil
}

// findSigner returns a signer with the key in the environment, or else with the key in the
// secret.
func (r *receipts) findSigner(ctx context.Context) (*receipt.Signer, error) {
	if r.configuredKey != nil {
		return r.signerOf(r.configuredKey)
	}
	if r.secret == nil {
		return nil, errNoReceiptKey
	}
	signer, err := fromSecret(ctx, r.secret, r.now(), r.secretSigner)
	if err == nil && signer == nil {
		return nil, errNoReceiptKey
	}
	return signer, err
}

// check is the probe of the receipt key. Its error always wraps a service.Public.
func (r *receipts) check(ctx context.Context) error {
	_, err := r.loadSigner(ctx)
	if _, public := errors.AsType[service.Public](err); err == nil || public {
		return err
	}
	const unread = service.Public("the key of receipts cannot be read from the secret: answers come without a signed receipt; the log says why")
	return fmt.Errorf("%w: %w", unread, err)
}

// signerOf returns a signer with a key, or an error if the key is not published.
func (r *receipts) signerOf(key ed25519.PrivateKey) (*receipt.Signer, error) {
	s, err := receipt.NewSigner(key, r.publishedKeys)
	if err != nil {
		return nil, service.Public("RECEIPT_KEY is none of the keys in RECEIPT_PUBLIC_KEYS: answers come without a signed receipt")
	}
	return s, nil
}

// secretSigner returns a signer with the receipt key in a secret, or nil if the secret has
// none.
func (r *receipts) secretSigner(doc []byte) (*receipt.Signer, error) {
	key, err := secretReceiptKey(doc)
	if err != nil || key == nil {
		return nil, err
	}
	return r.signerOf(key)
}

// SignReceipts makes the service sign with the given key, if neither a receipt key nor a
// secret is configured. It also publishes the public key, if no key is published.
func (c *Config) SignReceipts(key ed25519.PrivateKey) {
	if c.receiptKey != nil || c.secret != nil {
		return
	}
	if public, ok := key.Public().(ed25519.PublicKey); ok && len(c.ReceiptKeys) == 0 {
		c.ReceiptKeys = []ed25519.PublicKey{public}
	}
	c.receiptKey = key
}
