package discovery

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestLinks follows what a document or a page says of this service's own addresses:
// each is served or priced, and its place in the documentation is there, once.
func TestLinks(t *testing.T) {
	d, s := rendered(), testSite()
	docs, _ := d.Find(catalog.PathDocs)
	checkPage(t, docs.Body(), docs.content().CSP)
	pages := map[string]string{}
	for _, meant := range []string{"", catalog.DNS().Path} {
		page := d.Missing(meant)
		checkPage(t, page.Body, page.CSP)
		pages["missing"] = string(page.Body)
		if offer := "Did you mean"; strings.Contains(pages["missing"], offer) != (meant != "") {
			t.Errorf("%q: the page says %q, or not", meant, offer)
		}
	}
	for _, doc := range d.list {
		pages[doc.Path] = string(doc.Body())
	}
	for _, op := range catalog.All() {
		_, page := mustVisit(t, op, visit(op, "www.example.org"))
		pages[op.Path] = string(page)
	}
	places := map[string]map[string]bool{}
	for name, page := range pages {
		places[name] = map[string]bool{}
		for _, m := range regexp.MustCompile(`<[a-z0-9]+(?: [^>]*)? id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if places[name][m[1]] {
				t.Errorf("%s has the place #%s twice", name, m[1])
			}
			places[name][m[1]] = true
		}
	}
	link := regexp.MustCompile(`(?:` + regexp.QuoteMeta(s.Origin) + `|href=")(/[a-z0-9/._-]*[a-z0-9]|/)?(?:\?[^"#\s]*)?(?:#([a-z][\w-]*))?`)
	for name, page := range pages {
		found := 0
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			path, place := m[1], m[2]
			_, served := d.Find(path)
			others := []string{"", catalog.PathHealth, catalog.PathReady, catalog.PathMCP}
			if !served && places[path] == nil && !slices.Contains(others, path) {
				t.Errorf("%s leads to %s, which is not served", name, m[0])
			}
			if path == "" {
				path = name
			}
			if found++; place != "" && !places[path][place] {
				t.Errorf("%s leads to %s, which has no such place", name, m[0])
			}
		}
		if text := !slices.Contains([]string{"/", pathRobots, pathFavicon, receipt.Path}, name); text != (found > 0) {
			t.Errorf("%s has %d links", name, found)
		}
	}
}

func TestSnippetsAreOfThisDeployment(t *testing.T) {
	s := testSite()
	s.Terms.Network, s.Terms.Asset = "eip155:10", "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85"
	shown := map[string]string{}
	for _, n := range elements(parse(t, body(t, New(s), catalog.PathDocs)), "pre") {
		shown[attr(n, "id")] = textOf(n)
	}
	for _, sn := range programs(s) {
		text := shown["code-"+sn.ID]
		if text != sn.Code || text == "" || !strings.Contains(text, s.Origin) {
			t.Errorf("%s: the page shows %q", sn.ID, text)
		}
		for _, other := range []string{documentedOrigin, documentedNetwork, documentedAsset} {
			if strings.Contains(text, other) {
				t.Errorf("%s names %s", sn.ID, other)
			}
		}
	}
}

// elements are all elements with one of the names, or all when none is given.
func elements(root *html.Node, names ...string) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, n.Data)) {
			found = append(found, n)
		}
	}
	return found
}

// attr is an attribute; "" where there is none.
func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
