package discovery

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// schema is the part of JSON Schema that the documents use. Empty members are omitted.
type schema struct {
	Ref         string   `json:"$ref,omitempty"`
	Type        any      `json:"type,omitempty"` // the name of a type, or a list of names that includes "null"
	Description string   `json:"description,omitempty"`
	Const       any      `json:"const,omitempty"`
	Enum        []any    `json:"enum,omitempty"`
	Default     any      `json:"default,omitempty"`
	Examples    []any    `json:"examples,omitempty"`
	Format      string   `json:"format,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	Properties  object   `json:"properties,omitempty"`
	Required    []string `json:"required,omitempty"`
	Additional  any      `json:"additionalProperties,omitempty"` // the schema of properties that are not listed; false forbids such properties
	Items       any      `json:"items,omitempty"`                // the schema of an array's items
	MinItems    int      `json:"minItems,omitempty"`
	Minimum     any      `json:"minimum,omitempty"`
	AnyOf       []schema `json:"anyOf,omitempty"`
	OneOf       []schema `json:"oneOf,omitempty"`
}

// detail is how much of a field tree a schema contains.
type detail int

const (
	typeOnly       detail = iota // only the type "object"
	topNames                     // the names of the top-level fields
	topTypes                     // the top-level fields and their types
	allTypes                     // the fields at all levels and their types, all of them optional
	exactTypes                   // like allTypes, but only optional fields may be absent, and other fields are forbidden
	describedTypes               // like exactTypes, with descriptions; an object with a named schema is replaced by a reference to that schema
)

// resultSchema returns the schema of an object with these fields. If the detail is exactTypes
// or describedTypes, the schema allows no other fields, as the spec requires.
func resultSchema(fields []catalog.Field, d detail) schema {
	s := schema{Type: "object"}
	if d == typeOnly {
		return s
	}
	if d == exactTypes || d == describedTypes {
		s.Additional = false
	}
	for _, f := range fields {
		if d != topNames {
			s.Properties = append(s.Properties, member{f.Name, fieldSchema(f, d)})
		}
		complete := s.Additional != nil || d == topNames
		if complete && !f.Optional {
			s.Required = append(s.Required, f.Name)
		}
	}
	if d == exactTypes {
		return mergeAlike(s)
	}
	return s
}

// mergeAlike shortens the schema of an object that has at least three fields, all required and
// all with the same schema. The shortened schema contains the fields' schema only once, and no
// longer forbids other fields. mergeAlike returns any other schema unchanged.
func mergeAlike(s schema) schema {
	if len(s.Properties) < 3 || len(s.Required) < len(s.Properties) {
		return s
	}
	first := s.Properties[0].Value
	for _, property := range s.Properties {
		if !reflect.DeepEqual(property.Value, first) {
			return s
		}
	}
	s.Properties = nil
	s.Additional = first
	return s
}

// fieldSchema returns the schema of one field. If the field is an object that can have several
// shapes, f.Items lists these shapes. If the field is an array, f.Items lists the shapes of
// its items.
func fieldSchema(f catalog.Field, d detail) schema {
	s := schema{
		Type:    jsonValue("string", f.Type),
		Format:  f.Format,
		Pattern: f.Pattern,
		Enum:    jsonValues("string", f.Enum),
		Const:   jsonValue(f.Type, f.Const),
		Minimum: jsonValue(f.Type, f.Minimum),
	}
	if d == describedTypes && f.Schema != "" {
		s = schema{Ref: "#/components/schemas/" + f.Schema}
		if f.Nullable {
			s = schema{OneOf: []schema{s, {Type: "null"}}}
		}
		return s
	}
	if d != topTypes {
		switch {
		case f.Type == "array" && len(f.Items) > 0:
			s.Items = anyShape(f.Items, d)
		case f.Type == "object" && len(f.Items) > 0:
			s = anyShape(f.Items, d)
		case f.Type == "object" && len(f.Fields) > 0:
			s = resultSchema(f.Fields, d)
		}
	}
	switch {
	case f.Nullable && s.Type == nil: // an object that can have several shapes
		s.AnyOf = append(s.AnyOf, schema{Type: "null"})
	case f.Nullable:
		s.Type = []any{s.Type, "null"}
		if s.Enum != nil {
			s.Enum = append(s.Enum, nil)
		}
	}
	if d == describedTypes {
		s.Description = f.Description
	}
	return s
}

// anyShape returns the schema of a value that can have any of the given shapes. A single shape
// needs neither anyOf nor oneOf. With several shapes, the schema uses anyOf, or oneOf if the
// detail is describedTypes. oneOf tells the generators of typed clients that the shapes exclude
// each other.
func anyShape(shapes []catalog.Field, d detail) schema {
	if len(shapes) == 1 {
		return fieldSchema(shapes[0], d)
	}
	var list []schema
	for _, shape := range shapes {
		list = append(list, fieldSchema(shape, d))
	}
	if d == describedTypes {
		return schema{OneOf: list}
	}
	return schema{AnyOf: list}
}

// paramSchema returns the schema of a query parameter. It includes the example, because
// crawlers read examples only from a schema.
func paramSchema(p catalog.Param) schema {
	return schema{
		Type:     p.Type,
		Enum:     jsonValues(p.Type, p.Enum),
		Default:  jsonValue(p.Type, p.Default),
		Examples: []any{jsonValue(p.Type, p.Example)},
	}
}

// querySchema returns the schema of an object with all parameters of an operation. If describe
// is true, it includes their descriptions.
func querySchema(op catalog.Operation, describe bool) schema {
	s := schema{Type: "object", Properties: object{}}
	for _, p := range op.Params {
		ps := paramSchema(p)
		ps.Examples = nil // a document with this schema also has an example of the whole query
		if describe {
			ps.Description = p.Description
		}
		s.Properties = append(s.Properties, member{p.Name, ps})
		if p.Required {
			s.Required = append(s.Required, p.Name)
		}
	}
	return s
}

// row is a line of a table that describes fields. Each line describes one field.
type row struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
}

// rows returns the lines for fields and all fields inside them. A field inside another has a
// name such as records[].address.
func rows(fields []catalog.Field) []row { return appendRows(nil, fields, "", "") }

func appendRows(lines []row, fields []catalog.Field, prefix, condition string) []row {
	for _, f := range fields {
		name := prefix + f.Name
		lines = append(lines, row{Name: name, Type: f.TypeText(), Description: condition + describe(f)})
		lines = appendRows(lines, f.Fields, name+".", "")
		inner := name + "."
		if f.Type == "array" {
			inner = name + "[]."
		}
		for _, shape := range f.Items {
			note := ""
			if len(f.Items) > 1 && shape.Description != "" {
				note = shape.Description + ": "
			}
			lines = appendRows(lines, shape.Fields, inner, note)
		}
	}
	return lines
}

// describe returns a field's description. If the field has a list of allowed values, they are
// added.
func describe(f catalog.Field) string {
	if len(f.Enum) == 0 {
		return f.Description
	}
	if len(f.Enum) == 1 {
		return f.Description + ": " + f.Enum[0]
	}
	return f.Description + ": one of " + strings.Join(f.Enum, ", ")
}

// namedSchemas returns the schemas of the given fields and the named schemas that they
// contain. It returns each schema once, in the order in which the schemas first occur.
func namedSchemas(topFields []catalog.Field) object {
	var all object
	var walk func(fields []catalog.Field)
	walk = func(fields []catalog.Field) {
		for _, f := range fields {
			known := slices.ContainsFunc(all, func(m member) bool { return m.Key == f.Schema })
			switch {
			case f.Schema == "" || known:
			case f.Type == "object" && len(f.Items) == 0:
				all = append(all, member{f.Schema, recordSchema(f.Description, f.Fields)})
			case f.Enum != nil:
				all = append(all, member{f.Schema, schema{
					Type:        f.Type,
					Description: f.Description,
					Enum:        jsonValues("string", f.Enum),
				}})
			}
			walk(f.Fields)
			walk(f.Items)
		}
	}
	walk(topFields)
	return all
}

// recordSchema returns the schema of an object with these fields. If all fields have the same
// description, recordSchema puts it only into the description of the object.
func recordSchema(description string, fields []catalog.Field) schema {
	shared := fields[0].Description
	differs := slices.ContainsFunc(fields, func(f catalog.Field) bool { return f.Description != shared })
	isShared := shared != "" && !differs
	if len(fields) > 1 && isShared {
		description += "; each " + strings.ToLower(shared[:1]) + shared[1:]
		fields = slices.Clone(fields)
		for i := range fields {
			fields[i].Description = ""
		}
	}
	s := resultSchema(fields, describedTypes)
	s.Description = description
	return s
}

// object is a JSON object that keeps the order of its members. It lets documents list members
// in the order of the catalog, while a Go map would be in alphabetical order.
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
		b = append(b, encode(m.Key)...)
		b = append(b, ':')
		b = append(b, encode(m.Value)...)
	}
	return append(b, '}'), nil
}

// encode returns a value as compact JSON. It does not escape the characters & < >, so the JSON
// must be escaped before it is put into HTML.
func encode(v any) []byte {
	if o, ok := v.(object); ok {
		b, _ := o.MarshalJSON()
		return b
	}
	return untrusted.Compact(v)
}

// indented returns JSON that is easy to read: indented, with short arrays on one line.
func indented(raw []byte) string {
	pretty := layout.PrettyOptions(raw, &layout.Options{Width: 76, Indent: "  "})
	return strings.TrimSuffix(string(pretty), "\n")
}

// jsonValue returns a text as a JSON value. The value is an integer if kind is "integer" and
// the text is one, and otherwise a string. An empty text becomes nil.
func jsonValue(kind, text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && kind == "integer" {
		return n
	}
	if text == "" {
		return nil
	}
	return text
}

// jsonValues applies jsonValue to each text of a list.
func jsonValues(kind string, texts []string) (all []any) {
	for _, t := range texts {
		all = append(all, jsonValue(kind, t))
	}
	return all
}

// exampleQuery returns the operation's example query. Its values have their JSON types.
func exampleQuery(op catalog.Operation) object {
	query := object{}
	for _, p := range op.Example() {
		query = append(query, member{p.Name, jsonValue(p.Type, p.Example)})
	}
	return query
}

// must returns v. It panics if err is not nil, so it is only for errors that only a bug can
// cause, such as those about embedded files.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
