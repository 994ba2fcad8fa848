package untrusted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal encodes an answer as JSON. An answer contains records, registry data and
// certificates that others wrote. Marshal escapes hidden characters in them, which could
// mislead a person or a model. The result is stored, digested for receipts, and sent over HTTP
// and MCP. Marshal panics for a value that JSON cannot represent, which is a bug.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return EscapeJSON(b)
}

// Compact encodes a value as JSON on one line, and leaves & < > readable. The value must come
// from this program. Compact panics for a value that JSON cannot represent, which is a bug.
func Compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// EscapeJSON returns a JSON text in which hidden characters are written as escapes. The text
// keeps its meaning. Hidden characters are those that a reader cannot see, or that change how
// other text is shown: control and format characters, line and paragraph separators
// (categories Cc, Cf, Zl and Zp), tag characters, variation selectors, and all others without
// a glyph. White space between the tokens stays. If there is nothing to escape, EscapeJSON
// returns text itself.
func EscapeJSON(text []byte) []byte {
	var out []byte
	begin := 0 // the start of the text that has not been copied to out yet
	for i := 0; i < len(text); {
		c := text[i]
		if ' ' <= c && c < 0x7f || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if isInvalid := r == utf8.RuneError && size == 1; !isInvalid && !isHidden(r) {
			i += size
			continue
		}
		out = appendEscape(append(out, text[begin:i]...), r)
		i += size
		begin = i
	}
	if begin == 0 {
		return text
	}
	return append(out, text[begin:]...)
}

// isHidden reports whether a character in a text is one that a reader cannot see.
func isHidden(r rune) bool {
	switch { // for speed: most characters are in these blocks, which have no hidden characters
	case 0xae <= r && r < 0x34f, 0x350 <= r && r < 0x600, 0x4e00 <= r && r < 0xd800:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// appendEscape appends a character as a \u escape of a JSON string.
func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	if r >= 0x10000 {
		high, low := utf16.EncodeRune(r)
		return appendEscape(appendEscape(out, high), low)
	}
	return append(out, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
