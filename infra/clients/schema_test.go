package clients

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// compiled is the schema at a place of a JSON document, by the 2020-12 draft.
func compiled(t *testing.T, doc []byte, pointer string) *jsonschema.Schema {
	t.Helper()
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("test:///document.json", tree); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("test:///document.json#" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits holds a value to a schema.
func fits(t *testing.T, s *jsonschema.Schema, raw []byte) []string {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// offerOf is the offer of an operation as it comes over the wire.
func offerOf(t *testing.T, s service, op catalog.Operation) (raw []byte, offer x402.PaymentRequired) {
	t.Helper()
	a := s.ask(t, http.MethodGet, op.Path, "application/json")
	raw, err := base64.StdEncoding.DecodeString(a.Header.Get(x402.HeaderRequired))
	if err != nil || a.Status != http.StatusPaymentRequired {
		t.Fatalf("%s: %d, %v", op.Path, a.Status, err)
	}
	return raw, decoded[x402.PaymentRequired](t, raw)
}

// maxEncoded is what PAYMENT-REQUIRED stays below: clients echo it, and API
// Gateway bounds what they send (design 8).
const maxEncoded = 4096

// checkExtensions does what a facilitator does before it lists an offer: info
// against schema, with a schema that needs no other document.
func checkExtensions(t *testing.T, s service) {
	t.Helper()
	for _, op := range catalog.All() {
		raw, offer := offerOf(t, s, op)
		if n := base64.StdEncoding.EncodedLen(len(raw)); n >= maxEncoded {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes", op.Slug, n)
		}
		if len(offer.Extensions) != 3 {
			t.Errorf("%s: %d extensions", op.Slug, len(offer.Extensions))
		}
		for name, extension := range offer.Extensions {
			e := decoded[struct{ Info, Schema json.RawMessage }](t, extension)
			if bytes.Contains(e.Schema, []byte(`"$ref"`)) || bytes.Contains(e.Schema, []byte(`"$id"`)) {
				t.Errorf("%s: %s: the schema refers to another: %s", op.Slug, name, e.Schema)
			}
			wantNone(t, fits(t, compiled(t, e.Schema, ""), e.Info))
		}
		e := decoded[struct{ Info, Schema json.RawMessage }](t, offer.Extensions["bazaar"])
		s := compiled(t, e.Schema, "")
		wantOne(t, fits(t, s, broken(t, e.Info, `"method":"GET"`, `"method":"POST"`)), "/input/method")
		wantOne(t, fits(t, s, broken(t, e.Info, `"type":"http"`, `"type":"mcp"`)), "/input/type")
		wantOne(t, fits(t, s, broken(t, e.Info, `"queryParams":{`, `"body":{},"queryParams":{`)), "'body' not allowed")
		if op.Kind != catalog.SmokeTest { // its one parameter is optional
			wantOne(t, fits(t, s, broken(t, e.Info, `"domain":`, `"host":`)), "missing property 'domain'")
		}
	}
}
