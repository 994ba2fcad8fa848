package discovery

import (
	"html"
	"net"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

// maxShown bounds each parameter that the paywall repeats; no domain name is
// longer (RFC 1035 §2.3.4).
const maxShown = 253

// maxTyped bounds what a form repeats, which can be a URL, in bytes.
const maxTyped = 300

// asked is what a request asks for.
type asked struct {
	values  []askedValue
	query   string // for the snippets, escaped
	lacks   string // a required parameter that is missing
	refused string // why the service would refuse the request
	known   string // what can be told of the answer already
}

// askedValue is one parameter of the operation: as the service reads it, and as it was
// typed, for the form alone. Both are empty when it was not sent.
type askedValue struct {
	param        catalog.Param
	shown, typed string
}

// askedOf takes the parameters of the operation and no others, which are the words of the
// one who made the link.
func askedOf(op catalog.Operation, v Visit) asked {
	a := asked{refused: v.Refused, known: v.Known}
	query := url.Values{}
	for _, p := range op.Params {
		value := v.Asked.Get(p.Name)
		if len(value) > maxShown || !printable.ASCII(value) {
			value = "" // nothing that a lookup's parser returns
		}
		typed := value
		if v.Refused != "" {
			typed = typedFor(strings.TrimSpace(v.Typed.Get(p.Name)))
		}
		a.values = append(a.values, askedValue{p, value, typed})
		switch {
		case value != "":
			query.Set(p.Name, value)
		case p.Required:
			a.lacks = p.Name
		}
	}
	a.query = query.Encode()
	return a
}

// typedFor is what a form keeps of what was typed. A link can be made by a stranger, so
// that sentences, and what is longer than a URL with a name in it, are left out.
func typedFor(text string) string {
	if len(text) > maxTyped || strings.ContainsFunc(text, unicode.IsSpace) {
		return ""
	}
	return printable.Text(text)
}

// ready says whether there is something to pay for.
func (a asked) ready() bool { return a.lacks == "" && a.refused == "" }

// call is the address for the snippets: what was asked for, or the example.
func (a asked) call(o opView) string {
	if !a.ready() || a.query == "" {
		return o.ExampleURL
	}
	return o.URL + "?" + a.query
}

// rows are what is asked for, of an operation that can be asked something.
func (a asked) rows() string {
	var b strings.Builder
	for _, v := range a.values {
		switch {
		case !askable(v.param) || !a.ready():
		case v.shown != "":
			b.WriteString("<dt>" + short(v.param) + "</dt><dd><bdi><code>" + html.EscapeString(v.shown) + "</code></bdi></dd>\n")
		case v.param.Default != "":
			b.WriteString("<dt>" + short(v.param) + "</dt><dd><code>" + html.EscapeString(v.param.Default) + "</code> (default)</dd>\n")
		}
	}
	if a.ready() && a.known != "" {
		b.WriteString("<dt>Known already</dt><dd>" + html.EscapeString(a.known) + "</dd>\n")
	}
	return b.String()
}

// missing stands where the wallet would be when there is nothing to pay for:
// why, and what to do about it.
func (a asked) missing(op catalog.Operation) string {
	class, title, text := "box", "No "+a.lacks+" yet", "Name one to pay for an answer."
	if a.refused != "" {
		class, title, text = "box warn", "This cannot be asked", a.refused
	}
	if a.ready() {
		return ""
	}
	return `<div class="` + class + `"><p><strong>` + html.EscapeString(title) + "</strong></p><p>" + html.EscapeString(text) + "</p>" + a.instead(op) + "</div>\n" + a.form(op)
}

// instead offers the host of what was typed, where that is a URL or an address of a
// mailbox and not a name.
func (a asked) instead(op catalog.Operation) string {
	query := url.Values{}
	offered := ""
	for _, v := range a.values {
		value := v.typed
		if v.param.Required {
			value = hostOf(v.typed)
			offered = value
		}
		if value != "" {
			query.Set(v.param.Name, value)
		}
	}
	if offered == "" {
		return ""
	}
	return `<p>Did you mean <a href="` + html.EscapeString(op.Path+"?"+query.Encode()) + `"><bdi>` + html.EscapeString(offered) + "</bdi></a>?</p>"
}

// hostOf is the host name in a URL, with or without its scheme, or in an address of a
// mailbox; empty where nothing is to be taken away, or what is left is not a name.
func hostOf(typed string) string {
	_, rest, found := strings.Cut(typed, "://")
	if !found {
		rest = typed
	}
	u, err := url.Parse("https://" + rest)
	if err != nil || u.Hostname() == typed || len(u.Hostname()) > maxShown || !strings.Contains(u.Hostname(), ".") || net.ParseIP(u.Hostname()) != nil {
		return ""
	}
	return u.Hostname()
}

// another asks for something else, folded, where there is something to pay for.
func (a asked) another(op catalog.Operation) string {
	form := a.form(op)
	if !a.ready() || form == "" {
		return ""
	}
	return `<details class="fold again"><summary>Ask for something else</summary>` + "\n" + form + "</details>\n"
}

// form asks for something. It works without a script: it is a link with a query.
func (a asked) form(op catalog.Operation) string {
	if !slices.ContainsFunc(op.Params, func(p catalog.Param) bool { return p.Required }) {
		return ""
	}
	var b strings.Builder
	b.WriteString(`<form class="ask" method="get" action="` + html.EscapeString(op.Path) + "\">\n")
	for _, v := range a.values {
		if askable(v.param) {
			b.WriteString(v.field())
		}
	}
	b.WriteString("<button type=\"submit\" class=\"button\">Continue</button>\n</form>\n")
	return b.String()
}

func (v askedValue) field() string {
	name := html.EscapeString(v.param.Name)
	open := `><label for="ask-` + name + `">` + label(v.param) + "</label>"
	if len(v.param.Enum) > 0 {
		var b strings.Builder
		b.WriteString("<div" + open + `<select id="ask-` + name + `" name="` + name + `">`)
		for _, e := range v.param.Enum {
			mark := ""
			if strings.EqualFold(e, v.typed) || !slices.Contains(v.param.Enum, strings.ToUpper(v.typed)) && e == v.param.Default {
				mark = " selected"
			}
			b.WriteString(`<option value="` + html.EscapeString(e) + `"` + mark + ">" + html.EscapeString(e) + "</option>")
		}
		b.WriteString("</select></div>\n")
		return b.String()
	}
	need := ""
	if v.param.Required {
		need = " required"
	}
	return `<div class="long"` + open + `<input id="ask-` + name + `" name="` + name + `" type="text" value="` + html.EscapeString(v.typed) + `" placeholder="` +
		html.EscapeString(v.param.Example) + `" maxlength="300" autocomplete="off" autocapitalize="none" spellcheck="false" inputmode="url"` + need + "></div>\n"
}

// askable says whether there is anything to choose.
func askable(p catalog.Param) bool {
	return p.Required || len(p.Enum) > 1
}

// short is a parameter's name as a person reads it, and label the same where there is
// more room.
func short(p catalog.Param) string {
	words := strings.ReplaceAll(strings.ReplaceAll(p.Name, "_", " "), "dns", "DNS")
	return html.EscapeString(strings.ToUpper(words[:1]) + words[1:])
}

func label(p catalog.Param) string {
	if p.Name == "type" {
		return "Record type"
	}
	return short(p)
}

// account is an address, with a link to the explorer where there is one; signs is what
// the authorization calls it.
func (s Site) account(signs, what, path, address string) string {
	out := `<code data-signs="` + signs + `">` + html.EscapeString(address) + `</code>`
	if explorer := s.explorer(); explorer != "" {
		out += ` <a href="` + html.EscapeString(explorer+path+address) + `" rel="noopener noreferrer" aria-label="The ` + what + ` on the block explorer">explorer</a>`
	}
	return out
}
