package untrusted_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const depth = 4

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := untrusted.Parse([]byte(` {"a":"\u0062","n":-1.50e3,"t":true,"f":false,"z":null,"l":[1,[],{}],"o":{"a":{}}} `), depth)
	want := untrusted.Object{
		"a": "b", "n": json.Number("-1.50e3"), "t": true, "f": false, "z": nil,
		"l": []any{json.Number("1"), []any{}, untrusted.Object{}}, "o": untrusted.Object{"a": untrusted.Object{}},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	got, err := untrusted.Split([]byte(`{"a": 1e999, "b":{"c": [ ]}, "":"x"}`), depth)
	want := untrusted.Members{"a": json.RawMessage("1e999"), "b": json.RawMessage(`{"c": [ ]}`), "": json.RawMessage(`"x"`)}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

// TestRefused checks that Parse and Split refuse the same documents for the same reasons.
func TestRefused(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"":                           "not valid JSON",
		`{"a":1`:                     "not valid JSON",
		`{"a":1,}`:                   "not valid JSON",
		`{"a":01}`:                   "not valid JSON",
		`{"a":"` + "\x01" + `"}`:     "not valid JSON",
		`{"a":"\ud800"}`:             "not valid JSON",
		"\xef\xbb\xbf{}":             "not valid JSON",
		`{"a":"` + "\xff" + `"}`:     "not valid UTF-8",
		`[]`:                         "not a JSON object",
		`null`:                       "not a JSON object",
		`{} {}`:                      "data after the JSON object",
		`{"a":1,"a":1}`:              `key "a" appears twice`,
		`{"a":1,"\u0061":1}`:         `key "a" appears twice`,
		`{"o":{"a":1,"b":[],"a":2}}`: `key "a" appears twice`,
		`{"l":[{"a":1,"a":2}]}`:      `key "a" appears twice`,
		`{"` + strings.Repeat("é", 90) + `":1,"` + strings.Repeat("é", 90) + `":1}`: "appears twice",
		`{"a":[[[[]]]]}`: "nested deeper than 4",
		`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}": "nested deeper than 4",
	} {
		t.Run(doc, func(t *testing.T) {
			o, err := untrusted.Parse([]byte(doc), depth)
			m, split := untrusted.Split([]byte(doc), depth)
			if err == nil || split == nil || err.Error() != split.Error() || !strings.Contains(err.Error(), want) || o != nil || m != nil {
				t.Errorf("%.60q: %v, %v; want %s", doc, err, split, want)
				return
			}
			if s := err.Error(); len(s) > 300 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' && r != '…' }) {
				t.Errorf("%.60q: the error shows %q", doc, s)
			}
		})
	}
	if _, err := untrusted.Parse([]byte(`{"a":[[[]]]}`), depth); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := untrusted.Limits{Depth: 2, Values: 5}
	for doc, want := range map[string]string{
		`{"a":[1,2,3]}`:         "",
		`{"a":[1,2,3,4]}`:       "",
		`{"a":[1,2,3,4,5]}`:     "more than 5 values",
		`{"a":"[[[,,,,,,\"[["}`: "",
		`{"a":[[]]}`:            "nested deeper than 2",
		`{"a":{},"b":{}}`:       "",
	} {
		t.Run(doc, func(t *testing.T) {
			got := ""
			if err := l.Check([]byte(doc)); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: %q, want %q", doc, got, want)
			}
		})
	}
}

// FuzzParse checks that Parse and Split accept the same documents, and that Parse reads an
// accepted document as encoding/json does.
func FuzzParse(f *testing.F) {
	for _, doc := range []string{`{"a":[1,{"b":null}]}`, `{"a":1,"\u0061":2}`, `{"a":"\ud83d\ude00"}`, `[]`, `{}{}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, err := untrusted.Parse(doc, 8)
		m, split := untrusted.Split(doc, 8)
		if (err == nil) != (split == nil) {
			t.Fatalf("%q: %v, %v", doc, err, split)
		}
		if err != nil {
			return
		}
		if !utf8.Valid(doc) || len(o) != len(m) {
			t.Fatalf("%q: %d members, %d", doc, len(o), len(m))
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		var want map[string]any
		err = d.Decode(&want)
		read, _ := json.Marshal(want)
		if got, _ := json.Marshal(o); err != nil || !bytes.Equal(got, read) {
			t.Errorf("%q is %s; encoding/json reads %s, %v", doc, got, read, err)
		}
	})
}
