package x402http

import (
	"bytes"
	"encoding/base64"
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
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Tool is an endpoint that is sold over the Model Context Protocol, too. A call of the
// tool is a GET of Path with the arguments as its query: where the endpoint of that path
// makes the same job of it, it is the same purchase.
type Tool struct {
	Endpoint *Endpoint
	Path     string // such as /weather; no wildcard
	// Name is the name in calls, and Description tells a model when to use the tool.
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
	// At returns the place of a request, such as its origin, and Describe the description
	// for a place, which is kept.
	At       func(*http.Request) string
	Describe func(at string) mcp.Description
	// Compress compresses responses that are not the result of a call; nil leaves them.
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

// Tools is like MCP, for a server that describes its tools itself.
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

// call answers the call of a tool as the GET that it stands for. What is wrong with the
// arguments of one without a payment comes before the price: a model can correct it, and
// need not pay for that.
func (b *Toolbox) call(r *http.Request, id string, q *mcp.Request, c *mcp.Call) Response {
	front, t := &b.seller.config.Front, b.tools[c.Tool]
	values, bad := t.values(c.Arguments)
	key := http.CanonicalHeaderKey(x402.HeaderKey) // the header comes before the member of the call
	get := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: t.Path, RawQuery: values.Encode()}, Host: r.Host, TLS: r.TLS, Pattern: t.Path,
		RemoteAddr: r.RemoteAddr, Header: http.Header{key: r.Header[key]}, Body: http.NoBody,
	}
	x := t.Endpoint.exchange(get.WithContext(r.Context()), id, c.Paid())
	x.call, x.bad = c, bad
	return front.metered(r, x.meter, func(f *fault.Error) Response { return b.result(x, q, Failed(f)) }, func() Response {
		return b.result(x, q, front.guarded(r, id, func() Response {
			if !c.Paid() {
				if err := x.refusal(); err != nil {
					return Failed(fault.From(err))
				}
			}
			return x.sell()
		}))
	})
}

// result is a response to the GET as the result of the call. Only a result of the tool and
// an offer have structured content: clients would check that of an error against the output
// schema, and look in it for a price.
func (b *Toolbox) result(x *exchange, q *mcp.Request, res Response) Response {
	if res.Status == 0 {
		var charged *bool
		if !x.call.Paid() {
			charged = new(bool)
		}
		b.seller.config.Front.fail(&res, x.r, x.id, charged, true)
	}
	failed, text := res.Status >= http.StatusBadRequest, res.Body
	if !utf8.Valid(text) { // a handler's answer is text, JSON, or anything
		text = []byte(base64.StdEncoding.EncodeToString(text))
	}
	wait, own, age, owed := 0, b.server.Name+"/", res.Header.Get(x402.HeaderAge), res.Header.Get(x402.HeaderOwed)
	if res.Fault != nil && !res.asks {
		wait = seconds(res.Fault)
	}
	policy, state := x.meter.Headers()
	meta := map[string]any{own + "request-id": x.id}
	for _, m := range []struct {
		name string
		v    any
		set  bool
	}{
		{mcp.KeyResponse, res.Receipt, res.Receipt != nil}, {own + "replayed", true, res.Replayed},
		{own + "age", json.Number(age), age != ""}, {own + "owed", strings.Split(owed, ", "), owed != ""},
		{own + "retry-after", wait, wait > 0}, {own + "rate-limit", state, state != ""},
		{own + "rate-limit-policy", policy, policy != ""},
	} {
		if m.set {
			meta[m.name] = m.v
		}
	}
	answer := rpc(b.server.Answer(q, mcp.Result{
		Text: text, IsError: failed, Meta: meta,
		Structured: res.asks || !failed && bytes.HasPrefix(text, []byte("{")) && json.Valid(text),
	}))
	res.Header, res.Body = answer.Header, answer.Body
	res.Product, res.Tool = x.product.Name, x.call.Tool
	return res
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

func (t Tool) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range t.Params {
		properties[p.Name] = map[string]any{"type": p.kind(), "description": p.Description}
		if p.Required {
			required = append(required, p.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// values are the arguments of a call as the parameters of a query. null is a parameter
// that is left out. An argument that the tool does not have is refused, where HTTP may
// ignore it: a model that misspells one should be told before it pays.
func (t Tool) values(args map[string]any) (url.Values, error) {
	values, names := url.Values{}, []string{}
	for _, p := range t.Params {
		names = append(names, p.Name)
		switch v := args[p.Name]; {
		case v != nil:
			text, ok := p.text(v)
			if !ok {
				article := map[string]string{"integer": "an", "string": "a"}[p.kind()]
				return nil, fault.Newf(fault.InvalidArguments, fmt.Errorf("it is a %T", v), "The argument %s must be %s %s.", p.Name, article, p.kind())
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

// kind is the parameter's type in JSON Schema.
func (p Param) kind() string {
	if p.Integer {
		return "integer"
	}
	return "string"
}

// text is an argument as a query has it. A string is taken for an integer, too. A number
// without a fraction is an integer in any notation, as in JSON Schema: 443.0, 4.43e2.
func (p Param) text(v any) (text string, ok bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		if f, err := x.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10), p.Integer
		}
		return x.String(), p.Integer
	}
	return "", false
}
