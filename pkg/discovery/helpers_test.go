package discovery

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

var update = flag.Bool("update", false, "write the golden files")

// testSite has an origin of 60 characters, the longest that the size of the
// offers is promised for.
func testSite() Site {
	return Site{
		Origin: "https://facts-about-hosts.an-organisation.some-registry.test",
		Terms: x402.Terms{
			Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
			PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
		},
		DuplicateWindow: 45 * time.Second,
		ReceiptKeys:     []ed25519.PublicKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)}, //nolint:forcetypeassert // what Public says
		Caps:            catalog.Caps{PerMinute: 300, Undecided: 5, Refused: 20, Single: 50, Bundle: 20},
	}
}

// wideOps are the operations of the catalog and one that has every shape that
// a field, a parameter or an error can have.
func wideOps() []catalog.Operation {
	text := func(name string) catalog.Field {
		return catalog.Field{Name: name, Type: "string", Description: "Text of " + name}
	}
	failed := catalog.Field{Name: "error", Type: "object", Description: "Child failed", Fields: []catalog.Field{
		{Name: "error", Type: "object", Description: "Why", Fields: []catalog.Field{text("code"), text("message")}},
	}}
	return append(catalog.All(), catalog.Operation{
		Slug: "wide-check", Path: "/v1/bundles/wide-check", Title: "Wide & <odd> check", Kind: catalog.Bundle, Amount: "1015000",
		Summary: "Everything at once.", Description: "A bundle of every shape; \"quotes\" & <angles> included.",
		Tags: []string{"wide"},
		Params: []catalog.Param{
			{Name: "domain", Type: "string", Required: true, Example: "example.com", Description: "Domain."},
			{Name: "port", Type: "integer", Default: "443", Enum: []string{"443"}, Example: "443", Description: "Port."},
		},
		Example: []catalog.Value{{Name: "domain", Value: "example.com"}, {Name: "port", Value: "443"}},
		Errors: []fault.Code{
			fault.InvalidDomain, fault.InvalidPort, fault.BlockedAddress, fault.ConnectFailed, fault.HostIntelTimeout, fault.Overloaded,
		},
		Fields: []catalog.Field{
			text("domain"),
			{Name: "reason", Type: "string", Nullable: true, Enum: []string{"loop", "max_hops"}, Description: "Why it ended"},
			{Name: "owner", Type: "object", Nullable: true, Description: "Owner", Fields: []catalog.Field{text("name"), text("iana_id")}},
			{Name: "names", Type: "array", Description: "Names", Items: []catalog.Field{text("name")}},
			{Name: "hops", Type: "array", Description: "Hops", Items: []catalog.Field{
				{Name: "hop", Type: "object", Description: "Hop", Fields: []catalog.Field{
					{Name: "index", Type: "integer", Description: "From 0"},
					{Name: "location", Type: "string", Nullable: true, Description: "As received"},
				}},
			}},
			{Name: "child", Type: "object", Description: "A result or an error object", Items: []catalog.Field{
				{Name: "result", Type: "object", Description: "Child answered", Fields: []catalog.Field{
					{Name: "expired", Type: "boolean", Description: "Whether it is"},
				}},
				failed,
			}},
		},
		Response: `{"domain":"example.com","reason":null,"owner":null,"names":["a.example.com"],` +
			`"hops":[{"index":0,"location":null}],"child":{"error":{"code":"connect_failed","message":"It failed."}}}`,
		Deadline: 12 * time.Second,
	})
}

func wideBooks() []catalog.Playbook {
	return []catalog.Playbook{{
		Slug: "wide", Name: "Wide", Description: "Step by step.", Bundle: "wide-check", Sequence: []string{"dns", "wide-check"},
	}}
}

// Documents of testSite are rendered once, which takes a while: of the catalog,
// and of wideOps.
var (
	rendered     = sync.OnceValue(func() *Documents { return must(Render(testSite())) })
	renderedWide = sync.OnceValue(func() *Documents { return must(render(testSite(), wideOps(), wideBooks())) })
)

func body(t *testing.T, d *Documents, path string) []byte {
	t.Helper()
	doc, ok := d.Find(path)
	if !ok {
		t.Fatalf("no document at %s", path)
	}
	return doc.Body
}

// tree decodes JSON into plain Go values, numbers as float64.
func tree(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// at walks into a tree: object keys by name, list items by index.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for i, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("%v: not an object", path[:i])
			}
			if v, ok = m[step]; !ok {
				t.Fatalf("%v: no key %q", path[:i], step)
			}
		case int:
			l, ok := v.([]any)
			if !ok || step >= len(l) {
				t.Fatalf("%v: no item %d", path[:i], step)
			}
			v = l[step]
		}
	}
	return v
}

// described is a document of JSON as at reads it.
func described(t *testing.T, d *Documents, path string) map[string]any {
	t.Helper()
	return tree(t, body(t, d, path))
}

// text is a document as it is read: the page, or the section with the heading
// that the path ends in, without its markup, and nothing with the marks of code.
func text(t *testing.T, d *Documents, path string) string {
	t.Helper()
	path, section, _ := strings.Cut(path, "#")
	all := string(body(t, d, path))
	switch {
	case section != "":
		all = textOf(sectionOf(t, docsRoot(t, d), section))
	case path == catalog.PathDocs:
		all = textOf(docsRoot(t, d))
	}
	return strings.ReplaceAll(all, "`", "")
}

// says holds a text to all parts.
func says(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q", where, part)
		}
	}
}

// golden compares with a file below testdata/golden. JSON is indented there for
// the reader.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if strings.HasSuffix(name, ".json") {
		var b bytes.Buffer
		if err := json.Indent(&b, got, "", "  "); err != nil {
			t.Fatal(err)
		}
		got = append(b.Bytes(), '\n')
	}
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(must(os.ReadFile(file))), string(got)); diff != "" {
		t.Errorf("%s (-golden +rendered; run with -update to accept):\n%s", name, diff)
	}
}

// validator compiles a JSON Schema of the 2020-12 draft.
func validator(v any) *jsonschema.Schema { return schemaAt(must(encode(v)), "") }

// schemaAt compiles the schema at a place in a document.
func schemaAt(document []byte, pointer string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("test:///schema.json", must(jsonschema.UnmarshalJSON(bytes.NewReader(document)))); err != nil {
		panic(err)
	}
	return must(c.Compile("test:///schema.json#" + pointer))
}

// fits says why a JSON text does not fit a schema.
func fits(s *jsonschema.Schema, raw []byte) error {
	return s.Validate(must(jsonschema.UnmarshalJSON(bytes.NewReader(raw))))
}

// must is for set-up that cannot fail unless the test is wrong: an error panics.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
