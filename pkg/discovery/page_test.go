package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func parse(t *testing.T, page []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return root
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

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
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

// docsRoot is the documentation, parsed.
func docsRoot(t *testing.T, d *Documents) *html.Node { return parse(t, body(t, d, catalog.PathDocs)) }

// cells are the texts of the rows of the tables below a node.
func cells(root *html.Node) [][]string {
	var all [][]string
	for _, tr := range elements(root, "tr") {
		all = append(all, texts(elements(tr, "th", "td")))
	}
	return all
}

func texts(nodes []*html.Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, textOf(n))
	}
	return all
}

// codeByLabel are the blocks of code below a node by their labels.
func codeByLabel(root *html.Node) map[string][]string {
	all := map[string][]string{}
	for _, n := range elements(root, "pre") {
		label, _ := attr(n.Parent, "aria-label")
		all[label] = append(all[label], textOf(n))
	}
	return all
}

func ids(root *html.Node) map[string]bool {
	all := map[string]bool{}
	for _, n := range elements(root) {
		if id, ok := attr(n, "id"); ok {
			all[id] = true
		}
	}
	return all
}

// checkBalanced finds what html.Parse repairs without a word: elements that
// are never closed, or closed in the wrong order.
func checkBalanced(t *testing.T, page []byte) {
	t.Helper()
	void := []string{"meta", "link", "br", "img", "hr", "input"}
	var open []string
	z := html.NewTokenizer(bytes.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("never closed: %v", open)
			}
			return
		case html.StartTagToken:
			if name, _ := z.TagName(); !slices.Contains(void, string(name)) {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> while %v is open", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// checkPage is what holds for both pages: well formed, accessible in what can
// be checked without a browser, and nothing loaded from anywhere but here.
func checkPage(t *testing.T, page []byte, csp string) *html.Node {
	t.Helper()
	checkBalanced(t, page)
	root := parse(t, page)
	if lang, _ := attr(elements(root, "html")[0], "lang"); lang != "en" {
		t.Errorf("lang %q", lang)
	}
	for _, once := range []string{"title", "h1", "main", "style"} {
		if list := elements(root, once); len(list) != 1 || strings.TrimSpace(textOf(list[0])) == "" {
			t.Errorf("%d %s", len(list), once)
		}
	}
	checkIDs(t, root)
	checkTables(t, root)
	checkLoads(t, root)
	checkInline(t, root, csp)
	action := "form-action 'none'"
	for _, n := range elements(root, "form") {
		action = "form-action 'self'"
		if to, _ := attr(n, "action"); !strings.HasPrefix(to, "/v1/") {
			t.Errorf("a form goes to %q", to)
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
			if nonce, ok := attr(n, "nonce"); ok {
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

func checkIDs(t *testing.T, root *html.Node) {
	t.Helper()
	seen := map[string]bool{}
	level := 0
	for _, n := range elements(root) {
		if id, ok := attr(n, "id"); ok {
			if seen[id] || id == "" {
				t.Errorf("id %q twice", id)
			}
			seen[id] = true
		}
		if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
			if now := int(n.Data[1] - '0'); now > level+1 {
				t.Errorf("<%s>%s follows a heading of level %d", n.Data, textOf(n), level)
			} else {
				level = now
			}
		}
	}
	for _, n := range elements(root) {
		if ref, ok := attr(n, "aria-labelledby"); ok && !seen[ref] {
			t.Errorf("aria-labelledby %q", ref)
		}
		if href, ok := attr(n, "href"); ok && strings.HasPrefix(href, "#") && !seen[href[1:]] {
			t.Errorf("no anchor for %s", href)
		}
	}
}

func checkTables(t *testing.T, root *html.Node) {
	t.Helper()
	for _, n := range elements(root, "table") {
		if len(elements(n, "caption")) != 1 {
			t.Error("a table without a caption")
		}
	}
	for _, n := range elements(root, "th") {
		if scope, _ := attr(n, "scope"); scope != "col" && scope != "row" {
			t.Errorf("scope %q of %q", scope, textOf(n))
		}
	}
	for _, n := range elements(root, "pre", "table") {
		if tab, _ := attr(n.Parent, "tabindex"); tab != "0" {
			t.Errorf("a scrolling %s without the keyboard", n.Data)
		}
		if label, _ := attr(n.Parent, "aria-label"); label == "" {
			t.Errorf("a scrolling %s without a name", n.Data)
		}
	}
}

func checkLoads(t *testing.T, root *html.Node) {
	t.Helper()
	for _, n := range elements(root) {
		switch n.Data {
		case "iframe", "object", "embed", "base", "img", "video", "audio", "svg", "template":
			t.Errorf("<%s>", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "srcset":
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			case a.Key == "href" && n.Data == "link" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, testSite().Origin):
				t.Errorf("<link> to %s", a.Val)
			case a.Key == "href" && n.Data == "a" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") &&
				!strings.HasPrefix(a.Val, testSite().Origin+"/") && !strings.HasPrefix(a.Val, x402.Network(testSite().Terms.Network).Explorer+"/") && a.Val != catalog.Homepage:
				t.Errorf("a link to %s", a.Val)
			}
		}
	}
	css := textOf(elements(root, "style")[0])
	if strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the stylesheet loads something")
	}
}

// jsonNames are the names that a struct has in JSON.
func jsonNames(v any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// TestHandshakeTablesNameTheWireFields ties the two tables to the wire types.
func TestHandshakeTablesNameTheWireFields(t *testing.T) {
	heads := func(list []row, under string) []string {
		var names []string
		for _, r := range list {
			rest, ok := strings.CutPrefix(r.Name, under)
			name, _, _ := strings.Cut(rest, ".")
			if ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	for _, tt := range []struct {
		rows  []row
		under string
		wire  any
	}{
		{signatureRows(), "", x402.Payload{}}, {signatureRows(), "payload.", x402.ExactPayload{}},
		{signatureRows(), "payload.authorization.", x402.Authorization{}}, {responseRows(), "", x402.SettleResponse{}},
	} {
		if diff := cmp.Diff(jsonNames(tt.wire), heads(tt.rows, tt.under), unordered); diff != "" {
			t.Errorf("%T: %s", tt.wire, diff)
		}
	}
}

func TestHighlightKeepsTheText(t *testing.T) {
	for _, s := range []string{
		"{\n  \"a\": \"<b>&\\\"x\\\\\", \"n\": -1.5e3, \"t\": true, \"z\": null, \"l\": []\n}", `"unterminated \`, `"`, "", "{}", "truth",
	} {
		got := highlight(s)
		root := parse(t, []byte("<pre>"+got+"</pre>"))
		if text := textOf(root); text != s {
			t.Errorf("%q became %q", s, text)
		}
		for _, n := range elements(root) {
			if !slices.Contains([]string{"html", "head", "body", "pre", "span"}, n.Data) {
				t.Errorf("%q: an element <%s>", s, n.Data)
			}
		}
	}
	if got := highlight(`{"k": "v", "n": 1}`); !strings.Contains(got, `<span class="k">&#34;k&#34;</span>`) ||
		!strings.Contains(got, `<span class="s">&#34;v&#34;</span>`) || !strings.Contains(got, `<span class="n">1</span>`) {
		t.Error(got)
	}
}

func TestPretty(t *testing.T) {
	long := strings.Repeat("x", 80)
	for in, want := range map[string]string{
		`{"a":1,"b":[true,null]}`:               `{"a": 1, "b": [true, null]}`,
		`[]`:                                    `[]`,
		`{"z":{},"a":"` + long + `"}`:           "{\n  \"z\": {},\n  \"a\": \"" + long + "\"\n}",
		`[{"k":1},"` + long + `"]`:              "[\n  {\"k\": 1},\n  \"" + long + "\"\n]",
		`{"n":12345678901234567890,"e":1.50}`:   `{"n": 12345678901234567890, "e": 1.50}`,
		`{"o":{"list":["` + long + `","<&>"]}}`: "{\n  \"o\": {\n    \"list\": [\n      \"" + long + "\",\n      \"<&>\"\n    ]\n  }\n}",
	} {
		got, err := pretty([]byte(in))
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "{", `{"a"`, `{"a":`, "[1", "[1,", "1 2", "nul"} {
		if got, err := pretty([]byte(in)); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

// TestMissing reads the page for unknown paths: every operation and document is
// one link away.
func TestMissing(t *testing.T) {
	d := rendered()
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
	anchors := ids(docsRoot(t, d))
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
