package clients

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// price is what a document says of one operation. An empty part is one that
// the document does not say.
type price struct{ dollars, units string }

// priceList is that of spec §1, written out once more: no document is held to
// what it was made of.
func priceList() map[string]price {
	single, bundle := price{"0.005", "5000"}, price{"0.015", "15000"}
	return map[string]price{
		"/v1/tools/dns": single, "/v1/tools/ssl-check": single, "/v1/tools/whois": single, "/v1/tools/headers": single, "/v1/tools/resolve-redirect": single,
		"/v1/bundles/host-intel": bundle, "/v1/bundles/uptime-check": bundle, "/v1/tools/ping": {"0.001", "1000"},
	}
}

// readPrices finds prices in a document by a pattern with the groups path, dollars and
// units. What is said several times must be the same.
func readPrices(doc string, pattern *regexp.Regexp, path string) map[string]price {
	said := map[string]price{}
	for _, m := range pattern.FindAllStringSubmatch(doc, -1) {
		var p price
		of := path
		for i, group := range pattern.SubexpNames() {
			switch group {
			case "path":
				of = m[i]
			case "dollars":
				p.dollars = m[i]
			case "units":
				p.units = m[i]
			}
		}
		if earlier, ok := said[of]; ok && earlier != p {
			p = price{"both " + earlier.dollars + earlier.units, p.dollars + p.units}
		}
		said[of] = p
	}
	return said
}

// checkPrices: no document says another price than the spec. Each is then
// read with one price changed, and that must be noticed.
func checkPrices(t *testing.T, s service) {
	readme, err := os.ReadFile(filepath.Join(testbed.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	free := map[string]string{
		catalog.PathCatalog:  `"path":"(?P<path>/v1/[^"]+)",.*?"display_price":"\$(?P<dollars>[^"]+)","amount":"(?P<units>\d+)"`,
		catalog.PathManifest: `"url":"[^"]+?(?P<path>/v1/[^"]+)",.*?"price":"\$(?P<dollars>[^"]+)","amount":"(?P<units>\d+)"`,
		catalog.PathOpenAPI:  `"(?P<path>/v1/(?:tools|bundles)/[^"]+)":\{"get".*?"x-payment-info":\{"price":\{[^}]*"amount":"(?P<dollars>[^"]+)"`,
		catalog.PathLLMs:     "(?m)^- .*: \\$(?P<dollars>[0-9.]+) \\((?P<units>[0-9]+) atomic units\\) for `GET (?P<path>\\S+)`",
		catalog.PathDocs:     `<td class="price">\$(?P<dollars>[^<]+)</td><td [^>]*>(?P<units>\d+)</td><td [^>]*><code>(?P<path>[^<]+)</code>`,
	}
	free[catalog.PathLLMsFull] = free[catalog.PathLLMs]
	type source struct{ name, doc, pattern, path string }
	all := []source{{"README", string(readme), "(?m)^\\| .* \\| `(?P<path>/v1/\\S+)` \\| \\$(?P<dollars>[0-9.]+) \\|$", ""}}
	for _, path := range catalog.FreePaths() {
		doc := string(s.ask(t, http.MethodGet, path, "").Body)
		if strings.Contains(doc, "0.005") != (free[path] != "") {
			t.Errorf("%s names prices, and they are not read, or the other way round", path)
		}
		all = append(all, source{path, doc, free[path], ""})
	}
	guidance := decoded[struct {
		Info struct {
			Guidance string `json:"x-guidance"`
		}
	}](t, s.document(t, catalog.PathOpenAPI)).Info.Guidance
	all = append(all, source{"guidance", guidance, free[catalog.PathLLMs], ""})
	for _, op := range catalog.All() {
		header, _ := offerOf(t, s, op)
		all = append(all,
			source{"header of the 402", string(header), `"amount":"(?P<units>[^"]+)"`, op.Path},
			source{"body of the 402", string(s.ask(t, http.MethodGet, op.Path, "application/json").Body), `"amount":"(?P<units>[^"]+)"`, op.Path},
			source{"paywall", string(s.ask(t, http.MethodGet, op.Path, "text/html").Body), `\$(?P<dollars>[0-9]+\.[0-9]+)`, op.Path},
		)
	}
	for _, o := range all {
		if o.pattern == "" {
			continue
		}
		pattern := regexp.MustCompile(o.pattern)
		said, want := readPrices(o.doc, pattern, o.path), map[string]price{}
		for path, p := range priceList() {
			if !strings.Contains(o.pattern, "dollars") {
				p.dollars = ""
			}
			if !strings.Contains(o.pattern, "units") {
				p.units = ""
			}
			if o.path == "" || o.path == path {
				want[path] = p
			}
		}
		if diff := cmp.Diff(want, said, cmp.AllowUnexported(price{})); diff != "" {
			t.Errorf("%s %s: %s", o.name, o.path, diff)
		}
		tried := map[price]bool{}
		for path, p := range want {
			if tried[p] {
				continue
			}
			tried[p] = true
			digits := regexp.MustCompile(`\b` + regexp.QuoteMeta(max(p.dollars, p.units)) + `\b`)
			if other := digits.ReplaceAllString(o.doc, "7"); cmp.Equal(want, readPrices(other, pattern, o.path), cmp.AllowUnexported(price{})) {
				t.Errorf("%s %s: a changed price is not noticed", o.name, path)
			}
		}
	}
}
