package routers_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestOnePurchase checks that a tool call passes through the router, which gives the handler
// its path parameter. The call and the equivalent request are one purchase, whichever comes
// first.
func TestOnePurchase(t *testing.T) {
	t.Parallel()
	for router, k := range kinds() {
		if k.param == nil {
			continue // handlers of this router get no path parameters
		}
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			m := openMarket(t)
			seller, runs := m.seller(), new(atomic.Int32)
			weather := seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				_, _ = fmt.Fprintf(w, "fair in %s, %s", k.param(r, "city"), r.PathValue("city"))
			}))
			var program http.Handler // the program contains the tools, and the tools call the program
			tools := seller.MCP("weather", "1.0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { program.ServeHTTP(w, r) }), x402http.Tool{
				Endpoint: weather, Path: "/v1/weather/{city}", Name: "weather", Description: "The weather.", Params: []x402http.Param{{Name: "city", Required: true}},
			})
			program = k.open(newRoute("/v1", "/weather/{city}", weather), route{http.MethodPost, "", "/mcp", tools})
			m.serve(program)

			m.callFirst("Santa Fé", "http://shop.example/v1/weather/Santa%20F%C3%A9")
			m.checkTransfers("10000")
			m.requestFirst("Oslo", "http://shop.example/v1/weather/Oslo")
			m.checkTransfers("10000", "10000")
			if n := runs.Load(); n != 2 {
				t.Errorf("%d runs", n)
			}
		})
	}
}

// callTool calls the tool, with a payment unless the signature is empty.
func (m *market) callTool(city, signature string) mcptest.ToolResult {
	m.Helper()
	return testbed.Must(mcptest.Call(m.Context(), m.client, "http://shop.example/mcp", "weather", map[string]any{"city": city}, signature, ""))
}

func fairAnswer(city string) string { return fmt.Sprintf("fair in %s, %s", city, city) }

// callFirst pays for a call of the tool. An equivalent request then gets the same answer,
// whether it repeats the payment or has a new one.
func (m *market) callFirst(city, url string) {
	m.Helper()
	signature := testbed.Must(m.client.Wallet.Pay(testbed.Must(m.callTool(city, "").Required()), m.now()))
	if r := m.callTool(city, signature); r.IsError || r.Text() != fairAnswer(city) || r.Meta.Receipt == nil {
		m.Errorf("called: %s", r.Raw)
	}
	m.checkAnswer("the same over HTTP", m.get(url, signature), fairAnswer(city), true)
	r, _ := m.buy(url)
	m.checkAnswer("another payment over HTTP", r, fairAnswer(city), true)
}

// requestFirst pays for a request. An equivalent call of the tool then gets the same answer.
func (m *market) requestFirst(city, url string) {
	m.Helper()
	r, signature := m.buy(url)
	m.checkAnswer("requested", r, fairAnswer(city), false)
	another := testbed.Must(m.client.Wallet.Pay(testbed.Must(m.callTool(city, "").Required()), m.now()))
	for _, s := range []string{signature, another} {
		if r := m.callTool(city, s); r.IsError || r.Text() != fairAnswer(city) || !r.Meta.Repeated {
			m.Errorf("the same over MCP: %s", r.Raw)
		}
	}
}

// TestPost checks that a handler for POST requests with JSON can be sold behind every router,
// and that the same body is charged only once.
func TestPost(t *testing.T) {
	t.Parallel()
	const url, cat, dog = "http://shop.example/v1/draw/large", `{"draw":"cat"}`, `{"draw":"dog"}`
	for router, k := range kinds() {
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			m, runs := openMarket(t), new(atomic.Int32)
			m.serve(k.open(route{http.MethodPost, "/v1", "/draw/{size}", m.seller().Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				size := "large"
				if k.param != nil {
					size = k.param(r, "size")
				}
				_, _ = fmt.Fprintf(w, "%s %s %s", size, r.Header.Get("Content-Type"), testbed.Must(io.ReadAll(r.Body)))
			}), x402http.Post(1<<10))}))

			signature := m.signPost(url)
			m.checkAnswer("a cat", m.post(url, cat, signature), "large application/json "+cat, false)
			m.checkAnswer("again", m.post(url, cat, signature), "large application/json "+cat, true)
			m.checkAnswer("by another payment", m.post(url, cat, m.signPost(url)), "large application/json "+cat, true)
			m.checkTransfers("10000")
			m.checkRefused("another body", m.post(url, dog, signature))
			m.checkAnswer("a dog", m.post(url, dog, m.signPost(url)), "large application/json "+dog, false)
			m.checkTransfers("10000", "10000")
			if n := runs.Load(); n != 2 {
				t.Errorf("%d runs", n)
			}
		})
	}
}

// post sends JSON in a POST request, with a payment unless the signature is empty.
func (m *market) post(url, body, signature string) x402test.Reply {
	m.Helper()
	return testbed.Must(m.client.Post(m.Context(), url, "application/json", []byte(body), signature))
}

// signPost asks for the price of a POST request, and signs a payment for it.
func (m *market) signPost(url string) string {
	m.Helper()
	r := m.post(url, "", "")
	if r.Status != http.StatusPaymentRequired {
		m.Fatalf("without a payment: %d %s", r.Status, r.Body)
	}
	return testbed.Must(m.client.Wallet.Pay(testbed.Must(r.Required()), m.now()))
}
