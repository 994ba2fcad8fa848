package dns

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// lower lowers a name in presentation form, which is ASCII whatever bytes it
// stands for; so no escape changes. Two names are equal if this is equal.
func lower(name string) string { return strings.ToLower(name) }

// host is a name as results show it: lower case, without the dot of the root,
// which itself stays ".".
func host(name string) string {
	name = lower(name)
	bare, ok := strings.CutSuffix(name, ".")
	if !ok || bare == "" {
		return name
	}
	// After an odd number of backslashes the dot belongs to the last label.
	if slashes := len(bare) - len(strings.TrimRight(bare, `\`)); slashes%2 == 1 {
		return name
	}
	return bare
}

// text makes a TXT record of character-strings in presentation form.
func text(escaped []string) TXT {
	var all []byte
	out := TXT{Strings: make([]string, len(escaped))}
	for i, s := range escaped {
		b := unescape(s)
		out.Strings[i] = readable(b)
		all = append(all, b...)
	}
	out.Text = readable(all)
	return out
}

// unescape gives the bytes of a character-string in the presentation form of
// the DNS library: \DDD for bytes outside printable ASCII, \X for the
// character X.
func unescape(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			if c = s[i]; threeDigits(s[i:]) {
				c = (s[i]-'0')*100 + (s[i+1]-'0')*10 + (s[i+2] - '0')
				i += 2
			}
		}
		out = append(out, c)
	}
	return out
}

// readable writes bytes as valid UTF-8 by the rule that TXT documents.
func readable(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1, r == '\\' && threeDigits(b[1:]):
			fmt.Fprintf(&out, `\%03d`, b[0])
		default:
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}

func threeDigits[T string | []byte](s T) bool {
	if len(s) < 3 {
		return false
	}
	for i := range 3 {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
