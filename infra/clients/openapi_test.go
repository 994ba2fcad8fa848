package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// reports are the complaints about documents, by their names.
type reports map[string][]string

func (r reports) add(path, format string, args ...any) {
	name := strings.TrimSuffix(filepath.Base(path), ".json")
	r[name] = append(r[name], fmt.Sprintf(format, args...))
}

// validator is one of OpenAPI descriptions. It is given all documents at once
// and says what it has to say about each.
type validator func(t *testing.T, paths []string) reports

// schemaValidator is @seriousme/openapi-schema-validator: is it OpenAPI 3.1.
func schemaValidator(t *testing.T, paths []string) reports {
	t.Helper()
	found := reports{}
	for _, path := range paths {
		got := decoded[struct {
			Valid  bool
			Errors json.RawMessage
		}](t, node(t, bin(t, "validate-api"), path))
		if !got.Valid {
			found.add(path, "%s", got.Errors)
		}
	}
	return found
}

// redocly is the lint of Redocly, warnings included.
func redocly(t *testing.T, paths []string) reports {
	t.Helper()
	found, n := reports{}, 0
	out := node(t, append([]string{bin(t, "redocly"), "lint", "--config", validators + "redocly.yaml", "--format", "json", "--max-problems", "1000"}, paths...)...)
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); n++ { // one after the other
		var report struct{ Problems []redoclyProblem }
		if err := d.Decode(&report); err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			found.add(p.Location[0].Source.Ref, "%s %s at %s: %s", p.Severity, p.RuleID, p.Location[0].Pointer, p.Message)
		}
	}
	if n != len(paths) {
		t.Errorf("%d reports on %d documents", n, len(paths))
	}
	return found
}

type redoclyProblem struct {
	RuleID, Severity, Message string
	Location                  []struct {
		Source  struct{ Ref string }
		Pointer string
	}
}

// spectral is spectral:oas and our own rules, warnings included.
func spectral(t *testing.T, paths []string) reports {
	t.Helper()
	out := string(node(t, append([]string{bin(t, "spectral"), "lint", "--ruleset", validators + "spectral.yaml", "--format", "json"}, paths...)...))
	// It follows the JSON with a word for people when there is nothing to say.
	out, _, _ = strings.Cut(out, "No results with")
	found := reports{}
	for _, p := range decoded[[]struct {
		Code, Message, Source string
		Path                  []string
	}](t, []byte(out)) {
		found.add(p.Source, "%s at %s: %s", p.Code, strings.Join(p.Path, "."), p.Message)
	}
	return found
}

// spoil breaks a description; the validator must complain about it.
type spoil struct{ old, other, about string }

// checkOpenAPI: every validator is content with the description as served. With
// the broken ones it is not: each validator, and each rule of our own, sees
// what it is there for. Spoils that leave each other alone share a document,
// because a lint takes its time.
func checkOpenAPI(t *testing.T, s service) {
	doc := s.document(t, catalog.PathOpenAPI)
	for name, c := range map[string]struct {
		validate validator
		spoils   [][]spoil
	}{
		"openapi-schema-validator": {schemaValidator, [][]spoil{{{`"responses":{"200"`, `"responses":[],"was":{"200"`, "responses"}}}},
		"redocly": {redocly, [][]spoil{{
			{`"license":{"name"`, `"licence":{"name"`, "info-license"},
			{`"example":{"ok":true`, `"example":{"ok":"yes"`, "no-invalid-media-type-examples"},
		}, {
			{`/headers/RetryAfter"}`, `/headers/Retry"}`, "no-unresolved-refs"},
		}}},
		"spectral": {spectral, [][]spoil{{
			{`"tags":["Smoke test"],"operationId"`, `"operationId"`, "operation-tags"},
			{`"example":{"ok":true`, `"example":{"ok":"no"`, "oas3-valid-media-example"},
			{`"x-payment-info"`, `"x-payment-infos"`, "priced-has-a-price"},
			{`"headers":{"PAYMENT-REQUIRED":`, `"headers":{"PAYMENT":`, "priced-declares-its-402"},
			{`"operationId":"get_health"`, `"operationId":"get_health","x-payment-info":{}`, "free-has-no-price"},
			{`"security":[],"parameters"`, `"parameters"`, "no-account-needed"},
			{`"components":{`, `"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"k"}},`, "no-security-schemes"},
		}, {
			{`"amount":"0.001"`, `"amount":"1000"`, "priced-has-a-price"},
			{`"402":{`, `"403":{`, "priced-declares-its-402"},
			{`"security":[],"parameters"`, `"security":[{"key":[]}],"parameters"`, "no-account-needed"},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths := []string{file(t, "served.json", doc)}
			for i, group := range c.spoils {
				spoilt := doc
				for _, s := range group {
					spoilt = broken(t, spoilt, s.old, s.other)
				}
				paths = append(paths, file(t, fmt.Sprint(i)+".json", spoilt))
			}
			found := c.validate(t, paths)
			wantComplaint(t, "as served", found["served"], "")
			for i, group := range c.spoils {
				for _, s := range group {
					wantComplaint(t, "broken", found[fmt.Sprint(i)], s.about)
				}
			}
		})
	}
}

// checkLiveAnswers asks for what costs nothing: the free documents,
// every offer in each form, and what is refused. What is paid for is held to
// the description in infra/simnet and infra/local/e2e.
func checkLiveAnswers(t *testing.T, s service) {
	api, err := FetchOpenAPI(t.Context(), http.DefaultClient, s.url)
	if err != nil {
		t.Fatal(err)
	}
	paths := append(catalog.FreePaths(), "/nope", "/v1/tools/dns/")
	for _, op := range catalog.All() {
		paths = append(paths, op.Path, op.Path+"?domain=example.com")
	}
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
			for _, accept := range []string{"application/json", "text/html"} {
				if err := api.Check(s.ask(t, method, path, accept)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

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
