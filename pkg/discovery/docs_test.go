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

// sectionOf is the section or article with a heading of that id.
func sectionOf(t *testing.T, root *html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range elements(root, "section", "article") {
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
				docsURL := at(t, described(t, d, catalog.PathCatalog), "tools", i, "docs_url").(string)
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
	root := docsRoot(t, renderedWide())
	if n := len(elements(root, "article")); n != len(wideOps()) {
		t.Errorf("%d articles", n)
	}
	for _, op := range wideOps() {
		article := sectionOf(t, root, op.Slug)
		checkArticle(t, article, op)
		says(t, op.Slug, textOf(article), op.Title, op.Price()+" per call", op.Path, op.Description, op.ExampleURL(s.Origin))
	}
}

// checkArticle reads the tables and the example answer of an operation.
func checkArticle(t *testing.T, article *html.Node, op catalog.Operation) {
	t.Helper()
	table := cells(article)
	has := func(want ...string) {
		t.Helper()
		if !slices.ContainsFunc(table, func(row []string) bool { return slices.Equal(row, want) }) {
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
		if !slices.ContainsFunc(table, func(row []string) bool { return row[0] == p.Name+" "+needed && row[1] == p.Type }) {
			t.Errorf("%s: no row for the parameter %s", op.Slug, p.Name)
		}
	}
	answers := codeByLabel(article)["Example answer of "+op.Title]
	if len(answers) != 1 {
		t.Fatalf("%s has %d example answers", op.Slug, len(answers))
	}
	head, example, _ := strings.Cut(answers[0], "\n\n")
	if !strings.HasPrefix(head, "HTTP/1.1 200 OK\n") || !strings.Contains(head, "\nPAYMENT-RESPONSE: ") {
		t.Errorf("%s: the example answer starts with %q", op.Slug, head)
	}
	same(t, op.Slug+": the example on the page", tree(t, []byte(op.Response)), tree(t, []byte(example)))
}

// TestDocsOrder is the way of a reader: what it is and costs, a first call,
// the handshake, each operation, then the small print.
func TestDocsOrder(t *testing.T) {
	root := docsRoot(t, rendered())
	want := []string{"prices", "try", "paying", "mcp", "operations", "bundles", "limits", "caveats", "money", "errors", "refunds", "receipts", "documents", "smoke-test"}
	same(t, "the order", want, attrs(elements(root, "h2"), "id"))
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest {
			want = append(want, op.Slug)
		}
	}
	for _, l := range languages(snippetList()) {
		want = append(want, l.First.ID)
	}
	for i := range want {
		want[i] = "#" + want[i]
	}
	if diff := cmp.Diff(want, attrs(elements(elements(root, "nav")[0], "a"), "href"), unordered); diff != "" {
		t.Errorf("the contents: %s", diff)
	}
}

// TestDocsPrices compares the price list with the catalog.
func TestDocsPrices(t *testing.T) {
	list := sectionOf(t, docsRoot(t, renderedWide()), "prices")
	var want [][]string
	for _, op := range wideOps() {
		title := op.Title
		if op.Kind == catalog.SmokeTest {
			title += " not a product"
		}
		want = append(want, []string{title, op.Price(), op.Amount, op.Path})
	}
	same(t, t.Name(), want, cells(list)[1:])
}

// TestEveryCodeIsDocumented finds every error code of the service, with what it
// means for the payment, on the page and in both texts.
func TestEveryCodeIsDocumented(t *testing.T) {
	d := rendered()
	pageRows := cells(docsRoot(t, d))
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
	d := rendered()
	for name, text := range map[string]string{
		"docs":      textOf(sectionOf(t, docsRoot(t, d), "bundles")),
		"llms":      string(body(t, d, catalog.PathLLMs)),
		"llms-full": string(body(t, d, catalog.PathLLMsFull)),
		"guidance":  at(t, described(t, d, catalog.PathOpenAPI), "info", "x-guidance").(string),
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

func TestSnippetsAreOfThisDeployment(t *testing.T) {
	s := testSite()
	s.Terms.Network, s.Terms.Asset = "eip155:10", "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85"
	d := must(Render(s))
	shown := map[string]string{}
	for _, n := range elements(docsRoot(t, d), "pre") {
		if id, ok := attr(n, "id"); ok {
			shown[id] = textOf(n)
		}
	}
	list := must(programs(s, append(snippetList(), receiptProgram())))
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
	root := docsRoot(t, rendered())
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
