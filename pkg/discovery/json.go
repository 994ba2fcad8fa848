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

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := encode(m.key)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), nil
}

// encode is compact JSON that leaves & < > readable: nothing of it is put into
// HTML without escaping.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// laid is JSON for people: indented, with the arrays that fit on one line on one.
func laid(raw []byte) string {
	return strings.TrimSuffix(string(layout.PrettyOptions(raw, &layout.Options{Width: 76, Indent: "  "})), "\n")
}

// typed is the text of a value as the JSON type that its parameter or field declares.
// Text that is not of that type stays text; the catalog's tests exclude it.
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
