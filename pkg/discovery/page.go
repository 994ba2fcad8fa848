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

	// This is a copy of html/template that calls no methods of values. The standard library's
	// package looks up methods by name, so the linker must keep every exported method of a
	// program. With html/template, a priced function for arm64 is 14.1 to 14.5 MB large
	// instead of 12.1 to 12.5 MB, and the function discovery is 13.5 MB large instead of 10.9
	// MB. The limit is 13 MB.
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

// parsePageTemplate parses the template of a page. In the template, the functions css and js
// insert a file of assets/generated, which infra/house has minified.
func parsePageTemplate(files embed.FS, name string, funcs template.FuncMap) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"prose":  prose,
		"labels": func(name string) []string { return strings.SplitAfter(name, ".") }, // the page may break the line after each label
		"json":   highlight,
		"code":   func(s snippet) template.HTML { return template.HTML(s.markup) },                          // #nosec G203 -- TestPrograms in infra/house has escaped it
		"css":    func(name string) template.CSS { return template.CSS(readGenerated(files, name+".css")) }, // #nosec G203 -- an embedded file of this package
		"js":     func(name string) template.JS { return template.JS(readGenerated(files, name+".js")) },    // #nosec G203 -- an embedded file of this package
	}).Funcs(funcs).ParseFS(files, "assets/"+name, "assets/parts.html.tmpl"))
}

func readGenerated(files embed.FS, name string) string {
	return string(must(files.ReadFile("assets/generated/" + name)))
}

func fillTemplate(t *template.Template, data any) []byte {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// prose returns a sentence as escaped HTML. Words in backticks become code elements.
func prose(s string) template.HTML {
	parts := strings.Split(html.EscapeString(s), "`")
	for i := 1; i < len(parts); i += 2 {
		parts[i] = "<code>" + parts[i] + "</code>"
	}
	return template.HTML(strings.Join(parts, "")) // #nosec G203 -- escaped above
}

// highlight returns JSON as HTML. The names of members are b elements, strings are i elements,
// and other values are u elements. The pages use these elements only for colours. Characters
// with a meaning in HTML are escaped, except double quotes, which need no escape in text.
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

// inlineHash returns the source expression with which a Content-Security-Policy allows an
// inline style or script that is exactly this text.
func inlineHash(text string) string {
	hash := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// page renders a page of the documents. The Content-Security-Policy of the page allows its
// style and scripts by their hashes, and the service's icon. The policy allows no frame and no
// other origin.
func (v *view) page(name string, scripts ...string) Page {
	policy := "default-src 'none'; style-src " + inlineHash(readGenerated(assets, name+".css"))
	if len(scripts) > 0 {
		policy += "; script-src"
	}
	for _, script := range scripts {
		policy += " " + inlineHash(readGenerated(assets, script+".js"))
	}
	return Page{
		Body: fillTemplate(parsePageTemplate(assets, name+".html.tmpl", template.FuncMap{
			"said":  v.section,
			"lines": v.lines,
			"table": v.table,
		}), v),
		CSP: policy + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// Missing returns the page that a browser gets with the 404 of an unknown path. The page shows
// nothing of the request. If meant is not empty, the page suggests that path.
func (d *Documents) Missing(meant string) Page {
	page := d.missingPage()
	if meant != "" {
		path := html.EscapeString(meant)
		offer := `<p class="box">Did you mean <a href="` + path + `">` + path + "</a>?</p>\n<h2>"
		page.Body = bytes.Replace(page.Body, []byte("<h2>"), []byte(offer), 1)
	}
	return page
}

// Visit is the data of one request to a priced path that is answered with the paywall page in
// place of the JSON of a 402. The link is the URL of that request.
type Visit struct {
	// Query has the parameters that the link contains and the operation accepts, in normalised
	// form: domain names are in A-labels. It has nothing else from the link.
	Query url.Values
	// Typed has all parameters of the link exactly as they were sent, including misspelt
	// names. If Query is empty, the form shows the values in Typed, even if they are invalid.
	Typed url.Values
	// Request is the name that the request will have in the receipt. It is empty if the link is
	// not a valid request yet.
	Request string
	// Refused says, in words for the visitor, why the service would refuse the request. If it
	// is not empty, the page offers no payment.
	Refused string
	// Known says, in words for the visitor, what the service knows about the answer before it
	// makes the lookup. It may be empty.
	Known string
	// Offer is the offer of the 402 that the page replaces. The page lets a wallet sign the
	// terms of this offer and nothing else.
	Offer x402.PaymentRequired
	// Nonce is a random value, different in each response. With it, the
	// Content-Security-Policy allows the page's script and no other script.
	Nonce string
}

// paywall is the data of the page's template.
type paywall struct {
	siteView
	opView
	Visit
	Data       template.HTMLAttr // the values that the script reads
	PlayWallet template.JS       // the script in Site.PlayWallet, without escaping
	Heading    []piece           // the question with the visitor's values; if Ready is false, the operation's name

	Asked               []paramView // the parameters that a person can choose
	Asks                bool        // whether one of these parameters is required
	Lacks               string      // the name of a required parameter that the link lacks; empty if it lacks none
	Ready               bool        // whether there is a valid request to pay for
	Call                string      // the URL in the snippets: that of this request if it is valid, else that of the example
	Instead, InsteadURL string      // if a URL or an e-mail address was typed instead of a name: the host in it, and the link to this page for that host
}

// paramView is one parameter of the operation. Shown is its normalised value, or empty if it
// was not sent or is invalid. Typed is the text that only the form shows: the normalised
// value, or the text that was sent, or the default.
type paramView struct {
	catalog.Param
	Shown, Typed string
	Chosen       string // if the parameter has a list of values, the one that the form selects
	Label        string // the parameter's name as the form shows it to a person
}

// paywallAssets are the assets that the paywall needs. Most Lambda functions serve no other
// page. The assets of the other pages are in other variables, so the linker leaves them out of
// these functions. That saves 180 KB in each function.
//
//go:embed assets/paywall.html.tmpl assets/parts.html.tmpl assets/generated/paywall.css assets/generated/paywall.js
var paywallAssets embed.FS

// paywallPage parses the template of the page at the first visit.
var paywallPage = sync.OnceValue(func() *template.Template { return parsePageTemplate(paywallAssets, "paywall.html.tmpl", nil) })

// Paywall returns the page that a person gets in place of the JSON of a 402 (spec §5), and its
// Content-Security-Policy. The visitor can pay on the page with a wallet in the browser. For a
// visitor without a wallet, the page explains everything as text.
func Paywall(op catalog.Operation, s Site, v Visit) (body []byte, csp string) {
	p := &paywall{siteView: siteViewOf(s), opView: opViewOf(s, op), Visit: v}
	if p.Refused != "" { // the reason begins with a parameter's name in lower case, but on the page it begins a sentence
		p.Refused = strings.ToUpper(p.Refused[:1]) + p.Refused[1:]
	}
	p.readParams()
	p.Data = p.dataAttributes(string(encode(signableParts(v.Offer))))
	p.PlayWallet = template.JS(s.PlayWallet) // #nosec G203 -- it comes from the local runner, and not from a request
	return fillTemplate(paywallPage(), p), p.policy()
}

// signableParts returns the parts of an offer that the page needs to make a payment: the URL
// of the resource, the terms, and the extensions that a payment must repeat. It omits the
// resource's description, the listing for catalogs and the signed offers.
func signableParts(offer x402.PaymentRequired) object {
	extensions := maps.Clone(offer.Extensions)
	delete(extensions, "bazaar")
	delete(extensions, x402.ExtensionReceipt)
	return object{
		{"resource", object{{"url", offer.Resource.URL}}},
		{"accepts", offer.Accepts},
		{"extensions", extensions},
	}
}

// policy returns the Content-Security-Policy of the page.
func (p *paywall) policy() string {
	formAction := "'none'"
	if p.Asks {
		formAction = "'self'"
	}
	directives := []string{
		"default-src 'none'",
		"script-src 'nonce-" + p.Visit.Nonce + "'",
		"style-src " + inlineHash(readGenerated(paywallAssets, "paywall.css")),
		"img-src 'self' data:", // wallets provide their icons as data URLs
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action " + formAction,
		"frame-ancestors 'none'",
	}
	return strings.Join(directives, "; ")
}

// readParams reads the values of the operation's parameters from the Visit. It ignores all
// other parameters of the link, because the link's author may have written anything there.
func (p *paywall) readParams() {
	understood := url.Values{}
	suggested := url.Values{}
	for _, param := range p.Params {
		shown := p.viewOf(param)
		suggestion := shown.Typed
		if param.Required {
			p.Asks = true
			p.Instead = hostIn(shown.Typed)
			suggestion = p.Instead
			if shown.Shown == "" {
				p.Lacks = param.Name
			}
		}
		if shown.Shown != "" {
			understood.Set(param.Name, shown.Shown)
		}
		if suggestion != "" {
			suggested.Set(param.Name, suggestion)
		}
		hasChoice := len(param.Enum) != 1 && param.Code != ""
		if !hasChoice {
			continue
		}
		if shown.Typed == "" {
			shown.Typed = param.Default // a form also sends empty fields, so the field gets the default value
		}
		p.Asked = append(p.Asked, shown)
	}
	p.Ready = p.Lacks == "" && p.Refused == ""
	p.Heading = []piece{{Text: p.Title}}
	if p.Ready {
		p.Heading = questionOf(p.Operation, understood)
	}
	p.InsteadURL = p.Path + "?" + suggested.Encode()
	p.Call = p.ExampleURL
	if p.Ready && len(understood) > 0 {
		p.Call = p.URL + "?" + understood.Encode()
	}
}

// viewOf returns a parameter with the value that the page shows and the text in its input
// field.
func (p *paywall) viewOf(param catalog.Param) paramView {
	a := paramView{Param: param, Shown: p.Visit.Query.Get(param.Name)}
	if len(a.Shown) > maxShown || !untrusted.ASCII(a.Shown) {
		a.Shown = "" // the page shows a value only if it is short and ASCII, as every valid value is
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

// maxShown is the size limit of a value on the page. No domain name is longer (RFC 1035
// §2.3.4).
const maxShown = 253

// maxTyped limits a typed text, as maxlength in the template does. Most URLs are not longer.
const maxTyped = 300

// hostIn returns the host name in a text that is a URL, with or without its scheme, or an
// e-mail address. It returns "" if the whole text is a host name, or the host is an IP address
// or has no dot.
func hostIn(typed string) string {
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

// dataAttributes returns the data- attributes of the main element of the page. They have the
// values that the page's script reads.
func (p *paywall) dataAttributes(offer string) template.HTMLAttr {
	ready := "no"
	if p.Ready {
		ready = "yes"
	}
	play := ""
	if p.Site.PlayMoney {
		play = "yes"
	}
	owed := append(codesOfClass(p.Outcomes, fault.Owed), string(fault.InternalError))
	rules := map[string]string{"": rulesOf(p.Operation)}
	hints := map[string]string{}
	collectHints(p.Fields, rules, hints)
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
		// Between apostrophes, the double quotes of JSON need no escape and take one byte
		// each.
		b.WriteString(" data-" + d.name + "='" + strings.ReplaceAll(html.EscapeString(d.value), "&#34;", `"`) + "'")
	}
	return template.HTMLAttr(b.String()) // #nosec G203 -- escaped above
}

// rulesOf returns an operation's Verdicts in a short form that saves bytes on the page. The
// page's script uses them to write the line that summarises an answer. Each rule is a line:
// condition, sentence and tone, separated by "|".
func rulesOf(op catalog.Operation) string {
	var rules []string
	for _, v := range op.Verdicts {
		rules = append(rules, v.If+"|"+v.Says+"|"+string(v.Tone))
	}
	return strings.Join(rules, "\n")
}

// collectHints fills two maps that the page needs to show an answer with these fields. The
// keys of hints are the names of fields, and the values say how to show the fields. All fields
// of one name are shown in the same way. Only a bundle has rules: the keys are the names of
// the parts of its answer, and each value has the Verdicts of the operation whose result the
// part is.
func collectHints(fields []catalog.Field, rules, hints map[string]string) {
	for _, f := range fields {
		if f.Show != "" {
			hints[f.Name] = f.Show
		}
		inner := f.Fields
		if f.Type == "object" && len(f.Items) > 0 {
			inner = f.Items[0].Fields
			rules[f.Name] = rulesOf(childOperation(f))
		}
		collectHints(inner, rules, hints)
	}
}
