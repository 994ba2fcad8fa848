// Package service joins lookups and payments: each priced operation with the client
// that answers it (Operation), and operations with what sells them (Seller). There
// is one handler for each function of the deployment, and All for a machine that
// runs every one of them.
//
// The lookups do not know about payments, and the payment layer does not know
// about lookups, so that each can be tested and changed without the other. A
// priced request passes package x402http (request id, methods, panics, one log line, rate
// limit, offer, 402), then the Gate of package x402, which runs the lookup as a Job. Nothing here depends on Lambda.
//
// Decisions are elsewhere: statuses in packages fault and lookup, the outcome of a payment
// in package x402, limits in package limit.
package service

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Platform is what every function gets from where it runs. Log, Now, Random, Origin and
// RequestID are required.
type Platform struct {
	Log *slog.Logger
	Now func() time.Time
	// Random is where retry tokens come from.
	Random io.Reader
	// Origin is the public origin of a request, such as https://host, from
	// configuration or from the platform, never from the Host header.
	Origin    func(*http.Request) string
	RequestID func(*http.Request) string
	// Stack is the name of the deployment, for the metrics; it may be empty.
	Stack string
	// Function and Version are what Lambda calls the code that runs, for the metric
	// that a release is rolled back by; empty elsewhere.
	Function, Version string
	// Paused says that the deployment does not sell, by intent: that it has no
	// facilitator is not its fault.
	Paused bool
}

// Offering is what a deployment asks for its answers, and to whom it is paid.
type Offering struct {
	// Site is what the documents say of the deployment. Its Origin and its clock are not
	// set. An answer over MCP stands for twice the DuplicateWindow, because the official
	// SDK gives up after 60 s and its host may call again then.
	discovery.Site
	// Former are the terms before the last change; nil is none.
	Former *FormerTerms
	// Receipts sign offers and answers; nil is none.
	Receipts x402.Receipts
}

// FormerTerms are terms that payments pass under, too, which were signed before a
// change of payee or price.
type FormerTerms struct {
	Terms  x402.Terms
	Prices map[string]string // in atomic units, by slug; another operation's is today's
	Until  time.Time
}

// Limits are the caps of a deployment (spec §8, design §6). The zero value
// limits nothing.
type Limits struct {
	// Rate limits each client over all paths but /health; nil counts nothing.
	Rate *limit.Rate
	// Leases keep who is at work; nil counts in this process.
	Leases interface {
		limit.Counter
		limit.Leases
	}
	// Single and Bundle cap the paid lookups at once of one tool and of one
	// bundle; 0 means any number. The smoke test has none, because it looks nothing up.
	Single, Bundle int
}

// Seller sells operations: it has what every one of them needs to be paid.
type Seller struct {
	platform Platform
	offering Offering
	limits   Limits
	seller   *x402http.Seller
}

// NewSeller returns a Seller. fallback is a second facilitator and evidence a view
// of the chain; each is nil without one. Its error names what is wrong with the terms.
func NewSeller(
	p Platform, o Offering, l ledger.Store, f x402.Facilitator, fallback *x402.Fallback, evidence x402.Evidence, limits Limits,
) (*Seller, error) {
	seller, err := x402http.New(x402http.Config{
		PayTo: o.Terms.PayTo, Network: o.Terms.Network, Asset: o.Terms.Asset, AssetName: o.Terms.Name, AssetVersion: o.Terms.Version,
		Ledger: l, Settler: f, Fallback: fallback, Evidence: evidence, Receipts: o.Receipts, Rate: limits.Rate, PerMinute: -1, Concurrent: -1,
		Limits: limits.Leases, Front: p.front(true), Random: p.Random,
	})
	return &Seller{platform: p, offering: o, limits: limits, seller: seller}, err
}

// All is the whole service on one mux: the same handlers that the functions
// are made of, one path each, and the documents for everything else. Its error
// names the operations of the catalog that are missing.
func All(s *Seller, operations []Operation, health, documents http.Handler) (http.Handler, error) {
	if err := complete(operations); err != nil {
		return nil, err
	}
	paths := map[string]http.Handler{catalog.PathHealth: health, catalog.PathReady: health}
	for _, op := range operations {
		paths[op.entry.Path] = s.Handler(op)
	}
	paths[catalog.PathMCP] = s.MCP(operations)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := paths[r.URL.Path]; ok {
			h.ServeHTTP(w, r)
			return
		}
		documents.ServeHTTP(w, r)
	}), nil
}

// complete compares operations with the catalog.
func complete(operations []Operation) error {
	var missing []string
	for _, op := range catalog.All() {
		if !slices.ContainsFunc(operations, func(o Operation) bool { return o.entry.Slug == op.Slug }) {
			missing = append(missing, op.Slug)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("service: nobody answers these operations of the catalog: %s", strings.Join(missing, ", "))
	}
	for _, op := range operations {
		if _, ok := catalog.BySlug(op.entry.Slug); !ok {
			return fmt.Errorf("service: catalog.All lacks the operation %s", op.entry.Slug)
		}
	}
	return nil
}

// site is what offers and pages say at an origin.
func (p Platform) site(o Offering, origin string) discovery.Site {
	site := o.Site
	site.Origin, site.Now = origin, p.Now
	return site
}

// proven are the ownership proofs that are valid at an origin. Another one would say that
// the service belongs to somebody else, so the documents leave it out; /ready names it.
func (p Platform) proven(o Offering, origin string) []string {
	return slices.DeleteFunc(slices.Clone(o.OwnershipProofs), func(proof string) bool {
		err := x402.CheckOrigin(origin, proof, o.Terms.PayTo)
		if err != nil {
			p.Log.Warn("ownership proof left out", "origin", origin, "error", err)
		}
		return err != nil
	})
}
