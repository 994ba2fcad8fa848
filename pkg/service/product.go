package service

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// product is an operation as it is sold over HTTP.
func (s *Seller) product(op Operation) x402http.Product {
	return x402http.Product{
		Name: op.entry.Slug, At: s.platform.Origin, Slots: s.limits.slots(op.entry, s.platform.Now), Window: s.offering.DuplicateWindow,
		Offer: func(origin string) (*x402.Offer, error) {
			return s.offering.offer(op.entry, s.platform.site(s.offering, origin), discovery.Offer, discovery.ToolOffer)
		},
		Says: func(required x402.PaymentRequired, f *fault.Error) any {
			return discovery.ChallengeOf(s.offering.DuplicateWindow, required, f)
		},
		Job: func(r *http.Request) (x402.Job, error) { return op.job(r.URL.RawQuery) },
		Page: func(r *http.Request, asks x402http.Response) (x402http.Response, error) {
			return s.paywall(op, r, asks)
		},
	}
}

// paywall is the page in place of the 402's body, for a client that wants one.
func (s *Seller) paywall(op Operation, r *http.Request, res x402http.Response) (x402http.Response, error) {
	if !discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", ")) {
		return res, nil
	}
	values, request, refused := op.asked(r.URL.RawQuery)
	known := ""
	if op.known != nil && request != "" {
		known = op.known(values)
	}
	body, csp, err := discovery.Paywall(op.entry, s.platform.site(s.offering, s.platform.Origin(r)), discovery.Visit{
		Asked: values, Typed: parameters(r.URL.RawQuery), Request: request, Refused: refused, Known: known, Offer: res.Header.Get(x402.HeaderRequired), Nonce: rand.Text(),
	})
	if err != nil {
		return res, err
	}
	h := res.Header
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	res.Body = body
	return zipped(r, res), nil
}

// MCP is /mcp: the operations as tools of the Model Context Protocol. A tool is
// sold as its path is, by the same terms and on the same ledger, so that what was
// paid for on one is answered on the other.
func (s *Seller) MCP(operations []Operation) http.Handler {
	var tools []x402http.Tool
	for _, op := range operations {
		p := s.product(op)
		p.Says, p.Window = nil, 2*s.offering.DuplicateWindow
		p.Offer = func(origin string) (*x402.Offer, error) {
			return s.offering.offer(op.entry, s.platform.site(s.offering, origin), discovery.ToolOffer, discovery.Offer)
		}
		tools = append(tools, x402http.Tool{Name: op.entry.Tool, Product: p, Params: op.arguments(), Job: func(v url.Values) (x402.Job, error) { return op.job(v.Encode()) }})
	}
	return s.seller.Tools(x402http.ToolServer{
		Name: mcp.ServerName, Title: catalog.Service, Version: catalog.APIVersion, KeepFor: keepTools, At: s.platform.Origin, Compress: zipped,
		Describe: func(origin string) (string, json.RawMessage, error) {
			site := s.platform.site(s.offering, origin)
			return discovery.ToolInstructions(site), discovery.Tools(site), nil
		},
	}, tools...)
}

// keepTools is how long a client may keep the list of tools: a price change
// reaches everyone as fast as by the documents.
const keepTools = 5 * time.Minute

// arguments are the parameters of an operation as a tool has them.
func (op Operation) arguments() (all []x402http.Param) {
	for _, p := range op.entry.Params {
		all = append(all, x402http.Param{Name: p.Name, Integer: p.Type == "integer"})
	}
	return all
}
