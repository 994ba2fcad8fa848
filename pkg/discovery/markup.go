package discovery

import (
	_ "embed" // the stylesheet
	"html"
	"strings"
)

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

// highlight is indented JSON as HTML: a name is in b, a string in i and another value in
// u, which the pages colour and leave plain otherwise. What means something in HTML is
// escaped; a quote between tags is text as it is.
func highlight(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		end, tag := i+1, ""
		switch c := s[i]; {
		case c == '"':
			for end < len(s) && s[end] != '"' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(s))
			if tag = "i"; strings.HasPrefix(s[end:], ":") {
				tag = "b"
			}
		case strings.IndexByte("{}[]:, \n", c) < 0:
			for end < len(s) && strings.IndexByte("{}[]:, \n\"", s[end]) < 0 {
				end++
			}
			tag = "u"
		}
		text := strings.ReplaceAll(html.EscapeString(s[i:end]), "&#34;", `"`)
		if tag != "" {
			text = "<" + tag + ">" + text + "</" + tag + ">"
		}
		b.WriteString(text)
		i = end
	}
	return b.String()
}
