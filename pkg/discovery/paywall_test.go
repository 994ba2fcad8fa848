package discovery

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
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

func mustPaywall(t *testing.T, op catalog.Operation, domain string) (*html.Node, []byte) {
	t.Helper()
	return mustVisit(t, op, visit(op, domain))
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
			says(t, "the page", text, op.Title, op.Description, op.Price()+" in USDC on Base", "8453 (eip155:8453)",
				op.Amount+" atomic units, "+op.PriceUSD()+" USDC", s.Terms.Asset, s.Terms.PayTo, "PAYMENT-REQUIRED", "PAYMENT-SIGNATURE",
				"PAYMENT-RESPONSE", "curl alone cannot pay", "@x402/fetch", "wrapFetchWithPayment", "never charged twice")
			for _, o := range outcomes(op.Errors) {
				if o.Class != fault.Standing {
					says(t, "the page", text, string(o.Code))
				}
			}
			// The page signs what the answer's header offers.
			var offered x402.PaymentRequired
			header, _ := attr(elements(root, "main")[0], "data-offer")
			if err := json.Unmarshal(must(base64.StdEncoding.DecodeString(header)), &offered); err != nil {
				t.Fatal(err)
			}
			same(t, "the offer", Offer(op, testSite()).Accepts, offered.Accepts)
			says(t, "the title", textOf(elements(root, "title")[0]), op.Price(), op.Title)
			if shown := len(elements(root, "bdi")) > 0; shown != asks(op) {
				t.Errorf("the domain is on the page: %v", shown)
			}
			call := op.ExampleURL(s.Origin)
			if asks(op) {
				call = s.Origin + op.Path + "?domain=www.example.org"
			}
			if n := strings.Count(text, "'"+call+"'") + strings.Count(text, `"`+call+`"`); n != 2 {
				t.Errorf("%d of the two snippets make the call that was asked for", n)
			}
		})
	}
}

// ready is what a page says of itself: "no" has no wallet.
func ready(root *html.Node) string {
	value, _ := attr(elements(root, "main")[0], "data-ready")
	return value
}

// asks says whether the operation is asked about a domain.
func asks(op catalog.Operation) bool {
	return slices.ContainsFunc(op.Params, func(p catalog.Param) bool { return p.Name == "domain" })
}

// TestPaywallAgainstGoldenFiles compares a page that asks about a domain and the
// one that does not, without style and script, which are files themselves.
func TestPaywallAgainstGoldenFiles(t *testing.T) {
	kept := map[string]bool{catalog.DNS().Slug: true, catalog.Ping().Slug: true}
	for _, op := range catalog.All() {
		_, page := mustPaywall(t, op, "www.example.org")
		bare := strings.NewReplacer(paywallSheet(), "{{css}}", paywallScript(), "{{js}}").Replace(string(page))
		if len(bare) > len(page)/2 {
			t.Errorf("%s: style and script are not in the page as they are", op.Slug)
		}
		if kept[op.Slug] {
			golden(t, "paywall-"+op.Slug+".html", []byte(bare))
		}
	}
}

func TestPaywallWithoutADomain(t *testing.T) {
	root, _ := mustPaywall(t, catalog.DNS(), "")
	says(t, "the page", textOf(root), "No domain yet", "Name one to pay for an answer.", catalog.DNS().ExampleURL(testSite().Origin)+"'")
	same(t, "ready to be paid for", "no", ready(root))
}

// TestPaywallKeepsEveryParameter: the snippets and the form show what was
// asked for, and not the domain alone; nothing that the operation does not read.
func TestPaywallKeepsEveryParameter(t *testing.T) {
	v := visit(catalog.DNS(), "")
	v.Asked = url.Values{"type": {"MX"}, "domain": {"www.example.org"}, "later": {"a stranger's words"}}
	root, _ := mustVisit(t, catalog.DNS(), v)
	text := textOf(root)
	if n := strings.Count(text, "/v1/tools/dns?domain=www.example.org&type=MX"); n != 2 {
		t.Errorf("%d of the two snippets make the call that was asked for", n)
	}
	for _, n := range elements(root, "option") {
		value, _ := attr(n, "value")
		if _, selected := attr(n, "selected"); selected != (value == "MX") {
			t.Errorf("%s is selected: %v", value, selected)
		}
	}
	if strings.Contains(text, "stranger's words") {
		t.Error("a parameter that nobody reads is on the page")
	}
	if value, _ := attr(elements(root, "input")[0], "value"); value != "www.example.org" {
		t.Errorf("the form asks about %q", value)
	}
	same(t, "shown", []string{"www.example.org", "MX"}, texts(elements(root, "bdi")))
}

func TestPaywallNamesItsNetwork(t *testing.T) {
	for network, want := range map[string][3]string{
		"eip155:8453":  {"Base", "https://basescan.org", "https://mainnet.base.org"},
		"eip155:84532": {"Base Sepolia", "https://sepolia.basescan.org", "https://sepolia.base.org"},
		"eip155:31337": {"", "", ""},
	} {
		s := testSite()
		s.Terms.Network = network
		page, _, err := Paywall(catalog.DNS(), s, visit(catalog.DNS(), "www.example.org"))
		if err != nil {
			t.Fatal(err)
		}
		root := parse(t, page)
		for i, name := range []string{"data-chain", "data-explorer", "data-rpc"} {
			if got, _ := attr(elements(root, "main")[0], name); got != want[i] {
				t.Errorf("%s: %s is %q, want %q", network, name, got, want[i])
			}
		}
		links := 0
		for _, n := range elements(root, "a") {
			if href, _ := attr(n, "href"); want[1] != "" && strings.HasPrefix(href, want[1]+"/") {
				links++
			}
		}
		if explorer := want[1] != ""; explorer != (links == 2) {
			t.Errorf("%s: %d links to the explorer", network, links)
		}
	}
}

// TestPaywallScript holds the script to what keeps strangers' words text, and
// the page in one piece.
func TestPaywallScript(t *testing.T) {
	js := paywallScript()
	for _, bad := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "parseFromString",
		"createContextualFragment", "</script", "<!--", "{{", "sessionStorage", "parseFloat", "http://", "https://",
	} {
		if strings.Contains(js, bad) {
			t.Errorf("the script has %q", bad)
		}
	}
	for line := range strings.Lines(js) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "*") || line == "\n" {
			t.Errorf("left in: %q", line)
		}
	}
	whole := paywallView + paywallWallet + paywallSend
	// A line of a template literal would lose its indentation: there is none.
	for line := range strings.Lines(whole) {
		if strings.Count(line, "`")%2 != 0 {
			t.Errorf("a template literal spans lines: %q", line)
		}
	}
	if len(js) < len(whole)/2 {
		t.Errorf("%d bytes of %d are left", len(js), len(whole))
	}
}

// TestPaywallRefused: what the service would refuse has no wallet, and no word
// of the request beside the reason.
func TestPaywallRefused(t *testing.T) {
	v := visit(catalog.DNS(), "www.example.org")
	v.Refused = "domain has the character ' ', which <no> domain name has."
	root, _ := mustVisit(t, catalog.DNS(), v)
	same(t, "ready to be paid for", "no", ready(root))
	text := textOf(root)
	says(t, "the page", text, "This cannot be asked", v.Refused)
	if strings.Contains(text, "No domain yet") {
		t.Error("the page asks for a domain")
	}
	if n := strings.Count(text, catalog.DNS().ExampleURL(testSite().Origin)); n < 2 {
		t.Errorf("%d of the two snippets show the example", n)
	}
}

// TestPaywallShowsHostileDomainsAsText: the service gives the page names that
// its guard has passed; should another one get through, it is text at most.
func TestPaywallShowsHostileDomainsAsText(t *testing.T) {
	plain := shape(t, "a.example")
	for _, domain := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'); alert(1); ('`, `</code></style><script>`, `{{.Site}}`,
		"`${alert(1)}`", "javascript:alert(1)", "\u202egro.elpmaxe", "a\x00b", "\xff\xfe", "a\nb\rc", strings.Repeat("a", 10_000),
		strings.Repeat("\u00e9", 200), "\u2066x\u2069", "x' ; rm -rf ~ #", "--", `\u003cscript\u003e`,
	} {
		root, page := mustPaywall(t, catalog.DNS(), domain)
		checkShown(t, domain, root, page, plain)
	}
}

// shape is how many elements the page of a domain has, and the one without.
func shape(t testing.TB, domain string) (plain struct{ with, without int }) {
	t.Helper()
	count := func(domain string) int {
		page, _, err := Paywall(catalog.DNS(), testSite(), visit(catalog.DNS(), domain))
		if err != nil {
			t.Fatal(err)
		}
		return len(elements(must(html.Parse(bytes.NewReader(page)))))
	}
	plain.with, plain.without = count(domain), count("")
	return plain
}

// checkShown checks what is on the page of a domain.
func checkShown(t *testing.T, domain string, root *html.Node, page []byte, plain struct{ with, without int }) {
	t.Helper()
	if !utf8.Valid(page) {
		t.Errorf("%q: not UTF-8", domain)
	}
	if len(domain) > 253 || !printable.ASCII(domain) {
		if ready(root) != "no" || len(elements(root)) != plain.without {
			t.Errorf("%q: ready %q, %d elements, want %d", domain, ready(root), len(elements(root)), plain.without)
		}
		return
	}
	if n := len(elements(root)); n != plain.with {
		t.Errorf("%q: %d elements, want %d", domain, n, plain.with)
	}
	if shown := textOf(elements(root, "bdi")[0]); shown != domain {
		t.Errorf("%q: shows %q", domain, shown)
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

func FuzzPaywallDomain(f *testing.F) {
	for _, s := range []string{"example.com", `<script>`, `"'><`, "\u202e", "\xff", "a&b=c", "\x00"} {
		f.Add(s)
	}
	plain := shape(f, "a.example")
	f.Fuzz(func(t *testing.T, domain string) {
		page, _, err := Paywall(catalog.DNS(), testSite(), visit(catalog.DNS(), domain))
		if err != nil {
			t.Fatal(err)
		}
		if len(page) >= maxPage {
			t.Errorf("%d bytes", len(page))
		}
		if domain == "" {
			return
		}
		checkShown(t, domain, parse(t, page), page, plain)
	})
}

// TestPaywallExample: the example is, in other elements, the text that it was.
func TestPaywallExample(t *testing.T) {
	for _, op := range wideOps() {
		o := must(opViewOf(testSite(), op))
		root := parse(t, []byte("<pre>"+exampleAnswer(o)+"</pre>"))
		if text := textOf(root); text != o.ResponseJSON {
			t.Errorf("%s: %s", op.Slug, text)
		}
		for _, n := range elements(root, "b", "i", "u") {
			if len(n.Attr) > 0 || n.FirstChild != n.LastChild {
				t.Errorf("%s: around %q", op.Slug, textOf(n))
			}
		}
	}
}
