package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"reflect"
	"slices"
	"strconv"
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
	sum := sha256.Sum256([]byte(textOf(elements(root, "style")[0])))
	for _, want := range []string{
		"default-src 'none'", "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	} {
		if !slices.Contains(strings.Split(csp, "; "), want) {
			t.Errorf("the policy %q lacks %s", csp, want)
		}
	}
	return root
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
		case "script", "iframe", "object", "embed", "form", "base", "img", "video", "audio", "svg", "template":
			t.Errorf("<%s>", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "srcset":
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			case a.Key == "href" && n.Data == "link" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, testSite().Origin):
				t.Errorf("<link> to %s", a.Val)
			case a.Key == "href" && n.Data == "a" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") &&
				!strings.HasPrefix(a.Val, testSite().Origin+"/") && a.Val != catalog.Homepage:
				t.Errorf("a link to %s", a.Val)
			}
		}
	}
	css := textOf(elements(root, "style")[0])
	if strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the stylesheet loads something")
	}
}

func TestDocsPage(t *testing.T) {
	s := testSite()
	for name, ops := range map[string][]catalog.Operation{"catalog": catalog.All(), "wide": wideOps()} {
		t.Run(name, func(t *testing.T) {
			d, err := render(s, ops, wideBooks()[:len(ops)-len(catalog.All())])
			if err != nil {
				t.Fatal(err)
			}
			doc, _ := d.Find(catalog.PathDocs)
			root := checkPage(t, doc.Body, doc.CSP)
			anchors := ids(root)
			for i := range ops {
				docsURL := at(t, tree(t, body(t, d, catalog.PathCatalog)), "tools", i, "docs_url").(string)
				if anchor := strings.TrimPrefix(docsURL, s.Origin+"/docs#"); !anchors[anchor] {
					t.Errorf("no anchor for %s", docsURL)
				}
			}
			for _, n := range elements(root, "a", "link") {
				href, _ := attr(n, "href")
				path, _, _ := strings.Cut(strings.TrimPrefix(href, s.Origin), "#")
				if _, ok := d.Find(path); strings.HasPrefix(path, "/") && !ok {
					t.Errorf("%s is not served", href)
				}
			}
		})
	}
}

// TestDocsPageSaysEverything reads the article of each operation.
func TestDocsPageSaysEverything(t *testing.T) {
	s := testSite()
	root := parse(t, body(t, mustRenderWide(t), catalog.PathDocs))
	articles := elements(root, "article")
	if len(articles) != len(wideOps()) {
		t.Fatalf("%d articles", len(articles))
	}
	for i, op := range wideOps() {
		var cells [][]string
		for _, tr := range elements(articles[i], "tr") {
			var row []string
			for _, c := range elements(tr, "th", "td") {
				row = append(row, textOf(c))
			}
			cells = append(cells, row)
		}
		has := func(want ...string) {
			t.Helper()
			if !slices.ContainsFunc(cells, func(row []string) bool { return slices.Equal(row, want) }) {
				t.Errorf("%s: no row %q", op.Slug, want)
			}
		}
		for _, r := range rows(op.Fields) {
			has(r.Name, r.Type, r.Description)
		}
		for _, o := range outcomes(op.Errors) {
			has(strconv.Itoa(o.Status), string(o.Code), o.Charged, o.Retryable, o.Message)
		}
		text := textOf(articles[i])
		for _, want := range []string{op.Title, op.Price() + " per call", op.Path, op.Description, op.ExampleURL(s.Origin)} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", op.Slug, want)
			}
		}
		example := textOf(elements(articles[i], "pre")[0])
		if diff := cmp.Diff(tree(t, []byte(op.Response)), tree(t, []byte(example))); diff != "" {
			t.Errorf("%s: the example on the page: %s", op.Slug, diff)
		}
	}
}

func TestDocsShowTheRealOffer(t *testing.T) {
	root := parse(t, body(t, mustRender(t), catalog.PathDocs))
	for _, n := range elements(root, "pre") {
		if label, _ := attr(n.Parent, "aria-label"); label != "Decoded PAYMENT-REQUIRED" {
			continue
		}
		raw, err := encode(Offer(catalog.All()[0], testSite()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, raw), tree(t, []byte(textOf(n)))); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Error("no offer on the page")
}

func TestDocsSayLimitsAndCaveats(t *testing.T) {
	text := textOf(parse(t, body(t, mustRender(t), catalog.PathDocs)))
	for _, n := range append(catalog.Limits(), catalog.Caveats()...) {
		if !strings.Contains(text, n.Title) || !strings.Contains(text, n.Text) {
			t.Errorf("%q is missing", n.Title)
		}
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
	tests := map[string]string{
		`{"a":1,"b":[true,null]}`:               `{"a": 1, "b": [true, null]}`,
		`[]`:                                    `[]`,
		`{"z":{},"a":"` + long + `"}`:           "{\n  \"z\": {},\n  \"a\": \"" + long + "\"\n}",
		`[{"k":1},"` + long + `"]`:              "[\n  {\"k\": 1},\n  \"" + long + "\"\n]",
		`{"n":12345678901234567890,"e":1.50}`:   `{"n": 12345678901234567890, "e": 1.50}`,
		`{"o":{"list":["` + long + `","<&>"]}}`: "{\n  \"o\": {\n    \"list\": [\n      \"" + long + "\",\n      \"<&>\"\n    ]\n  }\n}",
	}
	for in, want := range tests {
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
