package clients

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// htmlPages are the pages for people: the documentation, the paywall of every
// operation, the last one with a query that is not a domain, and the page for
// unknown paths.
func htmlPages(t *testing.T, s service) map[string][]byte {
	t.Helper()
	pages := map[string][]byte{catalog.PathDocs: s.document(t, catalog.PathDocs)}
	hostile := "?domain=" + url.QueryEscape(`"><script>alert(1)</script>&amp;<b title='x`) + "&type=%00%22'"
	for _, op := range catalog.All() {
		for _, path := range []string{op.ExampleURL(""), op.Path, op.Path + hostile} {
			a := s.ask(t, http.MethodGet, path, "text/html")
			if a.Status != http.StatusPaymentRequired || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Fatalf("%s: %d %s", path, a.Status, a.Header.Get("Content-Type"))
			}
			pages[path] = a.Body
		}
	}
	const nothing = "/nothing/here"
	a := s.ask(t, http.MethodGet, nothing, "text/html")
	if a.Status != http.StatusNotFound || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%s: %d %s", nothing, a.Status, a.Header.Get("Content-Type"))
	}
	pages[nothing] = a.Body
	return pages
}

// validateHTML is html-validate, with its recommended rules and those of
// accessibility, warnings included.
func validateHTML(t *testing.T, pages map[string][]byte) map[string][]string {
	t.Helper()
	args, names := []string{validators + "html.mjs"}, map[string]string{}
	for name, page := range pages {
		path := file(t, fmt.Sprintf("%d.html", len(names)), page)
		args, names[path] = append(args, path), name
	}
	found := map[string][]string{}
	for path, complaints := range decoded[map[string][]string](t, run(t, args...)) {
		found[names[path]] = complaints
	}
	if len(found) != len(pages) {
		t.Errorf("%d of %d pages were looked at", len(found), len(pages))
	}
	return found
}

func checkHTML(t *testing.T, s service) {
	t.Helper()
	pages := htmlPages(t, s)
	docs, paywall := pages[catalog.PathDocs], pages[catalog.Ping().Path]
	pages["docs broken"] = broken(t, docs, "</h1>", "</h2>")
	pages["paywall broken"] = broken(t, paywall, `<html lang="en"`, `<html`)
	pages["docs without a caption's end"] = broken(t, docs, "</caption>", "")
	found := validateHTML(t, pages)
	wantOne(t, found["docs broken"], "close-order")
	wantOne(t, found["paywall broken"], "element-required-attributes")
	wantOne(t, found["docs without a caption's end"], "no-implicit-close")
	for name, complaints := range found {
		switch name {
		case "docs broken", "paywall broken", "docs without a caption's end":
			continue
		}
		for _, c := range complaints {
			t.Errorf("%s: %s", name, c)
		}
	}
}
