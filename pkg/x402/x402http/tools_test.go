package x402http_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const boxURL = "http://shop.example/mcp"

// call calls a tool, with a payment if the signature is not empty.
func (m *market) call(tool string, args map[string]any, signature string) mcptest.ToolResult {
	m.Helper()
	return must(mcptest.Call(m.Context(), m.client, boxURL, tool, args, signature, m.key))
}

// pay signs a payment for a tool call, and calls the tool with it. It returns the result and
// the signature.
func (m *market) pay(tool string, args map[string]any) (mcptest.ToolResult, string) {
	m.Helper()
	signature := must(mcptest.SignCall(m.Context(), m.client, boxURL, tool, args))
	return m.call(tool, args, signature), signature
}

// city returns the one parameter of most tools in these tests.
func city() []x402http.Param {
	return []x402http.Param{{Name: "city", Description: "The name of a city.", Required: true}}
}

// routings returns several ways to route requests for /api/weather/{city} to a handler that is
// sold.
func routings() map[string]func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
	return map[string]func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint){
		"a pattern": func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
			mux, e := http.NewServeMux(), s.Sell("0.01", h)
			mux.Handle("GET /api/weather/{city}", e)
			return mux, e
		},
		"a pattern with a host": func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
			mux, e := http.NewServeMux(), s.Sell("0.01", h)
			mux.Handle("GET shop.example/api/weather/{city}", e)
			return mux, e
		},
		"StripPrefix": func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
			mux, inner, e := http.NewServeMux(), http.NewServeMux(), s.Sell("0.01", h)
			inner.Handle("GET /weather/{city}", e)
			mux.Handle("/api/", http.StripPrefix("/api", inner))
			return mux, e
		},
		"a subtree": func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
			mux, e := http.NewServeMux(), s.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.SetPathValue("city", strings.TrimPrefix(r.URL.Path, "/api/weather/"))
				h.ServeHTTP(w, r)
			}))
			mux.Handle("/api/weather/", e)
			return mux, e
		},
		"a name": func(s *x402http.Seller, h http.Handler) (*http.ServeMux, *x402http.Endpoint) {
			mux, e := http.NewServeMux(), s.Sell("0.01", h, x402http.Named("weather"))
			mux.Handle("GET /api/weather/{city}", e)
			return mux, e
		},
	}
}

// weatherTool returns the tool of an endpoint that answers /api/weather/{city}.
func weatherTool(e *x402http.Endpoint) x402http.Tool {
	return x402http.Tool{
		Endpoint: e, Path: "/api/weather/{city}", Name: "weather", Description: "The weather of a city.",
		Params: append(city(), x402http.Param{Name: "unit"}),
	}
}

// TestTwoTransports checks that a tool call passes through the router like an HTTP request, so
// the handler gets everything that the router adds. A call and the HTTP request are one
// purchase, in either order, with the same signature or a new one.
func TestTwoTransports(t *testing.T) {
	t.Parallel()
	for name, open := range routings() {
		for first, tool := range map[string]bool{"over MCP first": true, "over HTTP first": false} {
			t.Run(name+", "+first, func(t *testing.T) {
				t.Parallel()
				runInMarket(t, func(m *market) {
					s, runs := m.seller(), 0
					mux, e := open(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs++
						_, _ = fmt.Fprintf(w, "fair in %s, %s", r.PathValue("city"), r.FormValue("unit"))
					}))
					mux.Handle("POST /mcp", s.MCP("weather", "1.0", mux, weatherTool(e)))
					m.shop = mux
					m.buyTwice(tool)
					if runs != 1 {
						m.Errorf("%d runs", runs)
					}
				})
			})
		}
	}
}

// buyTwice buys the weather over one transport, and then asks for it over both transports,
// with the same signature and with a new one. Every request must get the same answer, for one
// charge.
func (m *market) buyTwice(overMCP bool) {
	m.Helper()
	const url, want = "http://shop.example/api/weather/oslo%2Fnorth?unit=K", "fair in oslo/north, K"
	args := map[string]any{"city": "oslo/north", "unit": "K"}
	called := func(what string, r mcptest.ToolResult, replayed bool) {
		m.Helper()
		if r.Text() != want || r.Meta.Repeated != replayed {
			m.Errorf("%s: %s", what, r.Raw)
		}
	}
	var signature string
	if overMCP {
		var r mcptest.ToolResult
		r, signature = m.pay("weather", args)
		called("the first", r, false)
	} else {
		var r x402test.Reply
		r, signature = m.buy(url)
		m.checkAnswer("the first", r, want, false)
	}
	m.checkAnswer("the same signature over HTTP", m.get(url, signature), want, true)
	r, _ := m.buy(url)
	m.checkAnswer("a new one over HTTP", r, want, true)
	called("the same signature over MCP", m.call("weather", args, signature), true)
	anew, _ := m.pay("weather", args)
	called("a new one over MCP", anew, true)
	m.checkTransfers("10000")
}

// toolShop opens a shop with one working tool, /weather, and two tools whose Path does not
// lead to their Endpoint. The function middleware wraps the shop's router so that all requests
// pass through it.
func (m *market) toolShop(h http.Handler, middleware func(http.Handler) http.Handler, options ...x402http.Option) {
	m.Helper()
	s, mux := m.seller(), http.NewServeMux()
	program := middleware(mux)
	e := s.Sell("0.01", h, options...)
	method := "GET"
	if len(options) > 0 {
		method = "POST"
	}
	mux.Handle(method+" /weather", e)
	other := s.Sell("0.02", h)
	mux.Handle("GET /other", other)
	mux.Handle("POST /mcp", s.MCP("weather", "1.0", program,
		x402http.Tool{Endpoint: e, Path: "/weather", Name: "weather", Description: "The weather.", Params: []x402http.Param{{Name: "city"}, {Name: "days", Type: "integer"}}},
		x402http.Tool{Endpoint: other, Path: "/weather", Name: "astray", Description: "Another endpoint answers its path."},
		x402http.Tool{Endpoint: other, Path: "/nowhere", Name: "nowhere", Description: "Nobody answers its path."}))
	m.shop = program
}

func noMiddleware(h http.Handler) http.Handler { return h }

// TestWindowOfTools checks that another payment over MCP gets the same answer for 90 s, which
// is twice the default of Config.Window. The official clients give up after a minute, and
// their host then repeats the call.
func TestWindowOfTools(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.toolShop(newStock("fair"), noMiddleware)
		m.pay("weather", nil)
		time.Sleep(89 * time.Second)
		if r, _ := m.pay("weather", nil); !r.Meta.Repeated {
			m.Errorf("after 89 s: %s", r.Raw)
		}
		m.checkTransfers("10000")
		time.Sleep(2 * time.Second)
		if r, _ := m.pay("weather", nil); r.Meta.Repeated {
			m.Errorf("after 91 s: %s", r.Raw)
		}
		m.checkTransfers("10000", "10000")
	})
}

type userKey struct{}

// TestMiddleware checks that the request which is made for a tool call passes through a
// middleware. It has the headers of the call's message, except the headers that describe the
// message itself. If the middleware refuses a call, the refusal is the result of the call.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.toolShop(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sees := fmt.Sprint(r.Context().Value(userKey{}), " ", r.Method, " ", r.RequestURI)
			for _, name := range []string{"Content-Type", "Accept", "Payment-Signature", "Idempotency-Key", "Mcp-Protocol-Version"} {
				if r.Header.Get(name) != "" {
					sees += ", " + name
				}
			}
			_, _ = io.WriteString(w, sees)
		}), func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("city") == "atlantis" {
					http.Error(w, "no such user", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, "user "+r.Header.Get("User-Agent"))))
			})
		})
		if r, _ := m.pay("weather", map[string]any{"city": "oslo"}); !strings.HasSuffix(r.Text(), " GET /weather?city=oslo") || !strings.HasPrefix(r.Text(), "user ") {
			m.Errorf("the handler sees %q", r.Text())
		}
		r := m.call("weather", map[string]any{"city": "atlantis"}, "")
		if !r.IsError || strings.TrimSpace(r.Text()) != "no such user" {
			m.Errorf("refused: %s", r.Raw)
		}
		m.checkTransfers("10000")
	})
}

// TestLostTools checks that a tool whose path leads to another handler, or to none, is an
// error of the program. Nobody pays for it, and the log says what is wrong.
func TestLostTools(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		weather := newStock("fair")
		m.toolShop(weather, noMiddleware)
		bought := must(mcptest.SignCall(m.Context(), m.client, boxURL, "weather", nil))
		for _, tool := range []string{"astray", "nowhere"} {
			for _, signature := range []string{"", bought} {
				if r := m.call(tool, nil, signature); !r.IsError || strings.Contains(r.Text(), "fair") {
					m.Errorf("%s: %s", tool, r.Raw)
				}
			}
		}
		if m.countLogged("correct the Path or the Endpoint") != 2 {
			m.Errorf("log: %s", m.log.String())
		}
		m.checkTransfers()
		weather.checkRuns(m, 0)
	})
}

// TestBrokenRouters checks that a call gets a reply even if a router panics, or returns before
// the endpoint does.
func TestBrokenRouters(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		broken := true
		m.toolShop(newStock("fair"), func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken && r.URL.Path == "/weather" {
					panic("the middleware is broken")
				}
				next.ServeHTTP(w, r)
			})
		})
		if r := m.call("weather", nil, ""); !r.IsError || !strings.Contains(r.Text(), "internal_error") {
			m.Errorf("broken: %s", r.Raw)
		}
		broken = false
		if r, _ := m.pay("weather", nil); r.Text() != "fair" {
			m.Errorf("mended: %s", r.Raw)
		}
		m.checkTransfers("10000")
	})
	runInMarket(t, func(m *market) {
		m.toolShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(9 * time.Second)
			_, _ = io.WriteString(w, "fair")
		}), func(next http.Handler) http.Handler {
			timed := http.TimeoutHandler(next, 5*time.Second, "too slow")
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/mcp" {
					next.ServeHTTP(w, r)
					return
				}
				timed.ServeHTTP(w, r)
			})
		})
		r, signature := m.pay("weather", nil)
		if !r.IsError || r.Text() != "too slow" || strings.Contains(string(r.Raw), "charged") {
			m.Errorf("too slow: %s", r.Raw)
		}
		time.Sleep(10 * time.Second)
		if r := m.call("weather", nil, signature); r.Text() != "fair" || !r.Meta.Repeated {
			m.Errorf("afterwards: %s", r.Raw)
		}
		m.checkTransfers("10000")
	})
}

// TestSlowTool checks that, over MCP as over HTTP, the reply waits for a handler that runs
// beyond its time.
func TestSlowTool(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.toolShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(14 * time.Second)
			_, _ = io.WriteString(w, "fair")
		}), noMiddleware)
		begun := time.Now()
		r, signature := m.pay("weather", nil)
		if !r.IsError || !strings.Contains(r.Text(), "answer_owed") || time.Since(begun) != 14*time.Second {
			m.Errorf("after %s: %s", time.Since(begun), r.Raw)
		}
		if r := m.call("weather", nil, signature); r.Text() != "fair" || !r.Meta.Repeated {
			m.Errorf("afterwards: %s", r.Raw)
		}
		m.checkTransfers("10000")
	})
}

// TestContent checks that each kind of answer of a handler becomes the kind of content that
// the protocol has for it.
func TestContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mediaType, body, want string }{
		"text":              {"text/plain", "fair", `"content":[{"type":"text","text":"fair"}]`},
		"nothing":           {"text/plain", "", `"content":[{"type":"text","text":""}]`},
		"JSON":              {"application/json", `{"a":1}`, `"structuredContent":{"a":1},"content":[{"type":"text","text":"{\"a\":1}"}]`},
		"a list":            {"application/json", `[1]`, `"content":[{"type":"text","text":"[1]"}]`},
		"problem JSON":      {"application/problem+json", `[1]`, `"content":[{"type":"text","text":"[1]"}]`},
		"a picture":         {"image/png", "\x89PNG", `"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}]`},
		"a detected one":    {"", "\x89PNG\r\n\x1a\n", `"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]`},
		"a vector image":    {"image/svg+xml", "<svg/>", `"content":[{"type":"text","text":"<svg/>"}]`},
		"a sound":           {"audio/mpeg", "\xff\xfb", `"content":[{"type":"audio","data":"//s=","mimeType":"audio/mpeg"}]`},
		"a document":        {"application/pdf", "%PDF", `"content":[{"type":"resource","resource":{"uri":"http://shop.example/weather?city=oslo","mimeType":"application/pdf","blob":"JVBERg=="}}]`},
		"text that is none": {"text/plain", "\xff", `"content":[{"type":"resource","resource":{"uri":"http://shop.example/weather?city=oslo","mimeType":"text/plain","blob":"/w=="}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				m.toolShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if c.mediaType != "" {
						w.Header().Set("Content-Type", c.mediaType)
					}
					_, _ = io.WriteString(w, c.body)
				}), noMiddleware)
				r, _ := m.pay("weather", map[string]any{"city": "oslo"})
				if r.IsError || !strings.Contains(string(r.Raw), c.want) || strings.Contains(string(r.Raw), "structured") != strings.Contains(c.want, "structured") {
					m.Errorf("%s, want %s", r.Raw, c.want)
				}
			})
		})
	}
}

// TestPostTool checks that the tool of a POST handler sends its arguments as JSON. The call
// and a POST with the same body are one purchase.
func TestPostTool(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.toolShop(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %s", r.Header.Get("Content-Type"), must(io.ReadAll(r.Body)))
		}), noMiddleware, x402http.Post(1<<10))
		args := map[string]any{"days": 3, "city": "Oslo & Rome"}
		const body = `{"city":"Oslo & Rome","days":3}`
		r, signature := m.pay("weather", args)
		if r.Text() != "application/json "+body {
			m.Errorf("called: %s", r.Raw)
		}
		again := must(m.client.Post(m.Context(), "http://shop.example/weather", "application/json", []byte(body), signature))
		m.checkAnswer("over HTTP", again, "application/json "+body, true)
		m.checkTransfers("10000")
	})
}

// TestArgumentsOfAPath checks arguments that a router would remove from a path. They are
// refused before the client gets a price. Any other argument must reach the handler unchanged.
func TestArgumentsOfAPath(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		s, mux := m.seller(), http.NewServeMux()
		files := s.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("path")) }))
		mux.Handle("GET /files/{path...}", files)
		mux.Handle("POST /mcp", s.MCP("files", "1.0", mux, x402http.Tool{
			Endpoint: files, Path: "/files/{path...}", Name: "file", Params: []x402http.Param{{Name: "path", Required: true}},
		}))
		m.shop = mux
		for _, path := range []string{"", ".", "..", "a/../b", "/a", "a/", "a//b"} {
			if r := m.call("file", map[string]any{"path": path}, ""); !r.IsError || !strings.Contains(r.Text(), "cannot stand in a path") {
				m.Errorf("%q: %s", path, r.Raw)
			}
		}
		const path = "a b/c?d#e/%2f.txt"
		if r, _ := m.pay("file", map[string]any{"path": path}); r.Text() != path {
			m.Errorf("%q: %s", path, r.Raw)
		}
		m.checkTransfers("10000")
	})
}
