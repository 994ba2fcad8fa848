// Package untrusted is for text that others wrote: a client, the author of a link, the
// host that is asked about, a registry, a facilitator, a node.
//
// What they wrote as JSON is read by Parse and Split, which refuse what two readers could
// understand differently. What they wrote as text may be long, may hold characters that
// move a terminal's cursor or colour it, and may hold marks that reorder or hide what is
// displayed. Text, Clip, Lines and Quote make it fit for a terminal or a message, Attr for
// a log, and Marshal and EscapeJSON for an answer.
package untrusted

import (
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
