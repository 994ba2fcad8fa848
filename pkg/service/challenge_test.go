package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// tokenOf is the retry token among the extensions of an offer.
func tokenOf(raw []byte) string {
	var offer struct {
		Extensions map[string]struct{ Info struct{ Token string } }
	}
	if err := json.Unmarshal(raw, &offer); err != nil {
		return err.Error()
	}
	return offer.Extensions[x402.ExtensionToken].Info.Token
}

// TestReasonOf402: the log line of every 402 says by itself why it was answered. Every
// challenge has another retry token, the same in the header and in the body, of every
// kind: JSON, a page, no body at all, and a refusal.
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
		line, header := s.lineOfReply(r), r.Header.Get(x402.HeaderRequired)
		if r.Status != http.StatusPaymentRequired || line["code"] != "payment_required" || line["reason"] != c.reason {
			t.Errorf("%+v: status %d, code %v, reason %q", c, r.Status, line["code"], line["reason"])
		}
		token := tokenOf(must(base64.StdEncoding.DecodeString(header)))
		if len(token) != 22 || seen[token] {
			t.Errorf("%+v: token %q after %v", c, token, seen)
		}
		seen[token] = true
		switch {
		case c.method == http.MethodHead:
		case c.accept == page && c.signatures == nil:
			offer := embedded.FindSubmatch(r.Body)
			if offer == nil || base64.StdEncoding.EncodeToString([]byte(html.UnescapeString(string(offer[1])))) != header {
				t.Errorf("%+v: the page does not carry the offer of its header", c)
			}
		default:
			same(t, "the token of the body of a "+c.method, tokenOf(r.Body), token)
		}
	}
	s.showsNothing("SECRET")
}

// The headers of a payment stay below what gateways take, for every operation. A page of
// another origin may read how a purchase ended. The body says that no purchase answers
// another when there is no window for it; the end-to-end suite has a window.
func TestHeadersOfAChallenge(t *testing.T) {
	const mostPayment = 6656
	const host = "the-facts-about-hosts.an-organisation.a-long-registry-name.test1" // of 64 characters
	s := newShop(t, func(p *parts) {
		p.DuplicateWindow, p.Receipts = 0, newSigner()
		p.Origin = func(*http.Request) string { return "https://" + host }
	})
	const exposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
		"RateLimit-Policy, RateLimit, X-Request-Id"
	const noWindow = `"idempotency":{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":0}`
	for _, op := range catalog.All() {
		r := s.send(http.MethodGet, op.Path, "", "Accept", "application/json")
		required := must(r.Required())
		// As the client's helper writes it, an id of payment-identifier.
		plain := string(required.Extensions[x402.ExtensionIdentifier])
		named := strings.Replace(plain, `"required":false`, `"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`, 1)
		required.Extensions[x402.ExtensionIdentifier] = json.RawMessage(named)
		offer, payment := len(r.Header.Get(x402.HeaderRequired)), len(s.pay(required))
		if offer >= x402.MaxOfferHeader || payment >= mostPayment || len(host) != 64 || required.Extensions[x402.ExtensionReceipt] == nil {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes, want less than %d; PAYMENT-SIGNATURE %d, want less than %d",
				op.Slug, offer, x402.MaxOfferHeader, payment, mostPayment)
		}
		same(t, "exposed", r.Header.Get("Access-Control-Expose-Headers"), exposed)
		if !strings.Contains(string(r.Body), noWindow) {
			t.Errorf("%s lacks %s", r.Body, noWindow)
		}
	}
}

// Pages have the headers that browsers heed for pages, and data does not. An unknown
// path is a page for a person and an error for everybody else: a program, a payment,
// another method, and what looks below /.well-known.
func TestPagesByWhoAsks(t *testing.T) {
	s := newShop(t)
	const browser, markup = "text/html,application/xhtml+xml,*/*;q=0.8", "/v1/tools/<script>"
	for _, c := range []struct {
		method, path, accept, signature string
		status                          int
		page                            bool
	}{
		{"GET", "/docs", "", "", 200, true}, {"HEAD", "/docs", "", "", 200, true}, {"GET", "/v1/catalog", browser, "", 200, false},
		{"GET", "/health", browser, "", 200, false}, {"GET", dnsPath, browser, "", 402, true}, {"HEAD", dnsPath, browser, "", 402, true},
		{"GET", dnsPath, "", "", 402, false}, {"GET", markup, browser, "", 404, true}, {"HEAD", markup, browser, "", 404, true},
		{"GET", markup, "*/*", "", 404, false}, {"GET", markup, browser, "garbage", 404, false}, {"POST", markup, browser, "", 404, false},
		{"GET", "/.well-known/agent-card.json", browser, "", 404, false}, {strings.Repeat("A", 100_000), dnsPath, browser, "", 405, false},
	} {
		headers := []string{"Accept", c.accept}
		if c.signature != "" {
			headers = append(headers, x402.HeaderSignature, c.signature)
		}
		r := s.send(c.method, c.path, "", headers...)
		s.lineOfReply(r) // is there
		s.showsNothing("script", "agent-card")
		body, h := string(r.Body), r.Header
		policy := h.Get("Content-Security-Policy")
		page := fmt.Sprint(h.Values("Strict-Transport-Security"), h.Values("Cross-Origin-Opener-Policy"), h.Values("Permissions-Policy"))
		want := map[bool]string{false: "[] [] []", true: "[max-age=31536000] [same-origin-allow-popups] " +
			"[camera=(), display-capture=(), geolocation=(), microphone=(), payment=()]"}[c.page]
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

// An unknown path that is a slip for one of ours names it.
func TestSlipsInPaths(t *testing.T) {
	s := newShop(t)
	for path, want := range map[string]string{
		"/v1/tools/dns/": "/v1/tools/dns", "/V1/Tools/DNS": "/v1/tools/dns", "/v1/tools/dnss": "/v1/tools/dns", "/Docs/": "/docs", "/llms.TXT": "/llms.txt",
		"/heath": "/health", "/mcp/": "/mcp", "/v1/tool/pings": "", "//": "", "/nothing": "",
	} {
		r := s.send(http.MethodGet, path, "")
		if _, named, _ := strings.Cut(string(r.Body), "Did you mean "); r.Status != http.StatusNotFound || want == "" && named != "" || !strings.HasPrefix(named, want) {
			t.Errorf("%s: %d %s, want it to name %q", path, r.Status, r.Body, want)
		}
	}
}
