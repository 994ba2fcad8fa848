// Package boot turns the environment into a running function: configuration,
// wired dependencies, the Lambda runtime. It is the only package that reads
// the environment, and the only one that knows that it runs on Lambda.
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

// Components are what the functions of a deployment are made of. A function takes the
// clients that its operation needs and links no others.
type Components struct {
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

// Components are made over the stores. What is logged of a peer's text is fit to be
// read, whatever handler log has.
func (c Config) Components(stores Stores, log *slog.Logger, now func() time.Time) (Components, error) {
	const longestFormer = 24 * time.Hour // bounds a mistake: a payee whose time never ends
	if c.Former != nil && c.Former.Until.After(now().Add(longestFormer)) {
		return Components{}, errors.New("FORMER_TERMS ends more than a day from now: five minutes after the deployment are enough")
	}
	signs := &receipts{configured: c.receiptKey, secret: c.secret, published: c.ReceiptKeys, now: now}
	if c.receiptKey != nil {
		_, _ = signs.key(context.Background()) // it is in memory, and /ready says what is wrong
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
		Check:    signs.check,
	})
	if mark, ok := c.markProbe(); ok {
		probes = append(probes, mark)
	}
	offering := c.Offering
	offering.Receipts = signs
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

// probes ask what the service needs: the ledger by reading a key that no record has,
// the only one that their function may read; the facilitators with their credentials
// for what they support; the resolvers; and the chain, without which the service still
// answers. view is nil where the chain is not asked.
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

// Origins is the client that asks web origins.
func (c Components) Origins() *origin.Client {
	return &origin.Client{Connector: c.Connector, UserAgent: c.config.userAgent()}
}

// Registries says how the domain registries are reached. The bootstrap file is
// kept in the ledger's table where there is one, so that a new process need not
// ask IANA.
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

// Health is /health and /ready, which asks what the functions are made of.
func (c Components) Health() http.Handler {
	return service.Health(c.Platform, c.Offering, c.Limits.Rate, c.probes, c.config.readyStore(), c.config.warnings())
}

// Documents is every static document.
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

// origin is configuration or the domain name that the gateway vouches for:
// eventHandler puts that one into Host, never the Host header.
func (c Config) origin(r *http.Request) string {
	if c.BaseURL != "" {
		return c.BaseURL
	}
	return "https://" + strings.ToLower(r.Host)
}

// requestID is the gateway's, or one of our own.
func requestID(r *http.Request) string {
	if id, ok := r.Context().Value(requestIDKey{}).(string); ok {
		return id
	}
	return rand.Text()
}

// Stores are where a deployment keeps its payments and its limits.
type Stores struct {
	Ledger ledger.Store
	Index  ledger.Index // of the ledger; only reconcile asks it
	Limits limit.Store
}

// Stores opens the table: the ledger with its index, and the limits, which share it.
func (t Table) Stores() Stores {
	table := t.Open()
	return Stores{Ledger: table, Index: table, Limits: table}
}

// Open returns the ledger's table without checking it: the functions are not permitted
// to describe it.
func (t Table) Open() *dynamo.Table { return dynamo.New(dynamo.APIOf(dynamo.NewClient(t.AWS)), t.Name) }

// limits wires the caps over the stores.
func (c Config) limits(s Stores, now func() time.Time) service.Limits {
	l := service.Limits{Leases: s.Limits, Single: c.Caps.Single, Bundle: c.Caps.Bundle}
	if c.Caps.PerMinute > 0 {
		l.Rate = limit.NewRate(c.Caps.PerMinute, s.Limits, now)
	}
	return l
}

// Reconciling has the parts of the reconcile function and the operator's tools.
type Reconciling struct {
	Platform   service.Platform
	Terms      x402.Terms
	Ledger     *ledger.Ledger
	Chain      *chain.Nodes // nil without a view of the chain
	Reconciler *reconcile.Reconciler
	Cheapest   *big.Int // the lowest price that anything is sold for, in atomic units
}

// Reconciling makes them, over a ledger and its index.
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
	// The ledger is another shop's, which has other prices.
	r.Cheapest = c.LowestPrice
	reconciler.Cheapest = c.LowestPrice
	r.Reconciler = storefront.Reconciler(reconciler)
	return r, nil
}

// errNoReceiptKey is what /ready says where no key is configured.
var errNoReceiptKey error = service.Public("RECEIPT_KEY is not set: answers come without a signed receipt; make receipt-key makes a key")

// receipts signs offers and answers with the key of the configuration. One in the
// environment is in memory at once; the secret is read when the first answer is given,
// and until then offers are unsigned. Without a key, and with one that is not
// published, nothing is signed: nobody could check it.
type receipts struct {
	configured ed25519.PrivateKey // in the environment; nil: the secret's, if there is one
	secret     *secret
	published  []ed25519.PublicKey
	now        func() time.Time
	signer     atomic.Pointer[receipt.Signer] // nil until there is a key
}

// Sign implements x402.Receipts.
func (r *receipts) Sign(ctx context.Context, statement receipt.Statement) (string, error) {
	signer, err := r.key(ctx)
	if errors.Is(err, errNoReceiptKey) {
		return "", nil // not configured: /ready says so, and no log line for each answer
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

// key is what signs. The error is errNoReceiptKey where no key is configured.
func (r *receipts) key(ctx context.Context) (*receipt.Signer, error) {
	if signer := r.signer.Load(); signer != nil {
		return signer, nil
	}
	signer, err := r.findKey(ctx)
	if err != nil {
		return nil, err
	}
	r.signer.Store(signer)
	return signer, nil
}

// findKey is the key of the environment, or else of the secret.
func (r *receipts) findKey(ctx context.Context) (*receipt.Signer, error) {
	if r.configured != nil {
		return r.signerOf(r.configured)
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

// check is the probe of the key. Its error always has public words.
func (r *receipts) check(ctx context.Context) error {
	_, err := r.key(ctx)
	if _, public := errors.AsType[service.Public](err); err == nil || public {
		return err
	}
	const unread = service.Public("the key of receipts cannot be read from the secret: answers come without a signed receipt; the log says why")
	return fmt.Errorf("%w: %w", unread, err)
}

// signerOf signs with a key, if it is published.
func (r *receipts) signerOf(key ed25519.PrivateKey) (*receipt.Signer, error) {
	s, err := receipt.NewSigner(key, r.published)
	if err != nil {
		return nil, service.Public("RECEIPT_KEY is none of the keys in RECEIPT_PUBLIC_KEYS: answers come without a signed receipt")
	}
	return s, nil
}

// secretSigner signs with the receipts' key that a secret has, and is nil without one.
func (r *receipts) secretSigner(doc []byte) (*receipt.Signer, error) {
	key, err := secretReceiptKey(doc)
	if err != nil || key == nil {
		return nil, err
	}
	return r.signerOf(key)
}

// SignReceipts has a configuration that names no receipt key sign with this one.
func (c *Config) SignReceipts(key ed25519.PrivateKey) {
	if c.receiptKey != nil || c.secret != nil {
		return
	}
	if public, ok := key.Public().(ed25519.PublicKey); ok && len(c.ReceiptKeys) == 0 {
		c.ReceiptKeys = []ed25519.PublicKey{public}
	}
	c.receiptKey = key
}
