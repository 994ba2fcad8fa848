package discovery

import (
	"go/format"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// sectionOf is the section with a heading of that id.
func sectionOf(t *testing.T, root *html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range elements(root, "section") {
		if by, _ := attr(n, "aria-labelledby"); by == id {
			return n
		}
	}
	t.Fatalf("no section %s", id)
	return nil
}

func TestDocsPage(t *testing.T) {
	s := testSite()
	for name, ops := range map[string][]catalog.Operation{"catalog": catalog.All(), "wide": wideOps()} {
		t.Run(name, func(t *testing.T) {
			d := must(render(s, ops, wideBooks()[:len(ops)-len(catalog.All())]))
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
				priced := slices.ContainsFunc(ops, func(op catalog.Operation) bool { return op.ExampleURL("") == path })
				if _, ok := d.Find(path); strings.HasPrefix(path, "/") && !ok && !priced {
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
	articles := map[string]*html.Node{}
	for _, n := range elements(root, "article") {
		slug, _ := attr(n, "aria-labelledby")
		articles[slug] = n
	}
	if len(articles) != len(wideOps()) {
		t.Fatalf("%d articles", len(articles))
	}
	for _, op := range wideOps() {
		article := articles[op.Slug]
		if article == nil {
			t.Errorf("no article on %s", op.Slug)
			continue
		}
		checkArticle(t, article, op)
		text := textOf(article)
		for _, want := range []string{op.Title, op.Price() + " per call", op.Path, op.Description, op.ExampleURL(s.Origin)} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", op.Slug, want)
			}
		}
	}
}

// checkArticle reads the tables and the example answer of an operation.
func checkArticle(t *testing.T, article *html.Node, op catalog.Operation) {
	t.Helper()
	var cells [][]string
	for _, tr := range elements(article, "tr") {
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
	for _, p := range op.Params {
		needed := map[bool]string{true: "required", false: "optional"}[p.Required]
		if !slices.ContainsFunc(cells, func(row []string) bool { return row[0] == p.Name+" "+needed && row[1] == p.Type }) {
			t.Errorf("%s: no row for the parameter %s", op.Slug, p.Name)
		}
	}
	for _, n := range elements(article, "pre") {
		if label, _ := attr(n.Parent, "aria-label"); label != "Example answer of "+op.Title {
			continue
		}
		head, example, _ := strings.Cut(textOf(n), "\n\n")
		if !strings.HasPrefix(head, "HTTP/1.1 200 OK\n") || !strings.Contains(head, "\nPAYMENT-RESPONSE: ") {
			t.Errorf("%s: the example answer starts with %q", op.Slug, head)
		}
		if diff := cmp.Diff(tree(t, []byte(op.Response)), tree(t, []byte(example))); diff != "" {
			t.Errorf("%s: the example on the page: %s", op.Slug, diff)
		}
		return
	}
	t.Errorf("%s has no example answer", op.Slug)
}

func TestDocsSayLimitsAndCaveats(t *testing.T) {
	text := textOf(parse(t, body(t, mustRender(t), catalog.PathDocs)))
	for _, n := range append(catalog.Limits(testSite().Caps), catalog.Caveats()...) {
		if !strings.Contains(text, n.Title) || !strings.Contains(text, n.Text) {
			t.Errorf("%q is missing", n.Title)
		}
	}
}

// TestDocsOrder is the way of a reader: what it is and costs, a first call,
// the handshake, each operation, then the small print.
func TestDocsOrder(t *testing.T) {
	root := parse(t, body(t, mustRender(t), catalog.PathDocs))
	var order []string
	for _, n := range elements(root, "h2") {
		id, _ := attr(n, "id")
		order = append(order, id)
	}
	want := []string{"prices", "try", "paying", "mcp", "operations", "bundles", "limits", "caveats", "money", "errors", "refunds", "receipts", "documents", "smoke-test"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	var contents []string
	for _, n := range elements(elements(root, "nav")[0], "a") {
		href, _ := attr(n, "href")
		contents = append(contents, strings.TrimPrefix(href, "#"))
	}
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest {
			want = append(want, op.Slug)
		}
	}
	for _, l := range languages(snippetList()) {
		want = append(want, l.First.ID)
	}
	if diff := cmp.Diff(want, contents, unordered); diff != "" {
		t.Errorf("the contents: %s", diff)
	}
}

func TestDocsHead(t *testing.T) {
	s := testSite()
	root := parse(t, body(t, mustRender(t), catalog.PathDocs))
	found := map[string]string{}
	for _, n := range elements(root, "meta", "link") {
		for _, key := range []string{"name", "property", "rel"} {
			if name, ok := attr(n, key); ok {
				content, _ := attr(n, "content")
				href, _ := attr(n, "href")
				kind, _ := attr(n, "type")
				found[strings.TrimSpace(name+" "+kind)] = content + href
			}
		}
	}
	for name, want := range map[string]string{
		"description": catalog.Tagline + " Operations, prices, payment, fields and errors.", "og:title": catalog.Service,
		"og:description": catalog.Tagline, "og:type": "website", "og:url": s.Origin + "/docs", "og:image": s.Origin + "/favicon.svg",
		"icon image/svg+xml": "/favicon.svg", "alternate application/json": "/openapi.json", "alternate text/plain": "/llms.txt",
		"canonical": s.Origin + "/docs", "viewport": "width=device-width, initial-scale=1",
	} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}
	skip := elements(elements(root, "body")[0], "a")[0]
	if href, _ := attr(skip, "href"); href != "#content" {
		t.Errorf("the first link goes to %s, not to the content", href)
	}
}

// TestDocsPrices compares the price list with the catalog.
func TestDocsPrices(t *testing.T) {
	list := sectionOf(t, parse(t, body(t, mustRenderWide(t), catalog.PathDocs)), "prices")
	var got [][]string
	for _, tr := range elements(list, "tr")[1:] {
		var row []string
		for _, c := range elements(tr, "th", "td") {
			row = append(row, strings.TrimSuffix(textOf(c), " not a product"))
		}
		got = append(got, row)
	}
	var want [][]string
	for _, op := range wideOps() {
		want = append(want, []string{op.Title, op.Price(), op.Amount, op.Path})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(textOf(list), "Payment smoke test not a product") {
		t.Error("the price list does not say that the smoke test is not a product")
	}
}

// TestEveryCodeIsDocumented finds every error code of the service, with what it
// means for the payment, on the page and in both texts.
func TestEveryCodeIsDocumented(t *testing.T) {
	d := mustRender(t)
	var pageRows [][]string
	for _, tr := range elements(parse(t, body(t, d, catalog.PathDocs)), "tr") {
		var row []string
		for _, c := range elements(tr, "th", "td") {
			row = append(row, textOf(c))
		}
		pageRows = append(pageRows, row)
	}
	short, full := string(body(t, d, catalog.PathLLMs)), string(body(t, d, catalog.PathLLMsFull))
	for _, info := range fault.All() {
		o := outcomeOf(info.Code)
		if !slices.ContainsFunc(pageRows, func(r []string) bool {
			return len(r) == 5 && r[1] == string(o.Code) && r[2] == o.Charged && r[3] == o.Retryable
		}) {
			t.Errorf("the page does not list %s, charged %s, retryable %s", o.Code, o.Charged, o.Retryable)
		}
		group := "- charged " + o.Charged + ", retryable " + o.Retryable + ": "
		if !slices.ContainsFunc(strings.Split(short, "\n"), func(l string) bool {
			return strings.HasPrefix(l, group) && strings.Contains(l, "`"+string(o.Code)+"`")
		}) {
			t.Errorf("llms.txt does not list %s, charged %s, retryable %s", o.Code, o.Charged, o.Retryable)
		}
		if !strings.Contains(full, "`"+string(o.Code)+"` (charged: "+o.Charged+"; retryable: "+o.Retryable+")") {
			t.Errorf("llms-full.txt does not list %s, charged %s, retryable %s", o.Code, o.Charged, o.Retryable)
		}
	}
}

// TestPlaybooksEverywhere finds the call sequences of spec §4.10 where they
// are read.
func TestPlaybooksEverywhere(t *testing.T) {
	d := mustRender(t)
	for name, text := range map[string]string{
		"docs":      textOf(sectionOf(t, parse(t, body(t, d, catalog.PathDocs)), "bundles")),
		"llms":      string(body(t, d, catalog.PathLLMs)),
		"llms-full": string(body(t, d, catalog.PathLLMsFull)),
		"guidance":  at(t, tree(t, body(t, d, catalog.PathOpenAPI)), "info", "x-guidance").(string),
	} {
		for _, sequence := range [][]string{
			{"Host intelligence", "/v1/tools/dns", "/v1/tools/ssl-check", "/v1/tools/whois", "/v1/bundles/host-intel"},
			{"Uptime check", "/v1/tools/dns", "/v1/tools/ssl-check", "/v1/tools/headers", "/v1/bundles/uptime-check"},
		} {
			// The name occurs elsewhere too; the sequence follows one of them.
			if !slices.ContainsFunc(allAfter(text, sequence[0]), func(rest string) bool { return inOrder(rest, sequence[1:]) }) {
				t.Errorf("%s lacks the sequence %v", name, sequence)
			}
		}
	}
}

// allAfter is what follows each occurrence of a word, up to 700 bytes.
func allAfter(text, word string) []string {
	var all []string
	for {
		_, rest, found := strings.Cut(text, word)
		if !found {
			return all
		}
		all = append(all, rest[:min(len(rest), 700)])
		text = rest
	}
}

func inOrder(text string, words []string) bool {
	for _, w := range words {
		_, rest, found := strings.Cut(text, w)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

func TestRefundsAreExplained(t *testing.T) {
	d := mustRender(t)
	text := textOf(sectionOf(t, parse(t, body(t, d, catalog.PathDocs)), "refunds"))
	for _, line := range refunds() {
		if !strings.Contains(text, strings.ReplaceAll(line, "`", "")) {
			t.Errorf("the page lacks %q", line)
		}
		if !strings.Contains(string(body(t, d, catalog.PathLLMsFull)), line) {
			t.Errorf("llms-full.txt lacks %q", line)
		}
	}
}

func TestSnippetsAreOfThisDeployment(t *testing.T) {
	s := testSite()
	s.Terms.Network, s.Terms.Asset = "eip155:10", "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85"
	d := must(Render(s))
	shown := map[string]string{}
	for _, n := range elements(parse(t, body(t, d, catalog.PathDocs)), "pre") {
		if id, ok := attr(n, "id"); ok {
			shown[id] = textOf(n)
		}
	}
	list, err := programs(s, append(snippetList(), receiptProgram()))
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range list {
		text := shown["code-"+sn.ID]
		if text != sn.Code || text == "" {
			t.Errorf("%s: the page shows %q", sn.ID, text)
		}
		for _, other := range []string{documentedOrigin, documentedNetwork, documentedAsset} {
			if strings.Contains(text, other) {
				t.Errorf("%s names %s", sn.ID, other)
			}
		}
		if !strings.Contains(text, catalog.DNS().ExampleURL(s.Origin)) {
			t.Errorf("%s does not make the example call", sn.ID)
		}
		if (sn.Run == "") != (sn.Install == "") {
			t.Errorf("%s has one command of two", sn.ID)
		}
		if sn.ID == "go" {
			if formatted, err := format.Source([]byte(text + "\n")); err != nil || string(formatted) != text+"\n" {
				t.Errorf("the Go program is not gofmt'd: %v", err)
			}
		}
	}
}

// TestDocsCellsNameTheirColumn: where a table is shown as a list, which has no
// heads of columns, a yes or a no says what it is about.
func TestDocsCellsNameTheirColumn(t *testing.T) {
	root := parse(t, body(t, mustRender(t), catalog.PathDocs))
	seen := 0
	for _, table := range elements(root, "table") {
		heads := elements(elements(table, "thead")[0], "th")
		for _, tr := range elements(elements(table, "tbody")[0], "tr") {
			for i, cell := range elements(tr, "th", "td") {
				head := textOf(heads[i])
				if !slices.Contains([]string{"Charged", "Retryable", "Default", "Atomic units"}, head) {
					continue
				}
				seen++
				if label, _ := attr(cell, "data-label"); label != head {
					t.Errorf("%q is called %q in a list, and %q in the table", textOf(cell), label, head)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d cells", seen)
	}
}
