package discovery

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

const maxPage = 50 << 10

func mustPaywall(t *testing.T, op catalog.Operation, domain string) (*html.Node, []byte) {
	t.Helper()
	page, csp, err := Paywall(op, testSite(), domain)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) >= maxPage {
		t.Errorf("%s: %d bytes", op.Slug, len(page))
	}
	return checkPage(t, page, csp), page
}

func TestPaywall(t *testing.T) {
	s := testSite()
	for _, op := range wideOps() {
		t.Run(op.Slug, func(t *testing.T) {
			root, page := mustPaywall(t, op, "www.example.org")
			text := textOf(root)
			if strings.Contains(string(page), "{{") {
				t.Error("a value is missing")
			}
			for _, want := range []string{
				op.Title, op.Summary, op.Price(), op.PriceUSD() + " USDC, " + op.Amount + " atomic units", "Base (eip155:8453)",
				s.Terms.Asset, s.Terms.PayTo, "PAYMENT-REQUIRED", "PAYMENT-SIGNATURE", "PAYMENT-RESPONSE", "curl alone cannot pay",
				"@x402/fetch", "wrapFetchWithPaymentFromConfig", "never charged twice",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("does not say %q", want)
				}
			}
			for _, o := range outcomes(op.Errors) {
				if o.Money != outcomeOf("overloaded").Money && !strings.Contains(text, string(o.Code)) {
					t.Errorf("does not say what %s costs", o.Code)
				}
			}
			if asked := strings.Contains(text, "www.example.org"); asked != takes(op, "domain") {
				t.Errorf("the domain is on the page: %v", asked)
			}
			if n := strings.Count(text, op.Path+"?domain=www.example.org"); takes(op, "domain") && n != 2 {
				t.Errorf("%d of the two snippets make the call that was asked for", n)
			}
			if title := textOf(elements(root, "title")[0]); !strings.Contains(title, op.Price()) || !strings.Contains(title, op.Title) {
				t.Errorf("title %q", title)
			}
		})
	}
}

func TestPaywallAgainstGoldenFiles(t *testing.T) {
	for _, op := range catalog.All() {
		_, page := mustPaywall(t, op, "www.example.org")
		golden(t, "paywall-"+op.Slug+".html", page)
	}
}

func TestPaywallWithoutADomain(t *testing.T) {
	root, _ := mustPaywall(t, catalog.DNS(), "")
	text := textOf(root)
	if !strings.Contains(text, "none; add ?domain= and a name to the address") {
		t.Error("does not say what is missing")
	}
	if !strings.Contains(text, catalog.DNS().ExampleURL(testSite().Origin)+"'") {
		t.Error("curl does not show the example")
	}
}

// TestPaywallShowsHostileDomainsAsText: whoever made the link wrote the
// domain, and someone else reads the page.
func TestPaywallShowsHostileDomainsAsText(t *testing.T) {
	plain := len(elements(parse(t, second(mustPaywall(t, catalog.DNS(), "a.example")))))
	for _, domain := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'); alert(1); ('`, `</code></style><script>`, `{{.Site}}`,
		"`${alert(1)}`", "javascript:alert(1)", "\u202egro.elpmaxe", "a\x00b", "\xff\xfe", "a\nb\rc", strings.Repeat("a", 10_000),
		strings.Repeat("\u00e9", 200), "\u2066x\u2069", "x' ; rm -rf ~ #", "--", `\u003cscript\u003e`,
	} {
		root, page := mustPaywall(t, catalog.DNS(), domain)
		if n := len(elements(root)); n != plain {
			t.Errorf("%q: %d elements, want %d", domain, n, plain)
		}
		checkShown(t, domain, root, page)
	}
}

func second(_ *html.Node, page []byte) []byte { return page }

// checkShown checks what is on the page of a domain.
func checkShown(t *testing.T, domain string, root *html.Node, page []byte) {
	t.Helper()
	if !utf8.Valid(page) {
		t.Errorf("%q: not UTF-8", domain)
	}
	shown := textOf(elements(root, "bdi")[0])
	if utf8.RuneCountInString(shown) > maxShownDomain+1 {
		t.Errorf("%q: %d characters shown", domain, utf8.RuneCountInString(shown))
	}
	for _, r := range shown {
		if !unicode.IsGraphic(r) {
			t.Errorf("%q: shows %U", domain, r)
		}
	}
	for _, n := range elements(root, "pre") {
		label, _ := attr(n.Parent, "aria-label")
		if !slices.Contains([]string{"The offer with curl", "Paying with @x402/fetch"}, label) {
			continue
		}
		_, query, _ := strings.Cut(textOf(n), "?domain=")
		value := query[:strings.IndexAny(query, "'\"")]
		if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%+=&") != "" {
			t.Errorf("%q: the snippet carries %q", domain, value)
		}
	}
}

func TestPaywallRefusesAnOperationWithoutAReadableExample(t *testing.T) {
	op := catalog.DNS()
	op.Response = "{"
	if _, _, err := Paywall(op, testSite(), "example.com"); err == nil {
		t.Error("no error")
	}
}

func FuzzPaywallDomain(f *testing.F) {
	for _, s := range []string{"example.com", `<script>`, `"'><`, "\u202e", "\xff", "a&b=c", "\x00"} {
		f.Add(s)
	}
	page, _, err := Paywall(catalog.DNS(), testSite(), "a.example")
	if err != nil {
		f.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(string(page)))
	if err != nil {
		f.Fatal(err)
	}
	plain := len(elements(root))
	f.Fuzz(func(t *testing.T, domain string) {
		page, _, err := Paywall(catalog.DNS(), testSite(), domain)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) >= maxPage {
			t.Errorf("%d bytes", len(page))
		}
		if domain == "" {
			return
		}
		root := parse(t, page)
		if n := len(elements(root)); n != plain {
			t.Errorf("%d elements, want %d", n, plain)
		}
		checkShown(t, domain, root, page)
	})
}
