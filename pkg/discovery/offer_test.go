package discovery

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxHeader is what PAYMENT-REQUIRED stays below (design: documents and pages).
const maxHeader = 4096

// largeOp has a result that is too large for a header.
func largeOp(fields, value int) catalog.Operation {
	op := catalog.DNS()
	op.Description = strings.Repeat("d", 400)
	op.Fields = nil
	var parts []string
	for i := range fields {
		name := fmt.Sprintf("field-number-%d", i)
		op.Fields = append(op.Fields, catalog.Field{Name: name, Type: "string", Nullable: true, Description: "Field"})
		parts = append(parts, fmt.Sprintf("%q:%q", name, strings.Repeat("v", value)))
	}
	op.Response = "{" + strings.Join(parts, ",") + "}"
	return op
}

func headerOf(v any) string { return base64.StdEncoding.EncodeToString(must(json.Marshal(v))) }

func TestOffer(t *testing.T) {
	s := testSite()
	if len(s.Origin) != 60 {
		t.Fatalf("the origin has %d characters, want 60", len(s.Origin))
	}
	for _, op := range wideOps() {
		got := Offer(op, s)
		want := x402.PaymentRequired{
			X402Version: 2, Error: "Payment required",
			Resource: x402.Resource{
				URL: s.Origin + op.Path, Description: op.Description, MimeType: "application/json",
				ServiceName: catalog.Service, Tags: op.Tags, IconURL: s.Origin + "/favicon.svg",
			},
			Accepts: []x402.Requirements{{
				Scheme: "exact", Network: s.Terms.Network, Asset: s.Terms.Asset, Amount: op.Amount, PayTo: s.Terms.PayTo,
				MaxTimeoutSeconds: 300, Extra: x402.Extra{Name: "USD Coin", Version: "2", PaymentFlow: "upfront"},
			}},
			Extensions: got.Extensions,
		}
		same(t, op.Slug, want, got)
		if n := len(headerOf(got.WithToken(shownToken))); n >= maxHeader {
			t.Errorf("%s: header of %d bytes", op.Slug, n)
		}
	}
}

// Clients echo an offer's terms and extensions, and the echo is compared: every
// byte of every offer stays as it is from one release to the next.
func TestOffersAgainstGoldenFile(t *testing.T) {
	var offers object
	for _, op := range catalog.All() {
		offers = append(offers, member{op.Slug, Offer(op, testSite())})
	}
	golden(t, "offers.json", must(encode(offers)))
}

// TestResourceFitsTheCatalogues holds the limits of those who list offers:
// they drop what exceeds them.
func TestResourceFitsTheCatalogues(t *testing.T) {
	printable := func(s string, most int) bool {
		for _, r := range s {
			if r < ' ' || r > '~' {
				return false
			}
		}
		return s != "" && len(s) <= most
	}
	for _, op := range catalog.All() {
		r := Offer(op, testSite()).Resource
		if !printable(r.Description, 400) || !printable(r.ServiceName, 32) || len(r.Tags) > 5 {
			t.Errorf("%s: %+v", op.Slug, r)
		}
		for _, tag := range r.Tags {
			if !printable(tag, 32) {
				t.Errorf("%s: tag %q", op.Slug, tag)
			}
		}
	}
}

func TestIconOnlyWhereItIsListed(t *testing.T) {
	for origin, want := range map[string]string{
		"https://api.example.com": "https://api.example.com/favicon.svg", "https://api.example.com:8443": "https://api.example.com:8443/favicon.svg",
		"http://api.example.com": "", "https://localhost": "", "https://a.localhost": "", "https://host": "",
		"https://192.0.2.1": "", "https://[2001:db8::1]": "", "http://127.0.0.1:8402": "", "https://ho st": "",
	} {
		s := testSite()
		s.Origin = origin
		if got := Offer(catalog.DNS(), s).Resource.IconURL; got != want {
			t.Errorf("%s: %q, want %q", origin, got, want)
		}
	}
}

// checkIdentifier: an identifier is offered and not required, and the schema
// takes what a client adds to it.
func checkIdentifier(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var e struct{ Info, Schema json.RawMessage }
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	if at(t, tree(t, e.Info), "required") != false {
		t.Errorf("info %s", e.Info)
	}
	v := validator(e.Schema)
	for info, ok := range map[string]bool{
		string(e.Info): true,
		`{"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"}`: true,
		`{"required":false,"id":"short"}`:                                false,
		`{"required":false,"id":"pay_7d5d747be160e280504c099d984bcf|"}`:  false,
	} {
		if err := fits(v, []byte(info)); (err == nil) != ok {
			t.Errorf("%s: %v", info, err)
		}
	}
}

// TestBazaar does what a facilitator does before it lists an offer.
func TestBazaar(t *testing.T) {
	ops := append(wideOps(), largeOp(20, 10), largeOp(12, 60), largeOp(30, 400))
	for _, op := range ops {
		extensions := Extensions(op)
		if len(extensions) != 2 {
			t.Errorf("%s: %d extensions", op.Slug, len(extensions))
		}
		checkIdentifier(t, extensions[x402.ExtensionIdentifier])
		raw := extensions["bazaar"]
		var b struct{ Info, Schema json.RawMessage }
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatal(err)
		}
		if err := fits(validator(b.Schema), b.Info); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		info, s := tree(t, b.Info), tree(t, b.Schema)
		if at(t, info, "input", "type") != "http" || at(t, info, "input", "method") != "GET" || at(t, info, "output", "type") != "json" {
			t.Errorf("%s: info %v", op.Slug, info)
		}
		if at(t, s, "properties", "input", "properties", "type", "const") != "http" {
			t.Errorf("%s: schema %v", op.Slug, s)
		}
		query := at(t, info, "input", "queryParams").(map[string]any)
		for _, p := range op.Params {
			at(t, s, "properties", "input", "properties", "queryParams", "properties", p.Name, "type")
			if _, ok := query[p.Name]; p.Required && !ok {
				t.Errorf("%s: the example lacks %s", op.Slug, p.Name)
			}
		}
		if len(op.Fields) < 18 {
			for _, f := range op.Fields {
				at(t, s, "properties", "output", "properties", "example", "properties", f.Name)
			}
		}
		if strings.Contains(string(raw), "{}") || strings.Contains(string(raw), "$ref") {
			t.Errorf("%s: an empty schema or a reference in %s", op.Slug, raw)
		}
		if n := len(headerOf(Offer(op, testSite()))); n >= maxHeader {
			t.Errorf("%s: header of %d bytes", op.Slug, n)
		}
	}
}

func TestBazaarSaysLessOfLargeResults(t *testing.T) {
	has := func(op catalog.Operation) bool {
		output := at(t, tree(t, Extensions(op)["bazaar"]), "info", "output").(map[string]any)
		_, ok := output["example"]
		return ok
	}
	if !has(catalog.DNS()) || !has(catalog.Ping()) {
		t.Error("a small result lost its example")
	}
	if has(largeOp(12, 400)) {
		t.Error("a large result kept its example")
	}
	for _, op := range []catalog.Operation{largeOp(12, 400), largeOp(17, 40), largeOp(200, 4)} {
		if n := len(Extensions(op)["bazaar"]); n > maxBazaar {
			t.Errorf("%d fields: %d bytes", len(op.Fields), n)
		}
	}
}
