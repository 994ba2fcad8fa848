// Package strictjson reads JSON that others wrote: one value in valid UTF-8,
// no name twice in an object, nested to a bounded depth, and nothing after it.
// encoding/json takes the last of two equal names, either letter case of a name
// and text that is no UTF-8, so that two readers of one payment could see two
// different payments; this one refuses.
//
// The syntax is read by jsontext, the mirror of what is encoding/json/jsontext
// from Go 1.27 on: it refuses duplicate names, text that is no UTF-8 and lone
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

// What a document is refused for. A name that appears twice has no error of its
// own, since the error names it.
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
	var o Object
	err := read(doc, depth, func(d *jsontext.Decoder) (err error) {
		o, err = object(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Split reads one object that is nested at most depth deep, itself included, and
// leaves its members as they are written.
func Split(doc []byte, depth int) (Members, error) {
	o := Members{}
	err := read(doc, depth, func(d *jsontext.Decoder) error {
		return members(d, func(name string) error {
			v, err := d.ReadValue()
			o[name] = json.RawMessage(bytes.Clone(v))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// read hands a decoder that stands at an object to take, and sees to it that
// nothing follows.
func read(doc []byte, depth int, take func(*jsontext.Decoder) error) error {
	if !utf8.Valid(doc) {
		return ErrUTF8
	}
	if err := (Limits{Depth: depth}).Check(doc); err != nil {
		return err
	}
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	if d.PeekKind() != '{' {
		if _, err := d.ReadValue(); err != nil {
			return explain(err)
		}
		return ErrObject
	}
	if err := take(d); err != nil {
		return explain(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return ErrAfter
	}
	return nil
}

// explain is the error of a decoder in words that show little of the document.
func explain(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		const most = 40
		return fmt.Errorf("key %s appears twice", printable.Quote(e.JSONPointer.LastToken(), most))
	}
	return ErrSyntax
}

// members calls value for each member of the object at which the decoder stands.
func members(d *jsontext.Decoder, value func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := value(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func object(d *jsontext.Decoder) (Object, error) {
	o := Object{}
	err := members(d, func(name string) (err error) {
		o[name], err = value(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func value(d *jsontext.Decoder) (any, error) {
	switch d.PeekKind() {
	case '{':
		return object(d)
	case '[':
		return elements(d)
	default:
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '"':
		return t.String(), nil
	case '0':
		return json.Number(t.String()), nil
	case 't', 'f':
		return t.Bool(), nil
	default:
		return nil, nil // null
	}
}

func elements(d *jsontext.Decoder) ([]any, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	list := []any{}
	for d.PeekKind() != ']' {
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.ReadToken()
	return list, err
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
	Values int // values in all; 0 is no bound but that of the text
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
