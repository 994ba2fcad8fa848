package x402http

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is an endpoint that is sold over the Model Context Protocol, too. A call of the
// tool is a GET of Path with the arguments as its query: where the endpoint of that path
// makes the same job of it, it is the same purchase.
type Tool struct {
	Endpoint *Endpoint
	Path     string // such as /weather; no wildcard
	// Name is what calls name, and Description tells a model when to use the tool.
	Name, Description string
	Params            []Param
}

// Param is a parameter of a query, as a tool describes it to a model.
type Param struct {
	Name, Description string
	Required          bool
	Integer           bool // it is a whole number; otherwise it is text
}

// ToolServer describes the tools.
type ToolServer struct {
	mcp.Server
	// At is the place of a request, such as its origin, and Describe what is said there,
	// which is asked once for each place.
	At       func(*http.Request) string
	Describe func(at string) mcp.Description
	// Compress compresses what is not the result of a call; nil leaves it as it is.
	Compress func(*http.Request, Response) Response
}

// MCP sells endpoints as tools of the Model Context Protocol, at one path that takes
// POST. name and version are the server's.
func (s *Seller) MCP(name, version string, tools ...Tool) *Toolbox {
	listed := []map[string]any{}
	for _, t := range tools {
		listed = append(listed, map[string]any{"name": t.Name, "description": t.Description, "inputSchema": t.schema()})
	}
	return s.Tools(ToolServer{
		Server: mcp.Server{Name: name, Title: name, Version: version, KeepFor: 5 * time.Minute}, At: s.origin,
		Describe: func(string) mcp.Description {
			words := "Each call of a tool is paid for: see x402. Repeat one that fails with the same payment."
			return mcp.Description{Instructions: words, Tools: printable.Marshal(listed)}
		},
	}, tools...)
}

// Tools is MCP for a server that describes its tools itself.
func (s *Seller) Tools(server ToolServer, tools ...Tool) *Toolbox {
	b := &Toolbox{seller: s, server: server, tools: map[string]Tool{}}
	for _, t := range tools {
		b.tools[t.Name] = t
	}
	return b
}

// Toolbox answers the POST requests of clients of the Model Context Protocol.
type Toolbox struct {
	seller    *Seller
	server    ToolServer
	tools     map[string]Tool // by their names
	described places[mcp.Description]
}

// Methods implements Path.
func (b *Toolbox) Methods(*http.Request) []string { return []string{http.MethodPost} }

// ServeHTTP implements http.Handler.
func (b *Toolbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.seller.config.Front.serve(w, r, "mcp", b)
}

// Serve implements Path.
func (b *Toolbox) Serve(r *http.Request, id string) Response {
	front := &b.seller.config.Front
	arrived := front.Now()
	body, err := io.ReadAll(io.LimitReader(r.Body, mcp.MaxBody+1))
	if err != nil {
		return rpc(mcp.Response{Status: http.StatusBadRequest}) // the client is gone
	}
	q, bad := mcp.Read(r.Header, body)
	var c *mcp.Call
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		c, bad = q.Call(func(tool string) bool { return b.tools[tool].Endpoint != nil })
	}
	if c != nil {
		x := &call{Call: c, Tool: b.tools[c.Tool], q: q, r: r, id: id, box: b}
		x.meter = newMeter(front.Log, b.seller.config.Rate, r, id, c.Paid())
		return x.meter.count(r, x.fails, func() Response { return x.answer(arrived) })
	}
	return newMeter(front.Log, b.seller.config.Rate, r, id, false).count(r, func(f *fault.Error) Response {
		// Only a call has a result that could say it.
		res := rpc(q.Fail(f.Info().Status, mcp.CodeInternal, mcp.Words(f.Public()), map[string]any{"code": f.Code, "retry_after": seconds(f)}))
		res.Header.Set(fault.HeaderRetryAfter, strconv.Itoa(seconds(f)))
		res.Fault = f
		return res
	}, func() Response {
		if bad != nil {
			return rpc(bad.Response())
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
		d, _ := b.described.of(at, func(had *mcp.Description) (*mcp.Description, error) {
			if had == nil {
				had = new(b.server.Describe(at))
			}
			return had, nil
		})
		return d
	}))
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

func (t Tool) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range t.Params {
		kind, _ := p.kind()
		properties[p.Name] = map[string]any{"type": kind, "description": p.Description}
		if p.Required {
			required = append(required, p.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// values are the arguments of a call as the parameters of a query. null is a parameter
// that is left out. An argument that the tool does not have is refused, where HTTP may
// ignore it: a model that misspells one should hear of it before it pays.
func (t Tool) values(args map[string]any) (url.Values, error) {
	values, names := url.Values{}, []string{}
	for _, p := range t.Params {
		names = append(names, p.Name)
		switch v := args[p.Name]; {
		case v != nil:
			text, err := p.text(v)
			if err != nil {
				return nil, err
			}
			values.Set(p.Name, text)
		case p.Required:
			return nil, fault.Newf(fault.InvalidArguments, nil, "The argument %s is missing.", p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(names, name) {
			return nil, fault.Newf(fault.InvalidArguments, nil, "There is no argument %s: %s takes %s.",
				printable.Quote(name, 40), t.Name, strings.Join(names, ", "))
		}
	}
	return values, nil
}

// kind is the parameter's type in JSON Schema, and in a sentence.
func (p Param) kind() (kind, words string) {
	if p.Integer {
		return "integer", "an integer"
	}
	return "string", "a string"
}

// text is an argument as a query has it. The text of a number is taken for an integer.
func (p Param) text(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case json.Number:
		if p.Integer {
			return whole(x), nil
		}
	}
	_, words := p.kind()
	return "", fault.Newf(fault.InvalidArguments, fmt.Errorf("it is a %T", v), "The argument %s must be %s.", p.Name, words)
}

// whole writes a number without a fraction as an integer: 443.0 and 4.43e2 are
// integers in JSON Schema.
func whole(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}
