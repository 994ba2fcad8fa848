package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type selling struct {
	open    func(boot.Parts) http.Handler
	request func(header string) *http.Request // header is a PAYMENT-SIGNATURE, or empty
	status  int                               // of an answer to a request without one, which offer reads
	offer   func(*httptest.ResponseRecorder) (x402.PaymentRequired, error)
}

var byPath = selling{
	func(p boot.Parts) http.Handler { return p.Seller.Handler(service.DNS(p.Resolver)) },
	func(header string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, lookup("example.com", "MX"), nil)
		r.Header.Set("Accept", "application/json")
		if header != "" {
			r.Header.Set(x402.HeaderSignature, header)
			r.Header.Set(x402.HeaderKey, rand.Text()) // else it is the purchase of before
		}
		return r
	},
	http.StatusPaymentRequired,
	func(w *httptest.ResponseRecorder) (x402.PaymentRequired, error) {
		return x402test.Reply{Status: w.Code, Header: w.Header()}.Required()
	},
}

var byTool = selling{
	func(p boot.Parts) http.Handler { return p.Seller.MCP(operations.All(p)) },
	func(header string) *http.Request {
		meta := map[string]any{}
		if header != "" {
			meta[mcp.KeyPayment] = json.RawMessage(must(base64.StdEncoding.DecodeString(header)))
			meta[mcp.KeyPurchase] = rand.Text() // else it is the purchase of before
		}
		body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodCall, "params": map[string]any{
			"name": catalog.DNS().Tool, "arguments": map[string]any{"domain": "example.com", "type": "MX"}, "_meta": meta,
		}}))
		return httptest.NewRequest(http.MethodPost, catalog.PathMCP, bytes.NewReader(body))
	},
	http.StatusOK,
	func(w *httptest.ResponseRecorder) (x402.PaymentRequired, error) {
		var answer struct{ Result x402test.ToolResult }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			return x402.PaymentRequired{}, err
		}
		return answer.Result.Required()
	},
}

// The answer to an unsigned request: the handler alone, which may ask nobody.
func BenchmarkChallenge(b *testing.B)     { byPath.unpaid(b) }
func BenchmarkToolChallenge(b *testing.B) { byTool.unpaid(b) }

// A paid lookup in this process: ledger in memory, facilitator and resolver on
// loopback. Signing is the client's and not counted.
func BenchmarkPaidDNS(b *testing.B)  { byPath.paid(b) }
func BenchmarkToolPaid(b *testing.B) { byTool.paid(b) }

func (s selling) handler(b *testing.B, l *lab, level string) (http.Handler, *controls) {
	c, set := newControls(b), l.setup()
	c.log.Discard = true
	set.more["LOG_LEVEL"] = level
	return s.open(c.wire(set, "https://bench.example.com", c.inMemory())), c
}

func (s selling) unpaid(b *testing.B) {
	l := newLab(b)
	h, c := s.handler(b, l, "info")
	w := &sink{header: http.Header{}}
	r := s.request("")
	body := must(io.ReadAll(r.Body))
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	}
	settled, _ := l.facilitator.Settles()
	asked := settled + l.facilitator.Verifies() + len(l.dns.asked)
	for _, op := range []ledgertest.Op{ledgertest.Create, ledgertest.Replace, ledgertest.Fetch} {
		asked += c.store.Calls(op)
	}
	b.ReportMetric(float64(asked), "network-calls")
	if w.status != s.status || asked != 0 {
		b.Fatalf("status %d after %d calls to the network", w.status, asked)
	}
}

// paid measures requests with a payment, each for another purchase.
func (s selling) paid(b *testing.B) {
	l := newLab(b)
	h, _ := s.handler(b, l, "debug")
	wallet, payer := l.wallet(b)
	challenge := httptest.NewRecorder()
	h.ServeHTTP(challenge, s.request(""))
	required := must(s.offer(challenge))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r, w := s.request(must(wallet.Pay(required, time.Now()))), httptest.NewRecorder()
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

// BenchmarkColdStart is from starting the deployed binary of each function until
// its first answer, a 402 of what is sold, and the memory that it holds then.
func BenchmarkColdStart(b *testing.B) {
	l := newLab(b)
	s := l.setup()
	s.table, s.endpoint = "bench", "http://"+testbed.FreeAddr(b)
	d := s.functions(b, nil)
	config := must(lambdahost.FromTemplate(filepath.Join(root, "template.yaml"), d.Functions, d.Parameters, d.Environment))
	d.Configure(&config)
	for _, f := range firstRequests() {
		b.Run(f.slug, func(b *testing.B) { f.coldStart(b, config) })
	}
}

// firstRequest is what a function is asked first. The body is sent anew each time.
type firstRequest struct {
	slug, function     string // its name in the template
	method, path, body string
	status             int
}

func firstRequests() []firstRequest {
	list := []firstRequest{
		{"discovery", "DiscoveryFunction", http.MethodGet, catalog.PathOpenAPI, "", http.StatusOK},
		{"health", "HealthFunction", http.MethodGet, catalog.PathHealth, "", http.StatusOK},
		{"mcp", "McpFunction", http.MethodPost, catalog.PathMCP, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.StatusOK},
	}
	for _, op := range catalog.All() {
		name := ""
		for word := range strings.SplitSeq(op.Slug, "-") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		list = append(list, firstRequest{op.Slug, name + "Function", http.MethodGet, op.ExampleURL(""), "", http.StatusPaymentRequired})
	}
	return list
}

func (f firstRequest) coldStart(b *testing.B, config lambdahost.Config) {
	pid := 0
	config.OnSpawn = func(p lambdahost.Process) { pid = p.PID }
	var first, init time.Duration
	memory, n := 0, 0
	for b.Loop() {
		host, w := must(lambdahost.New(config)), httptest.NewRecorder()
		host.ServeHTTP(w, httptest.NewRequest(f.method, f.path, strings.NewReader(f.body)))
		cold := host.Stats(f.function).Cold
		if runtime.GOOS == "linux" {
			memory += testbed.Memory(b, pid, "VmRSS")
		}
		host.Close()
		if w.Code != f.status || len(cold) != 1 {
			b.Fatalf("status %d, %d cold starts: %s", w.Code, len(cold), w.Body)
		}
		first, init, n = first+cold[0].First, init+cold[0].Init, n+1
	}
	size := must(os.Stat(filepath.Join(testbed.Functions(b), f.slug, "bootstrap")))
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
		db := testbed.StartDynamo(b)
		s, pid := l.setup(), 0
		s.table, s.endpoint = db.Table(b), db.URL
		d := openFunctions(b, l, s, func(c *lambdahost.Config) { c.OnSpawn = func(p lambdahost.Process) { pid = p.PID } })
		batch := newBatch(b, l, &fleet{members: []*deployment{d}}, requests)
		first := 0
		for i, p := range batch.payments {
			if e := d.get(b, batch.client, p.path, p.header); e.status != 200 || e.header.Get(x402.HeaderResponse) == "" {
				b.Fatalf("payment %d: %s", i, e)
			}
			if i == 0 {
				first = testbed.Memory(b, pid, "VmRSS")
			}
		}
		batch.booked(catalog.DNS(), requests, requests)
		if n := d.host.Stats(dnsFunction).Spawned; n != 1 {
			b.Fatalf("%d processes, want one", n)
		}
		b.ReportMetric(0, "ns/op") // it would count the suite's own work
		b.ReportMetric(float64(first)/1024, "MB/first")
		b.ReportMetric(float64(testbed.Memory(b, pid, "VmRSS"))/1024, "MB/1000th")
		b.ReportMetric(float64(testbed.Memory(b, pid, "VmHWM"))/1024, "MB/peak")
	}
}

type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
