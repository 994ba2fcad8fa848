package discovery

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestMissing reads the page for unknown paths: every operation and document is
// one link away.
func TestMissing(t *testing.T) {
	d := mustRender(t)
	page := d.Missing()
	root := parse(t, page.Body)
	checkBalanced(t, page.Body)
	checkIDs(t, root)
	checkLoads(t, root)
	checkInline(t, root, page.CSP)
	links := map[string]bool{}
	for _, n := range elements(root, "a") {
		href, _ := attr(n, "href")
		path, _, _ := strings.Cut(href, "#")
		if _, ok := d.Find(path); !ok {
			t.Errorf("%s is not served", href)
		}
		links[href] = true
	}
	anchors := ids(parse(t, body(t, d, catalog.PathDocs)))
	for _, op := range catalog.All() {
		if !links["/docs#"+op.Slug] || !anchors[op.Slug] {
			t.Errorf("no link to %s", op.Slug)
		}
	}
	for _, path := range []string{catalog.PathDocs, catalog.PathOpenAPI, catalog.PathLLMs} {
		if !links[path] {
			t.Errorf("no link to %s", path)
		}
	}
}
