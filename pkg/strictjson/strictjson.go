// Package strictjson parses JSON from others: one value in valid UTF-8, without duplicate names
// in an object, nested to a limited depth, and with nothing after it. encoding/json accepts
// duplicate names (the last one wins), any letter case of a name, and text that is not UTF-8. So
// two readers of one payment could see two different payments. This package refuses such text.
//
// The syntax is read by jsontext, the mirror of what is encoding/json/jsontext
// from Go 1.27 on: it refuses duplicate names, text that is not UTF-8 and lone
// surrogates. Its bound on depth is fixed at 10,000, so the depth is counted
// here, before anything is allocated.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// Object is a JSON object, decoded as a whole. Its values are Object, []any,
// string, json.Number, bool or nil.
type Object = map[string]any

// Members is a JSON object whose values are the text that stood there. The
// text has been checked as a document is.
type Members map[string]json.RawMessage

// Parse reads one object that is nested at most depth deep, itself included.
// What its errors show of the document is short and in ASCII.
func Parse(doc []byte, depth int) (Object, error) { return read(doc, depth, value) }

// Split reads one object that is nested at most depth deep, itself included, and
// leaves its members as they are written.
func Split(doc []byte, depth int) (Members, error) {
	return read(doc, depth, func(d *jsontext.Decoder) (json.RawMessage, error) {
		v, err := d.ReadValue()
		return json.RawMessage(v.Clone()), err
	})
}

// read decodes a document that is one object and nothing else, and its members by a
// function.
func read[V any](doc []byte, depth int, member func(*jsontext.Decoder) (V, error)) (o map[string]V, err error) {
	if !utf8.Valid(doc) {
		return nil, errors.New("not valid UTF-8")
	}
	if err := (Limits{Depth: depth}).Check(doc); err != nil {
		return nil, err
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(doc))
	if d.PeekKind() == '{' {
		o, err = members(d, member)
	} else if _, err = d.ReadValue(); err == nil {
		return nil, errors.New("not a JSON object")
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		const most = 40
		e, _ := errors.AsType[*jsontext.SyntacticError](err)
		return nil, fmt.Errorf("key %s appears twice", untrusted.Quote(e.JSONPointer.LastToken(), most))
	case err != nil:
		return nil, errors.New("not valid JSON")
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	return o, nil
}

// members reads an object.
func members[V any](d *jsontext.Decoder, member func(*jsontext.Decoder) (V, error)) (map[string]V, error) {
	all := map[string]V{}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = d.ReadToken(); err == nil {
			name := name.String()
			all[name], err = member(d)
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return all, err
}

// value reads a value of an Object.
func value(d *jsontext.Decoder) (any, error) {
	switch d.PeekKind() {
	case '{':
		return members(d, value)
	case '[':
		all := []any{}
		_, err := d.ReadToken()
		for err == nil && d.PeekKind() != ']' {
			var v any
			v, err = value(d)
			all = append(all, v)
		}
		if err == nil {
			_, err = d.ReadToken()
		}
		return all, err
	default:
	}
	t, err := d.ReadToken()
	switch t.Kind() {
	case '"':
		return t.String(), err
	case '0':
		return json.Number(t.String()), err
	case 't', 'f':
		return t.Bool(), err
	default:
		return nil, err
	}
}

// Limits bound what decoding a document allocates: a few bytes of text can
// become a struct of hundreds.
type Limits struct {
	Depth  int // objects and arrays within each other
	Values int // values in all; 0 means that only the text bounds them
}

// Check counts, and allocates nothing. It does not judge the syntax.
func (l Limits) Check(doc []byte) error {
	depth := 0
	values := 0
	quoted := false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			values++
		}
		if depth > l.Depth {
			return fmt.Errorf("nested deeper than %d", l.Depth)
		}
		if l.Values > 0 && values > l.Values {
			return fmt.Errorf("more than %d values", l.Values)
		}
	}
	return nil
}
