package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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

// typed is a parameter's text as the JSON type that the parameter declares.
// Text that is not of that type stays text; the catalog's tests exclude it.
func typed(p catalog.Param, text string) any {
	switch p.Type {
	case "integer":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case "boolean":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	}
	return text
}

// typedAll is typed for a list.
func typedAll(p catalog.Param, texts []string) []any {
	var all []any
	for _, t := range texts {
		all = append(all, typed(p, t))
	}
	return all
}

// defaultOrExample is the value that a manifest shows for a parameter.
func defaultOrExample(p catalog.Param) any {
	if p.Default != "" {
		return typed(p, p.Default)
	}
	return typed(p, p.Example)
}

// exampleQuery is the operation's example query with typed values.
func exampleQuery(op catalog.Operation) object {
	query := object{}
	for _, v := range op.Example {
		for _, p := range op.Params {
			if p.Name == v.Name {
				query = append(query, member{v.Name, typed(p, v.Value)})
			}
		}
	}
	return query
}

// layoutWidth is the column that laid out JSON tries to stay within.
const layoutWidth = 76

// pretty is JSON for people: indented by two spaces, with every object and
// array that fits on one line on one line, in the order of the source.
func pretty(raw []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := ordered(d)
	if err != nil {
		return "", err
	}
	if d.More() {
		return "", fmt.Errorf("more than one JSON value")
	}
	var b strings.Builder
	if err := layout(&b, v, "", 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// ordered reads one JSON value: objects as object, arrays as []any.
func ordered(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, err := d.Token() // a string: the decoder allows nothing else
			if err != nil {
				return nil, err
			}
			value, err := ordered(d)
			if err != nil {
				return nil, err
			}
			o = append(o, member{fmt.Sprint(key), value})
		}
		_, err = d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := ordered(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

// layout writes v, whose first line already has used columns.
func layout(b *strings.Builder, v any, indent string, used int) error {
	line, err := inline(v)
	if err != nil {
		return err
	}
	var open, end string
	var parts object
	switch v := v.(type) {
	case object:
		open, end, parts = "{", "}", v
	case []any:
		open, end = "[", "]"
		for _, item := range v {
			parts = append(parts, member{"", item})
		}
	}
	if len(parts) == 0 || used+len(line) < layoutWidth {
		b.WriteString(line)
		return nil
	}
	inner := indent + "  "
	b.WriteString(open)
	for i, m := range parts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + inner)
		label := ""
		if open == "{" {
			key, err := encode(m.key)
			if err != nil {
				return err
			}
			label = string(key) + ": "
		}
		b.WriteString(label)
		if err := layout(b, m.value, inner, len(inner)+len(label)); err != nil {
			return err
		}
	}
	b.WriteString("\n" + indent + end)
	return nil
}

// inline is v on one line, with a space after each comma and colon.
func inline(v any) (string, error) {
	var parts []string
	switch v := v.(type) {
	case object:
		for _, m := range v {
			key, err := encode(m.key)
			if err != nil {
				return "", err
			}
			value, err := inline(m.value)
			if err != nil {
				return "", err
			}
			parts = append(parts, string(key)+": "+value)
		}
		return "{" + strings.Join(parts, ", ") + "}", nil
	case []any:
		for _, item := range v {
			value, err := inline(item)
			if err != nil {
				return "", err
			}
			parts = append(parts, value)
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	}
	raw, err := encode(v)
	return string(raw), err
}

// compact is laid out JSON without the white space.
func compact(text string) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, []byte(text))
	return b.String(), err
}
