// Package printable makes text of a peer fit for a log, a terminal or a
// message. A peer is whoever is at the other end: a client, the author of a
// link, the host that is asked about, a registry, a facilitator, a node.
//
// Such text may be long, may hold what moves a terminal's cursor or colours it
// (control characters, C1 among them), and may hold marks that reorder or hide
// what is displayed. Text bounds it and replaces those characters; Handler does
// so for everything that is logged.
package printable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
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
	long := len(s) > most
	if long {
		s = cut(s, most) // before the rest is looked at, however long it is
	}
	s = strings.Map(onOneLine, s)
	if !long && len(s) <= most {
		return s
	}
	// Bytes that are no UTF-8 have become U+FFFD, which is longer.
	if room := most - len(ellipsis); len(s) > room {
		s = cut(s, room)
	}
	return s + ellipsis
}

// Lines is Text for a text of several lines: of so much of it, they are kept.
func Lines(s string) string {
	end := ""
	if len(s) > Max {
		s, end = cut(s, Max), ellipsis
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return onOneLine(r)
	}, s) + end
}

// cut is the first bytes of a longer text, n of them or as many less as end
// with a whole character.
func cut(s string, n int) string {
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
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Quote is s in quotes and in ASCII, at most so many bytes of it.
func Quote(s string, most int) string {
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + ellipsis
	}
	return strconv.QuoteToASCII(s)
}

// JSON is a JSON text whole, with every character that Text would replace
// written as an escape, so that it means the same. Line feeds between the
// tokens stay.
func JSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1: // what a JSON reader makes of it
			out = append(out, `\ufffd`...)
		case r == '\n' || unicode.IsPrint(r):
			out = append(out, text[:size]...)
		default:
			out = append(out, escape(r)...)
		}
		text = text[size:]
	}
	return out
}

// escape is a character inside a JSON string.
func escape(r rune) string {
	if r < 0x10000 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	r -= 0x10000
	return fmt.Sprintf(`\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
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

var _ json.Marshaler = Own("")

// Own is a text of our own making, such as a stack trace. Handler passes it on
// whole.
type Own string

// MarshalJSON implements json.Marshaler.
func (o Own) MarshalJSON() ([]byte, error) { return json.Marshal(string(o)) }
