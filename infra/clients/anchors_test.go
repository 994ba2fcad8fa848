package clients

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// anchors are the places of the documentation that answers of the service
// point to: of every document, every error, and every page.
func anchors(t *testing.T, s service) []string {
	t.Helper()
	link := regexp.MustCompile(regexp.QuoteMeta(s.url+catalog.PathDocs) + `#([a-zA-Z0-9_-]+)`)
	relative := regexp.MustCompile(`href="(?:` + catalog.PathDocs + `)?#([^"]+)"`)
	seen := map[string]bool{}
	collect := func(re *regexp.Regexp, doc []byte) (n int) {
		for _, m := range re.FindAllSubmatch(doc, -1) {
			seen[string(m[1])] = true
			n++
		}
		return n
	}
	collect(link, s.document(t, catalog.PathLLMsFull)) // says everything itself, and may point nowhere
	for _, path := range []string{catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMs} {
		if collect(link, s.document(t, path)) == 0 {
			t.Errorf("%s points to no place of the documentation", path)
		}
	}
	if collect(relative, s.document(t, catalog.PathDocs)) == 0 {
		t.Error("the documentation has no links inside")
	}
	for _, op := range catalog.All() {
		collect(link, s.ask(t, http.MethodGet, op.Path, "text/html").Body)
		collect(regexp.MustCompile(`href="`+catalog.PathDocs+`#([^"]+)"`), s.ask(t, http.MethodGet, op.Path, "text/html").Body)
		if collect(link, s.ask(t, http.MethodPost, op.Path, "").Body) == 0 {
			t.Errorf("an error of %s points to no place of the documentation", op.Slug)
		}
		seen[op.Slug] = true
	}
	var all []string
	for anchor := range seen {
		all = append(all, anchor)
	}
	slices.Sort(all)
	return all
}

// anchorComplaints are the anchors that a page does not have, or has twice.
func anchorComplaints(t *testing.T, page []byte, wanted []string) []string {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			if a.Key == "id" {
				ids[a.Val]++
			}
		}
	}
	var complaints []string
	for _, anchor := range wanted {
		if ids[anchor] != 1 {
			complaints = append(complaints, fmt.Sprintf("%s#%s is there %d times", catalog.PathDocs, anchor, ids[anchor]))
		}
	}
	return complaints
}

// checkAnchors: whatever points into the documentation arrives. Every
// anchor taken away is noticed.
func checkAnchors(t *testing.T, s service) {
	t.Helper()
	wanted, page := anchors(t, s), s.document(t, catalog.PathDocs)
	wantNone(t, anchorComplaints(t, page, wanted))
	if len(wanted) <= len(catalog.All()) || !slices.Contains(wanted, "errors") {
		t.Errorf("only %q are pointed to", wanted)
	}
	for _, anchor := range wanted {
		without := broken(t, page, `id="`+anchor+`"`, `id="gone"`)
		wantOne(t, anchorComplaints(t, without, wanted), catalog.PathDocs+"#"+anchor+" is there 0 times")
	}
}
