package discovery

import (
	_ "embed" // the stylesheet
	"html"
	"strings"
)

// stylesheet is the CSS that both HTML pages carry inline, each with rules of its own after it.
//
//go:embed assets/style.css
var stylesheet string

// prose is a sentence as HTML: escaped, with the words in backticks as code.
func prose(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(s, "`") {
		part = html.EscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return b.String()
}

// highlight is indented JSON as HTML: keys, strings and the other values each
// in a span. Everything is escaped, so it is safe for any text.
func highlight(s string) string {
	var b strings.Builder
	span := func(class, text string) {
		b.WriteString(`<span class="` + class + `">` + html.EscapeString(text) + `</span>`)
	}
	for i := 0; i < len(s); {
		end := i + 1
		switch c := s[i]; {
		case c == '"':
			for end < len(s) && s[end] != '"' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(s))
			if strings.HasPrefix(s[end:], ":") {
				span("k", s[i:end])
			} else {
				span("s", s[i:end])
			}
		case strings.IndexByte("{}[]:, \n", c) >= 0:
			b.WriteByte(c)
		default:
			for end < len(s) && strings.IndexByte("{}[]:, \n\"", s[end]) < 0 {
				end++
			}
			span("n", s[i:end])
		}
		i = end
	}
	return b.String()
}
