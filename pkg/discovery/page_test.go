package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
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
// and accessible is judged in infra/clients, by html-validate and axe.
func checkPage(t *testing.T, page []byte, csp string) *html.Node {
	t.Helper()
	root := parse(t, page)
	checkLoads(t, root)
	checkInline(t, root, csp)
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

// checkInline holds every inline style and script to the policy: each is named
// in it by hash or by nonce, and the policy names no other.
func checkInline(t *testing.T, root *html.Node, csp string) {
	t.Helper()
	for element, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		allowed := map[string]bool{}
		for _, d := range strings.Split(csp, "; ") {
			if name, sources, _ := strings.Cut(d, " "); name == directive {
				for _, source := range strings.Fields(sources) {
					allowed[source] = false
				}
			}
		}
		for _, n := range elements(root, element) {
			sum := sha256.Sum256([]byte(textOf(n)))
			source := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
			if nonce := attr(n, "nonce"); nonce != "" {
				source = "'nonce-" + nonce + "'"
			}
			if _, ok := allowed[source]; !ok {
				t.Errorf("the policy %q does not allow a <%s>", csp, element)
			}
			allowed[source] = true
		}
		for source, used := range allowed {
			if !used {
				t.Errorf("the policy allows %s %s, which the page does not use", directive, source)
			}
		}
	}
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

func TestHighlightKeepsTheText(t *testing.T) {
	for _, s := range []string{
		"{\n  \"a\": \"<b>&\\\"x\\\\\", \"n\": -1.5e3, \"t\": true, \"z\": null, \"l\": []\n}", `"unterminated \`, `"`, "", "{}", "truth",
	} {
		root := parse(t, []byte("<pre>"+string(highlight(s))+"</pre>"))
		same(t, "the text", s, textOf(root))
		for _, n := range elements(root) {
			if !slices.Contains([]string{"html", "head", "body", "pre", "b", "i", "u"}, n.Data) {
				t.Errorf("%q: an element <%s>", s, n.Data)
			}
		}
	}
	same(t, "the elements", `{<b>"k"</b>: <i>"v"</i>, <b>"n"</b>: <u>1</u>}`, string(highlight(`{"k": "v", "n": 1}`)))
}
