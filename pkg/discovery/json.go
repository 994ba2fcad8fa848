package discovery

import (
	"strconv"
	"strings"

	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

// object is a JSON object that keeps the order in which it was written, so
// that documents read in the catalog's order and not in the alphabet's.
type object []member

type member struct {
	Key   string
	Value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, encode(m.Key)...), ':'), encode(m.Value)...)
	}
	return append(b, '}'), nil
}

// encode is compact JSON that leaves & < > readable: nothing of it is put into HTML
// without escaping.
func encode(v any) []byte {
	if o, ok := v.(object); ok {
		b, _ := o.MarshalJSON()
		return b
	}
	return printable.Compact(v)
}

// laid is JSON for people: indented, with the arrays that fit on one line on one.
func laid(raw []byte) string {
	return strings.TrimSuffix(string(layout.PrettyOptions(raw, &layout.Options{Width: 76, Indent: "  "})), "\n")
}

// typed is the text of a value as the JSON type that its parameter or field declares; nil
// where there is none.
func typed(kind, text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && kind == "integer" {
		return n
	}
	if text == "" {
		return nil
	}
	return text
}

// typedAll is typed for a list.
func typedAll(kind string, texts []string) (all []any) {
	for _, t := range texts {
		all = append(all, typed(kind, t))
	}
	return all
}

// exampleQuery is the operation's example query with typed values.
func exampleQuery(op catalog.Operation) object {
	query := object{}
	for _, p := range op.Example() {
		query = append(query, member{p.Name, typed(p.Type, p.Example)})
	}
	return query
}

// must is for what is embedded, and cannot fail unless that is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
