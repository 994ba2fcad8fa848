package service_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A client over its rate gets 429 from every message to the tools, and still reads the
// documents, to which the error points, and /ready, until it is over their own rate;
// /health has no limit. The priced paths and the tools are in TestRequests.
func TestRateLimited(t *testing.T) {
	s := newShop(t, perMinute(20))
	for range 30 { // a payment that is none counts, too
		s.get(dnsPath, "garbage!")
	}
	for range 10 {
		same(t, "the documents", s.get("/robots.txt", "").Status, http.StatusOK)
		same(t, "whether it is ready", s.get("/ready", "").Status, http.StatusOK)
	}
	for _, path := range []string{"/v1/catalog", "/docs", "/nowhere", "/ready"} {
		r, w := s.get(path, ""), way{shop: s}
		w.expect(w.reply(r), 429, "rate_limited", "false")
		if path != "/ready" && r.Header.Get("Vary") != "Accept-Encoding" || r.Header.Get("ETag") != "" || r.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %v", path, r.Header)
		}
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, `{`, `{"jsonrpc":"2.0","method":"notifications/x"}`,
	} {
		r := s.send(http.MethodPost, "/mcp", body)
		text := string(r.Body)
		if r.Status != http.StatusTooManyRequests || r.RetryAfter() == 0 ||
			!strings.Contains(text, `"code":"rate_limited"`) || !strings.Contains(text, `"jsonrpc":"2.0"`) {
			t.Errorf("%s: %d %s", body, r.Status, text)
		}
	}
	same(t, "health, which has no limit", s.get("/health", "").Status, http.StatusOK)
}

// An answer without a payment weighs a unit for each started 16 KB that leave us, and the
// page and the list of tools leave compressed where that is taken. What is over the limit
// only by its size is served, and the next request is not.
func TestSizesInUnits(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	s, left := newShop(t, perMinute(300)), 300
	for _, c := range []struct{ method, path, body, accept, encoding string }{
		{"GET", dnsPath, "", "application/json", "gzip"}, {"HEAD", dnsPath, "", "text/html", "identity"},
		{"GET", dnsPath, "", "text/html", "identity"}, {"GET", dnsPath, "", "text/html", "gzip"},
		{"POST", "/mcp", list, "application/json, text/event-stream", "identity"}, {"POST", "/mcp", list, "application/json, text/event-stream", "gzip"},
	} {
		r := s.send(c.method, c.path, c.body, "Accept", c.accept, "Accept-Encoding", c.encoding, "Content-Type", "application/json")
		left -= 1 + max(len(r.Body)-1, 0)/(16<<10)
		zipped := c.encoding == "gzip" && c.accept != "application/json"
		if got := r.Header.Get("RateLimit"); !strings.Contains(got, fmt.Sprintf(";r=%d;", left)) || zipped != (r.Header.Get("Content-Encoding") == "gzip") {
			t.Errorf("%v: %v after %d bytes, want %d left", c, r.Header, len(r.Body), left)
		} else if zipped {
			text := must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(r.Body)))))
			if len(text) < 2*len(r.Body) || len(r.Body) > 20<<10 {
				t.Errorf("%v: %d bytes of %d", c, len(r.Body), len(text))
			}
		}
	}
	s = newShop(t, perMinute(2))
	for _, want := range []int{200, 429} { // by its size alone
		same(t, "the documentation", s.send(http.MethodGet, "/docs", "", "Accept-Encoding", "identity").Status, want)
	}
}

// A failed correction of a client's count is logged, and does not change the answer.
func TestRateLimitNotCorrected(t *testing.T) {
	s := newShop(t, perMinute(300))
	s.resolver = func() (dns.Result, error) {
		s.uncounts.Store(true) // after the request was counted
		return noRecords(dns.Query{Domain: "example.com"}), nil
	}
	s.buy(dnsPath)
	if !strings.Contains(s.log.String(), "rate limit not corrected") {
		t.Error("nothing is logged")
	}
}

// A service that lacks an operation of the catalog does not start, and says
// which.
func TestEveryOperationIsServed(t *testing.T) {
	seller := newFleet(t, 1, explorer).parts.seller()
	for i, op := range every(nil) {
		same(t, "the order", op.Entry().Slug, catalog.All()[i].Slug)
		without := slices.Delete(every(nil), i, i+1)
		_, err := service.All(seller, without, nil, nil)
		if err == nil || !strings.HasSuffix(err.Error(), " "+op.Entry().Slug) {
			t.Errorf("without %s: %v", op.Entry().Slug, err)
		}
	}
}

// The documents of an origin are kept: a proof that is wrong is left out of them once, with
// a warning.
func TestDocumentsAreKept(t *testing.T) {
	var log bytes.Buffer
	p := platform()
	p.Log = slog.New(slog.NewJSONHandler(&log, nil))
	h := service.Discovery(p, service.Offering{Site: discovery.Site{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}}, nil)
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/catalog", nil))
		same(t, w.Body.String(), w.Code, http.StatusOK)
		same(t, "warnings", strings.Count(log.String(), "ownership proof left out"), 1)
	}
}

// The README says what the ledger does.
func TestReadmeSaysWhatTheLedgerDoes(t *testing.T) {
	text := strings.Join(strings.Fields(string(must(os.ReadFile("../../README.md")))), " ")
	var waits []string
	for n := 1; n < ledger.MaxLookups; n++ {
		waits = append(waits, fmt.Sprint(int(ledger.NextLookup(ledger.Record{Lookups: n}).Seconds())))
	}
	last := len(waits) - 1
	for _, want := range []string{
		fmt.Sprintf("up to %d in all within %d hours, at least %s and %s seconds apart",
			ledger.MaxLookups, int(ledger.OwedFor.Hours()), strings.Join(waits[:last], ", "), waits[last]),
		fmt.Sprintf("returns the stored answer for %d hours", int(ledger.KeptFor.Hours())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// The record types that the catalog lists are those that the lookup takes.
func TestRecordTypesAreTheLookups(t *testing.T) {
	listed := catalog.DNS().Params[1].Enum
	var taken []string
	for _, kind := range append(listed, "SRV", "PTR", "ANY", "CAA") {
		if got, err := dns.TypeParam(url.Values{"type": {kind}}, "type"); err == nil {
			taken = append(taken, got)
		}
	}
	if d := cmp.Diff(listed, taken); d != "" {
		t.Errorf("record types (-catalog +lookup):\n%s", d)
	}
}
