// Package printable makes text from a peer safe for a log, a terminal or a message. A peer is
// the other end: a client, the author of a link, the host of a lookup, a registry, a
// facilitator, a node.
//
// Such text may be long. It may contain control characters (including C1) that move a terminal's
// cursor or change its colours, and marks that reorder or hide displayed text. Text limits the
// length and replaces those characters; Attr does the same for everything that is logged.
package printable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Max is how many bytes of a peer's text are shown.
const Max = 512

// ellipsis is the end of a text that was cut.
const ellipsis = "…"

// Text is s on one line, at most Max bytes long.
func Text(s string) string { return Clip(s, Max) }

// Clip is s on one line, at most so many bytes long; the mark of a cut is among
// them, so there must be room for it.
func Clip(s string, most int) string {
	if len(s) <= most && ASCII(s) {
		return s
	}
	shown := strings.Map(onOneLine, cut(s, most)) // not the rest, however long it is
	if len(s) <= most && len(shown) <= most {
		return shown
	}
	// A byte that is not UTF-8 has become U+FFFD, which is longer.
	return cut(shown, most-len(ellipsis)) + ellipsis
}

// Lines is Text for a text of several lines: of so much of it, they are kept.
func Lines(s string) string {
	var shown []string
	for line := range strings.SplitSeq(cut(s, Max), "\n") {
		shown = append(shown, strings.Map(onOneLine, line))
	}
	lines := strings.Join(shown, "\n")
	if len(s) > Max {
		lines += ellipsis
	}
	return lines
}

// cut is at most n bytes of s, and ends with a whole character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// ASCII reports whether s is of the printable characters of ASCII, as what goes
// into a header has to be.
func ASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Quote is s in quotes and in ASCII, at most so many bytes of it.
func Quote(s string, most int) string {
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + ellipsis
	}
	return strconv.QuoteToASCII(s)
}

// Marshal encodes an answer as JSON, so that a record, a registry or a certificate in it
// cannot show a person or a model something other than what it says. These bytes
// are what is stored, digested for receipts, and sent, over HTTP and MCP. It panics for a
// value that JSON does not have, which is a bug.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return JSON(b)
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

// JSON is a JSON text whole, with every character that a reader would not see
// where it stands, or that changes what is shown, written as an escape, so that it
// means the same: control and format characters, line and paragraph separators
// (categories Cc, Cf, Zl and Zp), tag characters and variation selectors, and
// whatever else has no glyph. White space between the tokens stays. A
// text that has none of these is returned as it is.
func JSON(text []byte) []byte {
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

// onOneLine replaces the characters that do more than stand in a line.
func onOneLine(r rune) rune {
	switch {
	case unicode.IsSpace(r): // line and paragraph separators among them
		return ' '
	case !unicode.IsPrint(r):
		return '?'
	}
	return r
}

// Own is a text of our own making, such as a stack trace, which is logged whole.
type Own string

// Attr is the ReplaceAttr of a slog handler: it passes the text of an attribute through
// Text, which is a string, an error, or a map of strings. Messages and keys are constants of
// ours, and values of any other type are not a peer's.
func Attr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Text(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(Text(v.Error()))
		case map[string]string:
			clean := make(map[string]string, len(v))
			for key, value := range v {
				clean[Text(key)] = Text(value)
			}
			a.Value = slog.AnyValue(clean)
		}
	default:
	}
	return a
}
