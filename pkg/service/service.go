// Package service joins lookups and payments. An Operation is a priced operation with the
// client that makes its lookup, and a Seller sells operations. There is a handler for each
// deployed function, and All returns a handler for a machine that runs the whole service.
//
// The lookups do not know about payments, and the payment layer does not know about lookups. A
// priced request first goes through package x402http (request id, methods, panics, one log
// line, rate limit, offer, 402), and then through the Gate of package x402, which runs the
// lookup as a Job. Nothing in this package depends on Lambda.
package service

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Platform is what a function gets from its environment. Log, Now, Random, Origin and
// RequestID are required.
type Platform struct {
	Log *slog.Logger
	Now func() time.Time
	// Random is the source of retry tokens.
	Random io.Reader
	// Origin returns the public origin of a request, such as https://host. It comes from the
	// configuration or from the platform, never from the Host header.
	Origin    func(*http.Request) string
	RequestID func(*http.Request) string
	// Stack is the name of the deployment in the metrics; it may be empty.
	Stack string
	// Deployment is the name of the deployment in /health, as the function Deployment returns
	// it. It may be empty.
	Deployment string
	// Function and Version are the names that Lambda gives to the running code. The metrics
	// that decide whether a release is rolled back contain them. They are empty outside
	// Lambda.
	Function, Version string
	// Paused means that the deployment deliberately sells nothing. In that case a missing
	// facilitator is not a fault.
	Paused bool
}

// Offering holds the prices and the payee of a deployment, and what its documents say about
// it.
type Offering struct {
	// Site describes the deployment in the documents. Its Origin and its clock need not be set
	// here. Over MCP, the duplicate window is twice as long as DuplicateWindow: the official
	// SDK gives up after 60 s, and the program that uses the SDK may repeat the call only
	// after that.
	discovery.Site
	// Former are the terms before the last change, or nil.
	Former *FormerTerms
	// Receipts signs offers and answers. If it is nil, nothing is signed.
	Receipts x402.Receipts
}

// FormerTerms are the terms before a change of payee or price. Payments that were signed under
// these terms are accepted up to the time in the field Until.
type FormerTerms struct {
	Terms  x402.Terms
	Prices map[string]string // in atomic units, by slug; the price of any other operation has not changed
	Until  time.Time
}

// Limits are the rate and concurrency limits of a deployment (spec §8). The zero value limits
// nothing.
type Limits struct {
	// Rate limits the requests of each client. It has one count for the priced paths and /mcp,
	// and a separate count for the documents and /ready. It does not count requests for
	// /health. If Rate is nil, no request is limited.
	Rate *limit.Rate
	// Leases stores the leases of the paid lookups that are running. If it is nil, the leases
	// are stored in this process.
	Leases limit.Store
	// Single limits how many paid lookups of one tool run at the same time, and Bundle does
	// the same for one bundle; 0 means no limit. The smoke test has no limit, because it looks
	// nothing up.
	Single, Bundle int
}

// Seller sells operations.
type Seller struct {
	platform Platform
	offering Offering
	limits   Limits
	seller   *x402http.Seller
}

// recordsOnly hides the index of a ledger from the sellers, which have no permission to read
// it. Only the reconcile function may read the index. That function runs on a schedule and
// searches the index for payments in doubt that no request settles. An alarm reports when the
// function stops running.
type recordsOnly struct{ ledger.Store }

// NewSeller returns a Seller. evidence is a view of the chain, or nil. The error tells what is
// wrong with the terms.
func NewSeller(
	p Platform, o Offering, l ledger.Store, s x402.Settler, evidence x402.Evidence, limits Limits,
) (*Seller, error) {
	seller := &Seller{platform: p, offering: o, limits: limits}
	window := o.DuplicateWindow
	if window == 0 {
		window = -1 // in x402http.Config, -1 means no window and 0 the default window
	}
	var err error
	seller.seller, err = x402http.New(x402http.Config{
		PayTo:        o.Terms.PayTo,
		Network:      o.Terms.Network,
		Asset:        o.Terms.Asset,
		AssetName:    o.Terms.Name,
		AssetVersion: o.Terms.Version,
		Ledger:       recordsOnly{l},
		Settler:      s,
		Evidence:     evidence,
		NoNode:       evidence == nil,
		Receipts:     o.Receipts,
		PerMinute:    -1,
		Concurrent:   -1,
		Limits:       limits.Leases,
		Window:       window,
		OriginOf:     p.Origin,
		Name:         catalog.Service,
		Log:          p.Log,
		Now:          p.Now,
		Random:       p.Random,
		Service: &storefront.Service{
			Front:    p.front(true),
			Rate:     limits.Rate,
			Describe: seller.describe,
			Compress: compressLarge,
		},
	})
	return seller, err
}

// All returns a handler for the whole service. It calls the handler of each function on its
// path, and the handler documents on every other path. If an operation of the catalog is not
// among operations, All returns an error that names it.
func All(s *Seller, operations []Operation, health, documents http.Handler) (http.Handler, error) {
	paths := map[string]http.Handler{
		catalog.PathHealth: health,
		catalog.PathReady:  health,
		catalog.PathMCP:    s.MCP(operations),
	}
	for _, op := range operations {
		paths[op.entry.Path] = s.Handler(op)
	}
	var missing []string
	for _, op := range catalog.All() {
		if paths[op.Path] == nil {
			missing = append(missing, op.Slug)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("service: nobody answers these operations of the catalog: %s", strings.Join(missing, ", "))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := paths[r.URL.Path]; ok {
			h.ServeHTTP(w, r)
			return
		}
		documents.ServeHTTP(w, r)
	}), nil
}

// Handler returns the handler of an operation for requests to its path.
func (s *Seller) Handler(op Operation) http.Handler {
	overrides := s.overrides(op, discovery.Offer, discovery.ToolOffer)
	overrides.Product.ChallengeBody = func(required x402.PaymentRequired, f *fault.Error) any {
		return discovery.ChallengeOf(op.entry, s.offering.Site, required, f)
	}
	overrides.Product.Page = func(
		r *http.Request, challenge storefront.Response, offer x402.PaymentRequired,
	) (storefront.Response, error) {
		return s.paywall(op, r, challenge, offer)
	}
	return s.sell(op, overrides)
}

// MCP returns the handler of /mcp, which offers the operations as tools of the Model Context
// Protocol. A tool has the same terms and the same ledger as the path of its operation. So a
// client that pays on one transport can also get the answer on the other.
func (s *Seller) MCP(operations []Operation) http.Handler {
	router := http.NewServeMux()
	var tools []x402http.Tool
	for _, op := range operations {
		endpoint := s.sell(op, s.overrides(op, discovery.ToolOffer, discovery.Offer))
		router.Handle(op.entry.Path, endpoint)
		tool := x402http.Tool{Endpoint: endpoint, Path: op.entry.Path, Name: op.entry.Tool}
		for _, param := range op.entry.Params {
			tool.Params = append(tool.Params, x402http.Param{Name: param.Name, Type: param.Type})
		}
		tools = append(tools, tool)
	}
	return s.seller.MCP(mcp.ServerName, discovery.ServerVersion(), router, tools...)
}

// describe returns the description of the tools at an origin.
func (s *Seller) describe(origin string) mcp.Description {
	site := s.platform.site(s.offering, origin)
	return mcp.Description{
		Instructions: discovery.ToolInstructions(site),
		Tools:        discovery.Tools(site),
	}
}

// paywall replaces the body of a 402 with a page if the client wants a page.
func (s *Seller) paywall(
	op Operation, r *http.Request, res storefront.Response, offer x402.PaymentRequired,
) (storefront.Response, error) {
	if !wantsPage(r) {
		return res, nil
	}
	visit := op.visit(r.URL.RawQuery)
	visit.Offer = offer
	visit.Nonce = rand.Text()
	site := s.platform.site(s.offering, s.platform.Origin(r))
	body, csp := discovery.Paywall(op.entry, site, visit)
	return compressLarge(r, withPage(res, body, csp)), nil
}

// wantsPage reports whether the client prefers an HTML page, as browsers do.
func wantsPage(r *http.Request) bool {
	return discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", "))
}

// withPage returns the response res with an HTML page as its body.
func withPage(res storefront.Response, body []byte, csp string) storefront.Response {
	h := res.Header
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	res.Body = body
	return res
}

// minCompressSize is the size, in bytes, from which an answer is compressed. A smaller answer
// fits into the first packets anyway.
const minCompressSize = 4 << 10

// compressLarge compresses an answer if it is large enough and the client accepts gzip.
func compressLarge(r *http.Request, res storefront.Response) storefront.Response {
	accept := strings.Join(r.Header.Values("Accept-Encoding"), ",")
	if len(res.Body) < minCompressSize || !discovery.WantsGzip(accept) {
		return res
	}
	res.Body = discovery.Gzip(res.Body)
	res.Header.Set("Content-Encoding", "gzip")
	return res
}

// site returns the description of the deployment at an origin.
func (p Platform) site(o Offering, origin string) discovery.Site {
	site := o.Site
	site.Origin = origin
	site.Now = p.Now
	return site
}

// validProofs returns the ownership proofs that are valid at an origin. The documents leave
// out an invalid proof, because it would say that the service belongs to somebody else. /ready
// reports the number of invalid proofs.
func (p Platform) validProofs(o Offering, origin string) []string {
	return slices.DeleteFunc(slices.Clone(o.OwnershipProofs), func(proof string) bool {
		err := x402.CheckOrigin(origin, proof, o.Terms.PayTo)
		if err != nil {
			p.Log.Warn("ownership proof left out", "origin", origin, "error", err)
		}
		return err != nil
	})
}

// front returns what the responses of all functions have in common: CORS, the headers that
// protect pages, and one log record for each request. A call of a tool always counts in the
// metrics. Any other request counts only if priced is true.
func (p Platform) front(priced bool) storefront.Front {
	return storefront.Front{
		Log:       p.Log,
		Now:       p.Now,
		RequestID: p.RequestID,
		Options:   preflight,
		Header:    addEdgeHeaders,
		Docs:      func(r *http.Request, c fault.Code) string { return catalog.ErrorURL(p.Origin(r), c) },
		Observe: func(r *http.Request, name, id string, res storefront.Response, took time.Duration) {
			p.observe(r, name, id, res, took, priced)
		},
	}
}

// observe writes the log record of a response. If CloudWatch reads the log, the record of a
// priced request also carries the metrics of the request.
func (p Platform) observe(r *http.Request, name, id string, res storefront.Response, took time.Duration, priced bool) {
	level, attrs := res.Line(make([]slog.Attr, 0, 40), r, name, id, took) // with room for 40 attributes, which stay on the stack
	dimensions := []string{DimensionOperation}
	if res.Tool != "" {
		dimensions = append(dimensions, DimensionTransport)
	}
	isCall := res.Tool != ""
	counts := isCall || (priced && name != "mcp") // messages to /mcp that call no tool are free and do not count
	if counts && p.Function != "" {
		attrs = append(attrs, p.metricAttrs(res, limit.SiteKey(r.RemoteAddr), dimensions...)...)
	}
	if counts || p.Log.Enabled(r.Context(), level) {
		p.logAlways(r.Context(), level, "request", attrs)
	}
}

// addEdgeHeaders adds the headers that every response has, and the headers for HTML pages. If
// caches may store the response, it always gets the CORS headers. Any other response gets them
// only if a page of another origin sent the request, because the headers of a 402 have no room
// to spare.
func addEdgeHeaders(r *http.Request, h http.Header) {
	fromPage := r.Header.Get("Origin") != ""
	forAnybody := !strings.Contains(h.Get("Cache-Control"), "no-store")
	if fromPage || forAnybody {
		h["Access-Control-Allow-Origin"] = []string{"*"}
		h["Access-Control-Expose-Headers"] = []string{exposedHeaders}
	}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		// Some wallets open as a popup window and need to reach the page that opened them, so
		// the page allows popups. HSTS does not include subdomains, because other hosts of the
		// operator's domain are not part of this service.
		h.Set("Strict-Transport-Security", "max-age=31536000")
		h.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
		h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()")
	}
}

// exposedHeaders lists the response headers that a page of another origin may read.
const exposedHeaders = x402.HeaderRequired +
	", " + x402.HeaderResponse +
	", " + fault.HeaderRetryAfter +
	", " + x402.HeaderReplayed +
	", " + x402.HeaderAge +
	", " + x402.HeaderOwed +
	", " + limit.HeaderPolicy +
	", " + limit.HeaderLimit +
	", X-Request-Id"

// preflight returns the headers of a response to OPTIONS. Among them are the request headers
// that a page of another origin may send, in lower case as browsers compare them.
// access-control-expose-headers is really a response header, but the reference clients send it
// on the paid retry. mcp-session-id and last-event-id belong to other MCP transports, which
// clients may try first.
func preflight(methods []string) http.Header {
	allowed := []string{
		x402.HeaderSignature,
		x402.HeaderKey,
		"access-control-expose-headers",
		"accept",
		"content-type",
	}
	if slices.Contains(methods, http.MethodPost) {
		allowed = append(allowed,
			mcp.HeaderVersion,
			mcp.HeaderMethod,
			mcp.HeaderName,
			"mcp-session-id",
			"last-event-id",
		)
	}
	allow := strings.Join(append(slices.Clone(methods), http.MethodOptions), ", ")
	return http.Header{
		"Access-Control-Allow-Methods": {allow},
		"Access-Control-Allow-Headers": {strings.ToLower(strings.Join(allowed, ", "))},
		"Access-Control-Max-Age":       {"86400"},
		"Allow":                        {allow},
	}
}
