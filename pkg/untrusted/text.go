// Package untrusted handles text that others wrote: a client, the author of a link, the host
// that a question is about, a registry, a facilitator, or a node of a chain.
//
// Parse and Split read JSON from others, and refuse a document that two readers could
// understand differently. Other text may be long, may contain characters that move a terminal's
// cursor or change its colours, and may contain marks that reorder or hide text. Text, Clip,
// Lines and Quote make such text safe for a terminal or a message, Attr for a log, and Marshal
// and EscapeJSON for an answer.
package untrusted

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max is the length to which Text and Lines cut a text, in bytes.
const Max = 512

// ellipsis marks the end of a text that was cut.
const ellipsis = "…"

// Text returns s on one line, cut to Max bytes.
func Text(s string) string { return Clip(s, Max) }

// Clip returns s on one line, in no more than the given number of bytes. A result that was cut
// ends with an ellipsis. The ellipsis counts toward that number, so the number must leave room
// for it.
func Clip(s string, limit int) string {
	if len(s) <= limit && ASCII(s) {
		return s
	}
	shown := strings.Map(printableRune, truncate(s, limit)) // truncate first: s may be very long
	if len(s) <= limit && len(shown) <= limit {
		return shown
	}
	// shown can be too long even if s was not: each byte that is not UTF-8 becomes U+FFFD,
	// which has three bytes.
	return truncate(shown, limit-len(ellipsis)) + ellipsis
}

// Lines is like Text, but keeps the line breaks in the first Max bytes.
func Lines(s string) string {
	var shown []string
	for line := range strings.SplitSeq(truncate(s, Max), "\n") {
		shown = append(shown, strings.Map(printableRune, line))
	}
	lines := strings.Join(shown, "\n")
	if len(s) > Max {
		lines += ellipsis
	}
	return lines
}

// truncate returns at most the first n bytes of s, and does not cut a character in two.
func truncate(s string, n int) string {
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

// ASCII reports whether s consists of printable ASCII characters, as a header requires.
func ASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Quote returns s in quotes and in ASCII. A longer text is cut to the given number of bytes
// before it is quoted, and an ellipsis follows the quotes.
func Quote(s string, limit int) string {
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + ellipsis
	}
	return strconv.QuoteToASCII(s)
}

// printableRune replaces a character that would break the line or that cannot be printed.
func printableRune(r rune) rune {
	switch {
	case unicode.IsSpace(r): // including line and paragraph separators
		return ' '
	case !unicode.IsPrint(r):
		return '?'
	}
	return r
}
