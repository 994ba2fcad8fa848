// Package strictjson reads JSON that others wrote: one object in valid UTF-8,
// no name twice in an object, nested to a bounded depth, and nothing after it.
// encoding/json takes the last of two equal names and text that is not UTF-8, so that two
// readers of one payment could see two different payments; this one refuses.
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

// Object is a JSON object, decoded as a whole. Its values are Object, []any,
// string, json.Number, bool or nil.
type Object = map[string]any

// Members is a JSON object whose values are the text that stood there. The
// text has been checked as a document is.
type Members map[string]json.RawMessage

// Parse reads one object that is nested at most depth deep, itself included.
// What its errors show of the document is short and in ASCII.
func Parse(doc []byte, depth int) (o Object, err error) {
	err = read(doc, depth, &o)
	return o, err
}

// Split reads one object that is nested at most depth deep, itself included, and
// leaves its members as they are written.
func Split(doc []byte, depth int) (m Members, err error) {
	err = read(doc, depth, &m)
	return m, err
}

// read checks a document that is one object and nothing else, and decodes it.
func read(doc []byte, depth int, into any) error {
	if !utf8.Valid(doc) {
		return errors.New("not valid UTF-8")
	}
	if err := (Limits{Depth: depth}).Check(doc); err != nil {
		return err
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(doc))
	kind := d.PeekKind()
	_, err := d.ReadValue()
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		const most = 40
		e, _ := errors.AsType[*jsontext.SyntacticError](err)
		return fmt.Errorf("key %s appears twice", printable.Quote(e.JSONPointer.LastToken(), most))
	case err != nil:
		return errors.New("not valid JSON")
	case kind != '{':
		return errors.New("not a JSON object")
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON object")
	}
	numbers := json.NewDecoder(bytes.NewReader(doc))
	numbers.UseNumber()
	return numbers.Decode(into)
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
