package discovery

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	// A copy of html/template whose templates call no methods. The standard library's look
	// methods up by name, so that the linker keeps every exported method of a program. With
	// it a priced function for arm64 has 14.1 to 14.5 MB, where it has 12.1 to 12.5 MB, and
	// discovery 13.5 MB, where it has 10.9 MB. 13 MB are allowed. The first answer takes the
	// same time: the medians of 30 starts are 6.8 and 6.6 ms.
	template "github.com/DataDog/datadog-agent/pkg/template/html"
	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Page is an HTML page with its Content-Security-Policy.
type Page struct {
	Body []byte
	CSP  string
}

// pageOf reads the template of a page. A style and a script are by name those of
// assets/generated, which infra/house minifies.
func pageOf(from embed.FS, name string, more template.FuncMap) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"prose": prose,
		"json":  highlight,
		"code":  func(s snippet) template.HTML { return template.HTML(s.markup) },                     // #nosec G203 -- escaped by TestGenerated
		"css":   func(name string) template.CSS { return template.CSS(generated(from, name+".css")) }, // #nosec G203 -- ours
		"js":    func(name string) template.JS { return template.JS(generated(from, name+".js")) },    // #nosec G203 -- ours
	}).Funcs(more).ParseFS(from, "assets/"+name, "assets/parts.html.tmpl"))
}

func generated(from embed.FS, name string) string {
	return string(must(from.ReadFile("assets/generated/" + name)))
}

func filled(t *template.Template, data any) []byte {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// prose is a sentence as HTML: escaped, with the words in backticks as code.
func prose(s string) template.HTML {
	parts := strings.Split(html.EscapeString(s), "`")
	for i := 1; i < len(parts); i += 2 {
		parts[i] = "<code>" + parts[i] + "</code>"
	}
	return template.HTML(strings.Join(parts, "")) // #nosec G203 -- escaped above
}

// highlight is indented JSON as HTML: a name is in b, a string in i and another value in
// u, which the pages colour and leave plain otherwise. What means something in HTML is
// escaped; a quote between tags is text as it is.
func highlight(s string) template.HTML {
	other := [2]string{"<u>", "</u>"}
	return template.HTML(layout.Color([]byte(s), &layout.Style{ // #nosec G203 -- escaped by Append
		Key:    [2]string{"<b>", "</b>"},
		String: [2]string{"<i>", "</i>"},
		Number: other,
		True:   other,
		False:  other,
		Null:   other,
		Append: func(dst []byte, c byte) []byte {
			if strings.IndexByte("&<>'", c) >= 0 {
				return append(dst, html.EscapeString(string(c))...)
			}
			return append(dst, c)
		},
	}))
}

// inlineHash allows one inline text and nothing else.
func inlineHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// page renders a page of the documents. Its policy allows its style and its scripts by
// hash, our own icon, no frame, and no other origin.
func (v *view) page(name string, scripts ...string) Page {
	policy := "default-src 'none'; style-src " + inlineHash(generated(assets, name+".css"))
	if len(scripts) > 0 {
		policy += "; script-src"
	}
	for _, script := range scripts {
		policy += " " + inlineHash(generated(assets, script+".js"))
	}
	return Page{
		Body: filled(pageOf(assets, name+".html.tmpl", template.FuncMap{
			"said":  v.section,
			"lines": v.lines,
			"table": v.table,
		}), v),
		CSP: policy + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// Missing is the page that a browser gets with the 404 of an unknown path. No word of the
// request is on it. It offers the path of this service that was meant, where there is one.
func (d *Documents) Missing(meant string) Page {
	page := d.missing()
	if meant != "" {
		path := html.EscapeString(meant)
		offer := `<p class="box">Did you mean <a href="` + path + `">` + path + "</a>?</p>\n<h2>"
		page.Body = bytes.Replace(page.Body, []byte("<h2>"), []byte(offer), 1)
	}
	return page
}

// Visit is what one request adds to the page that it gets in place of the JSON of a 402.
type Visit struct {
	// Query has the parameters as the operation understands them, without those that
	// were not sent: a name is in A-labels. Nothing else of the link is in it.
	Query url.Values
	// Typed are the parameters as they were sent, also where their names were mistyped. While
	// Query is empty, the form keeps them, whatever was wrong.
	Typed url.Values
	// Request names the request as the receipt of its answer will; empty when the link
	// makes no request yet.
	Request string
	// Refused says why the request would be refused, in public words, or is
	// empty. Nothing is offered for such a request.
	Refused string
	// Known is what can be told of the answer already, in public words; it may be empty.
	Known string
	// Offer is that of the 402 that the page stands for; the page signs its terms and nothing else.
	Offer x402.PaymentRequired
	// Nonce allows the page's script, and no other. It is new for each answer.
	Nonce string
}

// paywall is what the template of the page sees.
type paywall struct {
	siteView
	opView
	Visit
	Data       template.HTMLAttr // the values that the script reads
	PlayWallet template.JS       // the script of Site.PlayWallet
	Heading    []piece           // what is asked, or the name of the operation

	Asked               []paramView // the parameters that a person can choose
	Asks                bool        // one of them is required
	Lacks               string      // a required parameter that is missing
	Ready               bool        // there is something to pay for
	Call                string      // the URL in snippets: that of this request, or the example
	Instead, InsteadURL string      // the host of what was typed, where that is a URL and not a name
}

// paramView is one parameter of the operation: as the service understands it, and as it was
// typed, for the form alone. Both are empty when it was not sent.
type paramView struct {
	catalog.Param
	Shown, Typed string
	Chosen       string // of its values
	Label        string // its name as a person reads it
}

// paywallAssets are those of assets that the paywall needs. Most functions show no other page,
// and the linker drops the rest from them, 180 KB.
//
//go:embed assets/paywall.html.tmpl assets/parts.html.tmpl assets/generated/paywall.css assets/generated/paywall.js
var paywallAssets embed.FS

// paywallPage is read at the first visit.
var paywallPage = sync.OnceValue(func() *template.Template { return pageOf(paywallAssets, "paywall.html.tmpl", nil) })

// Paywall is the page that a person gets in place of the JSON of a 402 (spec
// §5), and its Content-Security-Policy. It pays with a wallet in the browser,
// and is complete as text without one.
func Paywall(op catalog.Operation, s Site, v Visit) (body []byte, csp string) {
	p := &paywall{siteView: siteViewOf(s), opView: opViewOf(s, op), Visit: v}
	p.takeParams()
	p.Data = p.data(string(encode(signable(v.Offer))))
	p.PlayWallet = template.JS(s.PlayWallet) // #nosec G203 -- the runner's, and no word of a request
	return filled(paywallPage(), p), p.policy()
}

// signable returns what the page needs of an offer: the terms, and the extensions that a payer
// repeats. The service itself tells the facilitator what is sold and what catalogs list; a payer
// need not repeat that.
func signable(offer x402.PaymentRequired) object {
	extensions := maps.Clone(offer.Extensions)
	delete(extensions, "bazaar")
	delete(extensions, x402.ExtensionReceipt)
	return object{
		{"resource", object{{"url", offer.Resource.URL}}},
		{"accepts", offer.Accepts},
		{"extensions", extensions},
	}
}

// policy is the Content-Security-Policy of the page.
func (p *paywall) policy() string {
	formAction := "'none'"
	if p.Asks {
		formAction = "'self'"
	}
	directives := []string{
		"default-src 'none'",
		"script-src 'nonce-" + p.Visit.Nonce + "'",
		"style-src " + inlineHash(generated(paywallAssets, "paywall.css")),
		"img-src 'self' data:", // wallets bring their icons as data
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action " + formAction,
		"frame-ancestors 'none'",
	}
	return strings.Join(directives, "; ")
}

// takeParams takes the parameters of the operation from the link, and nothing else: the rest
// are words of the one who made the link.
func (p *paywall) takeParams() {
	understood := url.Values{}
	instead := url.Values{}
	for _, param := range p.Params {
		shown := p.viewOf(param)
		suggestion := shown.Typed
		if param.Required {
			p.Asks = true
			p.Instead = hostOf(shown.Typed)
			suggestion = p.Instead
			if shown.Shown == "" {
				p.Lacks = param.Name
			}
		}
		if shown.Shown != "" {
			understood.Set(param.Name, shown.Shown)
		}
		if suggestion != "" {
			instead.Set(param.Name, suggestion)
		}
		hasChoice := len(param.Enum) != 1 && param.Code != ""
		if !hasChoice {
			continue
		}
		if shown.Typed == "" {
			shown.Typed = param.Default // a form sends a field that is left empty
		}
		p.Asked = append(p.Asked, shown)
	}
	p.Ready = p.Lacks == "" && p.Refused == ""
	p.Heading = []piece{{Text: p.Title}}
	if p.Ready {
		p.Heading = questionOf(p.Operation, understood)
	}
	p.InsteadURL = p.Path + "?" + instead.Encode()
	p.Call = p.ExampleURL
	if p.Ready && len(understood) > 0 {
		p.Call = p.URL + "?" + understood.Encode()
	}
}

// viewOf returns a parameter as the page shows it, and as a form has it.
func (p *paywall) viewOf(param catalog.Param) paramView {
	a := paramView{Param: param, Shown: p.Visit.Query.Get(param.Name)}
	if len(a.Shown) > maxShown || !untrusted.ASCII(a.Shown) {
		a.Shown = "" // nothing that a lookup's parser returns
	}
	a.Typed = a.Shown
	if len(p.Visit.Query) == 0 {
		a.Typed = untrusted.Clip(strings.TrimSpace(p.Visit.Typed.Get(param.Name)), maxTyped)
	}
	a.Chosen = strings.ToUpper(a.Typed)
	if !slices.Contains(param.Enum, a.Chosen) {
		a.Chosen = param.Default
	}
	a.Label = strings.NewReplacer("_", " ", "dns", "DNS").Replace(param.Name)
	a.Label = strings.ToUpper(a.Label[:1]) + a.Label[1:]
	if strings.HasSuffix(param.Name, "type") {
		a.Label = "Record type"
	}
	return a
}

// maxShown bounds each parameter that the page repeats; no domain name is
// longer (RFC 1035 §2.3.4).
const maxShown = 253

// maxTyped bounds what a form keeps of each parameter that was typed: a URL with a name in it is
// not longer, mostly. The input takes as much.
const maxTyped = 300

// hostOf returns the host name in a URL, with or without its scheme, or in an address of a
// mailbox. It is empty where the text is that name already, and where the host has no name.
func hostOf(typed string) string {
	_, rest, found := strings.Cut(typed, "://")
	if !found {
		rest = typed
	}
	u, err := url.Parse("https://" + rest)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	isName := strings.Contains(host, ".") && len(host) <= maxShown && net.ParseIP(host) == nil
	if host == typed || !isName {
		return ""
	}
	return host
}

// data are the values that the script reads, as attributes.
func (p *paywall) data(offer string) template.HTMLAttr {
	ready := "no"
	if p.Ready {
		ready = "yes"
	}
	play := ""
	if p.Site.PlayMoney {
		play = "yes"
	}
	owed := append(codesIn(p.Outcomes, fault.Owed), string(fault.InternalError))
	rules := map[string]string{"": rulesOf(p.Operation)}
	hints := map[string]string{}
	showing(p.Fields, rules, hints)
	network := x402.Network(p.Site.Terms.Network)
	var b strings.Builder
	for _, d := range []struct{ name, value string }{
		{"slug", p.Slug},
		{"ready", ready},
		{"play", play},
		{"chain", network.Name},
		{"explorer", p.Explorer},
		{"rpc", network.PublicNode},
		{"owed", strings.Join(owed, " ")},
		{"request", p.Request},
		{"offer", offer},
		{"verdicts", string(encode(rules))},
		{"hints", string(encode(hints))},
	} {
		// In apostrophes the quotes of JSON are a byte each.
		b.WriteString(" data-" + d.name + "='" + strings.ReplaceAll(html.EscapeString(d.value), "&#34;", `"`) + "'")
	}
	return template.HTMLAttr(b.String()) // #nosec G203 -- escaped above
}

// rulesOf are the rules of an operation as the page has them, which is short of bytes: a
// line for each, with condition, sentence and tone.
func rulesOf(op catalog.Operation) string {
	var rules []string
	for _, v := range op.Verdicts {
		rules = append(rules, v.If+"|"+v.Says+"|"+string(v.Tone))
	}
	return strings.Join(rules, "\n")
}

// showing collects what the page needs to show an answer: the rules for the line above
// each part of a bundle, which are those of the operation whose result it is, and what
// the fields are shown as, by their names, each of which means one thing in an answer.
func showing(fields []catalog.Field, rules, hints map[string]string) {
	for _, f := range fields {
		if f.Show != "" {
			hints[f.Name] = f.Show
		}
		inner := f.Fields
		if f.Type == "object" && len(f.Items) > 0 {
			inner = f.Items[0].Fields
			rules[f.Name] = rulesOf(resultOf(f))
		}
		showing(inner, rules, hints)
	}
}
