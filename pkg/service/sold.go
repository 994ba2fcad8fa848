package service

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// sell returns the endpoint that sells an operation.
func (s *Seller) sell(op Operation, overrides storefront.Overrides) *x402http.Endpoint {
	return s.seller.Sell(op.entry.PriceUSD(), handler{op: op, overrides: overrides},
		x402http.Named(op.entry.Slug),
		x402http.Normalized(op.normalRequest))
}

// handler makes the lookups of an operation. It does not handle payments: the endpoint from
// Seller.sell does that.
type handler struct {
	op        Operation
	overrides storefront.Overrides
}

// Special implements storefront.Special.
func (h handler) Special() storefront.Overrides { return h.overrides }

// ServeHTTP implements http.Handler. It answers the request without asking for a payment.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := h.op.parseQuery(r.URL.RawQuery)
	if err != nil {
		storefront.Fail(w, documentedFault(h.op.entry, err))
		return
	}
	result, err := q.lookUp(r.Context())
	if err != nil {
		storefront.Fail(w, documentedFault(h.op.entry, err))
		return
	}
	w.Header().Set("Content-Type", storefront.TypeJSON)
	if combined, ok := result.(interface{ Owed() bundle.Owed }); ok {
		owed := combined.Owed()
		w.Header().Set(x402.HeaderOwed, strings.Join(owed.Parts, ", "))
		storefront.MarkOwed(w, owed.Prevented(), owed.Silent)
	}
	_, _ = w.Write(untrusted.Marshal(result))
}

// normalRequest returns the request in normal form, which identifies what the client asks for.
// If the query is invalid, normalRequest writes the error and returns "".
func (op Operation) normalRequest(w http.ResponseWriter, r *http.Request) string {
	q, err := op.parseQuery(r.URL.RawQuery)
	if err != nil {
		storefront.Fail(w, fault.From(err))
		return ""
	}
	return op.entry.Request(q.normalParams)
}

// offerFunc returns the offer of an operation on one transport.
type offerFunc func(catalog.Operation, discovery.Site) x402.PaymentRequired

// overrides returns the settings for selling an operation on one transport. offer makes the
// offer of that transport, and sibling makes the offer of the other transport. A client may
// pay under either offer.
func (s *Seller) overrides(op Operation, offer, sibling offerFunc) storefront.Overrides {
	return storefront.Overrides{
		Endpoint: op.entry.Slug,
		Whole:    true,
		Punctual: true,
		Job: x402.Job{
			Budget:          op.entry.Deadline,
			Timeout:         op.timeout,
			NoImplicitRetry: op.entry.Kind == catalog.SmokeTest,
		},
		Product: storefront.Product{
			Name:  op.entry.Slug,
			At:    s.platform.Origin,
			Cap:   s.limits.concurrencyLimit(op.entry.Kind),
			Offer: func(origin string) (*x402.Offer, error) { return s.offer(op.entry, origin, offer, sibling) },
		},
	}
}

// concurrencyLimit returns the number of lookups of an operation of the given kind that may
// run at the same time; 0 means no limit.
func (l Limits) concurrencyLimit(kind catalog.Kind) int {
	switch kind {
	case catalog.Tool:
		return l.Single
	case catalog.Bundle:
		return l.Bundle
	case catalog.SmokeTest: // no limit, because it looks nothing up
	}
	return 0
}

// offer returns the offer of an operation at an origin. If there are former terms, the offer
// also accepts payments under the former terms.
func (s *Seller) offer(entry catalog.Operation, origin string, offer, sibling offerFunc) (*x402.Offer, error) {
	site := s.platform.site(s.offering, origin)
	now, err := x402.NewOffer(offer(entry, site), sibling(entry, site))
	if err != nil {
		return nil, err
	}
	former := s.offering.Former
	if former == nil {
		return now, nil
	}
	entry.Amount = cmp.Or(former.Prices[entry.Slug], entry.Amount)
	site.Terms = former.Terms
	before, err := x402.NewOffer(offer(entry, site), sibling(entry, site))
	if err != nil {
		return nil, err
	}
	return now.Succeeding(before, former.Until), nil
}
