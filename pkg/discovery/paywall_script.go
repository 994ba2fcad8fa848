package discovery

import (
	"strings"
	"sync"
)

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
