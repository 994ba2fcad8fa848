package discovery

import (
	"html"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

// maxShown bounds each parameter that the paywall repeats; no domain name is
// longer (RFC 1035 §2.3.4).
const maxShown = 253

// asked is what a request asks for.
type asked struct {
	values  []askedValue
	query   string // for the snippets, escaped
	lacks   string // a required parameter that is missing
	refused string // why the service would refuse the request
}

// askedValue is one parameter of the operation, as the service reads it; empty
// when it was not sent.
type askedValue struct {
	param catalog.Param
	shown string
}

// askedOf takes the parameters of the operation and no others: whoever made the
// link wrote those.
func askedOf(op catalog.Operation, v Visit) asked {
	a := asked{refused: v.Refused}
	query := url.Values{}
	for _, p := range op.Params {
		value := v.Asked.Get(p.Name)
		if len(value) > maxShown || !printable.ASCII(value) {
			value = "" // nothing that a lookup's parser returns
		}
		a.values = append(a.values, askedValue{p, value})
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
	return b.String()
}

// missing stands where the wallet would be when there is nothing to pay for:
// why, and what to do about it.
func (a asked) missing(op catalog.Operation) string {
	switch {
	case a.ready():
		return ""
	case a.refused != "":
		return `<div class="box warn"><p><strong>This cannot be asked</strong></p><p>` + html.EscapeString(a.refused) + "</p></div>\n" + a.form(op)
	}
	return `<div class="box warn"><p><strong>No ` + html.EscapeString(a.lacks) + " yet</strong></p><p>Name one to pay for an answer.</p></div>\n" + a.form(op)
}

// another asks for something else, folded, where there is something to pay for.
func (a asked) another(op catalog.Operation) string {
	form := a.form(op)
	if !a.ready() || form == "" {
		return ""
	}
	return "<details><summary>Ask for something else</summary>\n" + form + "</details>\n"
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
			if strings.EqualFold(e, v.shown) || v.shown == "" && e == v.param.Default {
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
	return `<div class="long"` + open + `<input id="ask-` + name + `" name="` + name + `" type="text" value="` + html.EscapeString(v.shown) + `" placeholder="` +
		html.EscapeString(v.param.Example) + `" maxlength="253" autocomplete="off" autocapitalize="none" spellcheck="false" inputmode="url"` + need + "></div>\n"
}

// askable says whether there is anything to choose.
func askable(p catalog.Param) bool {
	return p.Required || len(p.Enum) > 1
}

// label is a parameter's name as a person reads it.
func label(p catalog.Param) string {
	if len(p.Enum) > 0 && p.Name == "type" {
		return "Record type"
	}
	return short(p)
}

// short is the label where there is little room.
func short(p catalog.Param) string {
	words := strings.ReplaceAll(p.Name, "_", " ")
	return html.EscapeString(strings.ToUpper(words[:1]) + words[1:])
}

// paywallScript is the page's script without its comments, which are for us,
// and without the white space that means nothing: together a fifth of it.
var paywallScript = sync.OnceValue(func() string {
	var b strings.Builder
	for line := range strings.Lines(paywallView + paywallWallet + paywallSend) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "//") || strings.HasPrefix(line, "/**") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "*/") || line == "" {
			continue
		}
		b.WriteString(join(squeeze(line)))
	}
	// The last semicolon of a block means nothing. What is quoted has no such pair.
	return strings.ReplaceAll(b.String(), ";}", "}")
})

// join ends a squeezed line, with nothing where the language needs no new line:
// a brace alone ends a block, because statements end with a semicolon here.
func join(line string) string {
	if line == "}" || strings.HasSuffix(line, "{") || strings.HasSuffix(line, ",") || strings.HasSuffix(line, ";") {
		return line
	}
	return line + "\n"
}

// squeeze drops the spaces beside punctuation, outside of quotes, and a
// comment at the end. It knows no more of the language than that: quotes end
// on their line, and an operator of one sign that means another when doubled
// keeps its spaces: a minus all of them, a plus the one beside another plus.
func squeeze(line string) string {
	const punctuation = "{}()[],;:?=<>&|!"
	var b strings.Builder
	last, quote := byte(0), byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == '\\' && i+1 < len(line) {
				b.WriteByte(c)
				i++
				c = line[i]
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '`':
			quote = c
		case c == ' ' && strings.HasPrefix(line[i:], " // "):
			return b.String()
		case c == ' ' && i+1 < len(line) && (last == '+') != (line[i+1] == '+'):
			continue
		case c == ' ' && i+1 < len(line) && (strings.IndexByte(punctuation, last) >= 0 || strings.IndexByte(punctuation, line[i+1]) >= 0):
			continue
		}
		b.WriteByte(c)
		last = c
	}
	return b.String()
}

// account is an address, with a link to the explorer where there is one. field is what the authorization calls it: to or token.
func account(s Site, field, address string) string {
	text := html.EscapeString(address)
	what := map[string]string{"to": "payee", "token": "token"}[field]
	out := `<code data-signs="` + field + `">` + text + `</code>`
	if explorer := s.explorer(); explorer != "" {
		path := "/address/"
		if field == "token" {
			path = "/token/"
		}
		out += ` <a href="` + html.EscapeString(explorer+path+address) + `" rel="noopener noreferrer" aria-label="The ` + what + ` on the block explorer">explorer</a>`
	}
	return out
}
