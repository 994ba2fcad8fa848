package discovery

import (
	"cmp"
	_ "embed" // the page
	"encoding/base64"
	"html"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// paywallPage is the page with its values as {{name}}. It is filled without
// templates, because every priced function carries it and would carry them.
//
//go:embed assets/paywall.html
var paywallPage string

// The style and the script of the page are made of assets/paywall-*.js, style.css and
// paywall.css by TestGenerated, which minifies them.
var (
	//go:embed assets/generated/paywall.css
	paywallStyle string
	//go:embed assets/generated/paywall.js
	paywallScript string
)

// Visit is what one request adds to the page.
type Visit struct {
	// Asked are the parameters as the operation reads them, without those that
	// were not sent: a name is in A-labels. Other words of the link
	// are not among them.
	Asked url.Values
	// Typed are the parameters as they were sent. Where the request would be refused,
	// the form keeps them.
	Typed url.Values
	// Request is what the receipt of the answer will say was asked; empty when
	// nothing is.
	Request string
	// Refused says why the request would be refused, in public words, or is
	// empty. Nothing is offered for such a request.
	Refused string
	// Known is what can be told of the answer already, in public words; empty where
	// that is nothing.
	Known string
	// Offer is the value of PAYMENT-REQUIRED that the page is answered with;
	// the page signs that and nothing else.
	Offer string
	// Nonce allows the page's script, and no other. It is new for each answer.
	Nonce string
}

// Paywall is the page that a person gets in place of the JSON of a 402 (spec
// §5), and its Content-Security-Policy. It pays with a wallet in the browser,
// and is complete as text without one.
func Paywall(op catalog.Operation, s Site, v Visit) (body []byte, csp string, err error) {
	o := opViewOf(s, op)
	a := askedOf(op, v)
	data, err := dataOf(o, s, v, a)
	if err != nil {
		return nil, "", err
	}
	// One pass: what a value contains is never looked at again.
	page := strings.NewReplacer(
		"{{css}}", paywallStyle, "{{js}}", paywallScript, "{{nonce}}", html.EscapeString(v.Nonce), "{{data}}", data,
		"{{fields}}", fieldsOf(op), "{{ask}}", a.another(op), "{{asked}}", a.rows(), "{{missing}}", a.missing(op), "{{unready}}", map[bool]string{false: " hidden"}[a.ready()],
		"{{outcomes}}", outcomeNotes(o.Outcomes), "{{links}}", footLinks(s),
		"{{service}}", html.EscapeString(catalog.Service), "{{docs}}", html.EscapeString(strings.TrimPrefix(o.DocsURL, s.Origin)),
		"{{title}}", html.EscapeString(op.Title), "{{summary}}", html.EscapeString(op.Summary),
		"{{description}}", html.EscapeString(op.Description),
		"{{call}}", html.EscapeString(a.call(o)), "{{price}}", html.EscapeString(s.price(op)), "{{usd}}", html.EscapeString(op.PriceUSD()),
		"{{amount}}", html.EscapeString(op.Amount), "{{network}}", html.EscapeString(s.shortNetworkName()),
		"{{caip2}}", html.EscapeString(s.Terms.Network), "{{chain}}", html.EscapeString(s.chainID()),
		"{{asset}}", s.account("token", "token", "/token/", s.Terms.Asset)+" "+html.EscapeString(s.Terms.Name+", version "+s.Terms.Version),
		"{{payee}}", s.account("to", "payee", "/address/", s.Terms.PayTo), "{{untrusted}}", html.EscapeString(untrusted),
	).Replace(paywallPage)
	return []byte(page), paywallCSP(v.Nonce, a.form(op) != ""), nil
}

// paywallCSP allows the page's own style and script, its form and its request
// to where it came from. Wallets bring their icons as data.
func paywallCSP(nonce string, form bool) string {
	action := "'none'"
	if form {
		action = "'self'"
	}
	return "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src " + inlineHash(paywallStyle) +
		"; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action " + action + "; frame-ancestors 'none'"
}

// dataOf are the values that the script reads, as attributes.
func dataOf(o opView, s Site, v Visit, a asked) (string, error) {
	said := map[bool]string{true: "yes"}
	var owed []string
	for _, c := range append(codesIn(o.Outcomes, fault.Owed), fault.InternalError) {
		owed = append(owed, string(c))
	}
	rules, hints := map[string][][]string{"": rulesOf(o.Operation)}, map[string]string{}
	showing(o.Fields, "", rules, hints)
	offer, err := base64.StdEncoding.DecodeString(v.Offer)
	if err != nil {
		return "", err
	}
	n := x402.Network(s.Terms.Network)
	var b strings.Builder
	for _, d := range []struct{ name, value string }{
		{"slug", o.Slug}, {"ready", cmp.Or(said[a.ready()], "no")}, {"play", said[s.PlayMoney]}, {"chain", n.Name}, {"explorer", s.explorer()}, {"rpc", n.PublicNode},
		{"owed", strings.Join(owed, " ")}, {"request", v.Request}, {"offer", string(offer)}, {"verdicts", string(encode(rules))}, {"hints", string(encode(hints))},
	} {
		// In apostrophes the quotes of JSON are a byte each.
		b.WriteString(" data-" + d.name + "='" + strings.ReplaceAll(html.EscapeString(d.value), "&#34;", `"`) + "'")
	}
	return b.String(), nil
}

// rulesOf are the rules of an operation as the page has them, which is short of bytes:
// condition, sentence and tone.
func rulesOf(op catalog.Operation) [][]string {
	var rules [][]string
	for _, v := range op.Verdicts {
		rules = append(rules, []string{v.If, v.Says, string(v.Tone)})
	}
	return rules
}

// showing collects what the page needs to show an answer: the rules for the line above
// each part of a bundle, which are those of the operation whose result it is, and what
// the fields are shown as, by their paths.
func showing(fields []catalog.Field, path string, rules map[string][][]string, hints map[string]string) {
	for _, f := range fields {
		if f.Show != "" {
			hints[path+f.Name] = f.Show
		}
		inner := f.Fields
		if f.Type == "object" && len(f.Items) > 0 {
			inner = f.Items[0].Fields
			rules[path+f.Name] = append([][]string{}, rulesOf(resultOf(f))...)
		}
		showing(inner, path+f.Name+".", rules, hints)
	}
}

// fieldsOf lists what an answer has.
func fieldsOf(op catalog.Operation) string {
	var names []string
	for _, f := range op.Fields {
		names = append(names, "`"+f.Name+"`")
	}
	return prose(listed(names))
}

// outcomeNotes says of the operation's own errors what they cost.
func outcomeNotes(list []outcome) string {
	notes := note("Not charged", "Asking for the price, a payment that is refused.")
	if answers := codesIn(list, fault.Answer); len(answers) > 0 {
		notes += note("Charged, because it is an answer about the domain", quoteCodes(answers)+".")
	}
	if owed := codesIn(list, fault.Owed); len(owed) > 0 {
		notes += note("Charged, and the answer is still owed", quoteCodes(owed)+
			". Send the same signature to the same address again: the lookup runs again without a charge.")
	}
	return notes
}

func note(title, text string) string {
	return "<dt>" + html.EscapeString(title) + "</dt><dd>" + prose(text) + "</dd>\n"
}

func footLinks(s Site) string {
	all := links(s)
	if s.Contact != "" {
		all = append(all, link{Path: s.Contact, Title: "Contact of the operator"})
	}
	var b strings.Builder
	for _, l := range append(all, link{Path: catalog.Homepage, Title: "Source"}) {
		b.WriteString(`<li><a href="` + html.EscapeString(l.Path) + `">` + html.EscapeString(l.Title) + "</a></li>\n")
	}
	return b.String()
}
