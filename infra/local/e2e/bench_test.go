package e2e

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func newDNSHandler(p boot.Components) http.Handler { return p.Seller.Handler(service.DNS(p.Resolver)) }

// openBench returns a service that runs in this process. The ledger of the service is a store
// in memory that counts calls.
func openBench(b *testing.B, open func(boot.Components) http.Handler, level string) (*lab, *ledgertest.Faulty, http.Handler) {
	l := newLab(b)
	store := ledgertest.NewFaulty(b, &ledgertest.Memory{}, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault { return ledgertest.None })
	env := l.setup().env
	env["LOG_LEVEL"], env["BASE_URL"] = level, "https://bench.example.com"
	config := testbed.Must(boot.ParseLocal(func(name string) string { return env[name] }))
	log := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: config.LogLevel}))
	stores := boot.Stores{Ledger: store, Limits: &limit.Memory{}}
	return l, store, open(testbed.Must(config.Components(stores, log, time.Now)))
}

func BenchmarkChallenge(b *testing.B) {
	benchUnsigned(b, newDNSHandler, http.MethodGet, lookUp("example.com", "MX"), "", http.StatusPaymentRequired)
}

func BenchmarkToolChallenge(b *testing.B) {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + catalog.DNS().Tool +
		`","arguments":{"domain":"example.com","type":"MX"}}}`
	sells := func(p boot.Components) http.Handler { return p.Seller.MCP(operations.All(p)) }
	benchUnsigned(b, sells, http.MethodPost, catalog.PathMCP, body, http.StatusOK)
}

// benchUnsigned measures how the handler answers an unsigned request. The handler must not
// call the facilitator, the resolver or the ledger.
func benchUnsigned(b *testing.B, open func(boot.Components) http.Handler, method, path, body string, status int) {
	l, store, h := openBench(b, open, "info")
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept", "application/json")
	got := 0
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		w.Body = nil // do not store the body
		r.Body = io.NopCloser(bytes.NewReader([]byte(body)))
		h.ServeHTTP(w, r)
		got = w.Code
	}
	settled, _ := l.facilitator.Settles()
	asked := settled + l.facilitator.Verifies() + len(l.dns.questions)
	for _, op := range []ledgertest.Op{ledgertest.Create, ledgertest.Replace, ledgertest.Fetch} {
		asked += store.Calls(op)
	}
	b.ReportMetric(float64(asked), "network-calls")
	if got != status || asked != 0 {
		b.Fatalf("status %d after %d calls to the network", got, asked)
	}
}

// BenchmarkPaidDNS measures a paid lookup in this process. Each lookup is a new purchase. The
// ledger is in memory, and the facilitator and the resolver are on loopback. Signing is work of
// the client and is not measured.
func BenchmarkPaidDNS(b *testing.B) {
	l, _, h := openBench(b, newDNSHandler, "debug")
	p := newRun(b, l, nil, new(testbed.Pace))
	send := func(header http.Header) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, lookUp("example.com", "MX"), nil), httptest.NewRecorder()
		r.Header = header
		h.ServeHTTP(w, r)
		return w
	}
	required := testbed.Must(x402test.Reply{Header: send(http.Header{"Accept": {"application/json"}}).Header()}.Required())
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		header := http.Header{}
		header.Set(x402.HeaderSignature, testbed.Must(p.wallet.Pay(required, time.Now())))
		header.Set(x402.HeaderKey, rand.Text()) // a key that was used before would repeat the earlier purchase
		b.StartTimer()
		w := send(header)
		if n++; w.Code != http.StatusOK {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	p.checkSettlements(n, n)
}

// BenchmarkMemory measures the resident memory of the deployed dns function after 1,000 paid
// requests, each for a different name (design §12).
func BenchmarkMemory(b *testing.B) {
	const requests = 1000
	if runtime.GOOS != "linux" {
		b.Skip("needs /proc to read the memory of a process")
	}
	for b.Loop() {
		l, db := newLab(b), cloud.StartDynamo(b)
		s, pid := l.setup(), 0
		s.table, s.endpoint = db.Table(b), db.URL
		d := openFunctions(b, l, s, func(p *cloud.Execution, _ []byte) { pid = p.PID })
		batch := newBatch(b, l, []*deployment{d}, requests)
		for i, p := range batch.payments {
			if e := batch.ask(http.MethodGet, lookUp(p.name, "A"), x402.HeaderSignature, p.header); e.Status != http.StatusOK {
				b.Fatalf("payment %d: %s", i, e)
			}
		}
		batch.checkSettlements(requests, requests)
		checkEqual(b, "processes", d.host.Started("DnsFunction"), 1)
		b.ReportMetric(0, "ns/op") // hides ns/op, which would include the work of this suite
		b.ReportMetric(float64(programs.Memory(b, pid, "VmRSS"))/1024, "MB/1000th")
	}
}
