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

// Param is a parameter of a handler's query, as a tool describes it to a model.
type Param struct {
	Name, Description string
	Required          bool
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
		all = append(all, Tool{Name: t.Name, Product: p, Call: t.call})
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

// names are the parameters of the tool.
func (t MCPTool) names() []string {
	names := make([]string, len(t.Params))
	for i, p := range t.Params {
		names[i] = p.Name
	}
	return names
}

func (t MCPTool) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range t.Params {
		properties[p.Name] = map[string]any{"type": "string", "description": p.Description}
		if p.Required {
			required = append(required, p.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// call is the work of the GET that the arguments make.
func (t MCPTool) call(args strictjson.Object) (x402.Job, error) {
	values, err := Arguments(t.Name, t.names(), args)
	if err != nil {
		return x402.Job{}, err
	}
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

// Arguments are a tool's arguments as the parameters of a query. null is a parameter that
// is left out. A name that is not among names is refused, where HTTP may ignore it: a
// model that misspells one should hear of it before it pays.
func Arguments(tool string, names []string, args strictjson.Object) (url.Values, error) {
	values := url.Values{}
	for _, name := range names {
		value := args[name]
		text, ok := scalar(value)
		if !ok {
			return nil, fault.Newf(fault.InvalidArguments, nil, "The argument %s must be one value, not a list or an object.", name)
		}
		if value != nil {
			values.Set(name, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(names, name) {
			return nil, fault.Newf(fault.InvalidArguments, nil, "There is no argument %s: %s takes %s.",
				printable.Quote(name, 40), tool, strings.Join(names, ", "))
		}
	}
	return values, nil
}

// scalar is a JSON value as a query string has it.
func scalar(v any) (text string, ok bool) {
	switch x := v.(type) {
	case nil:
		return "", true
	case string:
		return x, true
	case json.Number:
		return whole(x), true
	case bool:
		return strconv.FormatBool(x), true
	}
	return "", false
}

// whole writes a number without a fraction as an integer: 443.0 and 4.43e2 are
// integers in JSON Schema.
func whole(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}
