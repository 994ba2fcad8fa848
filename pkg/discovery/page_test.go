package discovery

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func parse(t *testing.T, page []byte) *html.Node {
	t.Helper()
	return must(html.Parse(bytes.NewReader(page)))
}

// checkPage is what holds for every page: nothing is loaded from anywhere but here, and
// what scrolls has a name and is reached with the keyboard. Whether it is well formed
// and accessible, and whether its policy stops anything of it, is judged in infra/clients.
func checkPage(t *testing.T, page []byte, csp string) *html.Node {
	t.Helper()
	root := parse(t, page)
	checkLoads(t, root)
	for _, n := range elements(root, "pre", "table") {
		if attr(n.Parent, "tabindex") != "0" || attr(n.Parent, "aria-label") == "" {
			t.Errorf("a scrolling %s without a name, or without the keyboard", n.Data)
		}
		if n.Data == "table" && len(elements(n, "caption")) != 1 {
			t.Error("a table without a caption")
		}
	}
	action := "form-action 'none'"
	for _, n := range elements(root, "form") {
		if action = "form-action 'self'"; !strings.HasPrefix(attr(n, "action"), "/v1/") {
			t.Errorf("a form goes to %q", attr(n, "action"))
		}
	}
	for _, want := range []string{"default-src 'none'", "base-uri 'none'", action, "frame-ancestors 'none'"} {
		if !slices.Contains(strings.Split(csp, "; "), want) {
			t.Errorf("the policy %q lacks %s", csp, want)
		}
	}
	return root
}

func checkLoads(t *testing.T, root *html.Node) {
	t.Helper()
	ours := []string{"/", "#", testSite().Origin + "/", x402.Network(testSite().Terms.Network).Explorer + "/", catalog.Homepage, testSite().Contact}
	for _, n := range elements(root) {
		switch n.Data {
		case "iframe", "object", "embed", "base", "img", "video", "audio", "svg", "template":
			t.Errorf("<%s>", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "srcset":
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			case a.Key == "href" && !slices.ContainsFunc(ours, func(begin string) bool { return strings.HasPrefix(a.Val, begin) }):
				t.Errorf("<%s> to %s", n.Data, a.Val)
			}
		}
	}
	css := textOf(elements(root, "style")[0])
	if strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the stylesheet loads something")
	}
}

func TestHighlight(t *testing.T) {
	same(t, "the elements", `{<b>"k"</b>: <i>"&lt;&amp;&gt;&#39;"</i>, <b>"n"</b>: <u>1</u>}`, string(highlight(`{"k": "<&>'", "n": 1}`)))
}
