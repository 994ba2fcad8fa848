package discovery

import (
	"slices"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// schemaRef is where the OpenAPI description has a schema.
func schemaRef(name string) string { return "#/components/schemas/" + name }

// component is a reference to a schema of the description.
func component(name string) schema { return schema{Ref: schemaRef(name)} }

// resultRef is an operation's result in the OpenAPI description: a reference to
// its schema, or the schema itself where it has no name.
func resultRef(op catalog.Operation) schema {
	if op.Result == "" {
		return resultSchema(op.Fields, named)
	}
	return component(op.Result)
}

// namedSchemas are the schemas of all results and of what inside has a name, each
// once, in the order in which they are met.
func namedSchemas(ops []catalog.Operation) object {
	var all object
	add := func(name string, s schema) {
		if name != "" && !slices.ContainsFunc(all, func(m member) bool { return m.key == name }) {
			all = append(all, member{name, s})
		}
	}
	var walk func(fields []catalog.Field)
	walk = func(fields []catalog.Field) {
		for _, f := range fields {
			switch {
			case f.Type == "object" && len(f.Items) == 0:
				add(f.Schema, recordOf(f.Description, f.Fields))
			case f.Enum != nil:
				add(f.Schema, schema{Type: f.Type, Description: f.Description, Enum: values(f.Enum)})
			}
			walk(f.Fields)
			walk(f.Items)
		}
	}
	for _, op := range ops {
		add(op.Result, recordOf("Result of "+op.Title+".", op.Fields))
		walk(op.Fields)
	}
	return all
}

// recordOf is an object with these fields. A description that all of them share is
// said once.
func recordOf(description string, fields []catalog.Field) schema {
	if text := common(fields); text != "" {
		description += "; each: " + text
		fields = slices.Clone(fields)
		for i := range fields {
			fields[i].Description = ""
		}
	}
	s := resultSchema(fields, named)
	s.Description = description
	return s
}

// common is the description that several fields share, or "".
func common(fields []catalog.Field) string {
	if len(fields) < 2 {
		return ""
	}
	for _, f := range fields {
		if f.Description != fields[0].Description {
			return ""
		}
	}
	return fields[0].Description
}
