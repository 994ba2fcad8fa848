// Package service joins the parts: one constructor per function of the
// deployment, and All for a machine that runs every one of them.
//
// Lookups know nothing of money, the payment layer knows nothing of lookups;
// here they meet. Nothing here knows whether it runs on Lambda.
package service

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Deps is everything the service does to the world. Log, Now, Origin and
// RequestID are always needed; the rest by the functions that use them.
type Deps struct {
	Log *slog.Logger
	Now func() time.Time
	// Stack is the name of the deployment, for the metrics; it may be empty.
	Stack string
	// Origin is the public origin of a request, such as https://host, from
	// configuration or from the platform, never from the Host header.
	Origin    func(*http.Request) string
	RequestID func(*http.Request) string

	Terms           x402.Terms
	OwnershipProofs []string
	// DuplicateWindow is how long after an answer another payment for the same
	// request, without a purchase key, counts as the same purchase; 0 is off.
	DuplicateWindow time.Duration
	// Random is where retry tokens come from; nil is crypto/rand.
	Random io.Reader

	Ledger      *ledger.Ledger
	Facilitator x402.Facilitator
	// Evidence is a view of the chain; nil without one.
	Evidence x402.Evidence
	// Scanner reads what reached the payee; nil without a view of the chain.
	Scanner x402.Scanner
	// Index lists the ledger's open records, for Reconcile.
	Index ledger.Index
	// Connector finds and reaches public hosts, and no others.
	Connector guard.Connector
	DNS       Looker[dns.Query, dns.Result]
	SSL       *ssl.Client
	Headers   *headers.Client
	Redirect  *redirect.Client
	// Whois is set in the functions that ask a registry, and nil in others:
	// its library is heavy.
	Whois  Looker[whois.Query, whois.Result]
	Limits Limits
	// Probes are what /ready asks, and Warnings what it says without asking.
	Probes   []Probe
	Warnings map[string]string
}

// Looker looks one fact up.
type Looker[Q, R any] interface {
	Lookup(ctx context.Context, q Q) (R, error)
}

// Constructor builds one function of the deployment.
type Constructor func(Deps) http.Handler

// deadline is how long an invocation may take, from its arrival. API Gateway
// cuts at 30 s and the functions time out at 29 s.
const deadline = 27 * time.Second

// All is the whole service on one mux: the same handlers that the functions
// are made of, one path each, and discovery for everything else.
func All(d Deps) http.Handler {
	paths := map[string]http.Handler{}
	for slug, build := range Priced() {
		op, _ := catalog.BySlug(slug)
		paths[op.Path] = build(d)
	}
	health := Health(d)
	paths[catalog.PathHealth], paths[catalog.PathReady] = health, health
	rest := Discovery(d)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := paths[r.URL.Path]; ok {
			h.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// Priced is the constructor of every priced function by slug.
func Priced() map[string]Constructor {
	return map[string]Constructor{
		"dns":              DNS,
		"ssl-check":        SSLCheck,
		"whois":            Whois,
		"headers":          Headers,
		"resolve-redirect": ResolveRedirect,
		"host-intel":       HostIntel,
		"uptime-check":     UptimeCheck,
		"ping":             Ping,
	}
}

func (d Deps) site(origin string) discovery.Site {
	return discovery.Site{Origin: origin, Terms: d.Terms, OwnershipProofs: d.proofs(origin), DuplicateWindow: d.DuplicateWindow}
}

// proofs are the configured ownership proofs that hold for an origin. A wrong
// one would mark the service as somebody else's, so it is left out; /ready
// names it.
func (d Deps) proofs(origin string) []string {
	var good []string
	for _, p := range d.OwnershipProofs {
		if err := x402.CheckOrigin(origin, p, d.Terms.PayTo); err != nil {
			d.Log.Warn("ownership proof left out", "origin", origin, "error", err)
			continue
		}
		good = append(good, p)
	}
	return good
}
