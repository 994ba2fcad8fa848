package discovery

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxPage is the size in bytes that every page must stay below.
const maxPage = 50 << 10

// newVisit returns the data of a visit to an operation's page, with a domain.
func newVisit(op catalog.Operation, domain string) Visit {
	v := Visit{Offer: Offer(op, testSite()).WithToken(shownToken), Nonce: "LSMGZFDFLEZNLBAEXRB6CJCXYF"}
	if domain != "" {
		v.Query = url.Values{"domain": {domain}}
	}
	return v
}

func checkVisit(t *testing.T, op catalog.Operation, v Visit) (*html.Node, []byte) {
	t.Helper()
	page, csp := Paywall(op, testSite(), v)
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") || strings.Contains(csp, "://") {
		t.Errorf("the policy is %q", csp)
	}
	for _, want := range []string{"script-src 'nonce-" + v.Nonce + "'", "connect-src 'self'", "img-src 'self' data:"} {
		if !slices.Contains(strings.Split(csp, "; "), want) {
			t.Errorf("the policy %q lacks %s", csp, want)
		}
	}
	if len(page) >= maxPage || !utf8.Valid(page) {
		t.Errorf("%s: %d bytes, or not UTF-8", op.Slug, len(page))
	}
	return checkPage(t, page, csp), page
}

// mainOf returns the main element of a page. The page's script reads the data- attributes of
// this element.
func mainOf(root *html.Node) *html.Node { return elements(root, "main")[0] }

// TestPaywall checks the page of every operation, and of an operation with odd characters in
// its texts. It compares three whole pages with golden files: the pages of a single lookup, of
// a bundle, and of the smoke test, which needs no domain. The golden files leave out the style
// and the script, because these are files in assets/generated.
func TestPaywall(t *testing.T) {
	odd := catalog.DNS()
	odd.Slug = "odd"
	odd.Question = "Wide & <odd> {type} of {domain}?"
	odd.Returns = `<i>"Everything"</i>`
	odd.Description = `A "quoted" & <angled> text.`
	for _, op := range append(catalog.All(), odd) {
		t.Run(op.Slug, func(t *testing.T) {
			root, page := checkVisit(t, op, newVisit(op, "www.example.org"))
			wantTexts(t, "the page", testbed.Text(root), op.Returns, op.Description, op.Price()+" in USDC on Base",
				op.Amount+" atomic units, "+op.PriceUSD()+" USDC", testSite().Terms.Asset, testSite().Terms.PayTo)
			question := strings.NewReplacer("{type}", "A", "{dns_type}", "A", "{domain}", "www.example.org").Replace(op.Question)
			wantEqual(t, "the heading", []string{question}, textsOf(elements(root, "h1")))
			// The page must sign the offer that the 402 has in its header.
			offered := decode[x402.PaymentRequired]([]byte(testbed.Attribute(mainOf(root), "data-offer")))
			wantEqual(t, "the offer", Offer(op, testSite()).Accepts, offered.Accepts)
			wantTexts(t, "the title", testbed.Text(elements(root, "title")[0]), op.Price(), question)
			bare := strings.NewReplacer(readGenerated(paywallAssets, "paywall.css"), "{{css}}", readGenerated(paywallAssets, "paywall.js"), "{{js}}").Replace(string(page))
			if len(bare) > len(page)/2 || strings.Contains(string(page), "{{") {
				t.Error("style and script are not in the page as they are, or a value is missing")
			}
			if kept := []string{"dns", "uptime-check", "ping"}; slices.Contains(kept, op.Slug) {
				wantGolden(t, "paywall-"+op.Slug+".html", []byte(bare))
			}
		})
	}
}

// TestPaywallSize checks that every page stays smaller than maxPage, even if the offer has a
// signature and the host has 64 characters.
func TestPaywallSize(t *testing.T) {
	s := testSite()
	s.Origin = "https://" + strings.Repeat("a", 63-len(".example.com")) + "a.example.com"
	largest := 0
	for _, op := range catalog.All() {
		v := newVisit(op, "a-name-of-some-length.www.example.org")
		v.Request = op.Request(v.Query)
		v.Offer = Offer(op, s).WithToken(shownToken)
		v.Offer.Extensions = maps.Clone(v.Offer.Extensions)
		v.Offer.Extensions[x402.ExtensionReceipt] = json.RawMessage(`{"info":{"offers":[{"signature":"` + strings.Repeat("e", 700) + `"}]}}`)
		page, _ := Paywall(op, s, v)
		largest = max(largest, len(page))
		if len(page) >= maxPage {
			t.Errorf("%s: %d bytes, want less than %d", op.Slug, len(page), maxPage)
		}
	}
	t.Logf("the largest has %d bytes", largest)
}

// TestPaywallOfAVisit checks what the page shows of a request. The snippets and the form must
// show every parameter that the operation reads, and no other. If the domain is missing, or
// the service would refuse the request, the page must have no wallet and must show the reason.
// Outside the form, such a page must show nothing of the request, except a host name that it
// suggests instead.
func TestPaywallOfAVisit(t *testing.T) {
	const refused, stranger = "domain has the character ' ', which <no> domain name has.", "a stranger's words"
	said := "D" + refused[1:]
	dns, ping := catalog.DNS(), catalog.Ping()
	for name, c := range map[string]struct {
		op                  catalog.Operation
		typedQuery, refused string
		call                string   // the call that the snippet makes
		shown               []string // the values of the request that the page shows, or the host name that the page suggests instead
		wantText            string   // the text that the page must contain if it has no wallet; empty if it has one
	}{
		"a name": {op: dns, typedQuery: "domain=www.example.org", call: dns.Path + "?domain=www.example.org", shown: []string{"A", "www.example.org"}},
		"a type": {
			op: dns, typedQuery: "type=MX&domain=www.example.org&later=" + url.QueryEscape(stranger),
			call: dns.Path + "?domain=www.example.org&type=MX", shown: []string{"MX", "www.example.org"},
		},
		"no domain": {op: dns, call: dns.ExampleURL(""), wantText: "Which domain?"},
		"refused":   {op: dns, typedQuery: "domain=" + url.QueryEscape(`<b>"ab`), refused: refused, call: dns.ExampleURL(""), wantText: said},
		"a URL": {
			op: dns, typedQuery: "type=mx&domain=" + url.QueryEscape("http://a.example:8080/x?y=z"), refused: refused, call: dns.ExampleURL(""),
			shown: []string{"a.example"}, wantText: "Did you mean a.example?",
		},
		"an address":            {op: dns, typedQuery: "domain=me%40a.example", refused: refused, call: dns.ExampleURL(""), shown: []string{"a.example"}, wantText: "a.example?"},
		"an IP URL":             {op: dns, typedQuery: "domain=http%3A%2F%2F192.0.2.1%2F", refused: refused, call: dns.ExampleURL(""), wantText: said},
		"a sentence":            {op: dns, typedQuery: "domain=send+money+to+a.example", refused: refused, call: dns.ExampleURL(""), wantText: said},
		"a slip of the hand":    {op: dns, typedQuery: "domain=exa+mple.com&type=MX", refused: refused, call: dns.ExampleURL(""), wantText: said},
		"a type alone":          {op: dns, typedQuery: "type=txt", call: dns.ExampleURL(""), wantText: "Which domain?"},
		"markup":                {op: dns, typedQuery: "domain=" + url.QueryEscape(`"><img src=x onerror=owned=1>`), refused: refused, call: dns.ExampleURL(""), wantText: said},
		"refused without input": {op: ping, refused: refused, call: ping.ExampleURL(""), wantText: said},
		"nothing":               {op: ping, typedQuery: "domain=" + url.QueryEscape(stranger), call: ping.ExampleURL("")},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVisit(c.op, "")
			v.Typed, v.Refused, v.Known = must(url.ParseQuery(c.typedQuery)), c.refused, "a <sure> thing"
			if c.refused == "" && !strings.HasPrefix(c.typedQuery, "type=txt") {
				v.Query = v.Typed
			}
			root, _ := checkVisit(t, c.op, v)
			text := testbed.Text(root)
			wantTexts(t, "the page", text, c.wantText)
			wantEqual(t, "the page says that it is refused", c.refused != "", strings.Contains(text, "We can’t look that up"))
			wantEqual(t, "the page says what is known", c.wantText == "", strings.Contains(text, "Known already: "+v.Known))
			if strings.Contains(text, stranger) || c.refused != "" && strings.Contains(text, "Which domain?") {
				t.Errorf("the page says too much: %s", text)
			}
			if n := len(regexp.MustCompile(`['"][^'"]+`+regexp.QuoteMeta(c.call)+`['"]`).FindAllString(text, -1)); n != 1 {
				t.Errorf("%d snippets make the call %s", n, c.call)
			}
			wantEqual(t, "shown", c.shown, textsOf(elements(root, "bdi")))
			if ready := testbed.Attribute(mainOf(root), "data-ready"); (ready == "yes") != (c.wantText == "") {
				t.Errorf("ready to be paid for: %s", ready)
			}
			wantTypedDomain(t, root, v.Typed.Get("domain"))
			if c.op.Slug == dns.Slug {
				wantEqual(t, "selected", []string{strings.ToUpper(max(v.Typed.Get("type"), "A"))}, selectedOptions(root))
			}
		})
	}
}

// wantTypedDomain checks that each input field of the form contains the text that a person has
// typed as the domain.
func wantTypedDomain(t *testing.T, root *html.Node, typed string) {
	t.Helper()
	for _, n := range elements(root, "input") {
		wantEqual(t, "the form's domain", typed, testbed.Attribute(n, "value"))
	}
}

// TestPaywallFormIsBounded checks how the form shows a typed text again. A long text must be
// cut off. The text must be on one line, without characters that change its direction, and
// valid UTF-8.
func TestPaywallFormIsBounded(t *testing.T) {
	for typed, want := range map[string]string{
		strings.Repeat("a", 299) + " b c": strings.Repeat("a", 297) + "…",
		" a\tb\n\u202ec ":                 "a b ?c",
		"\xffa":                           "�a",
	} {
		v := newVisit(catalog.DNS(), "")
		v.Refused = "no"
		v.Typed = url.Values{"domain": {typed}}
		root, _ := checkVisit(t, catalog.DNS(), v)
		wantTypedDomain(t, root, want)
	}
}

func textsOf(nodes []*html.Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, testbed.Text(n))
	}
	return all
}

// selectedOptions returns the texts of the selected options on a page.
func selectedOptions(root *html.Node) []string {
	var values []string
	for _, n := range elements(root, "option") {
		if slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "selected" }) {
			values = append(values, testbed.Text(n))
		}
	}
	return values
}

// FuzzPaywallDomain checks that the page shows any domain as plain text. The service passes
// only valid names to the page, but even an invalid name must do no harm. So the page must
// have as many elements as the page of a harmless domain with labels of the same length.
func FuzzPaywallDomain(f *testing.F) {
	for _, s := range []string{
		"example.com", `<script>`, `"'><`, "\u202e", "\xff", "a&b=c", "\x00",
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'); alert(1); ('`, `</code></style><script>`, `{{.Site}}`,
		"`${alert(1)}`", "javascript:alert(1)", "\u202egro.elpmaxe", "a\x00b", "\xff\xfe", "a\nb\rc", strings.Repeat("a", 10_000),
		strings.Repeat("\u00e9", 200), "\u2066x\u2069", "x' ; rm -rf ~ #", "--", `\u003cscript\u003e`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, domain string) {
		root, _ := checkVisit(t, catalog.DNS(), newVisit(catalog.DNS(), domain))
		plain := regexp.MustCompile(`[^.]`).ReplaceAllString(domain, "a") // keeps the dots, because the page has an additional element (a possible line break) for each dot
		if domain == "" || len(domain) > 253 || !untrusted.ASCII(domain) {
			plain = ""
		}
		same, _ := checkVisit(t, catalog.DNS(), newVisit(catalog.DNS(), plain))
		if ready := testbed.Attribute(mainOf(root), "data-ready"); len(elements(root)) != len(elements(same)) || ready != testbed.Attribute(mainOf(same), "data-ready") {
			t.Fatalf("%q: ready %q, %d elements, want %d", domain, ready, len(elements(root)), len(elements(same)))
		}
		if plain == "" {
			return
		}
		if shown := testbed.Text(elements(root, "bdi")[1]); shown != domain {
			t.Errorf("%q: shows %q", domain, shown)
		}
		for _, n := range elements(root, "pre") {
			if testbed.Attribute(n.Parent, "aria-label") != "The offer with curl" {
				continue
			}
			_, query, _ := strings.Cut(testbed.Text(n), "?domain=")
			value := query[:strings.IndexAny(query, "'\"")]
			if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%+=&") != "" {
				t.Errorf("%q: the snippet carries %q", domain, value)
			}
		}
	})
}

func TestWantsGzip(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "gzip, deflate, br, zstd": true, "br": false, "identity": false, "*": true,
		"gzip;q=0": false, "gzip;q=0.0": false, "gzip;q=0.001": true, "gzip ; q=0.5": true, "gzip;Q=1.000": true, "*;q=0": false, "*;q=0.5": true,
		"gzip;q=0, *": false, "gzip, *;q=0": true, "br;q=1, gzip;q=0.2": true, "gzip;q=0.5, identity": false, "gzip;q=0.5, identity;q=0.5": true,
		"identity;q=0.1, gzip;q=0.2": true, "identity;q=0": false, "gzip;q=0.5, *": false, "identity, *": true, "gzip;q=0, x-gzip": true,
		",, gzip ,": true, "gzip;q=2": false, "gzip;q=0.0001": false, "gzip;q=": false, "gzip;q=a": false, "gzip;level=1": false, "gzip;q=1;a=b": false,
		"gz ip": false, "br;q=x, gzip": false, "notgzip": false, "gzip" + strings.Repeat(",br", 500): false,
	} {
		if got := WantsGzip(accept); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// request requests a path of the documents. If no document has that path, the response is a
// 404.
func request(d *Documents, method, path string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://any"+path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if doc, ok := d.Find(path); ok {
		doc.ServeHTTP(w, r)
	} else {
		w.WriteHeader(http.StatusNotFound)
	}
	return w
}

func FuzzAcceptEncoding(f *testing.F) {
	for _, s := range []string{"gzip", "gzip;q=0, *", "identity;q=0.5,x-gzip", ";;=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if !WantsGzip(accept) {
			return
		}
		if lower := strings.ToLower(accept); !strings.Contains(lower, "gzip") && !strings.Contains(lower, "*") {
			t.Errorf("%q does not allow gzip", accept)
		}
		if len(accept) < maxAccept-20 && WantsGzip(accept+", identity;q=1") && strings.HasSuffix(strings.ToLower(accept), ";q=0.5") && strings.Count(accept, ",") == 0 {
			t.Errorf("%q prefers the plain text", accept)
		}
	})
}

func TestWantsHTML(t *testing.T) {
	for want, list := range map[bool][]string{
		true: {
			"text/html", "TEXT/HTML", "text/html, */*; q=0.01", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
			"text/html, application/json;q=0.999", "application/json;q=0, text/html;q=0.001", "text/*", "text/*;q=0.5, application/*;q=0.4",
			// The most specific range counts, whatever its place in the header and its
			// quality. Among equal ranges, the highest quality counts.
			"*/*;q=0.1, application/json;q=0.9, text/html", "application/*;q=0.9, application/json;q=0.1, text/html;q=0.5",
			"text/html;q=0.1, text/html;q=0.7, application/json;q=0.3",
			"text/html;charset=utf-8", `text/html;CHARSET="utf-8";Q=0.9`, "application/vnd.api+json, text/html;q=0.2",
			// Empty elements and white space are allowed. A comma or semicolon inside quotes
			// is text.
			" ,\t, text/html\t;\tq=1.000 , ", `application/xml;x="\",", text/html`, "text/html;q=1.",
			"text/html, " + strings.Repeat("a/b,", 250),
		},
		false: {
			"", "*/*", "application/json", "application/json, text/plain;q=0.9, */*;q=0.8", "text/html, */*", "text/plain",
			"text/html;q=0.9, application/json", "text/html, application/json", "text/html;q=0", "text/html;q=0.000, */*;q=0",
			"text/*, application/json", "text/*;q=0.5, */*;q=0.6", "text/html;q=0.1, text/*, */*;q=0.5",
			"application/json;q=0.1, text/html;q=0.7, application/json;q=0.8",
			// A range with parameters asks for a variant of HTML that does not exist.
			"text/html;level=1, application/json;q=0.5", "application/json;odata=verbose, text/html;q=0.9",
			`application/xml;x="a,text/html;q=1", application/json`,
			// A header that cannot be parsed means JSON.
			"text/html;q=1.1", "text/html;q=2", "text/html;q=0.0001", "text/html;q=-1", "text/html;q=", "text/html;q=.5",
			"text/html;q=0.x", "text/html;q", "text/html;=1", "text/html;q=0.", "text", "text/", "/html", "*/html", "text /html",
			"text/html, nonsense", "text/html;;q=1", `text/html;charset="unterminated, application/json`, "text/html, a b/c", "text/html, \x00/\x00", "text/html, " + strings.Repeat("a/b,", 300),
		},
	} {
		for _, accept := range list {
			if WantsHTML(accept) != want {
				t.Errorf("%q: %v", accept, !want)
			}
		}
	}
}

func FuzzWantsHTML(f *testing.F) {
	for _, s := range []string{
		"", "*/*", "text/html", "text/html, */*;q=0.8", "text/html;q=0.5,application/json;q=0.4", `a/b;c="d,e";q=0.1`, "text/*;q=1.000,,;", "a/(", "a/b;c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got := WantsHTML(accept)
		if got && !strings.Contains(strings.ToLower(accept), "text/") {
			t.Errorf("%q wants HTML without asking for text", accept)
		}
		if WantsHTML(accept+",application/json") || WantsHTML("application/json , "+accept) {
			t.Errorf("%q wants HTML although nothing is preferred over JSON", accept)
		}
		if got && len(accept) < maxAccept-20 && WantsHTML(accept+",;") {
			t.Errorf("%q with an unreadable element wants HTML", accept)
		}
	})
}
