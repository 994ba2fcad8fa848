package service_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestRateLimited checks a client that exceeds the rate limit of the priced paths and /mcp.
// Every message to /mcp must get 429. /ready and the documents must still be served, because
// the error links to the documents. They have a separate limit, and a client that exceeds it
// must get 429 for them. /health has no limit. TestRequests covers the priced paths and the
// calls of tools.
func TestRateLimited(t *testing.T) {
	s := newShop(t, perMinute(20))
	for range 30 { // an invalid payment counts as much as any other request
		s.get(dnsPath, "garbage!")
	}
	for range 10 {
		checkEqual(t, "the documents", s.get("/robots.txt", "").Status, http.StatusOK)
		checkEqual(t, "whether it is ready", s.get("/ready", "").Status, http.StatusOK)
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
	checkEqual(t, "health, which has no limit", s.get("/health", "").Status, http.StatusOK)
}

// TestSizesInUnits checks that an answer without a payment costs one unit for each 16 KB of
// the response, rounded up. The page and the list of tools are compressed if the client
// accepts gzip. If only the size of an answer exceeds the limit, the request is served, and
// the next request is not.
func TestSizesInUnits(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	s, left := newShop(t, perMinute(300)), 300
	for _, c := range []struct{ method, path, body, accept, encoding string }{
		{method: "GET", path: dnsPath, accept: "application/json", encoding: "gzip"},
		{method: "HEAD", path: dnsPath, accept: "text/html", encoding: "identity"},
		{method: "GET", path: dnsPath, accept: "text/html", encoding: "identity"}, {method: "GET", path: dnsPath, accept: "text/html", encoding: "gzip"},
		{method: "POST", path: "/mcp", body: list, accept: "application/json, text/event-stream", encoding: "identity"},
		{method: "POST", path: "/mcp", body: list, accept: "application/json, text/event-stream", encoding: "gzip"},
	} {
		r := s.send(c.method, c.path, c.body, "Accept", c.accept, "Accept-Encoding", c.encoding, "Content-Type", "application/json")
		left -= 1 + max(len(r.Body)-1, 0)/(16<<10)
		zipped := c.encoding == "gzip" && c.accept != "application/json"
		if got := r.Header.Get("RateLimit"); !strings.Contains(got, fmt.Sprintf(";r=%d;", left)) || zipped != (r.Header.Get("Content-Encoding") == "gzip") {
			t.Errorf("%v: %v after %d bytes, want %d left", c, r.Header, len(r.Body), left)
		} else if zipped {
			text := testbed.Must(io.ReadAll(testbed.Must(gzip.NewReader(bytes.NewReader(r.Body)))))
			if len(text) < 2*len(r.Body) || len(r.Body) > 20<<10 {
				t.Errorf("%v: %d bytes of %d", c, len(r.Body), len(text))
			}
		}
	}
	s = newShop(t, perMinute(2))
	for _, want := range []int{200, 429} { // the first answer exceeds the limit, but only by its size
		checkEqual(t, "the documentation", s.send(http.MethodGet, "/docs", "", "Accept-Encoding", "identity").Status, want)
	}
}

// TestRateLimitNotCorrected checks what happens if the rate limit cannot correct a client's
// count after the lookup. The failure must be logged, and must not change the answer.
func TestRateLimitNotCorrected(t *testing.T) {
	s := newShop(t, perMinute(300))
	s.resolver = func() (dns.Result, error) {
		s.failCounts.Store(true) // the request has been counted by now, so only the correction fails
		return noRecords(dns.Query{Domain: "example.com"}), nil
	}
	s.buy(dnsPath)
	if !strings.Contains(s.log.String(), "rate limit not corrected") {
		t.Error("nothing is logged")
	}
}

// TestEveryOperationIsServed checks that a service does not start if it lacks an operation of
// the catalog. The error must name the operation.
func TestEveryOperationIsServed(t *testing.T) {
	seller := newFleet(t, 1, dnsExplorer).parts.seller()
	for i, op := range allOperations(nil) {
		checkEqual(t, "the order", op.Entry().Slug, catalog.All()[i].Slug)
		without := slices.Delete(allOperations(nil), i, i+1)
		_, err := service.All(seller, without, nil, nil)
		if err == nil || !strings.HasSuffix(err.Error(), " "+op.Entry().Slug) {
			t.Errorf("without %s: %v", op.Entry().Slug, err)
		}
	}
}

// TestDocumentsAreKept checks that the documents of an origin are made only once. If an
// ownership proof is invalid, they omit it, and the log has one warning.
func TestDocumentsAreKept(t *testing.T) {
	var log bytes.Buffer
	p := platform()
	p.Log = slog.New(slog.NewJSONHandler(&log, nil))
	h := service.Discovery(p, service.Offering{Site: discovery.Site{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}}, nil)
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/x402", nil))
		checkEqual(t, w.Body.String(), strings.Contains(w.Body.String(), `"ownershipProofs":[]`), true)
		checkEqual(t, "warnings", strings.Count(log.String(), "ownership proof left out"), 1)
	}
}

// tokenOf returns the retry token in the extensions of an offer.
func tokenOf(raw []byte) string {
	var offer struct {
		Extensions map[string]struct{ Info struct{ Token string } }
	}
	if err := json.Unmarshal(raw, &offer); err != nil {
		return err.Error()
	}
	return offer.Extensions[x402.ExtensionToken].Info.Token
}

// TestReasonOf402 checks that the log line of every 402 gives the reason, whether the 402 is
// JSON, a page, a response without a body or the refusal of a payment. Every challenge must
// have a new retry token, the same one in the header and in the body.
func TestReasonOf402(t *testing.T) {
	const unsigned, head = "the request has no PAYMENT-SIGNATURE", "HEAD returns the offer and is never charged"
	const page, garbage = "text/html", "PAYMENT-SIGNATURE is not acceptable JSON: not valid JSON"
	s, seen := newShop(t), map[string]bool{}
	twice, another := s.sign(dnsPath), s.sign(catalog.Ping().Path)
	embedded := regexp.MustCompile(`data-offer='([^']*)'`)
	for _, c := range []struct {
		method, accept string
		signatures     []string
		reason         string
	}{
		{"GET", "", nil, unsigned}, {"GET", "application/json", nil, unsigned}, {"GET", page, nil, unsigned},
		{"HEAD", "", nil, head}, {"HEAD", page, nil, head}, {"HEAD", "*/*", []string{"garbage"}, head},
		{"GET", "*/*", []string{""}, garbage}, {"GET", page, []string{""}, garbage},
		{"GET", "", []string{twice, twice}, "PAYMENT-SIGNATURE was sent 2 times"},
		{"GET", "", []string{another}, "accepted.amount is \"1000\", the offer says 5000"},
	} {
		headers := []string{"Accept", c.accept, "Cookie", "sid=SECRET", "User-Agent", "SECRET"}
		for _, h := range c.signatures {
			headers = append(headers, x402.HeaderSignature, h)
		}
		r := s.send(c.method, dnsPath, "", headers...)
		line, header := s.lineOf(r.Header.Get("X-Request-Id")), r.Header.Get(x402.HeaderRequired)
		if r.Status != http.StatusPaymentRequired || line["code"] != "payment_required" || line["reason"] != c.reason {
			t.Errorf("%+v: status %d, code %v, reason %q", c, r.Status, line["code"], line["reason"])
		}
		token := tokenOf(testbed.Must(base64.StdEncoding.DecodeString(header)))
		if len(token) != 22 || seen[token] {
			t.Errorf("%+v: token %q after %v", c, token, seen)
		}
		seen[token] = true
		switch {
		case c.method == http.MethodHead:
		case c.accept == page && c.signatures == nil:
			offer := embedded.FindSubmatch(r.Body)
			if offer == nil {
				t.Fatalf("%+v: the page has no offer", c)
			}
			onPage := []byte(html.UnescapeString(string(offer[1])))
			checkEqual(t, "the token of the page", tokenOf(onPage), token)
			checkEqual(t, "the terms of the page", termsOf(t, onPage), termsOf(t, testbed.Must(base64.StdEncoding.DecodeString(header))))
		default:
			checkEqual(t, "the token of the body of a "+c.method, tokenOf(r.Body), token)
		}
	}
	s.checkLogSecrets("SECRET")
}

// TestPagesByWhoAsks checks which requests get a page. Pages must have the headers with which
// browsers protect pages, and data must not have them. For an unknown path, a person gets a
// page. Any other request gets an error: a request from a program, with a payment, with
// another method, or below /.well-known. A page of another origin may read the headers about a
// purchase.
func TestPagesByWhoAsks(t *testing.T) {
	s := newShop(t)
	const browser, markup = "text/html,application/xhtml+xml,*/*;q=0.8", "/v1/tools/<script>"
	const exposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
		"RateLimit-Policy, RateLimit, X-Request-Id"
	for _, c := range []struct {
		method, path, accept, signature string
		status                          int
		page                            bool
	}{
		{method: "GET", path: "/docs", status: 200, page: true},
		{method: "HEAD", path: "/docs", status: 200, page: true},
		{method: "GET", path: "/v1/catalog", accept: browser, status: 200},
		{method: "GET", path: "/health", accept: browser, status: 200},
		{method: "GET", path: dnsPath, accept: browser, status: 402, page: true},
		{method: "HEAD", path: dnsPath, accept: browser, status: 402, page: true},
		{method: "GET", path: dnsPath, status: 402},
		{method: "GET", path: markup, accept: browser, status: 404, page: true},
		{method: "HEAD", path: markup, accept: browser, status: 404, page: true},
		{method: "GET", path: markup, accept: "*/*", status: 404},
		{method: "GET", path: markup, accept: browser, signature: "garbage", status: 404},
		{method: "POST", path: markup, accept: browser, status: 404},
		{method: "GET", path: "/.well-known/agent-card.json", accept: browser, status: 404},
		{method: strings.Repeat("A", 100_000), path: dnsPath, accept: browser, status: 405},
	} {
		headers := []string{"Accept", c.accept, "Origin", "https://other.example"}
		if c.signature != "" {
			headers = append(headers, x402.HeaderSignature, c.signature)
		}
		r := s.send(c.method, c.path, "", headers...)
		s.lineOf(r.Header.Get("X-Request-Id")) // fails unless there is exactly one line
		s.checkLogSecrets("script", "agent-card")
		body, h := string(r.Body), r.Header
		policy := h.Get("Content-Security-Policy")
		page := fmt.Sprint(h.Values("Strict-Transport-Security"), h.Values("Cross-Origin-Opener-Policy"), h.Values("Permissions-Policy"))
		want := map[bool]string{false: "[] [] []", true: "[max-age=31536000] [same-origin-allow-popups] " +
			"[camera=(), display-capture=(), geolocation=(), microphone=(), payment=()]"}[c.page]
		checkEqual(t, "exposed", h.Get("Access-Control-Expose-Headers"), exposed)
		if r.Status != c.status || strings.HasPrefix(h.Get("Content-Type"), "text/html") != c.page || (policy != "") != c.page || page != want {
			t.Errorf("%.99s %s: %d %v: %.200s", c.method, c.path, r.Status, h, body)
		}
		if c.status != http.StatusNotFound {
			continue
		}
		safe := strings.Contains(policy, "default-src 'none'") && !strings.Contains(policy, "unsafe") && !strings.Contains(body, "script")
		if h.Get("Vary") != "Accept, PAYMENT-SIGNATURE" || h.Get("Cache-Control") != "no-store" || c.page == strings.Contains(body, `"unknown_path"`) ||
			c.page && (!safe || (c.method == "HEAD") != (body == "")) {
			t.Errorf("%s %s is a page %v, %v: %s", c.method, c.path, c.page, h, body)
		}
	}
}

// TestSlipsInPaths checks that the answer to a request for a misspelt path names the right
// path.
func TestSlipsInPaths(t *testing.T) {
	s := newShop(t)
	for path, want := range map[string]string{
		"/v1/tools/dns/": "/v1/tools/dns", "/V1/Tools/DNS": "/v1/tools/dns", "/v1/tools/dnss": "/v1/tools/dns", "/Docs/": "/docs", "/llms.TXT": "/llms.txt",
		"/heath": "/health", "/mcp/": "/mcp", "/doc": "/docs", "/llm.txt": "/llms.txt", "/openapi.jsn": "/openapi.json", "/server.jso": "/server.json",
		"/v1/tool/pings": "", "//": "", "/x": "", "/nothing": "",
	} {
		r := s.send(http.MethodGet, path, "")
		if _, named, _ := strings.Cut(string(r.Body), "Did you mean "); r.Status != http.StatusNotFound || want == "" && named != "" || !strings.HasPrefix(named, want) {
			t.Errorf("%s: %d %s, want it to name %q", path, r.Status, r.Body, want)
		}
	}
}
