package untrusted_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

func TestText(t *testing.T) {
	t.Parallel()
	text, lines := untrusted.Text, untrusted.Lines
	for name, c := range map[string]struct{ got, want any }{
		"other scripts":        {got: text("naïve 日本 🙂"), want: "naïve 日本 🙂"},
		"controls":             {got: text("\x1b[2J\x07a\x00\x7f"), want: "?[2J?a??"},
		"C1":                   {got: text("\u009b2J\u009b31mPAID"), want: "?2J?31mPAID"},
		"bidi marks":           {got: text("\u202egnp\u202c \u2066x\u2069 \u200f\u061c"), want: "?gnp? ?x? ??"},
		"invisible":            {got: text("a\u200bb\ufeffc\U000e0041"), want: "a?b?c?"},
		"line separators":      {got: text("a\nb\r\nc\u2028d\u2029e\u0085f\tg"), want: "a b  c d e f g"},
		"bytes":                {got: text("a\xffb\x9b"), want: "a\ufffdb\ufffd"},
		"as long as it may":    {got: text(strings.Repeat("a", 512)), want: strings.Repeat("a", 512)},
		"one longer":           {got: text(strings.Repeat("a", 513)), want: strings.Repeat("a", 509) + "…"},
		"cut in a character":   {got: text(strings.Repeat("é", 300)), want: strings.Repeat("é", 254) + "…"},
		"longer when cleaned":  {got: text(strings.Repeat("\xff", 512)), want: strings.Repeat("\ufffd", 169) + "…"},
		"shorter when cleaned": {got: text(strings.Repeat("\u202e", 200)), want: strings.Repeat("?", 170) + "…"},
		"lines":                {got: lines("a\nb\x1b[2J\n"), want: "a\nb?[2J\n"}, "lines of Windows": {got: lines("a\r\nb"), want: "a \nb"},
		"a line separator": {got: lines("a\u2028b"), want: "a b"}, "long lines": {got: lines(strings.Repeat("ab\n", 1000)), want: strings.Repeat("ab\n", 170) + "ab…"},
		"a quote": {got: untrusted.Quote("a", 8), want: `"a"`}, "an odd quote": {got: untrusted.Quote("é\u202e\x1b", 8), want: `"\u00e9\u202e\x1b"`},
		"a long quote": {got: untrusted.Quote("abcdefghij", 8), want: `"abcdefgh"…`},
		"nothing":      {got: untrusted.ASCII(""), want: true}, "ASCII": {got: untrusted.ASCII("a b~"), want: true}, "a line": {got: untrusted.ASCII("a\n"), want: false},
		"DEL": {got: untrusted.ASCII("\x7f"), want: false}, "a letter": {got: untrusted.ASCII("é"), want: false}, "a byte": {got: untrusted.ASCII("\xff"), want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("%s: %q, want %q", name, c.got, c.want)
			}
		})
	}
}

// checkShown fails the test if a text is not UTF-8, or if it has a hidden character that is
// not in the string allowed.
func checkShown(t *testing.T, text, allowed string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%q is not UTF-8", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool {
		tag := 0xe0000 <= r && r <= 0xe007f
		return !strings.ContainsRune(allowed, r) && (tag || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}); i >= 0 {
		t.Errorf("%+q shows what it should not at %d", text, i)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"a", "\u009b2J", "\u202e", "a\u2028b", "\xff\xfe", strings.Repeat("é", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := untrusted.Text(s)
		checkShown(t, got, "")
		if len(got) > untrusted.Max || untrusted.Text(got) != got {
			t.Errorf("%d bytes, again %q", len(got), untrusted.Text(got))
		}
		checkShown(t, untrusted.Lines(s), "\n")
	})
}
