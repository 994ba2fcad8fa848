package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const benchOrigin = "https://bench.example.com"

// BenchmarkChallenge is the answer to an unsigned request: the handler alone,
// which may ask nobody.
func BenchmarkChallenge(b *testing.B) {
	r := httptest.NewRequest(http.MethodGet, catalog.DNS().ExampleURL(""), nil)
	r.Header.Set("Accept", "application/json")
	askUnpaid(b, func() *http.Request { return r }, paths, http.StatusPaymentRequired)
}

// BenchmarkToolChallenge is BenchmarkChallenge by a call of the tool.
func BenchmarkToolChallenge(b *testing.B) {
	body := toolCall(b, catalog.DNS().Tool, "")
	askUnpaid(b, func() *http.Request {
		return httptest.NewRequest(http.MethodPost, catalog.PathMCP, bytes.NewReader(body))
	}, tools, http.StatusOK)
}

// paths and tools are the handlers that are measured.
func paths(p boot.Parts) http.Handler { return p.Seller.Handler(service.DNS(p.Resolver)) }
func tools(p boot.Parts) http.Handler { return p.Seller.MCP(operations.All(p)) }

// askUnpaid measures requests without a payment.
func askUnpaid(b *testing.B, request func() *http.Request, open func(boot.Parts) http.Handler, status int) {
	b.Helper()
	l, c := newLab(b), newControls(b)
	c.log.Discard = true
	s := l.setup()
	s.more = map[string]string{"LOG_LEVEL": "info"}
	h := open(c.wire(b, s, benchOrigin, c.inMemory()))
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, request())
	}
	asked := l.asked() + c.store.Calls(ledgertest.Create) + c.store.Calls(ledgertest.Replace) + c.store.Calls(ledgertest.Fetch)
	b.ReportMetric(float64(asked), "network-calls")
	if w.status != status || asked != 0 {
		b.Fatalf("status %d after %d calls to the network", w.status, asked)
	}
}

// BenchmarkPaidDNS is a paid lookup in this process: ledger in memory,
// facilitator and resolver on loopback. Signing is the client's and not
// counted.
func BenchmarkPaidDNS(b *testing.B) {
	path := lookup("example.com", "MX")
	request := func(header string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if header != "" {
			r.Header.Set(x402.HeaderSignature, header)
			r.Header.Set(x402.HeaderKey, rand.Text()) // else it is the purchase of before
		}
		return r
	}
	askPaid(b, request, paths, func(w *httptest.ResponseRecorder) (x402.PaymentRequired, error) {
		return x402test.Reply{Status: w.Code, Header: w.Header()}.Required()
	})
}

// BenchmarkToolPaid is BenchmarkPaidDNS by a call of the tool.
func BenchmarkToolPaid(b *testing.B) {
	request := func(header string) *http.Request {
		body := bytes.NewReader(toolCall(b, catalog.DNS().Tool, header))
		return httptest.NewRequest(http.MethodPost, catalog.PathMCP, body)
	}
	askPaid(b, request, tools, func(w *httptest.ResponseRecorder) (x402.PaymentRequired, error) {
		var answer struct{ Result x402test.ToolResult }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			return x402.PaymentRequired{}, err
		}
		return answer.Result.Required()
	})
}

// askPaid measures requests with a payment, each for another purchase. offer reads
// the answer to a request without one.
func askPaid(b *testing.B, request func(header string) *http.Request, open func(boot.Parts) http.Handler,
	offer func(*httptest.ResponseRecorder) (x402.PaymentRequired, error),
) {
	b.Helper()
	l, c := newLab(b), newControls(b)
	c.log.Discard = true
	h := open(c.wire(b, l.setup(), benchOrigin, boot.Stores{Ledger: c.memory, Limits: &limit.Memory{}}))
	wallet, payer := l.wallet(b)
	challenge := httptest.NewRecorder()
	h.ServeHTTP(challenge, request(""))
	required, err := offer(challenge)
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
		r, w := request(header), httptest.NewRecorder()
		b.StartTimer()
		h.ServeHTTP(w, r)
		if n++; w.Code != http.StatusOK || bytes.Contains(w.Body.Bytes(), []byte(`"isError"`)) {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	if err := l.books(payer, catalog.DNS().Amount, n, n); err != nil {
		b.Fatal(err)
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

// BenchmarkColdStart is from starting the deployed binary of each function until
// its first answer, a 402 of what is sold, and the memory that it holds then.
func BenchmarkColdStart(b *testing.B) {
	l := newLab(b)
	s := l.setup()
	s.table, s.endpoint = "bench", "http://"+testbed.FreeAddr(b)
	d := s.functions(b, nil)
	config, err := lambdahost.FromTemplate(filepath.Join(root, "template.yaml"), d.Functions, d.Parameters, d.Environment)
	if err != nil {
		b.Fatal(err)
	}
	d.Configure(&config)
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

// BenchmarkMemory is the resident memory of the deployed dns function after
// 1,000 paid requests, each for another name (design §12).
func BenchmarkMemory(b *testing.B) {
	const requests = 1000
	if runtime.GOOS != "linux" {
		b.Skip("needs /proc to read the memory of a process")
	}
	for b.Loop() {
		l := newLab(b)
		db := dynamotest.Start(b)
		s, pid := l.setup(), 0
		s.table, s.endpoint = db.Table(b), db.URL
		d := openFunctions(b, l, s, func(c *lambdahost.Config) { c.OnSpawn = func(p lambdahost.Process) { pid = p.PID } })
		batch := newBatch(b, l, fleetOf(d), requests, modeHealthy)
		first := 0
		for i, p := range batch.payments {
			if e := d.get(b, batch.client, p.path, p.header); e.status != 200 || e.header.Get(x402.HeaderResponse) == "" {
				b.Fatalf("payment %d: %s", i, e)
			}
			if i == 0 {
				first = resident(b, pid, "VmRSS")
			}
		}
		batch.booked(catalog.DNS(), requests, requests)
		if n := d.host.Stats(dnsFunction).Spawned; n != 1 {
			b.Fatalf("%d processes, want one", n)
		}
		b.ReportMetric(0, "ns/op") // it would count the suite's own work
		b.ReportMetric(float64(first)/1024, "MB/first")
		b.ReportMetric(float64(resident(b, pid, "VmRSS"))/1024, "MB/1000th")
		b.ReportMetric(float64(resident(b, pid, "VmHWM"))/1024, "MB/peak")
	}
}

// resident reads a line of a process's status, in kB.
func resident(tb testing.TB, pid int, name string) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name+":" && fields[2] == "kB" {
			if n, err := strconv.Atoi(fields[1]); err == nil {
				return n
			}
		}
	}
	tb.Fatalf("the status of process %d has no %s", pid, name)
	return 0
}

// sink takes an answer and keeps the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
