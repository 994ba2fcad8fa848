package x402http

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is an endpoint that is sold over the Model Context Protocol as well. A call of the
// tool is a request for Path, with the arguments as its query or, where the endpoint is one
// of POST, as a JSON object in its body. It is the same purchase as that request.
type Tool struct {
	Endpoint *Endpoint
	// Path is the path of the endpoint, such as /weather or /weather/{city}. An argument
	// takes the place of the wildcard of its name; {rest...} stands for several segments.
	Path string
	// Name is the name in calls, and Description tells a model when to use the tool.
	Name, Description string
	Params            []Param
}

// ToolServer describes the tools.
type ToolServer struct {
	mcp.Server
	// Router leads a call to the endpoint of its tool; nil sends it there directly.
	Router http.Handler
	// At returns the place of a request, such as its origin, and Describe the description
	// for a place, which is kept.
	At       func(*http.Request) string
	Describe func(at string) mcp.Description
	// Compress compresses responses that are not the result of a call; nil leaves them.
	Compress func(*http.Request, Response) Response
}

// MCP sells endpoints as tools of the Model Context Protocol, at one path that takes
// POST. name and version are the server's.
//
// A call passes through router, the handler of the whole program, on its way to the endpoint:
// what middleware and routers put into a request is there, and a request over HTTP and a call
// are one purchase. The call has the headers of the message that it came in, but for those
// that are about that message. An answer stands for twice Config.Window.
//
// A picture, a sound and other bytes are returned as the content that the protocol has for
// them. MCP panics for a tool that cannot be right.
func (s *Seller) MCP(name, version string, router http.Handler, tools ...Tool) *Toolbox {
	if router == nil {
		panic("x402http: MCP needs the router of the program, such as its http.ServeMux: calls pass through it")
	}
	listed := []map[string]any{}
	for _, t := range tools {
		listed = append(listed, map[string]any{"name": t.Name, "description": t.Description, "inputSchema": t.schema()})
	}
	return s.Tools(ToolServer{
		Server: mcp.Server{Name: name, Title: name, Version: version, KeepFor: 5 * time.Minute}, Router: router, At: s.config.OriginOf,
		Describe: func(string) mcp.Description {
			words := "Each call of a tool is paid for: see x402. Repeat one that fails with the same payment."
			return mcp.Description{Instructions: words, Tools: printable.Marshal(listed)}
		},
	}, tools...)
}

// Tools is like MCP, for a server that describes its tools itself.
func (s *Seller) Tools(server ToolServer, tools ...Tool) *Toolbox {
	b := &Toolbox{seller: s, server: server, tools: map[string]Tool{}}
	for _, t := range tools {
		if err := t.check(); err != nil {
			panic("x402http: " + err.Error())
		}
		if _, taken := b.tools[t.Name]; taken {
			panic(fmt.Sprintf("x402http: two tools are called %s", t.Name))
		}
		b.tools[t.Name] = t
	}
	return b
}

// toolName is what a tool may be called (revision 2025-11-25, tools).
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// check says what is wrong with a tool.
func (t Tool) check() error {
	switch {
	case !toolName.MatchString(t.Name):
		return fmt.Errorf("the name of a tool is %q, and must be 1 to 128 letters, digits, _, - and dots", t.Name)
	case t.Endpoint == nil:
		return fmt.Errorf("the tool %s has no Endpoint: it is what Sell returns", t.Name)
	}
	if err := t.checkParams(); err != nil {
		return fmt.Errorf("the tool %s: %w", t.Name, err)
	}
	return nil
}

// Toolbox answers the POST requests of clients of the Model Context Protocol.
type Toolbox struct {
	seller    *Seller
	server    ToolServer
	tools     map[string]Tool // by their names
	described Places[mcp.Description]
}

// ServeHTTP implements http.Handler.
func (b *Toolbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.seller.config.Front.serve(w, r, "mcp", func(*http.Request) []string { return []string{http.MethodPost} }, b.answer)
}

// answer reads a message and answers it.
func (b *Toolbox) answer(r *http.Request, id string) Response {
	front := &b.seller.config.Front
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return rpc(&mcp.Response{Status: http.StatusBadRequest}) // the client is gone
	}
	q, bad := mcp.Read(r.Header, body)
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		var c *mcp.Call
		if c, bad = q.Call(func(tool string) bool { return b.tools[tool].Endpoint != nil }); bad == nil {
			return b.call(r, id, q, c)
		}
	}
	return front.metered(r, front.meter(b.seller.config.Rate, r, id, false), func(f *fault.Error) Response {
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
		at := b.server.At(r)
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
