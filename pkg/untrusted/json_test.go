package untrusted_test

import (
	"encoding/json"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":[1, "é 日本 🙂"]}`: `{"a":[1, "é 日本 🙂"]}`, "[\n\t1\r]": "[\n\t1\r]", "": "",
		"\"\u202ea\u2066\"": `"\u202ea\u2066"`, "\"a\u200bb\ufeff\"": `"a\u200bb\ufeff"`, "\"\u0085\u009b\x7f\"": `"\u0085\u009b\u007f"`,
		"\"\u2028\u2029\"": `"\u2028\u2029"`, "\"\U000e0000\U000e0041\U000e007f\"": `"\udb40\udc00\udb40\udc41\udb40\udc7f"`,
		"\"a\ufe0f\U000e0100\u3164\"": `"a\ufe0f\udb40\udd00\u3164"`, "\"\U000110bd\"": `"\ud804\udcbd"`, "\"\xff\ufffd\"": `"\ufffd` + "\ufffd\"",
		"\x1b[2J": `\u001b[2J`, // a text that is not JSON is escaped as well
	} {
		t.Run(text, func(t *testing.T) {
			if got := string(untrusted.EscapeJSON([]byte(text))); got != want {
				t.Errorf("%+q has become %+q, want %+q", text, got, want)
			}
		})
	}
}

// FuzzEscapeJSON checks that an escaped JSON text has the same meaning and no hidden
// characters.
func FuzzEscapeJSON(f *testing.F) {
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
		shown := untrusted.EscapeJSON(text)
		checkShown(t, string(shown), "\n\t\r")
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
