package discovery

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestLinks follows the links to this service in documents and pages. Each link must lead to a
// document, to an operation, or to another path of the service. If the link has an anchor, the
// page to which the link leads must have that anchor. No page may have the same anchor twice.
func TestLinks(t *testing.T) {
	d, s := testDocuments(), testSite()
	docs, _ := d.Find(catalog.PathDocs)
	checkPage(t, docs.Body(), docs.content().CSP)
	pages := map[string]string{}
	for _, meant := range []string{"", catalog.DNS().Path} {
		page := d.Missing(meant)
		checkPage(t, page.Body, page.CSP)
		pages["missing"] = string(page.Body)
		wantEqual(t, "the page offers what may be meant", meant != "", strings.Contains(pages["missing"], "Did you mean"))
	}
	for _, doc := range d.documents {
		pages[doc.Path] = string(doc.Body())
	}
	for _, op := range catalog.All() {
		_, page := checkVisit(t, op, newVisit(op, "www.example.org"))
		pages[op.Path] = string(page)
	}
	anchors := map[string]map[string]bool{}
	for name, page := range pages {
		anchors[name] = anchorsOf(t, name, page)
	}
	link := regexp.MustCompile(`(?:` + regexp.QuoteMeta(s.Origin) + `|href=")(/[a-z0-9/._-]*[a-z0-9]|/)?(?:\?[^"#\s]*)?(?:#([a-z][\w-]*))?`)
	for name, page := range pages {
		found := 0
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			path, anchor := m[1], m[2]
			_, served := d.Find(path)
			others := []string{"", catalog.PathHealth, catalog.PathReady, catalog.PathMCP}
			if !served && anchors[path] == nil && !slices.Contains(others, path) {
				t.Errorf("%s leads to %s, which is not served", name, m[0])
			}
			if path == "" {
				path = name
			}
			if found++; anchor != "" && !anchors[path][anchor] {
				t.Errorf("%s leads to %s, which has no such place", name, m[0])
			}
		}
		if text := !slices.Contains([]string{"/", pathRobots, pathFavicon, pathIcon, pathCard, receipt.Path}, name); text != (found > 0) {
			t.Errorf("%s has %d links", name, found)
		}
	}
}

// anchorsOf returns the anchors of a page to which a link can lead. It fails the test if two
// elements have the same anchor.
func anchorsOf(t *testing.T, name, page string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`<[a-z0-9]+(?: [^>]*)? id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if anchors[m[1]] {
			t.Errorf("%s has the place #%s twice", name, m[1])
		}
		anchors[m[1]] = true
	}
	return anchors
}

func TestSnippetsAreOfThisDeployment(t *testing.T) {
	s := testSite()
	s.Terms.Network, s.Terms.Asset = "eip155:10", "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85"
	shown := map[string]string{}
	for _, n := range elements(parsePage(t, documentBody(t, New(s), catalog.PathDocs)), "pre") {
		shown[testbed.Attribute(n, "id")] = testbed.Text(n)
	}
	for _, sn := range programs(s) {
		text := shown["code-"+sn.ID]
		if text != sn.Code || text == "" || !strings.Contains(text, s.Origin) {
			t.Errorf("%s: the page shows %q", sn.ID, text)
		}
		for _, other := range []string{documentedOrigin, x402.USDC().Network, x402.USDC().Asset} {
			if strings.Contains(text, other) {
				t.Errorf("%s names %s", sn.ID, other)
			}
		}
	}
}

// elements returns the elements that have one of the given names, or all elements if no name is
// given.
func elements(root *html.Node, names ...string) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, n.Data)) {
			found = append(found, n)
		}
	}
	return found
}

func parsePage(t *testing.T, page []byte) *html.Node {
	t.Helper()
	return must(html.Parse(bytes.NewReader(page)))
}

// checkPage checks the rules for every page. The page must load nothing from other origins, and
// each part that scrolls must have a name and be reachable with the keyboard. infra/clients
// tests whether the page is well formed and accessible, and whether its
// Content-Security-Policy blocks any part of it.
func checkPage(t *testing.T, page []byte, csp string) *html.Node {
	t.Helper()
	root := parsePage(t, page)
	checkLoads(t, root)
	for _, n := range elements(root, "pre", "table") {
		if testbed.Attribute(n.Parent, "tabindex") != "0" || testbed.Attribute(n.Parent, "aria-label") == "" {
			t.Errorf("a scrolling %s without a name, or without the keyboard", n.Data)
		}
		if n.Data == "table" && len(elements(n, "caption")) != 1 {
			t.Error("a table without a caption")
		}
	}
	action := "form-action 'none'"
	for _, n := range elements(root, "form") {
		if action = "form-action 'self'"; !strings.HasPrefix(testbed.Attribute(n, "action"), "/v1/") {
			t.Errorf("a form goes to %q", testbed.Attribute(n, "action"))
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
	allowedPrefixes := []string{"/", "#", testSite().Origin + "/", x402.Network(testSite().Terms.Network).Explorer + "/", catalog.Homepage, testSite().Contact}
	for _, n := range elements(root) {
		switch n.Data {
		case "iframe", "object", "embed", "base", "img", "video", "audio", "svg", "template":
			t.Errorf("<%s>", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "srcset":
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			case a.Key == "href" && !slices.ContainsFunc(allowedPrefixes, func(begin string) bool { return strings.HasPrefix(a.Val, begin) }):
				t.Errorf("<%s> to %s", n.Data, a.Val)
			}
		}
	}
	css := testbed.Text(elements(root, "style")[0])
	if strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the stylesheet loads something")
	}
}

func TestHighlight(t *testing.T) {
	wantEqual(t, "the elements", `{<b>"k"</b>: <i>"&lt;&amp;&gt;&#39;"</i>, <b>"n"</b>: <u>1</u>}`, string(highlight(`{"k": "<&>'", "n": 1}`)))
}

// TestLLMsGrammar checks the grammar of llmstxt.org: a title, a summary in a quotation, prose
// and lists, then sections that are lists of links with notes.
func TestLLMsGrammar(t *testing.T) {
	link := regexp.MustCompile(`^- \[[^\]]+\]\([^) ]+\): .+$`)
	for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
		lines := strings.Split(string(documentBody(t, testDocuments(), path)), "\n")
		if !strings.HasPrefix(lines[0], "# ") || lines[1] != "" || !strings.HasPrefix(lines[2], "> ") {
			t.Errorf("%s starts with %q", path, lines[:3])
		}
		sections, links, inFence := 0, 0, false
		for i, line := range lines {
			bad := false
			switch {
			case strings.HasPrefix(line, "```"):
				inFence = !inFence
			case inFence:
			case strings.HasPrefix(line, "## "):
				sections++
				bad = lines[i-1] != "" || lines[i+1] != ""
			case strings.HasPrefix(line, "- ["):
				links++
				bad = !link.MatchString(line)
			default:
				bad = i > 0 && (strings.HasPrefix(line, "#") || line == "" && lines[i-1] == "" && i < len(lines)-1)
			}
			if bad {
				t.Errorf("%s, line %d: %q", path, i+1, line)
			}
		}
		if sections == 0 || links == 0 || inFence {
			t.Errorf("%s: %d sections, %d links, open fence: %v", path, sections, links, inFence)
		}
	}
}

// TestSizes checks the lengths of two texts for agents. The first text is the guidance in the
// OpenAPI description. It may have 3,320 characters, and 40 more for each operation, because
// agentcash, a client, reads only 4,000 characters of the guidance. The second text is
// llms-full.txt. It may have 6,200 characters for each operation. testSite has the longest
// origin for which these sizes are promised. infra/clients counts the tokens that models read
// before a first call.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		text               string
		base, perOperation int // the allowed characters: those that do not depend on the operations, and those for each operation
	}{
		"guidance":           {newView(testSite()).section("guidance.txt.tmpl"), 3320, 40},
		catalog.PathLLMsFull: {string(documentBody(t, testDocuments(), catalog.PathLLMsFull)), 0, 4 * 1550},
	} {
		n, limit := utf8.RuneCountInString(c.text), c.base+c.perOperation*len(catalog.All())
		if t.Logf("%s: %d characters of %d", name, n, limit); n > limit {
			t.Errorf("%s has %d characters, at most %d are allowed", name, n, limit)
		}
	}
}

// TestToolSchemas checks the two schemas of every tool, because clients validate what they
// send and receive against them. The schema of the arguments must accept the arguments of the
// example and reject wrong arguments. The schema of the answer must accept the example answer
// and the offer that asks for a payment. It must reject an error body, an offer without a way
// to pay, and an empty object.
func TestToolSchemas(t *testing.T) {
	tools := decode[[]struct{ InputSchema, OutputSchema json.RawMessage }](Tools(testSite()))
	for i, op := range catalog.All() {
		tool := tools[i]
		arguments, answer := validator(tool.InputSchema), validator(tool.OutputSchema)
		for _, c := range []struct {
			what string
			s    *jsonschema.Schema
			raw  []byte
			want bool
		}{
			{"the example's arguments", arguments, encode(exampleQuery(op)), true},
			{"an argument that is not there", arguments, []byte(`{"domain":"example.com","hostname":"example.com"}`), false},
			{"no arguments", arguments, []byte(`{}`), op.Kind == catalog.SmokeTest},
			{"the example", answer, []byte(op.Response), true},
			{"the price", answer, encode(ToolOffer(op, testSite()).WithToken(shownToken)), true},
			{"an error", answer, []byte(`{"error":{"code":"nxdomain","message":""}}`), false},
			{"a price without a way to pay", answer, []byte(`{"x402Version":2,"accepts":[]}`), false},
			{"an empty object", answer, []byte(`{}`), false},
		} {
			if err := validate(c.s, c.raw); (err == nil) != c.want {
				t.Errorf("%s: %s: %v", op.Slug, c.what, err)
			}
		}
	}
}

// walkObjects calls visit for every object in a document, with the path to that object.
func walkObjects(where string, v any, visit func(where string, v map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(where, v)
		for key, x := range v {
			walkObjects(where+"/"+key, x, visit)
		}
	case []any:
		for i, x := range v {
			walkObjects(where+"/"+strconv.Itoa(i), x, visit)
		}
	}
}

// TestResultSchemas checks every example against both schemas of its result: the exact one,
// and the one in the OpenAPI description. Each schema must accept the example. It must refuse
// the example after any one member, at any depth, is removed, or is replaced by an object with
// an unexpected member.
func TestResultSchemas(t *testing.T) {
	description := documentBody(t, testDocuments(), catalog.PathOpenAPI)
	for _, op := range catalog.All() {
		for name, s := range map[string]*jsonschema.Schema{
			"exact": validator(resultSchema(op.Fields, exactTypes)), "described": schemaAt(description, "/components/schemas/"+op.Result),
		} {
			if err := validate(s, []byte(op.Response)); err != nil {
				t.Errorf("%s, %s: %v", op.Slug, name, err)
			}
			example := decode[map[string]any]([]byte(op.Response))
			walkObjects("", example, func(where string, v map[string]any) {
				for key, member := range maps.Clone(v) {
					delete(v, key)
					removedErr := validate(s, must(json.Marshal(example)))
					v[key] = map[string]any{"unexpected": 1}
					if replacedErr := validate(s, must(json.Marshal(example))); removedErr == nil || replacedErr == nil {
						t.Errorf("%s, %s%s: passes without %s (%v), or with a foreign object (%v)", op.Slug, name, where, key, removedErr, replacedErr)
					}
					v[key] = member
				}
			})
		}
	}
}
