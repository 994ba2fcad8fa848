package service

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// required makes what is asked for an operation at an origin.
type required func(catalog.Operation, discovery.Site) x402.PaymentRequired

// product is an operation as it is sold on one transport: by its own offer, beside its
// sibling on the other, with the former one behind it.
func (s *Seller) product(op Operation, own, sibling required) x402http.Product {
	offer := func(entry catalog.Operation, site discovery.Site) (*x402.Offer, error) {
		return x402.NewOffer(own(entry, site), sibling(entry, site))
	}
	return x402http.Product{
		Name: op.entry.Slug, At: s.platform.Origin, Window: s.offering.DuplicateWindow,
		Cap: map[catalog.Kind]int{catalog.Tool: s.limits.Single, catalog.Bundle: s.limits.Bundle}[op.entry.Kind],
		Job: func(r *http.Request) (x402.Job, error) { return op.job(r.URL.RawQuery) },
		Offer: func(origin string) (*x402.Offer, error) {
			entry, site, former := op.entry, s.platform.site(s.offering, origin), s.offering.Former
			now, err := offer(entry, site)
			if err != nil || former == nil {
				return now, err
			}
			entry.Amount, site.Terms = cmp.Or(former.Prices[entry.Slug], entry.Amount), former.Terms
			before, err := offer(entry, site)
			if err != nil {
				return nil, err
			}
			return now.Succeeding(before, former.Until), nil
		},
	}
}

// Handler answers an operation's path.
func (s *Seller) Handler(op Operation) http.Handler {
	p := s.product(op, discovery.Offer, discovery.ToolOffer)
	p.Says = func(required x402.PaymentRequired, f *fault.Error) any {
		return discovery.ChallengeOf(s.offering.DuplicateWindow, required, f)
	}
	p.Page = func(r *http.Request, asks x402http.Response) (x402http.Response, error) {
		return s.paywall(op, r, asks)
	}
	return s.seller.Endpoint(p)
}

// MCP is /mcp: the operations as tools of the Model Context Protocol. A tool is
// sold as its path is, by the same terms and on the same ledger, so that what was
// paid for on one is answered on the other.
func (s *Seller) MCP(operations []Operation) http.Handler {
	var tools []x402http.Tool
	for _, op := range operations {
		p := s.product(op, discovery.ToolOffer, discovery.Offer)
		p.Window *= 2
		t := x402http.Tool{Endpoint: s.seller.Endpoint(p), Path: op.entry.Path, Name: op.entry.Tool}
		for _, param := range op.entry.Params {
			t.Params = append(t.Params, x402http.Param{Name: param.Name, Integer: param.Type == "integer"})
		}
		tools = append(tools, t)
	}
	// The list may be kept as long as the documents, which a price change reaches as fast.
	const keep = 5 * time.Minute
	return s.seller.Tools(x402http.ToolServer{
		Server: mcp.Server{Name: mcp.ServerName, Title: catalog.Service, Version: catalog.APIVersion, KeepFor: keep},
		At:     s.platform.Origin, Compress: zipped,
		Describe: func(origin string) mcp.Description {
			site := s.platform.site(s.offering, origin)
			return mcp.Description{Instructions: discovery.ToolInstructions(site), Tools: discovery.Tools(site)}
		},
	}, tools...)
}

// paywall is the page in place of the 402's body, for a client that wants one.
func (s *Seller) paywall(op Operation, r *http.Request, res x402http.Response) (x402http.Response, error) {
	if !wantsPage(r) {
		return res, nil
	}
	visit := op.asked(r.URL.RawQuery)
	visit.Offer, visit.Nonce = res.Header.Get(x402.HeaderRequired), rand.Text()
	body, csp, err := discovery.Paywall(op.entry, s.platform.site(s.offering, s.platform.Origin(r)), visit)
	if err != nil {
		return res, err
	}
	return zipped(r, page(res, body, csp)), nil
}

// wantsPage says that the client is a browser.
func wantsPage(r *http.Request) bool {
	return discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", "))
}

// page is a response with a page as its body.
func page(res x402http.Response, body []byte, csp string) x402http.Response {
	h := res.Header
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	res.Body = body
	return res
}

// worthZipping is from how many bytes on an answer is compressed: below, it fits into
// the first packets anyway.
const worthZipping = 4 << 10

// zipped compresses an answer for a client that takes it so.
func zipped(q *http.Request, r x402http.Response) x402http.Response {
	if len(r.Body) >= worthZipping && discovery.WantsGzip(strings.Join(q.Header.Values("Accept-Encoding"), ",")) {
		r.Body = discovery.Gzip(r.Body)
		r.Header.Set("Content-Encoding", "gzip")
	}
	return r
}
