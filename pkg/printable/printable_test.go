package printable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"other scripts":       {"naïve 日本 🙂", "naïve 日本 🙂"},
		"controls":            {"\x1b[2J\x07a\x00\x7f", "?[2J?a??"},
		"C1":                  {"\u009b2J\u009b31mPAID", "?2J?31mPAID"},
		"bidi marks":          {"\u202egnp\u202c \u2066x\u2069 \u200f\u061c", "?gnp? ?x? ??"},
		"invisible":           {"a\u200bb\ufeffc\U000e0041", "a?b?c?"},
		"line separators":     {"a\nb\r\nc\u2028d\u2029e\u0085f\tg", "a b  c d e f g"},
		"bytes":               {"a\xffb\x9b", "a\ufffdb\ufffd"},
		"as long as it may":   {strings.Repeat("a", 512), strings.Repeat("a", 512)},
		"one longer":          {strings.Repeat("a", 513), strings.Repeat("a", 509) + "…"},
		"cut in a character":  {strings.Repeat("é", 300), strings.Repeat("é", 254) + "…"},
		"longer when cleaned": {strings.Repeat("\xff", 512), strings.Repeat("\ufffd", 169) + "…"},
		"shorter when cleaned": {
			strings.Repeat("\u202e", 200), strings.Repeat("?", 170) + "…",
		},
	} {
		if got := printable.Text(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\nb\x1b[2J\n": "a\nb?[2J\n", "a\r\nb": "a \nb", "a\u2028b": "a b",
		strings.Repeat("ab\n", 1000): strings.Repeat("ab\n", 170) + "ab…",
	} {
		if got := printable.Lines(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"a": `"a"`, "é\u202e\x1b": `"\u00e9\u202e\x1b"`, "abcdefghij": `"abcdefgh"…`} {
		if got := printable.Quote(in, 8); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestASCII(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{"": true, "a b~": true, "a\n": false, "\x7f": false, "é": false, "\xff": false} {
		if got := printable.ASCII(in); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

// shows fails when a text has a character that a reader would not see where it
// stands.
func shows(t *testing.T, text, but string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%q is not UTF-8", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune(but, r) && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}); i >= 0 {
		t.Errorf("%+q shows what it should not at %d", text, i)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"a", "\u009b2J", "\u202e", "a\u2028b", "\xff\xfe", strings.Repeat("é", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := printable.Text(s)
		shows(t, got, "")
		if len(got) > printable.Max || printable.Text(got) != got {
			t.Errorf("%d bytes, again %q", len(got), printable.Text(got))
		}
		shows(t, printable.Lines(s), "\n")
	})
}

// A JSON text means the same, and shows nothing that steers.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"server":"` + "\u009b2J\u202e\x7f\U000e0041" + `"}`, "[1,\n 2]", `"\ud800"`, "\"\xff\"", `"\u202e"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got any
		if json.Unmarshal(text, &want) != nil {
			return
		}
		shown := printable.JSON(text)
		shows(t, string(shown), "\n\t\r")
		if err := json.Unmarshal(shown, &got); err != nil {
			t.Fatalf("%q: %v", shown, err)
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if string(a) != string(b) {
			t.Errorf("%q has become %q", text, shown)
		}
	})
}
