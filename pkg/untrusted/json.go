package untrusted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal encodes an answer as JSON, so that a record, a registry or a certificate in it
// cannot show a person or a model something other than what it says. These bytes
// are what is stored, digested for receipts, and sent, over HTTP and MCP. It panics for a
// value that JSON does not have, which is a bug.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return EscapeJSON(b)
}

// Compact encodes a value of ours as JSON on one line that leaves & < > readable. It panics
// for a value that JSON does not have, which is a bug.
func Compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// EscapeJSON is a JSON text whole, with every character that a reader would not see
// where it stands, or that changes what is shown, written as an escape, so that it
// means the same: control and format characters, line and paragraph separators
// (categories Cc, Cf, Zl and Zp), tag characters and variation selectors, and
// whatever else has no glyph. White space between the tokens stays. A
// text that has none of these is returned as it is.
func EscapeJSON(text []byte) []byte {
	var out []byte
	begin := 0 // of what is not in out yet
	for i := 0; i < len(text); {
		c := text[i]
		if ' ' <= c && c < 0x7f || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if broken := r == utf8.RuneError && size == 1; !broken && !hidden(r) {
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

// hidden reports whether a character is not seen where it stands.
func hidden(r rune) bool {
	switch { // blocks of most texts that have none: Latin, Greek to Hebrew, Han to Hangul
	case 0xae <= r && r < 0x34f, 0x350 <= r && r < 0x600, 0x4e00 <= r && r < 0xd800:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// appendEscape appends a character as it is written inside a JSON string.
func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	if r >= 0x10000 {
		high, low := utf16.EncodeRune(r)
		return appendEscape(appendEscape(out, high), low)
	}
	return append(out, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
