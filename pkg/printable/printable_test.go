package printable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

func TestText(t *testing.T) {
	t.Parallel()
	text, lines := printable.Text, printable.Lines
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
		"a quote": {got: printable.Quote("a", 8), want: `"a"`}, "an odd quote": {got: printable.Quote("é\u202e\x1b", 8), want: `"\u00e9\u202e\x1b"`},
		"a long quote": {got: printable.Quote("abcdefghij", 8), want: `"abcdefgh"…`},
		"nothing":      {got: printable.ASCII(""), want: true}, "ASCII": {got: printable.ASCII("a b~"), want: true}, "a line": {got: printable.ASCII("a\n"), want: false},
		"DEL": {got: printable.ASCII("\x7f"), want: false}, "a letter": {got: printable.ASCII("é"), want: false}, "a byte": {got: printable.ASCII("\xff"), want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("%s: %q, want %q", name, c.got, c.want)
			}
		})
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
		tag := 0xe0000 <= r && r <= 0xe007f
		return !strings.ContainsRune(but, r) && (tag || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
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

func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":[1, "é 日本 🙂"]}`: `{"a":[1, "é 日本 🙂"]}`, "[\n\t1\r]": "[\n\t1\r]", "": "",
		"\"\u202ea\u2066\"": `"\u202ea\u2066"`, "\"a\u200bb\ufeff\"": `"a\u200bb\ufeff"`, "\"\u0085\u009b\x7f\"": `"\u0085\u009b\u007f"`,
		"\"\u2028\u2029\"": `"\u2028\u2029"`, "\"\U000e0000\U000e0041\U000e007f\"": `"\udb40\udc00\udb40\udc41\udb40\udc7f"`,
		"\"a\ufe0f\U000e0100\u3164\"": `"a\ufe0f\udb40\udd00\u3164"`, "\"\U000110bd\"": `"\ud804\udcbd"`, "\"\xff\ufffd\"": `"\ufffd` + "\ufffd\"",
		"\x1b[2J": `\u001b[2J`, // of what is not JSON, nothing steers a terminal either
	} {
		t.Run(text, func(t *testing.T) {
			if got := string(printable.JSON([]byte(text))); got != want {
				t.Errorf("%+q has become %+q, want %+q", text, got, want)
			}
		})
	}
}

// A JSON text means the same, and shows nothing that steers.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"server":"` + "\u009b2J\u202e\x7f\U000e0041" + `"}`, "[1,\n 2]", `"\ud800"`, "\"\xff\"", `"\u202e"`, "\"\\\\\u202e\\\"\U000e0000\"",
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

// Whatever way a peer's text takes into a line, it is bounded and shows nothing
// that steers; what is ours stays as it is.
func TestLog(t *testing.T) {
	t.Parallel()
	hostile := "\u009b2J\u202e\u2028" + strings.Repeat("\x01", 64000)
	want := printable.Text(hostile)
	stack := strings.Repeat("goroutine\n", 200)
	for name, c := range map[string]struct {
		write func(l *slog.Logger)
		want  any
	}{
		"string":    {write: func(l *slog.Logger) { l.Info("m", "v", hostile) }, want: want},
		"error":     {write: func(l *slog.Logger) { l.Info("m", "v", errors.New(hostile)) }, want: want},
		"map":       {write: func(l *slog.Logger) { l.Info("m", "v", map[string]string{hostile: hostile}) }, want: map[string]any{want: want}},
		"group":     {write: func(l *slog.Logger) { l.Info("m", slog.Group("v", "a", hostile)) }, want: map[string]any{"a": want}},
		"number":    {write: func(l *slog.Logger) { l.Info("m", "v", 7) }, want: 7.0},
		"our own":   {write: func(l *slog.Logger) { l.Info("m", "v", printable.Own(stack)) }, want: stack},
		"structure": {write: func(l *slog.Logger) { l.Info("m", "v", struct{ A int }{1}) }, want: map[string]any{"A": 1.0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.write(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: printable.Attr})))
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(line["v"])
			if wanted, _ := json.Marshal(c.want); !bytes.Equal(got, wanted) {
				t.Errorf("%s, want %s", got, wanted)
			}
		})
	}
}
