package x402

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// maxDepth bounds nesting. The deepest honest payload is the echo of the
// bazaar schema, at about twelve.
const maxDepth = 32

// object is a decoded JSON object. Values are object, []any, string,
// json.Number, bool or nil.
type object map[string]any

// parseObject decodes one JSON object strictly: valid UTF-8, no duplicate
// keys, bounded depth, nothing after it. encoding/json's own struct decoding
// takes the last of two duplicate keys and ignores letter case, so two readers
// of one payment could see two different payments; this one refuses instead.
func parseObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	return o, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	switch t {
	case json.Delim('{'):
		return parseMembers(d, depth)
	case json.Delim('['):
		return parseElements(d, depth)
	}
	return t, nil
}

func parseMembers(d *json.Decoder, depth int) (object, error) {
	o := object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errors.New("not valid JSON")
		}
		key, ok := t.(string)
		if !ok {
			return nil, errors.New("not valid JSON")
		}
		if _, twice := o[key]; twice {
			return nil, fmt.Errorf("key %s appears twice", excerpt(key))
		}
		if o[key], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("not valid JSON")
	}
	return o, nil
}

func parseElements(d *json.Decoder, depth int) ([]any, error) {
	list := []any{}
	for d.More() {
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("not valid JSON")
	}
	return list, nil
}

// excerpt quotes what a client sent, shortened and in ASCII, so that a reason
// can name it without carrying it.
func excerpt(s string) string {
	const most = 40
	return printable.Quote(s, most)
}

// text returns a required string member.
func (o object) text(key string) (string, error) {
	s, ok := o[key].(string)
	if !ok {
		return "", fmt.Errorf("%s must be a string", key)
	}
	return s, nil
}

// child returns a required object member.
func (o object) child(key string) (object, error) {
	c, ok := o[key].(object)
	if !ok {
		return nil, fmt.Errorf("%s must be an object", key)
	}
	return c, nil
}

// contains says whether got holds everything of want: an object may have more
// members, arrays and everything else must be equal (x402 v2, extension echo
// and accepted.extra).
func contains(want, got any) bool {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			return false
		}
		for k, v := range w {
			if have, there := g[k]; !there || !contains(v, have) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !equal(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return equal(want, got)
}

// equal compares two decoded values exactly. Numbers are compared as they are
// written: everything that this server offers is an integer, and JavaScript
// and Go write those alike.
func equal(a, b any) bool {
	switch x := a.(type) {
	case object:
		y, ok := b.(object)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if have, there := y[k]; !there || !equal(v, have) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return a == b
}
