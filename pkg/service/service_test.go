package service_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// What a request costs, by counting: a challenge nothing at all, a paid one four
// ledger writes, two slot updates, no read and one facilitator call. Another
// signature for the same question is its claim, the purchase, which is another's,
// that one's record, and its own end. The smoke test takes no slot.
func TestWhatARequestCosts(t *testing.T) {
	s := newShop(t, perMinute(300), slots(50))
	type cost struct{ writes, reads, calls, slots, counts int }
	var all cost
	costs := func(what string, more cost) {
		t.Helper()
		before := all
		all.writes, all.reads = s.store.Calls(ledgertest.Create)+s.store.Calls(ledgertest.Replace), s.store.Calls(ledgertest.Fetch)
		all.calls = int(s.dials.Load())
		for _, c := range s.limits.Calls() {
			if c.Units == 0 {
				all.slots++
			} else {
				all.counts++
			}
		}
		same(t, what, cost{
			all.writes - before.writes, all.reads - before.reads, all.calls - before.calls, all.slots - before.slots, all.counts - before.counts,
		}, more)
	}
	s.offer(dnsPath)
	costs("a challenge", cost{})
	s.buy(dnsPath)
	costs("a paid lookup", cost{4, 0, 1, 2, 2})
	s.buy(dnsPath)
	costs("another signature", cost{3, 1, 0, 0, 2})
	s.buy("/v1/tools/ping")
	costs("the smoke test", cost{3, 0, 1, 0, 2})
}

// A client over its rate gets 429 from the documents and from every message to the
// tools, and health has no limit. The priced paths and the tools are in TestRequests.
func TestRateLimited(t *testing.T) {
	s := newShop(t, perMinute(20))
	for range 30 { // a payment that is none counts, too
		s.get(dnsPath, "garbage!")
	}
	for _, path := range []string{"/v1/catalog", "/docs", "/nowhere"} {
		r := s.get(path, "")
		way{shop: s}.expect(way{shop: s}.reply(r), 429, "rate_limited", "false")
		if r.Header.Get("Vary") != "Accept-Encoding" || r.Header.Get("ETag") != "" || r.Header.Get("RateLimit-Policy") == "" {
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
	if r := s.get("/health", ""); r.Status != http.StatusOK {
		t.Errorf("health is limited: %d", r.Status)
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
	seller := newFleet(1, explorer).parts.seller()
	for i, op := range every(t, nil) {
		same(t, "the order", op.Entry().Slug, catalog.All()[i].Slug)
		without := slices.Delete(every(t, nil), i, i+1)
		_, err := service.All(seller, without, nil, nil)
		if err == nil || !strings.HasSuffix(err.Error(), " "+op.Entry().Slug) {
			t.Errorf("without %s: %v", op.Entry().Slug, err)
		}
	}
}

// The documents of an origin that is known are made before the first request, and
// only once: a proof that is wrong is left out of them with a warning.
func TestDocumentsAreRenderedAtStart(t *testing.T) {
	for _, origins := range [][]string{nil, {"https://api.example.com"}} {
		var log bytes.Buffer
		p := platform()
		p.Log = slog.New(slog.NewJSONHandler(&log, nil))
		rendered := func() int { return strings.Count(log.String(), "ownership proof left out") }
		offering := service.Offering{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}
		h := service.Discovery(p, offering, nil, origins...)
		before := rendered()
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/catalog", nil))
			same(t, w.Body.String(), w.Code, http.StatusOK)
		}
		if after := rendered(); before != len(origins) || after != 1 {
			t.Errorf("origins %v: rendered %d times at start, %d in all", origins, before, after)
		}
	}
}
