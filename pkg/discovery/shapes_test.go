package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

var unordered = cmpopts.SortSlices(func(a, b string) bool { return a < b })

// same compares a document, or a part of it, with what it must be.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
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
