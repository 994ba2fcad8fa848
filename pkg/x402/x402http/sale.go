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

// AnswerOwed is the code of an answer that a handler owes. While its payment may be
// repeated, the response has the body that the handler wrote.
const AnswerOwed fault.Code = "answer_owed"

// Refused is the code of a request that a check has refused.
const Refused fault.Code = "refused"

// sale is a handler and its price.
type sale struct {
	seller   *Seller
	handler  http.Handler
	amount   string // in atomic units
	check    http.HandlerFunc
	owed     []int
	mostRuns int   // 0 is any number
	maxBody  int64 // above 0, POST is sold
	name     string
	normal   func(http.ResponseWriter, *http.Request) string // nil where the request itself is the name
	special  storefront.Overrides
	unnamed  sync.Once // logs that there is neither a name nor a pattern
	resource x402.Resource
}

// Sell returns a handler that answers a client that has paid the price, a decimal number
// such as "0.01" of the seller's asset. Like http.ServeMux.Handle it panics for a bug in the
// program, such as a price that is no number or an offer that is too long. It must be called
// before the first request.
//
// It takes GET and HEAD or, with Post, POST. A purchase is the URL with its query sorted and,
// of a POST, the body with its type and encoding. No other header counts.
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
		x.special = special.Special()
	}
	if err := x.checkOffer(); err != nil {
		panic(fmt.Sprintf("x402http: %v: shorten Name and Description of Config, or what Describe says", err))
	}
	return &Endpoint{x.seller.shop.Endpoint(x.product())}
}

// Endpoint sells one handler over HTTP. With MCP it can be sold as a tool as well.
type Endpoint struct{ sold *storefront.Endpoint }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.sold.ServeHTTP(w, r) }

// product describes the handler to the endpoint that sells it.
func (x *sale) product() storefront.Product {
	p := x.special.Product
	p.Method = x.method()
	p.MaxBody = x.maxBody
	p.Window = x.seller.config.Window
	p.Ready = x.ready
	p.Job = x.job
	if p.Name == "" {
		p.Name = "sold"
		p.Route = x.logName
		p.Cap = x.seller.config.Concurrent
	}
	if p.Offer == nil {
		p.At = x.seller.at
		p.Offer = x.offer
	}
	return p
}

// Handle registers a handler that is sold for a pattern of mux. It panics for a pattern
// whose method is not the one that is sold, as mux does for one that it cannot read.
func (s *Seller) Handle(mux *http.ServeMux, pattern, price string, h http.Handler, options ...Option) {
	endpoint := s.Sell(price, h, options...)
	method, _, given := strings.Cut(pattern, " ")
	sold := endpoint.sold.Method()
	if given && method != sold {
		panic(fmt.Sprintf("x402http: the pattern %q has another method than %s, which is what is sold: x402http.Post sells POST", pattern, sold))
	}
	mux.Handle(pattern, endpoint)
}

// method is the method that is sold.
func (x *sale) method() string {
	if x.maxBody > 0 {
		return http.MethodPost
	}
	return http.MethodGet
}

// at is the URL of a request without its query.
func (s *Seller) at(r *http.Request) string { return s.config.OriginOf(r) + path(r) }

// path is the path of a request as its client sent it, whatever routers have made of r.URL.
func path(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // the request was not read from a connection
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

// checkOffer checks that the offer fits into its header.
func (x *sale) checkOffer() error {
	if x.special.Product.Offer != nil {
		return nil
	}
	offer, err := x.offer("https://" + strings.Repeat("x", storefront.AnyPath))
	if err != nil {
		return err
	}
	_, err = offer.Signed(x.seller.config.Receipts)
	return err
}
