package discovery

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const maxPage = 50 << 10

// visit is a request for the page that asks about a domain.
func visit(op catalog.Operation, domain string) Visit {
	offer := must(x402.EncodeHeader(Offer(op, testSite()).WithToken(shownToken)))
	v := Visit{Offer: offer, Nonce: "LSMGZFDFLEZNLBAEXRB6CJCXYF"}
	if domain != "" {
		v.Asked = url.Values{"domain": {domain}}
	}
	return v
}

func mustVisit(t *testing.T, op catalog.Operation, v Visit) (*html.Node, []byte) {
	t.Helper()
	page, csp, err := Paywall(op, testSite(), v)
	if err != nil {
		t.Fatal(err)
	}
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

// mainOf is the element whose data- attributes the script reads.
func mainOf(root *html.Node) *html.Node { return elements(root, "main")[0] }

// TestPaywall reads the page of every operation, and of one with odd words. A page that
// asks about a domain and the one that does not are kept whole, without style and
// script, which are files themselves.
func TestPaywall(t *testing.T) {
	odd := catalog.DNS()
	odd.Slug, odd.Title, odd.Summary, odd.Description = "odd", "Wide & <odd> check", `<i>"Everything"</i>`, `A "quoted" & <angled> text.`
	for _, op := range append(catalog.All(), odd) {
		t.Run(op.Slug, func(t *testing.T) {
			root, page := mustVisit(t, op, visit(op, "www.example.org"))
			says(t, "the page", textOf(root), op.Title, op.Description, op.Price()+" in USDC on Base",
				op.Amount+" atomic units, "+op.PriceUSD()+" USDC", testSite().Terms.Asset, testSite().Terms.PayTo)
			for _, o := range outcomes(op.Errors) {
				if o.Class != fault.NoCharge {
					says(t, "the page", textOf(root), string(o.Code))
				}
			}
			// The page signs what the answer's header offers.
			var offered x402.PaymentRequired
			if err := json.Unmarshal([]byte(attr(mainOf(root), "data-offer")), &offered); err != nil {
				t.Fatal(err)
			}
			same(t, "the offer", Offer(op, testSite()).Accepts, offered.Accepts)
			says(t, "the title", textOf(elements(root, "title")[0]), op.Price(), op.Title)
			bare := strings.NewReplacer(generated("paywall.css"), "{{css}}", generated("paywall.js"), "{{js}}").Replace(string(page))
			if len(bare) > len(page)/2 || strings.Contains(string(page), "{{") {
				t.Error("style and script are not in the page as they are, or a value is missing")
			}
			if op.Slug == catalog.DNS().Slug || op.Slug == catalog.Ping().Slug {
				golden(t, "paywall-"+op.Slug+".html", []byte(bare))
			}
		})
	}
}

// TestPaywallShowsAnswers: the page has the rules of the bundle and of each of its parts,
// and knows by its path which field is a time, or is marked when it is missing.
func TestPaywallShowsAnswers(t *testing.T) {
	root, _ := mustVisit(t, catalog.UptimeCheck(), visit(catalog.UptimeCheck(), "www.example.org"))
	var rules map[string][][]string
	var hints map[string]string
	for name, into := range map[string]any{"data-verdicts": &rules, "data-hints": &hints} {
		if err := json.Unmarshal([]byte(attr(mainOf(root), name)), into); err != nil {
			t.Fatal(err)
		}
	}
	for field, op := range map[string]catalog.Operation{"": catalog.UptimeCheck(), "dns": catalog.DNS(), "ssl": catalog.SSLCheck(), "headers": catalog.Headers()} {
		if len(op.Verdicts) == 0 {
			t.Errorf("%s has no verdicts", op.Slug)
		}
		same(t, field, rulesOf(op), rules[field])
	}
	same(t, "hints", []string{"time", "expected", ""}, []string{hints["ssl.not_after"], hints["headers.headers.strict-transport-security"], hints["headers.headers.server"]})
}

// TestPaywallOfAVisit: the snippets and the form show what was asked for, and not the
// domain alone; nothing that the operation does not read. What lacks a domain, or would
// be refused, has no wallet, and no word of the request beside the reason.
func TestPaywallOfAVisit(t *testing.T) {
	const refused, stranger = "domain has the character ' ', which <no> domain name has.", "a stranger's words"
	dns, ping := catalog.DNS(), catalog.Ping()
	for name, c := range map[string]struct {
		op             catalog.Operation
		asked, refused string
		call           string   // which the snippet makes
		shown          []string // of what was asked for, or is offered in its stead
		says           string   // where there is nothing to pay for
	}{
		"a name": {op: dns, asked: "domain=www.example.org", call: dns.Path + "?domain=www.example.org", shown: []string{"www.example.org"}},
		"a type": {
			op: dns, asked: "type=MX&domain=www.example.org&later=" + url.QueryEscape(stranger),
			call: dns.Path + "?domain=www.example.org&type=MX", shown: []string{"www.example.org", "MX"},
		},
		"no domain": {op: dns, call: dns.ExampleURL(""), says: "No domain yetName one to pay for an answer."},
		"refused":   {op: dns, asked: "domain=" + url.QueryEscape(`<b>"ab`), refused: refused, call: dns.ExampleURL(""), says: "This cannot be asked" + refused},
		"a URL": {
			op: dns, asked: "type=mx&domain=" + url.QueryEscape("http://a.example:8080/x?y=z"), refused: refused, call: dns.ExampleURL(""),
			shown: []string{"a.example"}, says: "Did you mean a.example?",
		},
		"an address":            {op: dns, asked: "domain=me%40a.example", refused: refused, call: dns.ExampleURL(""), shown: []string{"a.example"}, says: "a.example?"},
		"an IP URL":             {op: dns, asked: "domain=http%3A%2F%2F192.0.2.1%2F", refused: refused, call: dns.ExampleURL(""), says: refused},
		"a sentence":            {op: dns, asked: "domain=send+money+to+a.example", refused: refused, call: dns.ExampleURL(""), says: refused},
		"refused without input": {op: ping, refused: refused, call: ping.ExampleURL(""), says: "This cannot be asked" + refused},
		"nothing":               {op: ping, asked: "domain=" + url.QueryEscape(stranger), call: ping.ExampleURL("")},
	} {
		t.Run(name, func(t *testing.T) {
			v := visit(c.op, "")
			v.Typed, v.Refused, v.Known = must(url.ParseQuery(c.asked)), c.refused, "a <sure> thing"
			if c.refused == "" {
				v.Asked = v.Typed
			}
			root, _ := mustVisit(t, c.op, v)
			text := textOf(root)
			says(t, "the page", text, c.says)
			if strings.Contains(text, "Known already"+v.Known) != (c.says == "") {
				t.Errorf("the page says what is known: %v", c.says != "")
			}
			if strings.Contains(text, stranger) || c.refused != "" && strings.Contains(text, "No domain yet") {
				t.Errorf("the page says too much: %s", text)
			}
			if n := len(regexp.MustCompile(`['"][^'"]+`+regexp.QuoteMeta(c.call)+`['"]`).FindAllString(text, -1)); n != 1 {
				t.Errorf("%d snippets make the call %s", n, c.call)
			}
			var shown []string
			for _, n := range elements(root, "bdi") {
				shown = append(shown, textOf(n))
			}
			same(t, "shown", c.shown, shown)
			if ready := attr(mainOf(root), "data-ready"); (ready == "yes") != (c.says == "") {
				t.Errorf("ready to be paid for: %s", ready)
			}
			for _, n := range elements(root, "input") {
				if want := v.Typed.Get("domain"); name != "a sentence" || attr(n, "value") != "" {
					same(t, "the form's domain", want, attr(n, "value"))
				}
			}
			var selected []string
			for _, n := range elements(root, "option") {
				if slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "selected" }) {
					selected = append(selected, attr(n, "value"))
				}
			}
			if want := strings.ToUpper(max(v.Typed.Get("type"), "A")); c.op.Slug == dns.Slug {
				same(t, "selected", []string{want}, selected)
			}
		})
	}
}

// FuzzPaywallDomain: the service gives the page names that its guard has passed; should
// another one get through, it is text at most.
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
		root, _ := mustVisit(t, catalog.DNS(), visit(catalog.DNS(), domain))
		plain := "a.example"
		if domain == "" || len(domain) > 253 || !printable.ASCII(domain) {
			plain = ""
		}
		same, _ := mustVisit(t, catalog.DNS(), visit(catalog.DNS(), plain))
		if ready := attr(mainOf(root), "data-ready"); len(elements(root)) != len(elements(same)) || ready != attr(mainOf(same), "data-ready") {
			t.Fatalf("%q: ready %q, %d elements, want %d", domain, ready, len(elements(root)), len(elements(same)))
		}
		if plain == "" {
			return
		}
		if shown := textOf(elements(root, "bdi")[0]); shown != domain {
			t.Errorf("%q: shows %q", domain, shown)
		}
		for _, n := range elements(root, "pre") {
			if attr(n.Parent, "aria-label") != "The offer with curl" {
				continue
			}
			_, query, _ := strings.Cut(textOf(n), "?domain=")
			value := query[:strings.IndexAny(query, "'\"")]
			if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%+=&") != "" {
				t.Errorf("%q: the snippet carries %q", domain, value)
			}
		}
	})
}
