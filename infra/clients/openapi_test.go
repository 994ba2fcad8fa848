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

// checkPrices: no document says another price than spec §1, which is written out once
// more here: no document is held to what it was made of. What is said several times must
// be the same.
func checkPrices(t *testing.T, s service) {
	type price struct{ dollars, units string }
	single, bundle := price{"0.005", "5000"}, price{"0.015", "15000"}
	prices := map[string]price{
		"/v1/tools/dns": single, "/v1/tools/ssl-check": single, "/v1/tools/whois": single, "/v1/tools/headers": single, "/v1/tools/resolve-redirect": single,
		"/v1/bundles/host-intel": bundle, "/v1/bundles/uptime-check": bundle, "/v1/tools/ping": {"0.001", "1000"},
	}
	for _, op := range catalog.All() { // the spec has no price of a further one
		if _, specified := prices[op.Path]; !specified {
			prices[op.Path] = price{op.PriceUSD(), op.Amount}
		}
	}
	readme, err := os.ReadFile(filepath.Join(testbed.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{"README": string(readme), "guidance": decoded[struct{ Info map[string]any }](t, s.document(t, catalog.PathOpenAPI)).Info["x-guidance"].(string)}
	for _, path := range freePaths() {
		docs[path] = string(s.ask(t, http.MethodGet, path, "").Body)
	}
	const line = "(?m)^- .*: \\$(?P<dollars>[0-9.]+) \\((?P<units>[0-9]+) atomic units\\) for `GET (?P<path>\\S+)`"
	patterns := map[string]string{
		"README":             "(?m)^\\| .* \\| `(?P<path>/v1/\\S+)` \\| \\$(?P<dollars>[0-9.]+) \\|$",
		"guidance":           "(?m)^- `(?P<path>/v1/\\S+)`: \\$(?P<dollars>[0-9.]+)$",
		catalog.PathLLMs:     line,
		catalog.PathLLMsFull: line,
		catalog.PathCatalog:  `"path":"(?P<path>/v1/[^"]+)",.*?"display_price":"\$(?P<dollars>[^"]+)","amount":"(?P<units>\d+)"`,
		catalog.PathManifest: `"url":"[^"]+?(?P<path>/v1/[^"]+)",.*?"price":"\$(?P<dollars>[^"]+)","amount":"(?P<units>\d+)"`,
		catalog.PathOpenAPI:  `"(?P<path>/v1/(?:tools|bundles)/[^"]+)":\{"get".*?"x-payment-info":\{"price":\{[^}]*"amount":"(?P<dollars>[^"]+)"`,
		catalog.PathDocs:     `<td class="price">\$(?P<dollars>[^<]+)</td><td [^>]*>(?P<units>\d+)</td><td [^>]*><code>(?P<path>[^<]+)</code>`,
	}
	for name, doc := range docs {
		if strings.Contains(doc, single.dollars) != (patterns[name] != "") {
			t.Errorf("%s names prices, and they are not read, or the other way round", name)
		}
		pattern, said := regexp.MustCompile(patterns[name]), map[string]bool{}
		for _, m := range pattern.FindAllStringSubmatchIndex(doc, -1) {
			said[string(pattern.ExpandString(nil, "$path: $dollars, $units", doc, m))] = true
		}
		want := map[string]bool{}
		for path, p := range prices {
			if pattern.SubexpIndex("units") < 0 {
				p.units = ""
			}
			want[path+": "+p.dollars+", "+p.units] = true
		}
		if diff := cmp.Diff(want, said); patterns[name] != "" && diff != "" {
			t.Errorf("%s: want (-) and said (+): %s", name, diff)
		}
	}
}
