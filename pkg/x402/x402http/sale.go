package x402http

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// AnswerOwed is the code of the error for an answer that a handler owes. As long as the
// payment may be repeated, the body of the error is the body that the handler wrote.
const AnswerOwed fault.Code = "answer_owed"

// Refused is the code of the error for a request that a Check has refused.
const Refused fault.Code = "refused"

// sale is a handler and its price.
type sale struct {
	seller       *Seller
	handler      http.Handler
	amount       string // in atomic units
	check        http.HandlerFunc
	owedStatuses []int
	maxRuns      int   // 0 means no limit
	maxBody      int64 // the argument of Post; 0 means that the endpoint takes GET
	name         string
	normalize    func(http.ResponseWriter, *http.Request) string // from Normalized; nil if it is not used
	overrides    storefront.Overrides
	warnOnce     sync.Once // lets the warning about a handler with neither a name nor a pattern be logged only once
	resource     x402.Resource
}

// Sell returns a handler that passes a request on to h once the client has paid the price. The
// price is a decimal number of the seller's asset, such as "0.01". Like http.ServeMux.Handle,
// Sell panics if the program has a bug, such as a price that is not a number or an offer that
// is too long. Call Sell before the first request is served.
//
// The endpoint takes GET and HEAD or, with Post, POST. The URL identifies a purchase; the order
// of the query's parameters does not matter. For a POST, the body, its media type and its
// content encoding identify the purchase together with the URL. No other header counts.
func (s *Seller) Sell(price string, h http.Handler, options ...Option) *Endpoint {
	amount, err := atomicUnits(price, s.config.Decimals)
	if err != nil {
		panic("x402http: " + err.Error())
	}
	if h == nil {
		panic("x402http: the handler is nil")
	}
	if s.cheapest == nil || amount.Cmp(s.cheapest) < 0 {
		s.cheapest = amount
	}
	x := &sale{
		seller:  s,
		handler: h,
		amount:  amount.String(),
		resource: x402.Resource{
			Description: s.config.Description,
			MimeType:    "application/json",
			ServiceName: s.config.Name,
		},
	}
	for _, option := range options {
		option(x)
	}
	if special, ok := h.(storefront.Special); ok {
		x.overrides = special.Special()
	}
	if err := x.checkOffer(); err != nil {
		panic(fmt.Sprintf("x402http: %v: shorten Name and Description of Config, or what Describe says", err))
	}
	return &Endpoint{x.seller.shop.Endpoint(x.product())}
}

// Endpoint sells one handler over HTTP. MCP can also sell it as a tool.
type Endpoint struct{ endpoint *storefront.Endpoint }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.endpoint.ServeHTTP(w, r) }

// product returns the Product that the handler's endpoint sells.
func (x *sale) product() storefront.Product {
	p := x.overrides.Product
	p.Method = x.method()
	p.MaxBody = x.maxBody
	p.Window = x.seller.config.Window
	p.Ready = x.checkReady
	p.Job = x.job
	if p.Name == "" {
		p.Name = "sold"
		p.Route = x.logName
		p.Cap = x.seller.config.Concurrent
	}
	if p.Offer == nil {
		p.At = x.seller.urlOf
		p.Offer = x.offer
	}
	return p
}

// Handle sells a handler, and registers the endpoint with mux for a pattern. If the pattern
// has a method, it must be the method that the endpoint takes; otherwise Handle panics, just
// as mux panics if a pattern is invalid.
func (s *Seller) Handle(mux *http.ServeMux, pattern, price string, h http.Handler, options ...Option) {
	endpoint := s.Sell(price, h, options...)
	method, _, given := strings.Cut(pattern, " ")
	sold := endpoint.endpoint.Method()
	if given && method != sold {
		panic(fmt.Sprintf("x402http: the pattern %q has another method than %s, which is what is sold: x402http.Post sells POST", pattern, sold))
	}
	mux.Handle(pattern, endpoint)
}

// method returns the method that the endpoint takes: POST or GET.
func (x *sale) method() string {
	if x.maxBody > 0 {
		return http.MethodPost
	}
	return http.MethodGet
}

// urlOf returns the URL of a request without its query.
func (s *Seller) urlOf(r *http.Request) string { return s.config.OriginOf(r) + path(r) }

// path returns the path of a request as its client sent it, even if routers have changed
// r.URL.
func path(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // the request did not come from a connection and has no RequestURI
		u = r.URL
	}
	return u.EscapedPath()
}

func (x *sale) offer(at string) (*x402.Offer, error) {
	resource := x.resource
	resource.URL = at
	return x402.NewOffer(x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       "Payment required",
		Resource:    resource,
		Accepts:     []x402.Requirements{x.seller.terms.Requirements(x.amount)},
	})
}

// checkOffer returns an error if the offer is too long for its header.
func (x *sale) checkOffer() error {
	if x.overrides.Product.Offer != nil {
		return nil
	}
	offer, err := x.offer("https://" + strings.Repeat("x", storefront.AnyPath))
	if err != nil {
		return err
	}
	_, err = offer.Signed(x.seller.config.Receipts)
	return err
}
