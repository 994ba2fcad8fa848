package discovery

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

var update = flag.Bool("update", false, "write the golden files")

// testSite has a long origin, of 60 characters.
func testSite() Site {
	return Site{
		Origin: "https://facts-about-hosts.an-organisation.some-registry.test",
		Terms: x402.Terms{
			Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
			PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
		},
		DuplicateWindow: 45 * time.Second,
		ReceiptKeys:     []ed25519.PublicKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)}, //nolint:forcetypeassert // what Public says
		Contact:         "mailto:operator@some-registry.test",
		Now:             func() time.Time { return time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC) },
		Caps:            Caps{PerMinute: 300, Undecided: 5, Refused: 20, Single: 50, Bundle: 20},
	}
}

// rendered are the documents of testSite, which take a while: once.
var rendered = sync.OnceValue(func() *Documents { return New(testSite()) })

func body(t *testing.T, d *Documents, path string) []byte {
	t.Helper()
	doc, ok := d.Find(path)
	if !ok {
		t.Fatalf("no document at %s", path)
	}
	return doc.Body()
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

// same compares a document, or a part of it, with what it must be.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// golden compares with a file below testdata/golden. JSON is indented there for
// the reader.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if strings.HasSuffix(name, ".json") {
		var b bytes.Buffer
		if err := json.Indent(&b, got, "", "  "); err != nil {
			t.Fatal(err)
		}
		got = append(b.Bytes(), '\n')
	}
	kept(t, "testdata/golden/"+name, string(got))
}

// kept compares a file with what it must be, or writes it with -update.
func kept(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	same(t, file+", which -update accepts", string(must(os.ReadFile(file))), want)
}

// validator compiles a JSON Schema of the 2020-12 draft.
func validator(v any) *jsonschema.Schema { return schemaAt(encode(v), "") }

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

// says holds a text to all parts.
func says(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q", where, part)
		}
	}
}
