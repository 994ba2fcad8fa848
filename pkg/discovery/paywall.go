package discovery

import (
	_ "embed" // the page
	"html"
	"net/url"
	"strings"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// maxShownDomain bounds the text of the request that the paywall repeats; no
// domain name is longer (RFC 1035 §2.3.4).
const maxShownDomain = 253

// paywallPage is the page with its values as {{name}}. It is filled without
// html/template: every priced function carries it, and package template alone
// made their binaries half as large again, because it keeps the linker from
// dropping methods.
//
//go:embed assets/paywall.html
var paywallPage string

// Paywall is the page that a person gets in place of the JSON of a 402 (spec
// §5), and its Content-Security-Policy. domain is what the request asked about;
// whoever made the link wrote it, so it is shown as text and nothing else.
//
// The page has no script and loads nothing.
func Paywall(op catalog.Operation, s Site, domain string) (body []byte, csp string, err error) {
	o, err := opViewOf(s, op)
	if err != nil {
		return nil, "", err
	}
	call, row := o.ExampleURL, ""
	if takes(op, "domain") {
		shown, whole := printable(domain)
		if whole && shown != "" {
			call = o.URL + "?domain=" + url.QueryEscape(domain)
		}
		row = domainRow(shown)
	}
	// One pass: what a value contains is never looked at again.
	page := strings.NewReplacer(
		"{{css}}", stylesheet, "{{response}}", highlight(o.ResponseJSON),
		"{{domain}}", row, "{{outcomes}}", outcomeNotes(o.Outcomes), "{{steps}}", steps(), "{{links}}", footLinks(o, s),
		"{{service}}", html.EscapeString(catalog.Service), "{{origin}}", html.EscapeString(s.Origin),
		"{{title}}", html.EscapeString(op.Title), "{{summary}}", html.EscapeString(op.Summary),
		"{{description}}", html.EscapeString(op.Description), "{{example}}", html.EscapeString(o.ExampleURL),
		"{{call}}", html.EscapeString(call), "{{price}}", html.EscapeString(op.Price()), "{{usd}}", html.EscapeString(op.PriceUSD()),
		"{{amount}}", html.EscapeString(op.Amount), "{{network}}", html.EscapeString(s.networkName()),
		"{{caip2}}", html.EscapeString(s.Terms.Network), "{{asset}}", html.EscapeString(s.Terms.Asset),
		"{{payee}}", html.EscapeString(s.Terms.PayTo), "{{untrusted}}", html.EscapeString(untrusted),
	).Replace(paywallPage)
	csp = "default-src 'none'; " + styleSource() + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return []byte(page), csp, nil
}

func domainRow(shown string) string {
	if shown == "" {
		return "<dt>Domain asked</dt><dd>none; add <code>?domain=</code> and a name to the address</dd>\n"
	}
	return "<dt>Domain asked</dt><dd><bdi><code>" + html.EscapeString(shown) + "</code></bdi></dd>\n"
}

// outcomeNotes says of the operation's own errors what they cost.
func outcomeNotes(list []outcome) string {
	var free, answers, owed []fault.Code
	for _, e := range list {
		switch e.Class {
		case fault.Before:
			free = append(free, e.Code)
		case fault.Answer:
			answers = append(answers, e.Code)
		case fault.Owed:
			owed = append(owed, e.Code)
		default: // what the note on lost connections and 503 says
		}
	}
	text := "Asking for the price, a payment that is refused"
	if len(free) > 0 {
		text += ", " + quoteCodes(free)
	}
	notes := note("Not charged", text+".")
	if len(answers) > 0 {
		notes += note("Charged, because it is an answer about the domain", quoteCodes(answers)+".")
	}
	if len(owed) > 0 {
		notes += note("Charged, and the answer is still owed", quoteCodes(owed)+
			". Send the same signature to the same address again: the lookup runs again without a charge.")
	}
	return notes
}

func note(title, text string) string {
	return "<dt>" + html.EscapeString(title) + "</dt><dd>" + prose(text) + "</dd>\n"
}

func steps() string {
	var b strings.Builder
	for _, step := range handshake() {
		b.WriteString("<li>" + prose(step) + "</li>\n")
	}
	return b.String()
}

func footLinks(o opView, s Site) string {
	var b strings.Builder
	add := func(href, text string) {
		b.WriteString(`<li><a href="` + html.EscapeString(href) + `">` + html.EscapeString(text) + "</a></li>\n")
	}
	add(o.DocsURL, "Documentation of "+o.Title)
	for _, l := range links(s) {
		add(l.URL, l.Title)
	}
	add(catalog.Homepage, "Source and contact")
	return b.String()
}

func takes(op catalog.Operation, name string) bool {
	for _, p := range op.Params {
		if p.Name == name {
			return true
		}
	}
	return false
}

// printable is text that cannot disturb the page around it: no control or
// format characters (they can reorder what is displayed), no invalid UTF-8,
// bounded. whole says that nothing had to be changed.
func printable(s string) (text string, whole bool) {
	end := ""
	if len(s) > maxShownDomain {
		s, end = s[:maxShownDomain], "…"
	}
	clean := strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	return clean + end, end == "" && clean == s
}
