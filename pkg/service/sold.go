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

// sell sells an operation as every handler is sold.
func (s *Seller) sell(op Operation, terms storefront.Overrides) *x402http.Endpoint {
	return s.seller.Sell(op.entry.PriceUSD(), sold{op, terms}, x402http.Named(op.entry.Slug), x402http.Normalized(op.normal))
}

// sold is an operation as a handler.
type sold struct {
	op    Operation
	terms storefront.Overrides
}

// Special implements storefront.Special.
func (s sold) Special() storefront.Overrides { return s.terms }

// ServeHTTP implements http.Handler: it answers the request's query.
func (s sold) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _, work, err := s.op.read(r.URL.RawQuery)
	var result any
	if err == nil {
		result, err = work(r.Context())
	}
	if err != nil {
		storefront.Fail(w, listed(s.op.entry, err))
		return
	}
	w.Header().Set("Content-Type", storefront.TypeJSON)
	if combined, ok := result.(interface{ Owed() bundle.Owed }); ok {
		owed := combined.Owed()
		w.Header().Set(x402.HeaderOwed, strings.Join(owed.Parts, ", "))
		storefront.Mark(w, owed.Prevented(), owed.Silent)
	}
	_, _ = w.Write(untrusted.Marshal(result))
}

// normal names what a request asks for, after normalisation.
func (op Operation) normal(w http.ResponseWriter, r *http.Request) string {
	_, normal, _, err := op.read(r.URL.RawQuery)
	if err != nil {
		storefront.Fail(w, fault.From(err))
		return ""
	}
	return op.entry.Request(normal)
}

// terms are how an operation is sold on one transport: by its own offer, beside its sibling
// on the other, with the former one behind it.
func (s *Seller) terms(op Operation, own, sibling func(catalog.Operation, discovery.Site) x402.PaymentRequired) storefront.Overrides {
	offer := func(entry catalog.Operation, site discovery.Site) (*x402.Offer, error) {
		return x402.NewOffer(own(entry, site), sibling(entry, site))
	}
	var most int // at once
	switch op.entry.Kind {
	case catalog.Tool:
		most = s.limits.Single
	case catalog.Bundle:
		most = s.limits.Bundle
	case catalog.SmokeTest: // it looks nothing up
	}
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
			Name: op.entry.Slug,
			At:   s.platform.Origin,
			Cap:  most,
			Offer: func(origin string) (*x402.Offer, error) {
				entry := op.entry
				site := s.platform.site(s.offering, origin)
				former := s.offering.Former
				now, err := offer(entry, site)
				if err != nil || former == nil {
					return now, err
				}
				entry.Amount = cmp.Or(former.Prices[entry.Slug], entry.Amount)
				site.Terms = former.Terms
				before, err := offer(entry, site)
				if err != nil {
					return nil, err
				}
				return now.Succeeding(before, former.Until), nil
			},
		},
	}
}
