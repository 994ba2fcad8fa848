package x402test_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// payTo is a public test account.
const payTo = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"

// newShop returns a shop that sells the weather, over HTTP and as a tool. All its handlers
// share a ledger.
func newShop(t *testing.T) func(facilitator string) http.Handler {
	store, err := file.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	weather := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fair") })
	return func(facilitator string) http.Handler {
		usdc := x402.USDC()
		node, err := chain.New(chain.Config{URLs: []string{facilitator + "/node"}, Network: usdc.Network, Asset: usdc.Asset})
		if err != nil {
			t.Fatal(err)
		}
		seller, err := x402http.New(x402http.Config{
			PayTo: payTo, Facilitator: facilitator, Ledger: store, Origin: "http://shop.example", Evidence: node, PerMinute: -1,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		sold := seller.Sell("0.01", weather)
		mux := http.NewServeMux()
		mux.Handle("GET /weather", sold)
		mux.Handle("POST /mcp", seller.MCP("weather", "1.0", mux, x402http.Tool{
			Endpoint: sold, Path: "/weather", Name: "weather", Description: "The weather.",
			Params: []x402http.Param{{Name: "city", Description: "Name of the city."}},
		}))
		return mux
	}
}

// TestJudge checks that x402http charges and answers every purchase once, in every row of
// package judge. After a kill the answer takes half a minute, because a lease must expire
// first.
func TestJudge(t *testing.T) {
	t.Parallel()
	report := x402test.Judge(t, newShop(t), func(c *judge.Config) {
		c.Goods = judge.Goods{Path: "/weather?city=Oslo", ToolPath: "/mcp", Tool: "weather", Args: `{"city":"Oslo"}`, OtherArgs: `{"city":"Rome"}`}
		c.Promises = []judge.Promise{judge.PromiseSame, judge.PromiseNew, judge.PromiseKey}
		if testing.Short() {
			c.Rows = []string{"clean", "reply-lost", "settle-refused", "settle-used", "stranger", "another-question"}
		}
	})
	for _, verdict := range []judge.Verdict{judge.Broken, judge.NotPromised} {
		if n := report.Count(verdict); n > 0 {
			t.Errorf("%d are %s", n, verdict)
		}
	}
}

// failureRecorder is a TB that keeps the failures that Judge reports, instead of failing its
// test.
type failureRecorder struct {
	*testing.T
	failures []string
}

// Errorf implements x402test.TB.
func (f *failureRecorder) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

// TestJudgeFails checks that Judge reports one failure if it cannot try the shop: the shop
// asks for no payment, or for another price than the configured one.
func TestJudgeFails(t *testing.T) {
	t.Parallel()
	gives := func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "for nothing") })
	}
	f := &failureRecorder{T: t}
	x402test.Judge(f, gives)
	if len(f.failures) != 1 || !strings.Contains(f.failures[0], "it answered 200") {
		t.Errorf("a seller that asks for nothing: %q", f.failures)
	}
	f = &failureRecorder{T: t}
	x402test.Judge(f, newShop(t), func(c *judge.Config) {
		c.Goods.Path = "/weather"
		c.Price = "1"
	})
	if len(f.failures) != 1 || !strings.Contains(f.failures[0], "asks for 0.01, and not for 1") {
		t.Errorf("a seller with another price: %q", f.failures)
	}
}
