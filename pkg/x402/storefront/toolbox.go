package storefront

import (
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is an endpoint that is sold over the Model Context Protocol as well.
type Tool struct {
	Name     string
	Endpoint *Endpoint
	// Request returns the URL and the body of the request that a call with some arguments
	// stands for, also with an error, which is a *fault.Error.
	Request func(args map[string]any) (*url.URL, []byte, error)
}

// ToolServer describes the tools.
type ToolServer struct {
	mcp.Server
	// Router leads a call to the endpoint of its tool.
	Router http.Handler
	// Describe returns the description for an origin, which is kept.
	Describe func(origin string) mcp.Description
	// Compress compresses responses that are not the result of a call; nil leaves them.
	Compress func(*http.Request, Response) Response
}

// Tools sells endpoints as tools, by their names.
func (s *Shop) Tools(server ToolServer, tools map[string]*Tool) *Toolbox {
	return &Toolbox{shop: s, server: server, tools: tools}
}

// Toolbox answers the POST requests of clients of the Model Context Protocol.
type Toolbox struct {
	shop      *Shop
	server    ToolServer
	tools     map[string]*Tool // by their names
	described Places[mcp.Description]
}

// ServeHTTP implements http.Handler.
func (b *Toolbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.shop.Front.serve(w, r, "mcp", func(*http.Request) []string { return []string{http.MethodPost} }, b.answer)
}

// answer reads a message and answers it.
func (b *Toolbox) answer(r *http.Request, id string) Response {
	front := &b.shop.Front
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return rpc(&mcp.Response{Status: http.StatusBadRequest}) // the client is gone
	}
	q, bad := mcp.Read(r.Header, body)
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		var c *mcp.Call
		if c, bad = q.Call(func(tool string) bool { return b.tools[tool] != nil }); bad == nil {
			return b.call(r, id, q, c)
		}
	}
	return front.metered(r, front.meter(b.shop.Rate, r, id, false), func(f *fault.Error) Response {
		// Only a call has a result that could say it.
		res := rpc(q.Fail(f.Info().Status, mcp.CodeInternal, mcp.Words(f.Public()), map[string]any{"code": f.Code, "retry_after": seconds(f)}))
		res.Header.Set(fault.HeaderRetryAfter, strconv.Itoa(seconds(f)))
		res.Fault = f
		return res
	}, func() Response {
		if bad != nil {
			return rpc(bad)
		}
		res := b.respond(r, q)
		if b.server.Compress != nil {
			res = b.server.Compress(r, res)
		}
		return res
	})
}

// respond answers what costs nothing.
func (b *Toolbox) respond(r *http.Request, q *mcp.Request) Response {
	return rpc(b.server.Respond(q, func() *mcp.Description {
		at := b.shop.Origin(r)
		d, _ := b.described.Of(at, func(had *mcp.Description) (*mcp.Description, error) {
			if had == nil {
				had = new(b.server.Describe(at))
			}
			return had, nil
		})
		return d
	}))
}

// rpc is a message as a response.
func rpc(m *mcp.Response) Response {
	h := http.Header{"Cache-Control": {"no-store"}, "Vary": {"Accept-Encoding"}}
	if len(m.Body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	return Response{Status: m.Status, Header: h, Body: m.Body}
}
