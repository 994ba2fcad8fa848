package x402http_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// TestWrongTools checks that a mistake in a tool stops the program when it starts, with a
// message that names the wrong setting.
func TestWrongTools(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		s, mux, h := m.seller(), http.NewServeMux(), http.NotFoundHandler()
		e := s.Sell("0.01", h)
		good := x402http.Tool{Endpoint: e, Path: "/weather/{city}", Name: "weather", Params: city()}
		for want, spoil := range map[string]func(*x402http.Tool){
			"has no Endpoint":             func(t *x402http.Tool) { t.Endpoint = nil },
			"the name of a tool":          func(t *x402http.Tool) { t.Name = "the weather" },
			`its Path is ""`:              func(t *x402http.Tool) { t.Path = "" },
			`its Path is "weather"`:       func(t *x402http.Tool) { t.Path = "weather" },
			"a parameter has no name":     func(t *x402http.Tool) { t.Params[0].Name = "" },
			"two parameters":              func(t *x402http.Tool) { t.Params = append(t.Params, t.Params[0]) },
			"which JSON Schema":           func(t *x402http.Tool) { t.Params[0].Type = "text" },
			"which no query has":          func(t *x402http.Tool) { t.Params[0].Type = "object" },
			"{city} of its Path needs":    func(t *x402http.Tool) { t.Params[0].Required = false },
			"{town} of its Path needs":    func(t *x402http.Tool) { t.Path = "/weather/{town}" },
			"is not a wildcard such as {": func(t *x402http.Tool) { t.Path = "/weather/in-{city}" },
		} {
			bad := good
			bad.Params = city()
			spoil(&bad)
			checkPanics(t, want, func() { s.MCP("weather", "1.0", mux, bad) })
		}
		checkPanics(t, "two tools are called weather", func() { s.MCP("weather", "1.0", mux, good, good) })
		checkPanics(t, "needs the router", func() { s.MCP("weather", "1.0", nil, good) })
		s.MCP("weather", "1.0", mux, good)
	})
}

// TestWrongOptions checks that a mistake in an option stops the program when it starts, with a
// message that names the option.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		for want, sell := range map[string]func() x402http.Option{
			"Owed has 42":       func() x402http.Option { return x402http.Owed(503, 42) },
			"Owed has 600":      func() x402http.Option { return x402http.Owed(600) },
			"Check is nil":      func() x402http.Option { return x402http.Check(nil) },
			"MostRuns is 0":     func() x402http.Option { return x402http.MostRuns(0) },
			`Named is ""`:       func() x402http.Option { return x402http.Named("") },
			"Named is":          func() x402http.Option { return x402http.Named(strings.Repeat("x", 129)) },
			"Post are 0":        func() x402http.Option { return x402http.Post(0) },
			"Post are 33554433": func() x402http.Option { return x402http.Post(32<<20 + 1) },
			"what Describe says": func() x402http.Option {
				return x402http.Describe(strings.Repeat("the weather of a city ", 200), "text/plain")
			},
		} {
			checkPanics(t, want, func() { m.seller().Sell("0.01", http.NotFoundHandler(), sell()) })
		}
	})
}

// checkPanics fails the test unless f panics, with a message that contains want.
func checkPanics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), want) {
			t.Errorf("%v, want %q", p, want)
		}
	}()
	f()
}
