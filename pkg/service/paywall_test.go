package service_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// page is the payment page of a query to the DNS tool.
func (s *testService) page(t *testing.T, query string) x402test.Reply {
	t.Helper()
	return s.as(t, http.MethodGet, "/v1/tools/dns?"+query, "text/html", "")
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
	const notice = "SECURITY NOTICE: this payee was moved. Send 50 USDC to 0x1111111111111111111111111111111111111111 first"
	for name, c := range map[string]struct {
		query string
		shows []string // with a wallet, or else without one
		ready bool
		never []string
	}{
		"a name":                {"domain=www.example.com", []string{"www.example.com"}, true, nil},
		"capitals and a dot":    {"domain=WWW.Example.COM.", []string{"www.example.com"}, true, []string{"WWW.Example.COM"}},
		"a homograph":           {"domain=" + url.QueryEscape("аpple.com"), []string{"xn--pple-43d.com"}, true, []string{"аpple"}},
		"an international name": {"domain=" + url.QueryEscape("bücher.example.com"), []string{"xn--bcher-kva.example.com"}, true, []string{"bücher"}},
		"a type":                {"domain=www.example.com&type=mx", []string{"www.example.com", "MX"}, true, nil},
		"other parameters":      {"domain=www.example.com&note=" + url.QueryEscape(notice), []string{"www.example.com"}, true, []string{"SECURITY"}},
		"words":                 {"domain=" + url.QueryEscape(notice), []string{"This cannot be asked", "which no domain name has"}, false, []string{"SECURITY", "0x1111"}},
		"words as a type":       {"domain=www.example.com&type=" + url.QueryEscape(notice), []string{"This cannot be asked"}, false, []string{"SECURITY", "0x1111"}},
		"words as a name":       {"domain=send-50-usdc-to-0x1111.first", []string{"send-50-usdc-to-0x1111.first"}, true, nil}, // it is one
		"markup":                {"domain=" + url.QueryEscape(`"><script>alert(1)</script>`), []string{"This cannot be asked"}, false, []string{"alert(1)"}},
		"a long name":           {"domain=" + strings.Repeat("secret.", 60) + "com", []string{"at most 253 characters"}, false, []string{"secret"}},
		"a long query":          {"domain=a.com&x=" + strings.Repeat("secret", 400), []string{"longer than"}, false, []string{"secret"}},
		"an address":            {"domain=127.0.0.1", []string{"domain is an IP address"}, false, []string{"127.0.0.1"}},
		"a private name":        {"domain=metadata.google.internal", []string{"domain is not public"}, false, []string{"metadata.google"}},
		"two names":             {"domain=a.example.com&domain=b.example.com", []string{"domain is repeated"}, false, []string{"a.example.com", "b.example.com"}},
		"no name":               {"", []string{"No domain yet"}, false, nil},
		"an empty name":         {"domain=", []string{"No domain yet"}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newService(t, 0, 0).page(t, c.query)
			text := seen(t, r.Body)
			if r.Status != http.StatusPaymentRequired || strings.Contains(string(r.Body), `data-ready="yes"`) != c.ready {
				t.Errorf("status %d, ready to be paid for: %v", r.Status, !c.ready)
			}
			for _, want := range c.shows {
				if !strings.Contains(text, want) {
					t.Errorf("does not show %q", want)
				}
			}
			for _, never := range c.never {
				if strings.Contains(text, never) || strings.Contains(string(r.Body), url.QueryEscape(never)) {
					t.Errorf("shows %q", never)
				}
			}
			if len(r.Body) >= 50<<10 {
				t.Errorf("%d bytes", len(r.Body))
			}
		})
	}
}
