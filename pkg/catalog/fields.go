package catalog

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
)

// Field describes a field of a JSON object, or one of the shapes in the Items of a field.
type Field struct {
	Name        string
	Type        string // the JSON type: string, integer, boolean, array or object; "" means any
	Nullable    bool   // may be null
	Optional    bool   // may be omitted
	Description string
	Enum        []string
	Const       string
	Format      string // the value of JSON Schema's keyword format
	Pattern     string
	Minimum     string
	// Schema is the name of the schema of an object or an enumeration. If it is empty, the
	// schema has no name and is part of the parent's schema.
	Schema string
	// Show says how the page for people shows the value. "time" is a time, shown with its
	// distance from the present. "end" is a time that is marked once it has passed. "seconds" is
	// a duration, and "hops" is a list of hops. "expected" marks the value if it is null, "wrong"
	// if it is true, and "right" if it is false. With any other Show, the value is shown as text.
	Show   string
	Fields []Field // the fields of an object
	Items  []Field // the shapes that an array's items can have, or that an object can have
}

// TypeText returns the type in the spec's words, such as "integer or null".
func (f Field) TypeText() string {
	t := f.Type
	if t == "array" && len(f.Items) == 1 {
		t = "array of " + f.Items[0].Type
	}
	if f.Nullable {
		t += " or null"
	}
	return t
}

// FieldsOf returns the fields of a struct as encoding/json writes them, in their order.
// The rest of a Field comes from struct tags. The tag doc describes the field, and the tag item
// describes the items of an array. The tag enum lists values separated by commas. The tags
// const, format, pattern and minimum are keywords of JSON Schema. The tag show sets Field.Show.
// The tag schema names the schema of the value, or of an array's items. A pointer can be null.
// A slice cannot be null, because no nil slice is sent. A field that encoding/json may omit is
// optional.
func FieldsOf[T any]() []Field { return fieldOf(reflect.TypeFor[T](), "").Fields }

func fieldOf(t reflect.Type, tag reflect.StructTag) Field {
	name, options, _ := strings.Cut(tag.Get("json"), ",")
	f := Field{
		Name:        name,
		Type:        "object",
		Optional:    options != "",
		Description: tag.Get("doc"),
		Const:       tag.Get("const"),
		Format:      tag.Get("format"),
		Pattern:     tag.Get("pattern"),
		Minimum:     tag.Get("minimum"),
		Schema:      tag.Get("schema"),
		Show:        tag.Get("show"),
	}
	if values := tag.Get("enum"); values != "" {
		f.Enum = strings.Split(values, ",")
	}
	if t.Kind() == reflect.Pointer {
		f.Nullable = true
		t = t.Elem()
	}
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[redirect.StopReason]():
		f.Type = "string"
		for _, reason := range redirect.StopReasons() {
			f.Enum = append(f.Enum, string(reason))
		}
	case kind == reflect.String:
		f.Type = "string"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		f.Type = "integer"
	case kind == reflect.Bool:
		f.Type = "boolean"
	case kind == reflect.Interface:
		f.Type = ""
	case t == reflect.TypeFor[[]dns.Record]():
		f.Type = "array"
		f.Items = recordShapes()
	case strings.HasPrefix(t.Name(), "Child["):
		result, _ := t.FieldByName("Result")
		f.Items = []Field{
			{Type: "object", Schema: f.Schema, Fields: fieldOf(result.Type, "").Fields},
			{Type: "object", Schema: "ChildFailure", Fields: FieldsOf[bundle.Failure]()},
		}
		f.Schema = ""
	case t.Implements(reflect.TypeFor[json.Marshaler]()): // a type that makes its own JSON, which is described as an object
	case kind == reflect.Slice:
		item := fieldOf(t.Elem(), "")
		item.Description = tag.Get("item")
		item.Schema = f.Schema
		item.Format = f.Format
		f.Type = "array"
		f.Items = []Field{item}
		f.Schema = ""
		f.Format = ""
	case kind == reflect.Struct:
		f.Fields = make([]Field, t.NumField())
		for i := range f.Fields {
			f.Fields[i] = fieldOf(t.Field(i).Type, t.Field(i).Tag)
		}
	}
	return f
}

// recordShapes returns the shapes of a DNS record, which depend on its type.
func recordShapes() []Field {
	shape := func(types, schema string, fields []Field) Field {
		return Field{Type: "object", Description: types, Schema: schema, Fields: fields}
	}
	return []Field{
		shape("A and AAAA", "AddressRecord", FieldsOf[dns.Address]()),
		shape("MX", "MxRecord", FieldsOf[dns.MX]()),
		shape("TXT", "TxtRecord", FieldsOf[dns.TXT]()),
		shape("CNAME and NS", "TargetRecord", FieldsOf[dns.Target]()),
		shape("SOA", "SoaRecord", FieldsOf[dns.SOA]()),
	}
}
