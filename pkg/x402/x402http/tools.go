package x402http

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is a product that is sold over the Model Context Protocol. It is sold as an
// endpoint is, by the same terms and on the same ledger: where its jobs have the
// fingerprints of an endpoint's, what was paid for on one is answered on the other.
type Tool struct {
	// Name is what calls name.
	Name    string
	Product Product
	// Params are the arguments that a call may have, and Job makes the work that they ask
	// for, in place of the product's.
	Params []Param
	Job    func(url.Values) (x402.Job, error)
}

// ToolServer describes the tools.
type ToolServer struct {
	Name, Title, Version string
	// KeepFor is how long clients may keep the description.
	KeepFor time.Duration
	// At is the place of a request, such as its origin, and Describe what is said there:
	// instructions for a model, and the JSON array that tools/list answers. It is asked
	// once for each place.
	At       func(*http.Request) string
	Describe func(at string) (instructions string, tools json.RawMessage, err error)
	// Compress compresses what is not the result of a call; nil leaves it as it is.
	Compress func(*http.Request, Response) Response
}

// Tools sells products as tools, at one path.
func (s *Seller) Tools(server ToolServer, tools ...Tool) *Toolbox {
	b := &Toolbox{seller: s, server: server, tools: map[string]*tool{}, described: map[string]*mcp.Server{}}
	for _, t := range tools {
		b.tools[t.Name] = &tool{Tool: t, gate: s.gate(t.Product), quotes: s.quotes(t.Product)}
	}
	return b
}

// Toolbox answers the POST requests of clients of the Model Context Protocol.
type Toolbox struct {
	seller *Seller
	server ToolServer
	tools  map[string]*tool // by their names

	mu        sync.Mutex
	described map[string]*mcp.Server
}

// tool is a tool and what sells it.
type tool struct {
	Tool
	gate   *x402.Gate
	quotes quotes
}

// call is the work that the arguments of a call ask for.
func (t *tool) call(args strictjson.Object) (x402.Job, error) {
	values, err := t.values(args)
	if err != nil {
		return x402.Job{}, err
	}
	return t.Job(values)
}

// Methods implements Path.
func (b *Toolbox) Methods(*http.Request) []string { return []string{http.MethodPost} }

// ServeHTTP implements http.Handler.
func (b *Toolbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.seller.config.serve(w, r, "mcp", b)
}

// Serve implements Path.
func (b *Toolbox) Serve(r *http.Request, id string) Response {
	arrived := b.seller.config.Now()
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return rpc(mcp.Response{Status: http.StatusBadRequest}) // the client is gone
	}
	q, bad := mcp.Read(r.Header, body)
	var call *mcp.Call
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		call, bad = q.Call(func(tool string) bool { return b.tools[tool] != nil })
	}
	m := newMeter(b.seller.config.Log, b.seller.config.Rate, r, id, bad == nil && call != nil && call.Paid())
	f := m.Enter(r.Context())
	var res Response
	switch {
	case f == nil && bad != nil:
		res = rpc(bad.Response())
	case bad == nil && call != nil:
		res = (&toolRequest{box: b, r: r, id: id, arrived: arrived, q: q, call: call, meter: m, tool: b.tools[call.Tool]}).answer(f)
	case f != nil:
		res = limitedRPC(q, f)
	default:
		if res = b.respond(r, q); b.server.Compress != nil {
			res = b.server.Compress(r, res)
		}
	}
	if f == nil {
		m.leave(r.Context())
		m.Sent(r, res)
	}
	for name, values := range m.Header() {
		res.Header[name] = values
	}
	return res
}

// respond answers what costs nothing.
func (b *Toolbox) respond(r *http.Request, q *mcp.Request) Response {
	if q.Notification() {
		return rpc(mcp.Accepted())
	}
	server, err := b.at(b.server.At(r))
	if err != nil {
		res := rpc(q.Fail(http.StatusInternalServerError, mcp.CodeInternal, fault.New(fault.InternalError, nil).Public(), nil))
		res.Fault = fault.New(fault.InternalError, err)
		return res
	}
	return rpc(server.Respond(q))
}

// bare is the server without its description, which the answers of calls do not need.
func (b *Toolbox) bare() *mcp.Server {
	return &mcp.Server{Name: b.server.Name, Title: b.server.Title, Version: b.server.Version, KeepFor: b.server.KeepFor}
}

// at describes the tools at a place.
func (b *Toolbox) at(place string) (*mcp.Server, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.described[place]; ok {
		return s, nil
	}
	s := b.bare()
	var err error
	if s.Instructions, s.Tools, err = b.server.Describe(place); err != nil {
		return nil, err
	}
	if len(b.described) < maxQuotes {
		b.described[place] = s
	}
	return s, nil
}

// rpc is a message as a response.
func rpc(m mcp.Response) Response {
	h := http.Header{}
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	if len(m.Body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	return Response{Status: m.Status, Header: h, Body: m.Body}
}

// limitedRPC turns away what is no call: there is no result that could say it.
func limitedRPC(q *mcp.Request, f *fault.Error) Response {
	if q == nil {
		q = &mcp.Request{}
	}
	res := rpc(q.Fail(f.Info().Status, mcp.CodeInternal, mcp.Words(f.Public()), map[string]any{"code": f.Code, "retry_after": wholeSeconds(f.Wait())}))
	res.Header.Set(fault.HeaderRetryAfter, errorHeader(f).Get(fault.HeaderRetryAfter))
	res.Fault = f
	return res
}
