package x402http

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Tool is an endpoint that is also sold over the Model Context Protocol. A call of the tool
// stands for a request for Path. The arguments of the call become the query or, if the
// endpoint takes POST, a JSON object in the body. The call and that HTTP request are the same
// purchase.
type Tool struct {
	Endpoint *Endpoint
	// Path is the path of the endpoint, such as /weather or /weather/{city}. In a call, each
	// wildcard is replaced by the argument of that name; {rest...} stands for several
	// segments.
	Path string
	// Name is the tool's name in calls, and Description tells a model when to use the tool.
	Name, Description string
	Params            []Param
}

// MCP returns a handler that sells endpoints as tools of the Model Context Protocol. The
// handler takes POST requests at one path. The arguments name and version describe the server
// to clients.
//
// Each call becomes an HTTP request, which passes through router, the handler of the whole
// program. So the endpoint gets everything that middleware and routers add, and the call is
// the same purchase as that request. The request has the headers of the message that contained
// the call, except the headers that describe the message itself. Over MCP, Config.Window is
// doubled.
//
// Images, audio and other binary data are returned as the MCP content types for them. MCP
// panics if a tool is invalid.
func (s *Seller) MCP(name, version string, router http.Handler, tools ...Tool) http.Handler {
	if router == nil {
		panic("x402http: MCP needs the router of the program, such as its http.ServeMux: calls pass through it")
	}
	server := storefront.ToolServer{
		Server: mcp.Server{
			Name:    name,
			Title:   cmp.Or(s.config.Name, name),
			Version: version,
			KeepFor: 5 * time.Minute,
		},
		Router:   router,
		Describe: s.config.Service.Describe,
		Compress: s.config.Service.Compress,
	}
	if server.Describe == nil {
		description := mcp.Description{
			Instructions: "Each call of a tool is paid for: see x402. Repeat one that fails with the same payment.",
			Tools:        untrusted.Marshal(listTools(tools)),
		}
		server.Describe = func(string) mcp.Description { return description }
	}
	sold := map[string]*storefront.Tool{}
	for _, t := range tools {
		if err := t.check(); err != nil {
			panic("x402http: " + err.Error())
		}
		if sold[t.Name] != nil {
			panic(fmt.Sprintf("x402http: two tools are called %s", t.Name))
		}
		sold[t.Name] = &storefront.Tool{
			Name:     t.Name,
			Endpoint: t.Endpoint.endpoint,
			Request:  t.request,
		}
	}
	return s.shop.Tools(server, sold)
}

// listTools returns the descriptions of the tools, from which a model chooses.
func listTools(tools []Tool) []map[string]any {
	list := []map[string]any{}
	for _, t := range tools {
		list = append(list, map[string]any{
			"name":        t.Name,
			"description": t.Description,
			"inputSchema": t.schema(),
		})
	}
	return list
}

// toolName matches the names that the protocol allows for tools (revision 2025-11-25, tools).
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// check returns an error if a tool is invalid.
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
