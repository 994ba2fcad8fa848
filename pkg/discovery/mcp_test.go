package discovery

import (
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Clients hold what they send and get to the schemas of a tool: its example fits,
// and so does its price, and nothing else does.
func TestToolSchemas(t *testing.T) {
	var tools []struct{ InputSchema, OutputSchema json.RawMessage }
	if err := json.Unmarshal(Tools(testSite()), &tools); err != nil {
		t.Fatal(err)
	}
	for i, op := range catalog.All() {
		tool := tools[i]
		in, out := validator(tool.InputSchema), validator(tool.OutputSchema)
		for _, c := range []struct {
			what string
			s    *jsonschema.Schema
			raw  []byte
			want bool
		}{
			{"the example's arguments", in, encode(exampleQuery(op)), true},
			{"an argument that is not there", in, []byte(`{"domain":"example.com","hostname":"example.com"}`), false},
			{"no arguments", in, []byte(`{}`), op.Kind == catalog.SmokeTest},
			{"the example", out, []byte(op.Response), true},
			{"the price", out, encode(ToolOffer(op, testSite()).WithToken(shownToken)), true},
			{"an error", out, []byte(`{"error":{"code":"nxdomain","message":""}}`), false},
			{"a price without a way to pay", out, []byte(`{"x402Version":2,"accepts":[]}`), false},
			{"an empty object", out, []byte(`{}`), false},
		} {
			if err := fits(c.s, c.raw); (err == nil) != c.want {
				t.Errorf("%s: %s: %v", op.Slug, c.what, err)
			}
		}
	}
}
