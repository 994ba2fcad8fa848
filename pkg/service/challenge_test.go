package service_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
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
// challenge has a retry token of its own, the same in the header and in the body, of every
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
// another origin may read what a purchase comes to. The body says that no purchase answers
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
		{"GET", "/llms.txt", browser, "", 200, false}, {"GET", "/health", browser, "", 200, false},
		{"GET", dnsPath, browser, "", 402, true}, {"HEAD", dnsPath, browser, "", 402, true}, {"GET", dnsPath, "", "", 402, false},
		{"GET", markup, browser, "", 404, true}, {"HEAD", markup, browser, "", 404, true}, {"GET", markup, "*/*", "", 404, false},
		{"GET", markup, browser, "garbage", 404, false}, {"POST", markup, browser, "", 404, false},
		{"GET", "/.well-known/agent-card.json", browser, "", 404, false}, {strings.Repeat("A", 100_000), dnsPath, browser, "", 405, false},
	} {
		headers := []string{"Accept", c.accept, x402.HeaderSignature, c.signature}
		if c.signature == "" {
			headers = headers[:2]
		}
		r := s.send(c.method, c.path, "", headers...)
		body, h := string(r.Body), r.Header
		policy := h.Get("Content-Security-Policy")
		if page := strings.HasPrefix(h.Get("Content-Type"), "text/html"); r.Status != c.status || page != c.page || (policy != "") != c.page {
			t.Errorf("%+v: %d %s, policy %q: %.200s", c, r.Status, h.Get("Content-Type"), policy, body)
		}
		for name, want := range map[string]string{
			"Strict-Transport-Security":  "max-age=31536000",
			"Cross-Origin-Opener-Policy": "same-origin-allow-popups",
			"Permissions-Policy":         "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()",
		} {
			if got := h.Get(name); c.page && got != want || !c.page && got != "" {
				t.Errorf("%+v: %s %q", c, name, got)
			}
		}
		s.lineOfReply(r) // is there
		s.showsNothing("script", "agent-card")
		if c.status != http.StatusNotFound {
			continue
		}
		if h.Get("Vary") != "Accept, PAYMENT-SIGNATURE" || h.Get("Cache-Control") != "no-store" || c.page == strings.Contains(body, `"unknown_path"`) {
			t.Errorf("%+v: %v %s", c, h, body)
		}
		safe := strings.Contains(policy, "default-src 'none'") && !strings.Contains(policy, "unsafe") && !strings.Contains(body, "script")
		if c.page && (!safe || (c.method == "HEAD") != (body == "")) {
			t.Errorf("%+v: the page has a word of the request, or a script: %s %s", c, policy, body)
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

// seen is what a person may read on a page or find in a field of it: its text
// and its attributes.
func seen(page []byte) string {
	var b strings.Builder
	for n := range must(html.Parse(strings.NewReader(string(page)))).Descendants() {
		b.WriteString(n.Data + "\n")
		for _, a := range n.Attr {
			b.WriteString(a.Val + "\n")
		}
	}
	return b.String()
}

// The payment page shows what is paid for, as the service reads it, and no sentence of
// the words in its link; what the service would refuse has no wallet, and its form keeps
// what was typed. Which names are refused is tested in pkg/lookup/dns.
func TestPaywallIsOfWhatIsAsked(t *testing.T) {
	const notice = "SECURITY NOTICE: this payee was moved. Send 50 USDC to 0x1111111111111111111111111111111111111111 first"
	s, of := newShop(t), url.QueryEscape
	for query, c := range map[string]struct {
		ready bool     // to be paid for, with a wallet
		shows string   // words of the page; "|" is between two
		never []string // shown
	}{
		"domain=WWW.Example.COM.":                         {true, "www.example.com", []string{"WWW.Example.COM"}},
		"domain=" + of("аpple.com"):                       {true, "xn--pple-43d.com", []string{"аpple"}},
		"domain=www.example.com&type=mx":                  {true, "www.example.com|MX", nil},
		"domain=www.example.com&note=" + of(notice):       {true, "www.example.com", []string{"SECURITY"}},
		"domain=" + of(notice):                            {false, "This cannot be asked|which no domain name has", []string{"SECURITY", "0x1111"}},
		"domain=www.example.com&type=" + of(notice):       {false, "This cannot be asked", []string{"SECURITY", "0x1111"}},
		"domain=" + of(`"><script>alert(1)</script>`):     {false, "This cannot be asked", nil},
		"domain=a.com&x=" + strings.Repeat("secret", 400): {false, "longer than", []string{"secret"}},
		"domain=127.0.0.1":                                {false, "domain is an IP address|127.0.0.1", nil},
		"domain=a.example.com&domain=b.example.com":       {false, "domain is repeated", []string{"b.example.com"}},
		"":        {false, "No domain yet", nil},
		"domain=": {false, "No domain yet", nil},
	} {
		r := s.send(http.MethodGet, "/v1/tools/dns?"+query, "", "Accept", "text/html")
		text := seen(r.Body)
		if r.Status != http.StatusPaymentRequired || strings.Contains(string(r.Body), "data-ready='yes'") != c.ready || len(r.Body) >= 50<<10 {
			t.Errorf("%s: status %d, ready to be paid for: %v, %d bytes", query, r.Status, !c.ready, len(r.Body))
		}
		for want := range strings.SplitSeq(c.shows, "|") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: does not show %q", query, want)
			}
		}
		for _, never := range c.never {
			if strings.Contains(text, never) || strings.Contains(string(r.Body), of(never)) {
				t.Errorf("%s: shows %q", query, never)
			}
		}
	}
}

// unlisted is a client of registries that knows one top-level domain without a server.
type unlisted struct{ registered }

func (unlisted) NoServer(domain string) bool { return strings.HasSuffix(domain, ".io") }

// The payment page of whois says what the list in memory tells, of a name that can be
// asked about.
func TestPaywallOfAMissingServer(t *testing.T) {
	var p *parts
	newShop(t, func(made *parts) { p = made })
	handler := p.seller().Handler(service.Whois(unlisted{}))
	for query, known := range map[string]bool{"domain=example.io": true, "domain=example.com": false, "domain=a_b.io": false, "": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tools/whois?"+query, nil)
		r.Header.Set("Accept", "text/html")
		page := httptest.NewRecorder()
		handler.ServeHTTP(page, r)
		if page.Code != http.StatusPaymentRequired || strings.Contains(page.Body.String(), "IANA lists no RDAP server for this top-level domain") != known {
			t.Errorf("%s: status %d, known %v", query, page.Code, !known)
		}
	}
}
