package x402http_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// chiRouter is a router that keeps the route of a request in its context, as chi does. If the
// context has a route already, the router uses that route.
type chiRouter struct{ http.Handler }

// chiRoute is the route in the context. It has the methods of chi's route context.
type chiRoute struct{ method string }

type chiRouteKey struct{}

func (*chiRoute) RoutePattern() string   { return "/mcp" }
func (*chiRoute) URLParam(string) string { return "" }

// ServeHTTP implements http.Handler.
func (g chiRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, found := r.Context().Value(chiRouteKey{}).(*chiRoute)
	if !found {
		route = &chiRoute{r.Method}
	}
	r = r.WithContext(context.WithValue(r.Context(), chiRouteKey{}, route))
	r.Method = route.method
	g.Handler.ServeHTTP(w, r)
}

// TestCallHasNoRoute checks the request that is made for a tool call. Its context hides the
// route of the MCP message from a router, and keeps all other values.
func TestCallHasNoRoute(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		type above struct{}
		seller, mux := m.seller(), http.NewServeMux()
		weather := seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Value(above{}) != "kept" {
				t.Error("what was put into the request above the router is not there")
			}
			_, _ = io.WriteString(w, "fair")
		}))
		router := chiRouter{mux}
		mux.Handle("GET /weather", weather)
		mux.Handle("POST /mcp", seller.MCP("weather", "1.0", router, x402http.Tool{
			Endpoint: weather, Path: "/weather", Name: "weather", Description: "The weather.",
		}))
		m.shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			router.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), above{}, "kept")))
		})
		const tools = "http://shop.example/mcp"
		signature := must(mcptest.SignCall(t.Context(), m.client, tools, "weather", nil))
		if r := must(mcptest.Call(t.Context(), m.client, tools, "weather", nil, signature, "")); r.IsError || r.Text() != "fair" {
			m.Errorf("called: %s", r.Raw)
		}
		r := m.get("http://shop.example/weather", signature)
		m.checkAnswer("over HTTP", r, "fair", true)
		m.checkTransfers("10000")
	})
}
