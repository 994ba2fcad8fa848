package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// BenchmarkChallenge is the answer to an unsigned request: the handler alone,
// which may ask nobody.
func BenchmarkChallenge(b *testing.B) {
	l := newLab(b)
	controls := newControls(b)
	p := wire(b, l.setup(), "https://bench.example.com", controls, controls.memory)
	p.Platform.Log = slog.New(slog.NewJSONHandler(io.Discard, nil))
	var net network
	h := service.NewSeller(p.Platform, p.Offering, ledger.New(&net, time.Now, rand.Text), &net, nil, nil, p.Limits).Handler(service.DNS(&net))
	r := httptest.NewRequest(http.MethodGet, catalog.DNS().ExampleURL(""), nil)
	r.Header.Set("Accept", "application/json")
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(net.calls.Load()), "network-calls")
	if w.status != http.StatusPaymentRequired || net.calls.Load() != 0 {
		b.Fatalf("status %d after %d calls to the network", w.status, net.calls.Load())
	}
}

// BenchmarkPaidDNS is a paid lookup in this process: ledger in memory,
// facilitator and resolver on loopback. Signing is the client's and not
// counted.
func BenchmarkPaidDNS(b *testing.B) {
	l := newLab(b)
	controls := newControls(b)
	controls.log.Discard = true
	p := wire(b, l.setup(), "https://bench.example.com", controls, controls.memory)
	h := p.Seller.Handler(service.DNS(p.Resolver))
	wallet, payer := l.wallet(b)
	path := lookup("example.com", "MX")
	challenge := httptest.NewRecorder()
	h.ServeHTTP(challenge, httptest.NewRequest(http.MethodGet, path, nil))
	required, err := (x402test.Reply{Status: challenge.Code, Header: challenge.Header()}).Required()
	if err != nil {
		b.Fatal(err)
	}
	w := &sink{header: http.Header{}}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		header, err := wallet.Pay(required, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set(x402.HeaderSignature, header)
		r.Header.Set(x402.HeaderKey, rand.Text()) // else it is the purchase of before
		clear(w.header)
		b.StartTimer()
		h.ServeHTTP(w, r)
		if n++; w.status != http.StatusOK {
			b.Fatalf("status %d", w.status)
		}
	}
	if err := l.books(payer, catalog.DNS().Amount, n, n); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkToolChallenge is the answer to a call of a tool without a payment: the
// handler alone, which may ask nobody.
func BenchmarkToolChallenge(b *testing.B) {
	l := newLab(b)
	controls := newControls(b)
	p := wire(b, l.setup(), "https://bench.example.com", controls, controls.memory)
	p.Platform.Log = slog.New(slog.NewJSONHandler(io.Discard, nil))
	p.Limits.Rate = nil
	var net network
	h := service.NewSeller(p.Platform, p.Offering, ledger.New(&net, time.Now, rand.Text), &net, nil, nil, p.Limits).MCP([]service.Operation{service.DNS(&net)})
	body := toolCall(b, catalog.DNS().Tool, "")
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, catalog.PathMCP, bytes.NewReader(body)))
	}
	b.ReportMetric(float64(net.calls.Load()), "network-calls")
	if w.status != http.StatusOK || net.calls.Load() != 0 {
		b.Fatalf("status %d after %d calls to the network", w.status, net.calls.Load())
	}
}

// toolCall is a call of a tool for the example's domain; header is a
// PAYMENT-SIGNATURE, or empty.
func toolCall(tb testing.TB, tool, header string) []byte {
	tb.Helper()
	meta := map[string]any{}
	if header != "" {
		payment, err := base64.StdEncoding.DecodeString(header)
		if err != nil {
			tb.Fatal(err)
		}
		meta[mcp.KeyPayment] = json.RawMessage(payment)
		meta[mcp.KeyPurchase] = rand.Text() // else it is the purchase of before
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodCall, "params": map[string]any{
		"name": tool, "arguments": map[string]any{"domain": "example.com", "type": "MX"}, "_meta": meta,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// BenchmarkToolPaid is BenchmarkPaidDNS by a call of the tool.
func BenchmarkToolPaid(b *testing.B) {
	l := newLab(b)
	controls := newControls(b)
	controls.log.Discard = true
	p := wire(b, l.setup(), "https://bench.example.com", controls, controls.memory)
	h := p.Seller.MCP(operations.All(p))
	wallet, payer := l.wallet(b)
	post := func(w http.ResponseWriter, header string) {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, catalog.PathMCP, bytes.NewReader(toolCall(b, catalog.DNS().Tool, header))))
	}
	challenge := httptest.NewRecorder()
	post(challenge, "")
	var answer struct{ Result x402test.ToolResult }
	if err := json.Unmarshal(challenge.Body.Bytes(), &answer); err != nil {
		b.Fatal(err)
	}
	required, err := answer.Result.Required()
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		header, err := wallet.Pay(required, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		w := httptest.NewRecorder()
		b.StartTimer()
		post(w, header)
		if n++; bytes.Contains(w.Body.Bytes(), []byte(`"isError"`)) {
			b.Fatalf("%s", w.Body)
		}
	}
	if err := l.books(payer, catalog.DNS().Amount, n, n); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkColdStart is from starting the deployed binary of each function until
// its first answer, a 402 of what is sold, and the memory that it holds then.
func BenchmarkColdStart(b *testing.B) {
	l := newLab(b)
	config := lambdaConfig(b, l.setup(), "bench", "http://"+testbed.FreeAddr(b))
	for _, f := range firstRequests() {
		b.Run(f.slug, func(b *testing.B) { f.coldStart(b, config) })
	}
}

// firstRequest is what a function is asked first.
type firstRequest struct {
	slug, function string // its name in the template
	request        *http.Request
	status         int
}

// firstRequests has one request for each function behind the gateway.
func firstRequests() []firstRequest {
	list := []firstRequest{
		{"discovery", "DiscoveryFunction", httptest.NewRequest(http.MethodGet, catalog.PathOpenAPI, nil), http.StatusOK},
		{"health", "HealthFunction", httptest.NewRequest(http.MethodGet, catalog.PathHealth, nil), http.StatusOK},
		{"mcp", "McpFunction", httptest.NewRequest(http.MethodPost, catalog.PathMCP,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)), http.StatusOK},
	}
	for _, op := range catalog.All() {
		name := ""
		for word := range strings.SplitSeq(op.Slug, "-") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		r := httptest.NewRequest(http.MethodGet, op.ExampleURL(""), nil)
		list = append(list, firstRequest{op.Slug, name + "Function", r, http.StatusPaymentRequired})
	}
	return list
}

func (f firstRequest) coldStart(b *testing.B, config lambdahost.Config) {
	b.Helper()
	pid := 0
	config.OnSpawn = func(p lambdahost.Process) { pid = p.PID }
	body := []byte(nil)
	if f.request.Body != nil {
		var err error
		if body, err = io.ReadAll(f.request.Body); err != nil {
			b.Fatal(err)
		}
	}
	var first, init time.Duration
	memory, n := 0, 0
	for b.Loop() {
		host, err := lambdahost.New(config)
		if err != nil {
			b.Fatal(err)
		}
		r := f.request.Clone(b.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		w := httptest.NewRecorder()
		host.ServeHTTP(w, r)
		cold := host.Stats(f.function).Cold
		if runtime.GOOS == "linux" {
			memory += resident(b, pid, "VmRSS")
		}
		host.Close()
		if w.Code != f.status || len(cold) != 1 {
			b.Fatalf("status %d, %d cold starts: %s", w.Code, len(cold), w.Body)
		}
		first, init, n = first+cold[0].First, init+cold[0].Init, n+1
	}
	size, err := os.Stat(filepath.Join(testbed.Functions(b), f.slug, "bootstrap"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // it would count the host's own work
	b.ReportMetric(float64(first.Microseconds())/float64(n)/1000, "ms/first-answer")
	b.ReportMetric(float64(init.Microseconds())/float64(n)/1000, "ms/init")
	b.ReportMetric(float64(memory)/float64(n)/1024, "MB/resident")
	b.ReportMetric(float64(size.Size())/1e6, "MB/binary")
}

// sink takes an answer and keeps the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// network is everything that a handler could ask, and counts that it does.
type network struct{ calls atomic.Int64 }

var errNetwork = errors.New("the network was asked")

func (n *network) Create(context.Context, ledger.Record) (*ledger.Record, error) {
	n.calls.Add(1)
	return nil, errNetwork
}

func (n *network) Replace(context.Context, ledger.Record) error {
	n.calls.Add(1)
	return errNetwork
}

func (n *network) Fetch(context.Context, string) (*ledger.Record, error) {
	n.calls.Add(1)
	return nil, errNetwork
}

func (n *network) Settle(context.Context, x402.Payload, x402.Requirements) x402.Settlement {
	n.calls.Add(1)
	return x402.Settlement{Cause: errNetwork}
}

func (n *network) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	n.calls.Add(1)
	return x402.Verification{}
}

func (n *network) Lookup(context.Context, dns.Query) (dns.Result, error) {
	n.calls.Add(1)
	return dns.Result{}, errNetwork
}
