package x402http

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Param is a parameter of a query, as a tool describes it to a model.
type Param struct {
	Name, Description string
	Required          bool
	Integer           bool // it is a whole number; otherwise it is text
}

// MCPTool is an endpoint that is sold as a tool, too: a call of the tool is a GET of path
// with the arguments as its query, and the same purchase.
type MCPTool struct {
	Endpoint *Endpoint
	Path     string // such as /weather; no wildcard
	// Name is what calls name, and Description tells a model when to use the tool.
	Name, Description string
	Params            []Param
}

// MCP sells endpoints as tools of the Model Context Protocol, at one path that takes
// POST. name and version are the server's.
func (s *Seller) MCP(name, version string, tools ...MCPTool) *Toolbox {
	var all []Tool
	listed := []map[string]any{}
	for _, t := range tools {
		p := t.Endpoint.product
		p.At = func(r *http.Request) string { return s.origin(r) + t.Path }
		all = append(all, Tool{Name: t.Name, Product: p, Params: t.Params, Job: t.job})
		listed = append(listed, map[string]any{"name": t.Name, "description": t.Description, "inputSchema": t.schema()})
	}
	return s.Tools(ToolServer{
		Name: name, Title: name, Version: version, KeepFor: 5 * time.Minute, At: s.origin,
		Describe: func(string) (string, json.RawMessage, error) {
			list, err := json.Marshal(listed)
			return "Each call of a tool is paid for: see x402. Repeat one that fails with the same payment.", list, err
		},
	}, all...)
}

func (t MCPTool) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range t.Params {
		kind := map[bool]string{false: "string", true: "integer"}[p.Integer]
		properties[p.Name] = map[string]any{"type": kind, "description": p.Description}
		if p.Required {
			required = append(required, p.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// job is the work of the GET that the values make.
func (t MCPTool) job(values url.Values) (x402.Job, error) {
	for _, p := range t.Params {
		if p.Required && !values.Has(p.Name) {
			return x402.Job{}, fault.Newf(fault.InvalidArguments, nil, "The argument %s is missing.", p.Name)
		}
	}
	r, err := http.NewRequest(http.MethodGet, t.Path+"?"+values.Encode(), http.NoBody) //nolint:noctx // the job's context takes its place
	if err != nil {
		return x402.Job{}, fault.New(fault.InternalError, err)
	}
	return t.Endpoint.product.Job(r)
}

// values are the arguments of a call as the parameters of a query. null is a parameter
// that is left out. An argument that the tool does not have is refused, where HTTP may
// ignore it: a model that misspells one should hear of it before it pays.
func (t *tool) values(args strictjson.Object) (url.Values, error) {
	values, names := url.Values{}, []string{}
	for _, p := range t.Params {
		names = append(names, p.Name)
		text, err := p.text(args[p.Name])
		if err != nil {
			return nil, err
		}
		if args[p.Name] != nil {
			values.Set(p.Name, text)
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

// text is an argument as a query has it. The text of a number is taken for an integer.
func (p Param) text(v any) (string, error) {
	switch x := v.(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	case json.Number:
		if p.Integer {
			return whole(x), nil
		}
	}
	return "", fault.Newf(fault.InvalidArguments, nil, "The argument %s must be %s.", p.Name, map[bool]string{false: "a string", true: "an integer"}[p.Integer])
}

// whole writes a number without a fraction as an integer: 443.0 and 4.43e2 are
// integers in JSON Schema.
func whole(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}
