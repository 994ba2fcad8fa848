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

// Object is a fully decoded JSON object. Its values are Object, []any, string, json.Number,
// bool or nil.
type Object = map[string]any

// Members is a JSON object whose values are the original JSON text. That text also follows the
// rules of Parse.
type Members map[string]json.RawMessage

// Parse reads a document that is one JSON object. The document must be valid UTF-8 and nested
// at most depth deep, counting the object itself. No object in the document may have two
// members with the same name, and nothing may follow the document. encoding/json is less
// strict: it takes the last of two equal names, ignores the letter case of names, and accepts
// text that is not UTF-8. Two readers of one payment could then see two different payments. The
// errors quote only short parts of the document, in ASCII.
func Parse(doc []byte, depth int) (Object, error) {
	return parse(doc, depth, parseValue)
}

// Split reads a document by the rules of Parse, and returns the members of the object as JSON
// text.
func Split(doc []byte, depth int) (Members, error) {
	return parse(doc, depth, func(d *jsontext.Decoder) (json.RawMessage, error) {
		v, err := d.ReadValue()
		return json.RawMessage(v.Clone()), err
	})
}

// parse reads a document that is one object and nothing else. parseMember reads the value of a
// member. The syntax is that of jsontext, which becomes encoding/json/jsontext in Go 1.27.
// jsontext refuses duplicate names, text that is not UTF-8, and lone surrogates. But its limit
// on the depth is fixed at 10,000, so parse first counts the depth itself, before anything is
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

// explain returns an error that describes an error of jsontext and quotes little of the
// document.
func explain(err error) error {
	const maxQuoted = 40
	if errors.Is(err, jsontext.ErrDuplicateName) {
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return fmt.Errorf("key %s appears twice", Quote(syntactic.JSONPointer.LastToken(), maxQuoted))
		}
	}
	return errors.New("not valid JSON")
}

// parseObject reads an object. It calls parseMember to read each value.
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
		name := token.String() // copy it now: the next read overwrites the token
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

// parseValue reads a value of any type.
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

// Limits bound the memory that decoding a document needs. Without them, a few bytes of text can
// become a struct of hundreds of bytes.
type Limits struct {
	Depth  int // how deep objects and arrays may be nested
	Values int // how many values the document may have; 0 means no limit
}

// Check returns an error if the document exceeds the limits. It allocates nothing, and does
// not check the syntax.
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
