package discovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestOpenAPITop holds what the golden file does not explain.
func TestOpenAPITop(t *testing.T) {
	o := described(t, rendered(), catalog.PathOpenAPI)
	if guidance := at(t, o, "info", "x-guidance").(string); len(guidance) >= 4000 || !strings.Contains(guidance, "PAYMENT-SIGNATURE") {
		t.Errorf("x-guidance has %d bytes: %q", len(guidance), guidance)
	}
	if _, ok := at(t, o, "components").(map[string]any)["securitySchemes"]; ok {
		t.Error("a security scheme makes crawlers take the service for one with API keys")
	}
}

// TestASchemaHasOneShape: a name stands for one shape, wherever it is used.
func TestASchemaHasOneShape(t *testing.T) {
	shapes := map[string]string{}
	var walk func(fields []catalog.Field)
	walk = func(fields []catalog.Field) {
		for _, f := range fields {
			if f.Schema != "" {
				names := fieldNames(f.Fields) + strings.Join(f.Enum, " ")
				if had, ok := shapes[f.Schema]; ok && had != names {
					t.Errorf("%s is %s and %s", f.Schema, had, names)
				}
				shapes[f.Schema] = names
			}
			walk(f.Fields)
			walk(f.Items)
		}
	}
	for _, op := range catalog.All() {
		walk(op.Fields)
	}
}

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

// TestReferencesResolve also finds components that nothing refers to.
func TestReferencesResolve(t *testing.T) {
	o := described(t, rendered(), catalog.PathOpenAPI)
	used := map[string]bool{}
	walk("", o, func(_ string, v map[string]any) {
		if ref, ok := v["$ref"].(string); ok {
			used[ref] = true
		}
	})
	// Whether an error body is referred to depends on the declared statuses.
	for kind, items := range o["components"].(map[string]any) {
		for name := range items.(map[string]any) {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] {
				t.Errorf("%s is never used", ref)
			}
			delete(used, ref)
		}
	}
	for ref := range used {
		t.Errorf("%s does not exist", ref)
	}
}

// TestResultSchemas holds every example against its schema, and the schema
// against every way to leave a field out.
func TestResultSchemas(t *testing.T) {
	for _, op := range wideOps() {
		s := validator(resultSchema(op.Fields, full))
		if err := fits(s, []byte(op.Response)); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		for _, f := range op.Fields {
			example := tree(t, []byte(op.Response))
			delete(example, f.Name)
			if fits(s, must(json.Marshal(example))) == nil {
				t.Errorf("%s without %s passes", op.Slug, f.Name)
			}
			example[f.Name] = map[string]any{"unexpected": 1}
			if fits(s, must(json.Marshal(example))) == nil {
				t.Errorf("%s with a foreign object as %s passes", op.Slug, f.Name)
			}
		}
	}
}

func TestSchemaOfEveryShape(t *testing.T) {
	fields := wideOps()[len(wideOps())-1].Fields
	s := validator(resultSchema(fields, full))
	for name, tt := range map[string]struct {
		change string
		ok     bool
	}{
		"null enum":               {`{"reason":null}`, true},
		"enum":                    {`{"reason":"loop"}`, true},
		"outside the enum":        {`{"reason":"other"}`, false},
		"null object":             {`{"owner":null}`, true},
		"object":                  {`{"owner":{"name":"R","iana_id":"1"}}`, true},
		"object lacks a field":    {`{"owner":{"name":"R"}}`, false},
		"list of text":            {`{"names":["a","b"]}`, true},
		"list of numbers":         {`{"names":[1]}`, false},
		"list of objects":         {`{"hops":[{"index":1,"location":"/x"}]}`, true},
		"item lacks a field":      {`{"hops":[{"index":1}]}`, false},
		"first alternative":       {`{"child":{"expired":true}}`, true},
		"second alternative":      {`{"child":{"error":{"code":"a","message":"b"}}}`, true},
		"neither alternative":     {`{"child":{}}`, false},
		"not nullable":            {`{"domain":null}`, false},
		"a field that is added":   {`{"later":1}`, false},
		"an item with two shapes": {`{"child":{"expired":true,"error":{"code":"a","message":"b"}}}`, false},
	} {
		v := tree(t, []byte(wideOps()[len(wideOps())-1].Response))
		maps.Copy(v, tree(t, []byte(tt.change)))
		if err := fits(s, must(json.Marshal(v))); (err == nil) != tt.ok {
			t.Errorf("%s: %s: %v", name, tt.change, err)
		}
	}
}

func TestErrorAndOfferSchemasFitWhatIsSent(t *testing.T) {
	d := renderedWide()
	description := body(t, d, catalog.PathOpenAPI)
	schema := func(name string) *jsonschema.Schema { return schemaAt(description, "/components/schemas/"+name) }
	errors := schema("ErrorBody")
	const body, rest = `{"error":{"code":"dns_timeout","message":"m",%s},"request_id":"r"%s}`, `,"docs_url":"https://h/docs#error-x"`
	for _, c := range []struct {
		members, rest string
		ok            bool
	}{
		{`"charged":null,"retryable":true`, rest, true},
		{`"charged":false,"retryable":false`, rest, true},
		{`"charged":null,"retryable":true`, "", false},
		{`"retryable":true`, rest, false},
		{`"charged":null,"retryable":null`, rest, false},
		{`"charged":null,"retryable":true,"cause":"x"`, rest, false},
		{`"charged":null,"retryable":true`, rest + `,"more":1`, false},
	} {
		raw := fmt.Sprintf(body, c.members, c.rest)
		if err := fits(errors, []byte(raw)); (err == nil) != c.ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if fits(errors, []byte(`{"error":"Payment required"}`)) == nil {
		t.Error("a text passes for an error")
	}
	header, unpaid := schema("PaymentRequired"), schema("PaymentRequiredBody")
	for _, op := range wideOps() {
		raw := must(json.Marshal(Offer(op, testSite())))
		if err := fits(header, raw); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		if fits(unpaid, raw) == nil {
			t.Errorf("%s: an offer without a code passes as the body", op.Slug)
		}
	}
	for path, name := range map[string]string{catalog.PathCatalog: "ToolCatalog", catalog.PathManifest: "PaymentManifest"} {
		doc, _ := d.Find(path)
		if err := fits(schema(name), doc.Body); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEveryObjectIsExact: an object that names its properties allows no other.
// The spec gives shapes exactly, and only so is a field too many seen.
func TestEveryObjectIsExact(t *testing.T) {
	exact := 0
	walk("", described(t, renderedWide(), catalog.PathOpenAPI), func(where string, v map[string]any) {
		if _, named := v["properties"].(map[string]any); !named {
			return
		}
		if exact++; v["type"] == nil || v["additionalProperties"] != false {
			t.Errorf("%s has no type, or allows other properties: %v", where, v)
		}
	})
	if exact < 40 {
		t.Errorf("only %d objects were looked at", exact)
	}
}
