package discovery

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

var unordered = cmpopts.SortSlices(func(a, b string) bool { return a < b })

func TestManifestShape(t *testing.T) {
	s := testSite()
	m := tree(t, body(t, mustRenderWide(t), catalog.PathManifest))
	if diff := cmp.Diff([]string{"endpoints", "instructions", "ownershipProofs", "resources", "version"}, keys(m), unordered); diff != "" {
		t.Error(diff)
	}
	if m["version"] != 1.0 {
		t.Errorf("version %v", m["version"])
	}
	if proofs, ok := m["ownershipProofs"].([]any); !ok || len(proofs) != 0 {
		t.Errorf("ownershipProofs %v, want []", m["ownershipProofs"])
	}
	if text := m["instructions"].(string); !strings.Contains(text, "PAYMENT-SIGNATURE") || strings.Contains(text, "\n") {
		t.Errorf("instructions %q", text)
	}
	var urls, sold []any
	for i, op := range wideOps() {
		e := at(t, m, "endpoints", i).(map[string]any)
		want := map[string]any{
			"amount": op.Amount, "asset": s.Terms.Asset, "description": op.Description, "example": op.ExampleURL(s.Origin),
			"method": "GET", "network": s.Terms.Network, "payTo": s.Terms.PayTo, "price": op.Price(), "scheme": "exact",
			"url": s.Origin + op.Path, "queryParams": e["queryParams"],
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s: %s", op.Slug, diff)
		}
		urls = append(urls, s.Origin+op.Path)
		if op.Slug != "ping" {
			sold = append(sold, s.Origin+op.Path)
		}
	}
	if n := len(m["endpoints"].([]any)); n != len(urls) {
		t.Errorf("%d endpoints, want %d", n, len(urls))
	}
	if diff := cmp.Diff(sold, m["resources"]); diff != "" {
		t.Errorf("resources: %s", diff)
	}
	if diff := cmp.Diff(map[string]any{"domain": "example.com", "type": "A"}, at(t, m, "endpoints", 0, "queryParams")); diff != "" {
		t.Errorf("queryParams are defaults, else examples: %s", diff)
	}
	if got := at(t, m, "endpoints", len(urls)-1, "queryParams", "port"); got != 443.0 {
		t.Errorf("port %v, want the number 443", got)
	}
}

func TestOwnershipProofsReachBothDocuments(t *testing.T) {
	s := testSite()
	s.OwnershipProofs = []string{"0xabc"}
	d := must(Render(s))
	if got := at(t, tree(t, body(t, d, catalog.PathManifest)), "ownershipProofs", 0); got != "0xabc" {
		t.Errorf("manifest: %v", got)
	}
	if got := at(t, tree(t, body(t, d, catalog.PathOpenAPI)), "x-discovery", "ownershipProofs", 0); got != "0xabc" {
		t.Errorf("OpenAPI: %v", got)
	}
	if _, ok := tree(t, body(t, mustRender(t), catalog.PathOpenAPI))["x-discovery"]; ok {
		t.Error("x-discovery without a proof")
	}
}

func TestToolCatalogShape(t *testing.T) {
	s := testSite()
	c := tree(t, body(t, mustRenderWide(t), catalog.PathCatalog))
	if diff := cmp.Diff([]string{"service", "tools", "base_url", "playbooks", "docs_url", "x402Version"}, keys(c), unordered); diff != "" {
		t.Error(diff)
	}
	if c["service"] != catalog.Service || c["base_url"] != s.Origin || c["docs_url"] != s.Origin+"/docs" || c["x402Version"] != 2.0 {
		t.Errorf("%v %v %v %v", c["service"], c["base_url"], c["docs_url"], c["x402Version"])
	}
	toolKeys := []string{
		"scheme", "path", "description", "parameters", "errors", "amount", "method", "display_price", "network", "asset",
		"example_url", "example_response", "response_fields", "docs_url", "x402Version",
	}
	said := map[fault.Code]string{}
	for i, op := range wideOps() {
		tool := at(t, c, "tools", i).(map[string]any)
		if diff := cmp.Diff(toolKeys, keys(tool), unordered); diff != "" {
			t.Errorf("%s: %s", op.Slug, diff)
		}
		for key, want := range map[string]any{
			"scheme": "exact", "path": op.Path, "description": op.Description, "amount": op.Amount, "method": "GET",
			"display_price": op.Price(), "network": s.Terms.Network, "asset": s.Terms.Asset,
			"example_url": op.ExampleURL(s.Origin), "docs_url": op.DocsURL(s.Origin), "x402Version": 2.0,
		} {
			if tool[key] != want {
				t.Errorf("%s.%s: %v, want %v", op.Slug, key, tool[key], want)
			}
		}
		checkParameters(t, op, tool["parameters"].([]any))
		checkResponseFields(t, op, tool)
		checkToolErrors(t, op, tool["errors"].([]any), said)
	}
	if n := len(c["tools"].([]any)); n != len(wideOps()) {
		t.Errorf("%d tools, want %d", n, len(wideOps()))
	}
}

func checkParameters(t *testing.T, op catalog.Operation, params []any) {
	t.Helper()
	if len(params) != len(op.Params) {
		t.Fatalf("%s: %d parameters, want %d", op.Slug, len(params), len(op.Params))
	}
	for i, p := range op.Params {
		want := map[string]any{
			"in": "query", "name": p.Name, "type": p.Type, "description": p.Description, "required": p.Required,
			"example": decoded(p.Type, p.Example),
		}
		if p.Default != "" {
			want["default"] = decoded(p.Type, p.Default)
		}
		if p.Enum != nil {
			var list []any
			for _, e := range p.Enum {
				list = append(list, decoded(p.Type, e))
			}
			want["enum"] = list
		}
		if diff := cmp.Diff(want, params[i]); diff != "" {
			t.Errorf("%s.%s: %s", op.Slug, p.Name, diff)
		}
	}
}

// decoded is a parameter's text as encoding/json reads it.
func decoded(kind, text string) any {
	if kind == "integer" && text == "443" {
		return 443.0
	}
	return text
}

func checkResponseFields(t *testing.T, op catalog.Operation, tool map[string]any) {
	t.Helper()
	var names []string
	for i, f := range tool["response_fields"].([]any) {
		field := f.(map[string]any)
		if diff := cmp.Diff([]string{"name", "type", "description"}, keys(field), unordered); diff != "" {
			t.Errorf("%s field %d: %s", op.Slug, i, diff)
		}
		if field["type"] != op.Fields[i].TypeText() || !strings.HasPrefix(field["description"].(string), op.Fields[i].Description) {
			t.Errorf("%s field %v", op.Slug, field)
		}
		names = append(names, field["name"].(string))
	}
	if diff := cmp.Diff(names, keys(tool["example_response"]), unordered); diff != "" {
		t.Errorf("%s: response_fields and the keys of example_response: %s", op.Slug, diff)
	}
}

// checkToolErrors: a code is explained by the first tool that has it, and the
// others name that tool.
func checkToolErrors(t *testing.T, op catalog.Operation, errors []any, said map[fault.Code]string) {
	t.Helper()
	want := op.AllErrors()
	if len(errors) != len(want) {
		t.Fatalf("%s: %d errors, want %d", op.Slug, len(errors), len(want))
	}
	for i, e := range errors {
		entry := e.(map[string]any)
		info, _ := fault.Of(want[i])
		if diff := cmp.Diff([]string{"code", "message", "status"}, keys(entry), unordered); diff != "" {
			t.Errorf("%s: %s", op.Slug, diff)
		}
		if entry["code"] != string(info.Code) || entry["status"] != float64(info.Status) {
			t.Errorf("%s: %v, want %s %d", op.Slug, entry, info.Code, info.Status)
		}
		message := info.Message + map[fault.Class]string{fault.Answer: " Charged.", fault.Owed: " Charged; answer owed."}[info.Class]
		if by, ok := said[info.Code]; ok {
			message = "See " + by + "."
		} else {
			said[info.Code] = op.Slug
		}
		if entry["message"] != message {
			t.Errorf("%s: %s says %q, want %q", op.Slug, info.Code, entry["message"], message)
		}
	}
}

func TestPlaybooks(t *testing.T) {
	s := testSite()
	if list, ok := tree(t, body(t, mustRender(t), catalog.PathCatalog))["playbooks"].([]any); !ok || len(list) != len(catalog.Playbooks()) {
		t.Errorf("playbooks of the catalog: %v", list)
	}
	for _, b := range catalog.Playbooks() {
		bundle, _ := catalog.BySlug(b.Bundle)
		for _, slug := range b.Sequence {
			op, _ := catalog.BySlug(slug)
			if got, want := op.StepURL("", bundle), op.Path+"?domain=example.com"; got != want {
				t.Errorf("%s: step %s, want %s, which asks what the bundle asks", b.Slug, got, want)
			}
		}
	}
	got := at(t, tree(t, body(t, mustRenderWide(t), catalog.PathCatalog)), "playbooks")
	wide := s.Origin + "/v1/bundles/wide-check"
	want := []any{map[string]any{
		"name": "Wide", "description": "Step by step.", "slug": "wide", "bundle_path": "/v1/bundles/wide-check",
		"bundle_url": wide, "docs_url": s.Origin + "/docs#wide-check",
		"sequence": []any{
			map[string]any{"path": "/v1/tools/dns", "method": "GET", "example_url": s.Origin + "/v1/tools/dns?domain=example.com"},
			map[string]any{"path": "/v1/bundles/wide-check", "method": "GET", "example_url": wide + "?domain=example.com&port=443"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOnePrice compares the price of every operation in every document.
func TestOnePrice(t *testing.T) {
	d := mustRenderWide(t)
	c, m, o := tree(t, body(t, d, catalog.PathCatalog)), tree(t, body(t, d, catalog.PathManifest)), tree(t, body(t, d, catalog.PathOpenAPI))
	usd := map[string]string{"dns": "0.005", "ping": "0.001", "wide-check": "1.015"}
	for i, op := range wideOps() {
		want, known := usd[op.Slug]
		if !known {
			want = op.PriceUSD()
		}
		offer := Offer(op, testSite())
		for where, got := range map[string]any{
			"catalog":  at(t, c, "tools", i, "display_price"),
			"manifest": at(t, m, "endpoints", i, "price"),
			"OpenAPI":  "$" + at(t, o, "paths", op.Path, "get", "x-payment-info", "price", "amount").(string),
		} {
			if got != "$"+want {
				t.Errorf("%s in the %s: %v, want $%s", op.Slug, where, got, want)
			}
		}
		for where, got := range map[string]any{
			"catalog": at(t, c, "tools", i, "amount"), "manifest": at(t, m, "endpoints", i, "amount"), "offer": offer.Accepts[0].Amount,
		} {
			if got != op.Amount {
				t.Errorf("%s in the %s: %v, want %s", op.Slug, where, got, op.Amount)
			}
		}
		line := op.Title + ": $" + want + " (" + op.Amount + " atomic units) for `GET " + op.Path + "`"
		for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
			if !strings.Contains(string(body(t, d, path)), "\n- "+line) {
				t.Errorf("%s lacks %q", path, line)
			}
		}
	}
}
