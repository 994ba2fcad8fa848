package service

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// MCP is /mcp: the operations as tools of the Model Context Protocol. A tool is
// sold as its path is, by the same terms and on the same ledger, so that what was
// paid for on one is answered on the other.
func (s *Seller) MCP(operations []Operation) http.Handler {
	h := &toolbox{platform: s.platform, offering: s.offering, rate: s.limits.Rate, tools: map[string]*tool{}, byOrigin: map[string]*counter{}}
	for _, op := range operations {
		h.tools[op.entry.Tool] = &tool{op: op, gate: s.gate(op)}
	}
	return edge{platform: s.platform, name: "mcp", next: h}
}

// toolbox answers POST /mcp.
type toolbox struct {
	platform Platform
	offering Offering
	rate     *limit.Rate
	tools    map[string]*tool // by their names

	mu       sync.Mutex
	byOrigin map[string]*counter
}

// tool is an operation and what sells it.
type tool struct {
	op   Operation
	gate *x402.Gate
}

// toolCall is what a call adds to its log line.
type toolCall struct {
	operation, tool string
	receipted       bool // it names a settlement
}

func (h *toolbox) methods(*http.Request) []string { return []string{http.MethodPost} }

func (h *toolbox) serve(r *http.Request, id string) response {
	arrived := h.platform.Now()
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return rpc(mcp.Response{Status: http.StatusBadRequest}) // the client is gone
	}
	q, bad := mcp.Read(r.Header, body)
	var call *mcp.Call
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		call, bad = q.Call(func(tool string) bool { return h.tools[tool] != nil })
	}
	m := newMeter(h.platform.Log, h.rate, r, id, bad == nil && call != nil && call.Paid())
	f := m.enter(r.Context())
	var res response
	switch {
	case f == nil && bad != nil:
		res = rpc(bad.Response())
	case bad == nil && call != nil:
		v := &visit{box: h, r: r, id: id, arrived: arrived, q: q, call: call, meter: m, tool: h.tools[call.Tool]}
		res = v.answer(f)
	case f != nil:
		res = limitedRPC(q, f)
	default:
		res = h.respond(r, q).zipped(r)
	}
	if f == nil {
		m.leave(r.Context())
		m.sent(r, res)
	}
	for name, values := range m.header() {
		res.header[name] = values
	}
	return res
}

// respond answers what costs nothing.
func (h *toolbox) respond(r *http.Request, q *mcp.Request) response {
	if q.Notification() {
		return rpc(mcp.Accepted())
	}
	c := h.at(h.platform.Origin(r))
	if err := c.list(); err != nil {
		res := rpc(q.Fail(http.StatusInternalServerError, mcp.CodeInternal, fault.New(fault.InternalError, nil).Public(), nil))
		res.fault = fault.New(fault.InternalError, err)
		return res
	}
	return rpc(c.server.Respond(q))
}

// rpc is a message as a response.
func rpc(m mcp.Response) response {
	h := http.Header{}
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	if len(m.Body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	return response{status: m.Status, header: h, body: m.Body}
}

// limitedRPC turns away what is no call: there is no result that could say it.
func limitedRPC(q *mcp.Request, f *fault.Error) response {
	if q == nil {
		q = &mcp.Request{}
	}
	wait := wholeSeconds(f.Wait())
	res := rpc(q.Fail(f.Info().Status, mcp.CodeInternal, mcp.Words(f.Public()), map[string]any{"code": f.Code, "retry_after": wait}))
	res.header.Set(fault.HeaderRetryAfter, errorHeader(f).Get(fault.HeaderRetryAfter))
	res.fault = f
	return res
}

// counter is what an origin's clients are told, made once.
type counter struct {
	offering Offering
	site     discovery.Site
	server   *mcp.Server

	once   sync.Once
	failed error

	mu     sync.Mutex
	offers map[string]*toolOffer
}

// toolOffer is what a tool costs. form is the PaymentRequired with the offer's
// own reason.
type toolOffer struct {
	offer *x402.Offer
	form  x402.Form
}

// keepTools is how long a client may keep the list of tools: a price change
// reaches everyone as fast as by the documents.
const keepTools = 5 * time.Minute

func (h *toolbox) at(origin string) *counter {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.byOrigin[origin]; ok {
		return c
	}
	site := h.platform.site(h.offering, origin)
	c := &counter{offering: h.offering, site: site, offers: map[string]*toolOffer{}, server: &mcp.Server{
		Name: mcp.ServerName, Title: catalog.Service, Version: catalog.APIVersion,
		Instructions: discovery.ToolInstructions(site), KeepFor: keepTools,
	}}
	if len(h.byOrigin) < maxOrigins {
		h.byOrigin[origin] = c
	}
	return c
}

// list renders the list of tools, once.
func (c *counter) list() error {
	c.once.Do(func() { c.server.Tools, c.failed = discovery.Tools(c.site) })
	return c.failed
}

// of is what a tool costs, made again when its offer can be signed.
func (c *counter) of(op catalog.Operation) (*toolOffer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var offer *x402.Offer
	o, known := c.offers[op.Tool]
	if known {
		offer = o.offer
	} else {
		var err error
		if offer, err = c.offering.offer(op, c.site, discovery.ToolOffer, discovery.Offer); err != nil {
			return nil, err
		}
	}
	offer, err := offer.Signed(c.offering.Receipts)
	if err != nil || known && offer == o.offer {
		return o, err
	}
	form, err := x402.NewForm(func(token string) any { return offer.Required("").WithToken(token) })
	if err != nil {
		return nil, err
	}
	o = &toolOffer{offer: offer, form: form}
	c.offers[op.Tool] = o
	return o, nil
}

// required is the PaymentRequired with a reason; empty keeps the offer's own.
func (o *toolOffer) required(reason, token string) []byte {
	if reason == "" {
		return o.form.JSON(token)
	}
	return mustJSON(o.offer.Required(reason).WithToken(token))
}
