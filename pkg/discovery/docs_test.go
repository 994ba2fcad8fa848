package discovery

import (
	"go/format"
	"slices"
	"strings"
	"testing"

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

// TestEveryCodeIsDocumented finds every error code of the service, with what it
// means for the payment, on the page, once with an anchor of its own, and in both
// texts.
func TestEveryCodeIsDocumented(t *testing.T) {
	d := rendered()
	page, pageRows := string(body(t, d, catalog.PathDocs)), cells(docsRoot(t, d))
	short, full := string(body(t, d, catalog.PathLLMs)), string(body(t, d, catalog.PathLLMsFull))
	for _, info := range fault.All() {
		o := outcomeOf(info.Code)
		if !slices.ContainsFunc(pageRows, func(r []string) bool {
			return len(r) == 5 && r[1] == string(o.Code) && r[2] == o.Charged && r[3] == o.Retryable
		}) {
			t.Errorf("the page does not list %s, charged %s, retryable %s", o.Code, o.Charged, o.Retryable)
		}
		if n := strings.Count(page, ` id="`+catalog.ErrorAnchor(info.Code)+`"`); n != 1 {
			t.Errorf("%s has %d anchors", info.Code, n)
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
