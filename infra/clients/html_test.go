package clients

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// htmlPages are the pages for people: the documentation, the paywall of every
// operation, the last one with a query that is not a domain, and the page for
// unknown paths.
func htmlPages(t *testing.T, s service) map[string][]byte {
	t.Helper()
	wanted := map[string]int{catalog.PathDocs: http.StatusOK, "/nothing/here": http.StatusNotFound}
	hostile := "?domain=" + url.QueryEscape(`"><script>alert(1)</script>&amp;<b title='x`) + "&type=%00%22'"
	for _, op := range catalog.All() {
		wanted[op.ExampleURL("")], wanted[op.Path], wanted[op.Path+hostile] = http.StatusPaymentRequired, http.StatusPaymentRequired, http.StatusPaymentRequired
	}
	pages := map[string][]byte{}
	for path, status := range wanted {
		a := s.ask(t, http.MethodGet, path, "text/html")
		if a.Status != status || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%s: %d %s", path, a.Status, a.Header.Get("Content-Type"))
		}
		pages[path] = a.Body
	}
	return pages
}

// checkHTML is html-validate, with its recommended rules and those of accessibility,
// warnings included.
func checkHTML(t *testing.T, s service) {
	pages := htmlPages(t, s)
	docs, about := pages[catalog.PathDocs], map[string]string{"docs broken": "close-order", "paywall broken": "element-required-attributes", "no end": "no-implicit-close"}
	pages["docs broken"] = broken(t, docs, "</h1>", "</h2>")
	pages["paywall broken"] = broken(t, pages[catalog.Ping().Path], `<html lang="en"`, `<html`)
	pages["no end"] = broken(t, docs, "</caption>", "")
	args, names := []string{validators + "html.mjs"}, map[string]string{}
	for name, page := range pages {
		path := file(t, fmt.Sprintf("%d.html", len(names)), page)
		args, names[path] = append(args, path), name
	}
	found := decoded[map[string][]string](t, node(t, args...))
	if len(found) != len(pages) {
		t.Errorf("%d of %d pages were looked at", len(found), len(pages))
	}
	for path, complaints := range found {
		wantComplaint(t, names[path], complaints, about[names[path]])
	}
}

// checkAnchors: whatever of a document, an error or a page points into the documentation
// arrives at one place.
func checkAnchors(t *testing.T, s service) {
	ids := map[string]int{}
	docs := s.document(t, catalog.PathDocs)
	for _, m := range regexp.MustCompile(`<[a-z0-9]+(?: [^>]*)? id="([^"]+)"`).FindAllSubmatch(docs, -1) {
		ids[string(m[1])]++
	}
	seen := map[string]bool{}
	collect := func(name string, doc []byte, start string) {
		links := regexp.MustCompile(start+`#([a-zA-Z0-9_-]+)`).FindAllSubmatch(doc, -1)
		if len(links) == 0 && name != catalog.PathLLMsFull { // it says everything itself
			t.Errorf("%s points to no place of the documentation", name)
		}
		for _, m := range links {
			if seen[string(m[1])] = true; ids[string(m[1])] != 1 {
				t.Errorf("%s points to #%s, which is there %d times", name, m[1], ids[string(m[1])])
			}
		}
	}
	link := regexp.QuoteMeta(s.url + catalog.PathDocs)
	for _, path := range []string{catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMs, catalog.PathLLMsFull} {
		collect(path, s.document(t, path), link)
	}
	collect(catalog.PathDocs, docs, `href="(?:`+catalog.PathDocs+`)?`)
	for _, op := range catalog.All() {
		collect(op.Slug+" as a page", s.ask(t, http.MethodGet, op.Path, "text/html").Body, `href="(?:`+link+`|`+catalog.PathDocs+`)`)
		collect("an error of "+op.Slug, s.ask(t, http.MethodPost, op.Path, "").Body, link)
		if ids[op.Slug] != 1 {
			t.Errorf("#%s is there %d times", op.Slug, ids[op.Slug])
		}
	}
	if !slices.ContainsFunc(catalog.All(), func(op catalog.Operation) bool { return seen[op.Slug] }) || !seen["errors"] {
		t.Errorf("only %v are pointed to", seen)
	}
}
