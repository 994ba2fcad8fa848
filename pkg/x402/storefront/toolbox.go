package storefront

import (
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is an endpoint that is also sold over the Model Context Protocol.
type Tool struct {
	Name     string
	Endpoint *Endpoint
	// Request returns the URL and the body of the HTTP request that a call with the arguments
	// args stands for. The error is a *fault.Error. Even with an error, the URL is not nil.
	Request func(args map[string]any) (*url.URL, []byte, error)
}

// ToolServer has the settings of a Toolbox.
type ToolServer struct {
	mcp.Server
	// Router gets the HTTP request of a call, and passes it on to the endpoint of the tool.
	Router http.Handler
	// Describe returns the description of the tools for an origin. The result is kept and used
	// again.
	Describe func(origin string) mcp.Description
	// Compress compresses a response that is not the result of a call; nil means that none is
	// compressed.
	Compress func(*http.Request, Response) Response
}

// Tools returns a Toolbox that sells these tools. The keys of the map are the names of the
// tools.
func (s *Shop) Tools(server ToolServer, tools map[string]*Tool) *Toolbox {
	return &Toolbox{shop: s, server: server, tools: tools}
}

// Toolbox answers the POST requests of clients of the Model Context Protocol.
type Toolbox struct {
	shop         *Shop
	server       ToolServer
	tools        map[string]*Tool // the tools, by name
	descriptions Places[mcp.Description]
}

// ServeHTTP implements http.Handler.
func (b *Toolbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	methods := func(*http.Request) []string { return []string{http.MethodPost} }
	b.shop.Front.serve(w, r, "mcp", methods, b.answer)
}

// answer reads a message and returns the response to it.
func (b *Toolbox) answer(r *http.Request, id string) Response {
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return responseOf(&mcp.Response{Status: http.StatusBadRequest}) // the client has hung up
	}
	message, bad := mcp.Parse(r.Header, body)
	if bad == nil && message.Method == mcp.MethodCall && !message.Notification() {
		call, malformed := message.Call(b.hasTool)
		if malformed == nil {
			return b.call(r, id, message, call)
		}
		bad = malformed
	}
	front := &b.shop.Front
	meter := front.meter(b.shop.Rate, r, id, false)
	limited := func(overLimit *fault.Error) Response { return limitedMessage(message, overLimit) }
	return front.serveMetered(r, meter, limited, func() Response {
		if bad != nil {
			return responseOf(bad)
		}
		return b.respond(r, message)
	})
}

// hasTool reports whether there is a tool with the given name.
func (b *Toolbox) hasTool(tool string) bool { return b.tools[tool] != nil }

// limitedMessage refuses a message because its client is over the limit. The message is not a
// call, so the refusal is a JSON-RPC error: only a call has a result that could carry the
// reason.
func limitedMessage(message *mcp.Request, overLimit *fault.Error) Response {
	wait := retryAfter(overLimit)
	data := map[string]any{"code": overLimit.Code, "retry_after": wait}
	res := responseOf(message.Fail(overLimit.Info().Status, mcp.CodeInternal, mcp.Rephrase(overLimit.Public()), data))
	res.Header.Set(fault.HeaderRetryAfter, strconv.Itoa(wait))
	res.Fault = overLimit
	return res
}

// respond answers a message that is not a call. Such messages are free.
func (b *Toolbox) respond(r *http.Request, message *mcp.Request) Response {
	res := responseOf(b.server.Respond(message, func() *mcp.Description {
		return b.description(b.shop.Origin(r))
	}))
	if b.server.Compress != nil {
		res = b.server.Compress(r, res)
	}
	return res
}

// description returns the description of the tools for an origin.
func (b *Toolbox) description(origin string) *mcp.Description {
	d, _ := b.descriptions.Of(origin, func(had *mcp.Description) (*mcp.Description, error) {
		if had == nil {
			had = new(b.server.Describe(origin))
		}
		return had, nil // never an error, so description can ignore the error of Of
	})
	return d
}

// responseOf turns a response of package mcp into a Response.
func responseOf(m *mcp.Response) Response {
	h := http.Header{"Cache-Control": {"no-store"}, "Vary": {"Accept-Encoding"}}
	if len(m.Body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	return Response{Status: m.Status, Header: h, Body: m.Body}
}
