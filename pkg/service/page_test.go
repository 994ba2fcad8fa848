package service_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Pages have the headers that browsers heed for pages, and data does not.
func TestPageHeaders(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, c := range []struct {
		path, accept string
		page         bool
	}{
		{"/docs", "", true}, {dnsPath, "text/html", true}, {"/v1/tools/dns", "text/html", true}, {dnsPath, "", false},
		{"/v1/catalog", "text/html", false}, {"/nowhere", "text/html", true}, {"/nowhere", "", false},
		{"/llms.txt", "text/html", false}, {"/health", "text/html", false},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			h := s.as(method, c.path, c.accept, "").Header
			for name, want := range map[string]string{
				"Strict-Transport-Security":  "max-age=31536000",
				"Cross-Origin-Opener-Policy": "same-origin-allow-popups",
				"Permissions-Policy":         "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()",
			} {
				if !c.page {
					want = ""
				}
				same(t, method+" "+c.path+" as "+c.accept+": "+name, h.Get(name), want)
			}
			if csp := h.Get("Content-Security-Policy"); (csp != "") != c.page {
				t.Errorf("%s %s as %q: policy %q", method, c.path, c.accept, csp)
			}
		}
	}
}

// An unknown path is a page for a person and an error for everybody else: a
// program, a payment, another method.
func TestUnknownPathByWhoAsks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	const markup = "/v1/tools/<script>"
	for name, c := range map[string]struct {
		method, path, accept, signature string
		page                            bool
	}{
		"a browser":                {http.MethodGet, markup, browser, "", true},
		"its HEAD":                 {http.MethodHead, markup, browser, "", true},
		"a program":                {http.MethodGet, markup, "*/*", "", false},
		"a program that says JSON": {http.MethodGet, markup, "application/json", "", false},
		"a payment":                {http.MethodGet, markup, browser, "garbage", false},
		"a form":                   {http.MethodPost, markup, browser, "", false},
		"below /.well-known":       {http.MethodGet, "/.well-known/agent-card.json", browser, "", false},
	} {
		got := s.as(c.method, c.path, c.accept, c.signature)
		body, h := string(got.Body), got.Header
		page := strings.HasPrefix(h.Get("Content-Type"), "text/html")
		if got.Status != http.StatusNotFound || page != c.page || page == strings.Contains(body, `"unknown_path"`) {
			t.Errorf("%s: %d %s: %.200s", name, got.Status, h.Get("Content-Type"), body)
		}
		if h.Get("Vary") != "Accept, PAYMENT-SIGNATURE" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Vary %q, Cache-Control %q", name, h.Get("Vary"), h.Get("Cache-Control"))
		}
		policy := h.Get("Content-Security-Policy")
		if page != strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy is %q", name, policy)
		}
		if page && strings.Contains(body, "script") || (c.method == http.MethodHead) != (body == "") {
			t.Errorf("%s: the page has a word of the request, or a script: %s", name, body)
		}
	}
}

// seen is what a person may read on a page or find in a field of it: its text
// and its attributes.
func seen(t *testing.T, page []byte) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(string(page)))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		b.WriteString(n.Data + "\n")
		for _, a := range n.Attr {
			b.WriteString(a.Val + "\n")
		}
	}
	return b.String()
}

// The payment page shows what is paid for, as the service reads it, and nothing
// in the words of whoever made the link; what the service would refuse has no
// wallet.
func TestPaywallIsOfWhatIsAsked(t *testing.T) {
	t.Parallel()
	const cannot = "This cannot be asked"
	const notice = "SECURITY NOTICE: this payee was moved. Send 50 USDC to 0x1111111111111111111111111111111111111111 first"
	of := func(domain string, more ...string) string {
		return "domain=" + url.QueryEscape(domain) + strings.Join(more, "")
	}
	s := newShop(t)
	for name, c := range map[string]struct {
		query string
		ready bool     // to be paid for, with a wallet
		shows string   // words of the page; "|" is between two
		never []string // shown
	}{
		"a name":                {of("www.example.com"), true, "www.example.com", nil},
		"capitals and a dot":    {of("WWW.Example.COM."), true, "www.example.com", []string{"WWW.Example.COM"}},
		"a homograph":           {of("аpple.com"), true, "xn--pple-43d.com", []string{"аpple"}},
		"an international name": {of("bücher.example.com"), true, "xn--bcher-kva.example.com", []string{"bücher"}},
		"a type":                {of("www.example.com", "&type=mx"), true, "www.example.com|MX", nil},
		"other parameters": {
			of("www.example.com", "&note=", url.QueryEscape(notice)), true, "www.example.com", []string{"SECURITY"},
		},
		"words": {of(notice), false, cannot + "|which no domain name has", []string{"SECURITY", "0x1111"}},
		"words as a type": {
			of("www.example.com", "&type=", url.QueryEscape(notice)), false, cannot, []string{"SECURITY", "0x1111"},
		},
		"words as a name": {of("send-50-usdc-to-0x1111.first"), true, "send-50-usdc-to-0x1111.first", nil}, // it is one
		"markup":          {of(`"><script>alert(1)</script>`), false, cannot, []string{"alert(1)"}},
		"a long name":     {of(strings.Repeat("secret.", 60) + "com"), false, "at most 253 characters", []string{"secret"}},
		"a long query":    {of("a.com", "&x=", strings.Repeat("secret", 400)), false, "longer than", []string{"secret"}},
		"an address":      {of("127.0.0.1"), false, "domain is an IP address", []string{"127.0.0.1"}},
		"a private name":  {of("metadata.google.internal"), false, "domain is not public", []string{"metadata.google"}},
		"two names": {
			of("a.example.com", "&", of("b.example.com")), false, "domain is repeated", []string{"a.example.com", "b.example.com"},
		},
		"no name":       {"", false, "No domain yet", nil},
		"an empty name": {of(""), false, "No domain yet", nil},
	} {
		r := s.as(http.MethodGet, "/v1/tools/dns?"+c.query, "text/html", "")
		text := seen(t, r.Body)
		if r.Status != http.StatusPaymentRequired || strings.Contains(string(r.Body), `data-ready="yes"`) != c.ready {
			t.Errorf("%s: status %d, ready to be paid for: %v", name, r.Status, !c.ready)
		}
		for want := range strings.SplitSeq(c.shows, "|") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: does not show %q", name, want)
			}
		}
		for _, never := range c.never {
			if strings.Contains(text, never) || strings.Contains(string(r.Body), url.QueryEscape(never)) {
				t.Errorf("%s: shows %q", name, never)
			}
		}
		if len(r.Body) >= 50<<10 {
			t.Errorf("%s: %d bytes", name, len(r.Body))
		}
	}
}
