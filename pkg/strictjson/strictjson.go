// Package strictjson reads JSON that others wrote: one value in valid UTF-8,
// no name twice in an object, nested to a bounded depth, and nothing after it.
// encoding/json takes the last of two equal names, either letter case of a name
// and text that is not UTF-8, so that two readers of one payment could see two
// different payments; this one refuses.
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

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// What a document is refused for. There is no variable for a name that appears
// twice, since that error names it.
var (
	ErrUTF8   = errors.New("not valid UTF-8")
	ErrSyntax = errors.New("not valid JSON")
	ErrObject = errors.New("not a JSON object")
	ErrAfter  = errors.New("data after the JSON object")
)

// Object is a JSON object, decoded as a whole. Its values are Object, []any,
// string, json.Number, bool or nil.
type Object map[string]any

// Members is a JSON object whose values are the text that stood there. The
// text has been checked as a document is.
type Members map[string]json.RawMessage

// Parse reads one object that is nested at most depth deep, itself included.
// What its errors show of the document is short and in ASCII.
func Parse(doc []byte, depth int) (Object, error) {
	var o map[string]any
	if err := read(doc, depth, &o); err != nil {
		return nil, err
	}
	return typed(o).(Object), nil //nolint:forcetypeassert // of an object
}

// typed is a decoded value whose objects are of the type Object.
func typed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = typed(member)
		}
		return Object(v)
	case []any:
		for i, element := range v {
			v[i] = typed(element)
		}
	}
	return v
}

// Split reads one object that is nested at most depth deep, itself included, and
// leaves its members as they are written.
func Split(doc []byte, depth int) (Members, error) {
	var o Members
	if err := read(doc, depth, &o); err != nil {
		return nil, err
	}
	return o, nil
}

// read decodes a document that is one object and nothing else. What jsontext takes,
// encoding/json reads in the same way.
func read(doc []byte, depth int, into any) error {
	if !utf8.Valid(doc) {
		return ErrUTF8
	}
	if err := (Limits{Depth: depth}).Check(doc); err != nil {
		return err
	}
	text := jsontext.NewDecoder(bytes.NewReader(doc))
	switch v, err := text.ReadValue(); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		const most = 40
		e, _ := errors.AsType[*jsontext.SyntacticError](err)
		return fmt.Errorf("key %s appears twice", printable.Quote(e.JSONPointer.LastToken(), most))
	case err != nil:
		return ErrSyntax
	case v.Kind() != '{':
		return ErrObject
	}
	if _, err := text.ReadToken(); !errors.Is(err, io.EOF) {
		return ErrAfter
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return d.Decode(into)
}

// Text returns a member that must be a string.
func (o Object) Text(name string) (string, error) {
	s, ok := o[name].(string)
	if !ok {
		return "", fmt.Errorf("%s must be a string", name)
	}
	return s, nil
}

// Object returns a member that must be an object.
func (o Object) Object(name string) (Object, error) {
	c, ok := o[name].(Object)
	if !ok {
		return nil, fmt.Errorf("%s must be an object", name)
	}
	return c, nil
}

// Limits bound what decoding a document allocates: a few bytes of text can
// become a struct of hundreds.
type Limits struct {
	Depth  int // objects and arrays within each other
	Values int // values in all; 0 means that only the text bounds them
}

// Check counts, and allocates nothing. It does not judge the syntax.
func (l Limits) Check(doc []byte) error {
	depth, values, quoted := 0, 0, false
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
