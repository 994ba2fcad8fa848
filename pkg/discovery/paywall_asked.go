package discovery

import (
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// maxShownDomain bounds each text of the request that the paywall repeats; no
// domain name is longer (RFC 1035 §2.3.4).
const maxShownDomain = 253

// maxShownQuery bounds the query that the snippets repeat.
const maxShownQuery = 512

// asked is what a request asks for.
type asked struct {
	values []askedValue
	query  string // for the snippets: escaped, empty when it cannot be shown whole
	lacks  string // a required parameter that is missing
}

// askedValue is one parameter of the operation, as it was asked for.
type askedValue struct {
	param catalog.Param
	shown string // printable
	whole bool   // shown is what was sent
}

// askedOf reads the query for the page. What is wrong with it is for the
// service to say: the page shows it as it is.
func askedOf(op catalog.Operation, query string) asked {
	// A malformed part is left out, as the service leaves it out.
	values, err := url.ParseQuery(query)
	a := asked{query: values.Encode()}
	if err != nil || len(a.query) > maxShownQuery {
		a.query = ""
	}
	for _, p := range op.Params {
		v := askedValue{param: p}
		v.shown, v.whole = printable(values.Get(p.Name))
		a.values = append(a.values, v)
		if !v.whole {
			a.query = ""
		}
		if p.Required && v.shown == "" {
			a.lacks = p.Name
		}
	}
	return a
}

// call is the address for the snippets: what was asked for, or the example.
func (a asked) call(o opView) string {
	if a.lacks != "" || a.query == "" {
		return o.ExampleURL
	}
	return o.URL + "?" + a.query
}

// rows are what is asked for, of an operation that can be asked something.
func (a asked) rows() string {
	var b strings.Builder
	for _, v := range a.values {
		switch {
		case !askable(v.param):
		case v.shown != "":
			b.WriteString("<dt>" + label(v.param) + "</dt><dd><bdi><code>" + html.EscapeString(v.shown) + "</code></bdi></dd>\n")
		case v.param.Default != "":
			b.WriteString("<dt>" + label(v.param) + "</dt><dd><code>" + html.EscapeString(v.param.Default) + "</code> (default)</dd>\n")
		}
	}
	return b.String()
}

// missing stands where the wallet would be when there is nothing to pay for.
func (a asked) missing() string {
	if a.lacks == "" {
		return ""
	}
	return `<div class="box warn"><p><strong>No ` + html.EscapeString(a.lacks) + ` yet</strong></p><p>Name one above to pay for an answer, or add <code>?` +
		html.EscapeString(a.lacks) + "=</code> and a name to the address.</p></div>\n"
}

// form asks for something else, or for something at all. It works without a
// script: it is a link with a query.
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
	b.WriteString("<button type=\"submit\" class=\"button quiet\">Update</button>\n</form>\n")
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
	value := ""
	if v.whole {
		value = v.shown
	}
	need := ""
	if v.param.Required {
		need = " required"
	}
	return `<div class="long"` + open + `<input id="ask-` + name + `" name="` + name + `" type="text" value="` + html.EscapeString(value) + `" placeholder="` +
		html.EscapeString(v.param.Example) + `" maxlength="253" autocomplete="off" autocapitalize="none" spellcheck="false" inputmode="url"` + need + "></div>\n"
}

// askable says whether there is anything to choose.
func askable(p catalog.Param) bool {
	return p.Required || len(p.Enum) > 1
}

// label is a parameter's name as a person reads it.
func label(p catalog.Param) string {
	words := strings.ReplaceAll(p.Name, "_", " ")
	if len(p.Enum) > 0 && strings.HasSuffix(words, "type") {
		words = "record type"
	}
	return html.EscapeString(strings.ToUpper(words[:1]) + words[1:])
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
