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

// same compares a document, or a part of it, with what it must be.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestManifestShape(t *testing.T) {
	s := testSite()
	m := described(t, renderedWide(), catalog.PathManifest)
	var endpoints, sold []any
	for i, op := range wideOps() {
		endpoints = append(endpoints, map[string]any{
			"amount": op.Amount, "asset": s.Terms.Asset, "description": op.Description, "example": op.ExampleURL(s.Origin),
			"method": "GET", "network": s.Terms.Network, "payTo": s.Terms.PayTo, "price": op.Price(), "scheme": "exact",
			"url": s.Origin + op.Path, "queryParams": at(t, m, "endpoints", i, "queryParams"),
		})
		if op.Slug != "ping" {
			sold = append(sold, s.Origin+op.Path)
		}
	}
	same(t, "manifest", map[string]any{
		"endpoints": endpoints, "resources": sold, "instructions": m["instructions"], "ownershipProofs": []any{}, "version": 1.0,
	}, m)
	if text := m["instructions"].(string); !strings.Contains(text, "PAYMENT-SIGNATURE") || strings.Contains(text, "\n") {
		t.Errorf("instructions %q", text)
	}
	// Parameters are defaults, else examples, and numbers where they are numbers.
	same(t, "queryParams", map[string]any{"domain": "example.com", "type": "A"}, at(t, m, "endpoints", 0, "queryParams"))
	same(t, "port", 443.0, at(t, m, "endpoints", len(endpoints)-1, "queryParams", "port"))
}

func TestOwnershipProofsReachBothDocuments(t *testing.T) {
	s := testSite()
	s.OwnershipProofs = []string{"0xabc"}
	d := must(Render(s))
	same(t, "manifest", "0xabc", at(t, described(t, d, catalog.PathManifest), "ownershipProofs", 0))
	same(t, "OpenAPI", "0xabc", at(t, described(t, d, catalog.PathOpenAPI), "x-discovery", "ownershipProofs", 0))
	if _, ok := described(t, rendered(), catalog.PathOpenAPI)["x-discovery"]; ok {
		t.Error("x-discovery without a proof")
	}
}

func TestToolCatalogShape(t *testing.T) {
	s := testSite()
	c := described(t, renderedWide(), catalog.PathCatalog)
	said := map[fault.Code]string{}
	var tools []any
	for i, op := range wideOps() {
		tools = append(tools, map[string]any{
			"scheme": "exact", "path": op.Path, "description": op.Description, "amount": op.Amount, "method": "GET",
			"display_price": op.Price(), "network": s.Terms.Network, "asset": s.Terms.Asset, "x402Version": 2.0,
			"example_url": op.ExampleURL(s.Origin), "docs_url": op.DocsURL(s.Origin), "example_response": tree(t, []byte(op.Response)),
			"parameters": parameters(op), "errors": explained(op, said),
			"response_fields": responseFields(t, op, at(t, c, "tools", i, "response_fields").([]any)),
		})
	}
	same(t, "catalog", map[string]any{
		"service": catalog.Service, "base_url": s.Origin, "docs_url": s.Origin + "/docs", "x402Version": 2.0,
		"tools": tools, "playbooks": c["playbooks"],
	}, c)
}

// parameters are those of an operation in the catalog.
func parameters(op catalog.Operation) []any {
	all := []any{}
	for _, p := range op.Params {
		param := map[string]any{
			"in": "query", "name": p.Name, "type": p.Type, "description": p.Description, "required": p.Required,
			"example": decoded(p.Type, p.Example),
		}
		if p.Default != "" {
			param["default"] = decoded(p.Type, p.Default)
		}
		if p.Enum != nil {
			var list []any
			for _, e := range p.Enum {
				list = append(list, decoded(p.Type, e))
			}
			param["enum"] = list
		}
		all = append(all, param)
	}
	return all
}

// decoded is a parameter's text as encoding/json reads it.
func decoded(kind, text string) any {
	if kind == "integer" && text == "443" {
		return 443.0
	}
	return text
}

// responseFields are those of an operation in the catalog. Their descriptions may
// go on where the operation's end.
func responseFields(t *testing.T, op catalog.Operation, got []any) []any {
	t.Helper()
	var all []any
	for i, f := range op.Fields {
		description := f.Description
		if i < len(got) {
			if longer := at(t, got, i, "description").(string); strings.HasPrefix(longer, description) {
				description = longer
			}
		}
		all = append(all, map[string]any{"name": f.Name, "type": f.TypeText(), "description": description})
	}
	return all
}

// explained are the errors of an operation in the catalog: a code is explained by
// the first tool that has it, and the others name that tool.
func explained(op catalog.Operation, said map[fault.Code]string) []any {
	var all []any
	for _, code := range op.AllErrors() {
		info, _ := fault.Of(code)
		message := info.Message + map[fault.Class]string{fault.Answer: " Charged.", fault.Owed: " Charged; answer owed."}[info.Class]
		if by, ok := said[code]; ok {
			message = "See " + by + "."
		} else {
			said[code] = op.Slug
		}
		all = append(all, map[string]any{"code": string(code), "message": message, "status": float64(info.Status)})
	}
	return all
}

func TestPlaybooks(t *testing.T) {
	s := testSite()
	if list, ok := described(t, rendered(), catalog.PathCatalog)["playbooks"].([]any); !ok || len(list) != len(catalog.Playbooks()) {
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
	got := at(t, described(t, renderedWide(), catalog.PathCatalog), "playbooks")
	wide := s.Origin + "/v1/bundles/wide-check"
	want := []any{map[string]any{
		"name": "Wide", "description": "Step by step.", "slug": "wide", "bundle_path": "/v1/bundles/wide-check",
		"bundle_url": wide, "docs_url": s.Origin + "/docs#wide-check",
		"sequence": []any{
			map[string]any{"path": "/v1/tools/dns", "method": "GET", "example_url": s.Origin + "/v1/tools/dns?domain=example.com"},
			map[string]any{"path": "/v1/bundles/wide-check", "method": "GET", "example_url": wide + "?domain=example.com&port=443"},
		},
	}}
	same(t, "playbooks", want, got)
}

// TestPricesInTexts: the prices that the other documents have by their fields are
// those that the texts for machines list.
func TestPricesInTexts(t *testing.T) {
	d := renderedWide()
	usd := map[string]string{"dns": "0.005", "ping": "0.001", "wide-check": "1.015"}
	for _, op := range wideOps() {
		if want, ok := usd[op.Slug]; ok && (op.PriceUSD() != want || op.Price() != "$"+want) {
			t.Errorf("%s costs %s, %s, want $%s", op.Slug, op.Price(), op.PriceUSD(), want)
		}
		for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
			says(t, path, text(t, d, path), "\n- "+op.Title+": "+op.Price()+" ("+op.Amount+" atomic units) for GET "+op.Path)
		}
	}
}
