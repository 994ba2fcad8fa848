package discovery

import (
	"encoding/json"
	"maps"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// walk visits every object of a document, and where it is.
func walk(where string, v any, visit func(where string, v map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(where, v)
		for key, x := range v {
			walk(where+"/"+key, x, visit)
		}
	case []any:
		for i, x := range v {
			walk(where+"/"+strconv.Itoa(i), x, visit)
		}
	}
}

// TestResultSchemas holds every example against both schemas of its result, the exact
// one and that of the OpenAPI description, and each to refuse the example without a
// member, and with a foreign object in its place, at any depth.
func TestResultSchemas(t *testing.T) {
	description := body(t, rendered(), catalog.PathOpenAPI)
	for _, op := range catalog.All() {
		for name, s := range map[string]*jsonschema.Schema{
			"exact": validator(resultSchema(op.Fields, full)), "described": schemaAt(description, "/components/schemas/"+op.Result),
		} {
			if err := fits(s, []byte(op.Response)); err != nil {
				t.Errorf("%s, %s: %v", op.Slug, name, err)
			}
			example := tree(t, []byte(op.Response))
			walk("", example, func(where string, v map[string]any) {
				for key, was := range maps.Clone(v) {
					delete(v, key)
					without := fits(s, must(json.Marshal(example)))
					v[key] = map[string]any{"unexpected": 1}
					if foreign := fits(s, must(json.Marshal(example))); without == nil || foreign == nil {
						t.Errorf("%s, %s%s: passes without %s (%v), or with a foreign object (%v)", op.Slug, name, where, key, without, foreign)
					}
					v[key] = was
				}
			})
		}
	}
}
