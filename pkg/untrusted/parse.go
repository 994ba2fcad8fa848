package untrusted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Object is a JSON object, decoded as a whole. Its values are Object, []any,
// string, json.Number, bool or nil.
type Object = map[string]any

// Members is a JSON object whose values are the text that stood there. The
// text has been checked as a document is.
type Members map[string]json.RawMessage

// Parse reads a document that is one object in valid UTF-8, nested at most depth deep,
// itself included, with no name twice in an object, and nothing after it. encoding/json
// takes the last of two equal names, either letter case of a name, and text that is not
// UTF-8, so that two readers of one payment could see two different payments. What the
// errors show of the document is short and in ASCII.
func Parse(doc []byte, depth int) (Object, error) {
	return parse(doc, depth, parseValue)
}

// Split reads what Parse reads, and leaves the members of the object as they are written.
func Split(doc []byte, depth int) (Members, error) {
	return parse(doc, depth, func(d *jsontext.Decoder) (json.RawMessage, error) {
		v, err := d.ReadValue()
		return json.RawMessage(v.Clone()), err
	})
}

// parse reads a document that is one object and nothing else; parseMember reads the value
// of a member. The syntax is that of jsontext, the mirror of what is encoding/json/jsontext
// from Go 1.27 on: it refuses duplicate names, text that is not UTF-8 and lone surrogates.
// Its bound on depth is fixed at 10,000, so the depth is counted here, before anything is
// allocated.
func parse[V any](doc []byte, depth int, parseMember func(*jsontext.Decoder) (V, error)) (map[string]V, error) {
	if !utf8.Valid(doc) {
		return nil, errors.New("not valid UTF-8")
	}
	limits := Limits{Depth: depth}
	if err := limits.Check(doc); err != nil {
		return nil, err
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(doc))
	if d.PeekKind() != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, explain(err)
		}
		return nil, errors.New("not a JSON object")
	}
	object, err := parseObject(d, parseMember)
	if err != nil {
		return nil, explain(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	return object, nil
}

// explain is an error of jsontext in words that show little of the document.
func explain(err error) error {
	const most = 40
	if errors.Is(err, jsontext.ErrDuplicateName) {
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return fmt.Errorf("key %s appears twice", Quote(syntactic.JSONPointer.LastToken(), most))
		}
	}
	return errors.New("not valid JSON")
}

// parseObject reads an object.
func parseObject[V any](d *jsontext.Decoder, parseMember func(*jsontext.Decoder) (V, error)) (map[string]V, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	object := map[string]V{}
	for d.PeekKind() != '}' {
		token, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String() // the next read overwrites what token holds
		if object[name], err = parseMember(d); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

// parseArray reads an array.
func parseArray(d *jsontext.Decoder) ([]any, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	array := []any{}
	for d.PeekKind() != ']' {
		v, err := parseValue(d)
		if err != nil {
			return nil, err
		}
		array = append(array, v)
	}
	_, err := d.ReadToken()
	return array, err
}

// parseValue reads a value of an Object.
func parseValue(d *jsontext.Decoder) (any, error) {
	switch d.PeekKind() {
	case '{':
		return parseObject(d, parseValue)
	case '[':
		return parseArray(d)
	default:
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case '0':
		return json.Number(token.String()), nil
	case 't', 'f':
		return token.Bool(), nil
	default:
		return nil, nil // null
	}
}

// Limits bound what decoding a document allocates: a few bytes of text can
// become a struct of hundreds.
type Limits struct {
	Depth  int // objects and arrays within each other
	Values int // values in all; 0 means that only the text bounds them
}

// Check counts, and allocates nothing. It does not check the syntax.
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
