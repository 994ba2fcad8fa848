package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// object is a JSON object that keeps the order in which it was written, so
// that documents read in the catalog's order and not in the alphabet's.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler, for an object in a struct.
func (o object) MarshalJSON() ([]byte, error) { return encode(o), nil }

// encode is compact JSON that leaves & < > readable: nothing of it is put into HTML
// without escaping. It panics on what cannot be encoded: values are made of the catalog
// and of text, and the tests encode all of them.
func encode(v any) []byte { return appendJSON(nil, v) }

// appendJSON goes through objects and schemas by itself, because encoding/json reads
// what a MarshalJSON returns once more at each level of nesting.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case object:
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(append(appendJSON(b, m.key), ':'), m.value)
		}
		return append(b, '}')
	case schema:
		return appendJSON(b, v.members())
	case []schema:
		return appendList(b, v)
	case []object:
		return appendList(b, v)
	}
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("discovery: %T: %v", v, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func appendList[T any](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, v)
	}
	return append(b, ']')
}

// laid is JSON for people: indented, with the arrays that fit on one line on one.
func laid(raw []byte) string {
	return strings.TrimSuffix(string(layout.PrettyOptions(raw, &layout.Options{Width: 76, Indent: "  "})), "\n")
}

// typed is the text of a value as the JSON type that its parameter or field declares.
func typed(kind, text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && kind == "integer" {
		return n
	}
	return text
}

// typedAll is typed for a list.
func typedAll(kind string, texts []string) []any {
	var all []any
	for _, t := range texts {
		all = append(all, typed(kind, t))
	}
	return all
}

// exampleQuery is the operation's example query with typed values.
func exampleQuery(op catalog.Operation) object {
	query := object{}
	for _, v := range op.Example {
		for _, p := range op.Params {
			if p.Name == v.Name {
				query = append(query, member{v.Name, typed(p.Type, v.Value)})
			}
		}
	}
	return query
}
