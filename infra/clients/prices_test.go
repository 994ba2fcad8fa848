package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// priceList is that of spec §1, written out once more: no document is held to
// what it was made of.
func priceList() map[string]price {
	single, bundle := price{"$0.005", "5000"}, price{"$0.015", "15000"}
	return map[string]price{
		"/v1/tools/dns": single, "/v1/tools/ssl-check": single, "/v1/tools/whois": single, "/v1/tools/headers": single, "/v1/tools/resolve-redirect": single,
		"/v1/bundles/host-intel": bundle, "/v1/bundles/uptime-check": bundle, "/v1/tools/ping": {"$0.001", "1000"},
	}
}

// price is what a document says of one operation. An empty part is one that
// the document does not say.
type price struct{ dollars, units string }

// source is where prices are published: the document, and what it says by path. An
// entry may be said several times.
type source struct {
	name    string
	doc     []byte
	read    func(t *testing.T, s service, doc []byte) map[string][]price
	partial bool // it is about one operation
}

func sources(t *testing.T, s service) []source {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(testbed.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := []source{
		{"catalog", s.document(t, catalog.PathCatalog), catalogPrices, false},
		{"manifest", s.document(t, catalog.PathManifest), manifestPrices, false},
		{"OpenAPI", s.document(t, catalog.PathOpenAPI), openAPIPrices, false},
		{"guidance", guidance(t, s), textPrices, false},
		{"llms.txt", s.document(t, catalog.PathLLMs), textPrices, false},
		{"llms-full.txt", s.document(t, catalog.PathLLMsFull), textPrices, false},
		{"docs", s.document(t, catalog.PathDocs), tablePrices, false},
		{"README", readme, readmePrices, false},
	}
	for _, op := range catalog.All() {
		one := func(read func([]byte) []price) func(*testing.T, service, []byte) map[string][]price {
			return func(_ *testing.T, _ service, doc []byte) map[string][]price {
				return map[string][]price{op.Path: read(doc)}
			}
		}
		header, _ := offerOf(t, s, op)
		all = append(all,
			source{"header of the 402 of " + op.Slug, header, one(offerPrices), true},
			source{"body of the 402 of " + op.Slug, s.ask(t, http.MethodGet, op.Path, "application/json").Body, one(offerPrices), true},
			source{"paywall of " + op.Slug, s.ask(t, http.MethodGet, op.Path, "text/html").Body, one(pagePrices), true},
		)
	}
	return all
}

// complaints holds what a document says to the list: every operation, and
// nothing else.
func (o source) complaints(t *testing.T, s service, doc []byte) []string {
	t.Helper()
	said, want := o.read(t, s, doc), priceList()
	var list []string
	for path, prices := range said {
		if len(prices) == 0 {
			list = append(list, o.name+" says no price of "+path)
		}
		for _, p := range prices {
			w := want[path]
			if p.dollars != "" && p.dollars != w.dollars || p.units != "" && p.units != w.units || p == (price{}) {
				list = append(list, fmt.Sprintf("%s says that %s costs %v, want %v", o.name, path, p, w))
			}
		}
	}
	for path := range want {
		if _, ok := said[path]; !ok && !o.partial {
			list = append(list, o.name+" says no price of "+path)
		}
	}
	return list
}

// checkPrices: no document says another price than the spec. Each is then
// read with one price changed, and that must be noticed.
func checkPrices(t *testing.T, s service) {
	t.Helper()
	for _, o := range sources(t, s) {
		t.Run(o.name, func(t *testing.T) {
			wantNone(t, o.complaints(t, s, o.doc))
			spoilt := 0
			for _, p := range []price{{"0.005", "5000"}, {"0.015", "15000"}, {"0.001", "1000"}} {
				for _, old := range []string{p.dollars, p.units} {
					digits := regexp.MustCompile(`(^|[^0-9.])` + regexp.QuoteMeta(old) + `([^0-9]|$)`)
					if !digits.Match(o.doc) {
						continue
					}
					other := digits.ReplaceAll(o.doc, []byte("${1}"+strings.Replace(old, "0", "7", 1)+"${2}"))
					if len(o.complaints(t, s, other)) > 0 {
						spoilt++
					}
				}
			}
			if spoilt == 0 || !o.partial && spoilt < 3 {
				t.Errorf("only %d changed prices were noticed", spoilt)
			}
		})
	}
}

func catalogPrices(t *testing.T, _ service, doc []byte) map[string][]price {
	said := map[string][]price{}
	for _, tool := range decoded[struct {
		Tools []struct {
			Path, Amount string
			Price        string `json:"display_price"`
		}
	}](t, doc).Tools {
		said[tool.Path] = append(said[tool.Path], price{tool.Price, tool.Amount})
	}
	return said
}

func manifestPrices(t *testing.T, s service, doc []byte) map[string][]price {
	said := map[string][]price{}
	for _, e := range decoded[struct {
		Endpoints []struct{ URL, Amount, Price string }
	}](t, doc).Endpoints {
		path := strings.TrimPrefix(e.URL, s.url)
		said[path] = append(said[path], price{e.Price, e.Amount})
	}
	return said
}

var costs = regexp.MustCompile(`Costs (\$[0-9.]+) per call\.`)

func openAPIPrices(t *testing.T, _ service, doc []byte) map[string][]price {
	said := map[string][]price{}
	for path, item := range decoded[struct {
		Paths map[string]struct {
			Get struct {
				Description string
				Payment     *struct {
					Price struct{ Amount string }
				} `json:"x-payment-info"`
			}
		}
	}](t, doc).Paths {
		if item.Get.Payment == nil {
			continue
		}
		said[path] = append(said[path], price{dollars: "$" + item.Get.Payment.Price.Amount})
		for _, m := range costs.FindAllStringSubmatch(item.Get.Description, -1) {
			said[path] = append(said[path], price{dollars: m[1]})
		}
	}
	return said
}

// guidance is the text for agents inside the description.
func guidance(t *testing.T, s service) []byte {
	t.Helper()
	return []byte(decoded[struct {
		Info struct {
			Guidance string `json:"x-guidance"`
		}
	}](t, s.document(t, catalog.PathOpenAPI)).Info.Guidance)
}

var priceLine = regexp.MustCompile("(?m)^- .*: (\\$[0-9.]+) \\(([0-9]+) atomic units\\) for `GET (\\S+)`")

func textPrices(_ *testing.T, _ service, doc []byte) map[string][]price {
	said := map[string][]price{}
	for _, m := range priceLine.FindAllSubmatch(doc, -1) {
		said[string(m[3])] = append(said[string(m[3])], price{string(m[1]), string(m[2])})
	}
	return said
}

func offerPrices(doc []byte) []price {
	var offer struct{ Accepts []struct{ Amount string } }
	var said []price
	if json.Unmarshal(doc, &offer) == nil {
		for _, a := range offer.Accepts {
			said = append(said, price{units: a.Amount})
		}
	}
	return said
}

var money = regexp.MustCompile(`\$[0-9]+\.[0-9]+`)

// pagePrices are all amounts on a page about one operation.
func pagePrices(doc []byte) []price {
	var said []price
	root, err := html.Parse(bytes.NewReader(doc))
	if err != nil {
		return nil
	}
	for _, amount := range money.FindAllString(visible(root), -1) {
		said = append(said, price{dollars: amount})
	}
	return said
}

// visible is the text of a page, without its scripts and styles.
func visible(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "script" && d.Parent.Data != "style" {
			b.WriteString(d.Data + " ")
		}
	}
	return b.String()
}

// tablePrices are the rows of all tables that name a path and a price.
func tablePrices(t *testing.T, _ service, doc []byte) map[string][]price {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string][]price{}
	for n := range root.Descendants() {
		if n.Data != "tr" {
			continue
		}
		var p price
		path := ""
		for cell := range n.ChildNodes() {
			text := strings.TrimSpace(visible(cell))
			switch {
			case priceList()[text] != price{}:
				path = text
			case money.MatchString(text):
				p.dollars = text
			case regexp.MustCompile(`^[0-9]+$`).MatchString(text):
				p.units = text
			}
		}
		if path != "" && p != (price{}) {
			said[path] = append(said[path], p)
		}
	}
	return said
}

var readmeRow = regexp.MustCompile("(?m)^\\| .* \\| `(/v1/\\S+)` \\| (\\$[0-9.]+) \\|$")

func readmePrices(_ *testing.T, _ service, doc []byte) map[string][]price {
	said := map[string][]price{}
	for _, m := range readmeRow.FindAllSubmatch(doc, -1) {
		said[string(m[1])] = append(said[string(m[1])], price{dollars: string(m[2])})
	}
	return said
}

// checkPriceSources: a free document that names a price is among the sources.
func checkPriceSources(t *testing.T, s service) {
	t.Helper()
	known := []string{catalog.PathCatalog, catalog.PathManifest, catalog.PathOpenAPI, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathDocs}
	for _, path := range catalog.FreePaths() {
		a := s.ask(t, http.MethodGet, path, "")
		if bytes.Contains(a.Body, []byte("0.005")) != slices.Contains(known, path) {
			t.Errorf("%s: it names prices: %v", path, !slices.Contains(known, path))
		}
	}
}
