package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// reports has the complaints of a validator, by the name of the document.
type reports map[string][]string

func (r reports) add(path, format string, args ...any) {
	name := strings.TrimSuffix(filepath.Base(path), ".json")
	r[name] = append(r[name], fmt.Sprintf(format, args...))
}

// validator checks the descriptions in some files, and returns its complaints.
type validator func(t *testing.T, paths []string) reports

// schemaValidator runs @seriousme/openapi-schema-validator, which checks whether descriptions
// are valid OpenAPI 3.1.
func schemaValidator(t *testing.T, paths []string) reports {
	found := reports{}
	for _, path := range paths {
		got := decodeJSON[struct {
			Valid  bool
			Errors json.RawMessage
		}](t, node(t, bin(t, "validate-api"), path))
		if !got.Valid {
			found.add(path, "%s", got.Errors)
		}
	}
	return found
}

// redocly runs the linter of Redocly. The result includes warnings.
func redocly(t *testing.T, paths []string) reports {
	found, n := reports{}, 0
	out := node(t, append([]string{bin(t, "redocly"), "lint", "--config", validators + "redocly.yaml", "--format", "json", "--max-problems", "1000"}, paths...)...)
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); n++ { // there is one report for each file
		var report struct {
			Problems []struct {
				RuleID, Severity, Message string
				Location                  []struct {
					Source  struct{ Ref string }
					Pointer string
				}
			}
		}
		testbed.Check(d.Decode(&report))
		for _, p := range report.Problems {
			found.add(p.Location[0].Source.Ref, "%s %s at %s: %s", p.Severity, p.RuleID, p.Location[0].Pointer, p.Message)
		}
	}
	if n != len(paths) {
		t.Errorf("%d reports on %d documents", n, len(paths))
	}
	return found
}

// spectral runs the linter Spectral with the rules spectral:oas and the rules of this
// repository. The result includes warnings.
func spectral(t *testing.T, paths []string) reports {
	out := string(node(t, append([]string{bin(t, "spectral"), "lint", "--ruleset", validators + "spectral.yaml", "--format", "json"}, paths...)...))
	// If there are no complaints, Spectral prints a message for people after the JSON.
	out, _, _ = strings.Cut(out, "No results with")
	found := reports{}
	for _, p := range decodeJSON[[]struct {
		Code, Message, Source string
		Path                  []string
	}](t, []byte(out)) {
		found.add(p.Source, "%s at %s: %s", p.Code, strings.Join(p.Path, "."), p.Message)
	}
	return found
}

// defect is a fault to put into a document: one text is replaced by another everywhere. The
// field complaint is a part of the complaint that a validator must then make.
type defect struct{ old, other, complaint string }

// checkOpenAPI checks that no validator complains about the description that the service
// serves. It also gives broken descriptions to each validator, because each must find the
// faults for which it is used.
func checkOpenAPI(t *testing.T, s service) {
	doc := s.document(t, catalog.PathOpenAPI)
	for name, c := range map[string]struct {
		validate validator
		defects  []defect
	}{
		"openapi-schema-validator": {schemaValidator, []defect{{`"responses":{"200"`, `"responses":[],"was":{"200"`, "responses"}}},
		"redocly": {redocly, []defect{
			{`"license":{"name"`, `"licence":{"name"`, "info-license"},
			{`"example":{"ok":true`, `"example":{"ok":"yes"`, "no-invalid-media-type-examples"},
			{`/headers/RetryAfter"}`, `/headers/Retry"}`, "no-unresolved-refs"},
		}},
		"spectral": {spectral, []defect{
			{`"tags":["Smoke test"],"operationId"`, `"operationId"`, "operation-tags"},
			{`"example":{"ok":true`, `"example":{"ok":"no"`, "oas3-valid-media-example"},
			{`"x-payment-info"`, `"x-payment-infos"`, "priced-has-a-price"},
			{`"headers":{"PAYMENT-REQUIRED":`, `"headers":{"PAYMENT":`, "priced-declares-its-402"},
			{`"operationId":"get_health"`, `"operationId":"get_health","x-payment-info":{}`, "free-has-no-price"},
			{`"security":[],"parameters"`, `"parameters"`, "no-account-needed"},
			{`"components":{`, `"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"k"}},`, "no-security-schemes"},
			{`"amount":"0.001"`, `"amount":"1000"`, "priced-has-a-price"},
			{`"402":{`, `"403":{`, "priced-declares-its-402"},
			{`"security":[],"parameters"`, `"security":[{"key":[]}],"parameters"`, "no-account-needed"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths := []string{file(t, "served.json", doc)}
			for i, s := range c.defects {
				paths = append(paths, file(t, fmt.Sprint(i)+".json", s.insertInto(t, doc)))
			}
			found := c.validate(t, paths)
			wantComplaint(t, "as served", found["served"], "")
			for i, s := range c.defects {
				wantComplaint(t, "broken", found[fmt.Sprint(i)], s.complaint)
			}
		})
	}
}

// TestPrices checks that the operations have the prices of spec §1. The test has a copy of
// these prices. The documents and the README need no such check, because they are made from
// the catalog.
func TestPrices(t *testing.T) {
	t.Parallel()
	const single, bundle = "0.005 5000", "0.015 15000"
	prices := map[string]string{
		"/v1/tools/dns": single, "/v1/tools/ssl-check": single, "/v1/tools/whois": single, "/v1/tools/headers": single, "/v1/tools/resolve-redirect": single,
		"/v1/bundles/host-intel": bundle, "/v1/bundles/uptime-check": bundle, "/v1/tools/ping": "0.001 1000",
	}
	sold := map[string]string{}
	for _, op := range catalog.All() {
		if _, specified := prices[op.Path]; specified { // the spec has no price for the other operations
			sold[op.Path] = op.PriceUSD() + " " + op.Amount
		}
	}
	if diff := cmp.Diff(prices, sold); diff != "" {
		t.Errorf("specified (-) and sold (+): %s", diff)
	}
}

// TestDocuments checks the documents of a service with public validators. Each validator also
// gets documents that are broken on purpose, and must complain about them.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, check := range map[string]func(*testing.T, service){
		"OpenAPI": checkOpenAPI, "agentcash": checkAgentcash, "HTML": checkHTML,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

// ask makes a request and returns the whole response. It does not follow redirects.
func (s service) ask(t *testing.T, path, accept string) x402test.Reply {
	client := http.Client{Timeout: testbed.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return testbed.Must(testbed.Ask(t.Context(), &client, http.MethodGet, s.url+path, "Accept", accept))
}

// document returns a document that the service gives away for free.
func (s service) document(t *testing.T, path string) []byte {
	r := s.ask(t, path, "*/*")
	if r.Status != http.StatusOK {
		t.Fatalf("%s: %d %.300s", path, r.Status, r.Body)
	}
	return r.Body
}

// insertInto returns a copy of a document with the fault.
func (s defect) insertInto(t *testing.T, doc []byte) []byte {
	if !bytes.Contains(doc, []byte(s.old)) {
		t.Errorf("the document has no %q to break", s.old)
	}
	return bytes.ReplaceAll(doc, []byte(s.old), []byte(s.other))
}

// wantComplaint checks that a complaint contains the text in want. If want is "", there must be
// no complaints.
func wantComplaint(t *testing.T, what string, complaints []string, want string) {
	if want == "" && len(complaints) > 0 || !strings.Contains(strings.Join(complaints, "\n"), want) {
		t.Errorf("%s: complains of %q, want something about %q", what, complaints, want)
	}
}

// validators is the folder with the scripts and the configuration of the validators.
const validators = "testdata/validators/"

// node runs a JavaScript program and returns its output. The program may exit with status 1, as
// validators do when they have complaints.
func node(t *testing.T, args ...string) []byte {
	for _, name := range args { // after Stat, go test reuses a cached result only if these files are unchanged
		_, _ = os.Stat(name)
	}
	cmd := testbed.Command(t, testbed.Node(t, "."), args...)
	// With these variables, the program looks for no updates, sends its vendor no reports, and
	// uses no colours.
	cmd.Env = append(cmd.Env, "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1", "NODE_OPTIONS=")
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) == 0) {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, &complaints)
	}
	return out
}

// file writes a document to a temporary file, and returns its path.
func file(t *testing.T, name string, doc []byte) string {
	path := filepath.Join(t.TempDir(), name)
	testbed.Check(os.WriteFile(path, doc, 0o600))
	return path
}

// checkAgentcash runs the library with which x402scan reads a service. The library must give no
// warnings, and must find every operation with its price.
func checkAgentcash(t *testing.T, s service) {
	type probe struct {
		Mode          string
		Input, Output bool
		Options       []struct{ Amount, Network string }
	}
	type endpoint struct {
		Path, Mode, Price string
		Probed            map[string]probe
	}
	got := decodeJSON[struct {
		Warnings  []struct{ Where, Code, Severity, Message string }
		Trust     string
		Endpoints []endpoint
	}](t, node(t, validators+"agentcash.mjs", s.url))
	if len(got.Warnings) > 0 || got.Trust != "origin_hosted" {
		t.Errorf("it trusts the origin as %q, and warns: %+v", got.Trust, got.Warnings)
	}
	var want []endpoint
	for _, path := range []string{ // the free paths of spec §4.1
		catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathManifest, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathDocs,
	} {
		want = append(want, endpoint{Path: path, Mode: "unprotected", Probed: map[string]probe{}})
	}
	for _, op := range catalog.All() {
		p := probe{"paid", true, true, []struct{ Amount, Network string }{{op.Amount, "eip155:8453"}}}
		want = append(want, endpoint{op.Path, "paid", op.PriceUSD() + " USD", map[string]probe{http.MethodGet: p, http.MethodHead: p}})
	}
	for _, list := range [][]endpoint{got.Endpoints, want} {
		slices.SortFunc(list, func(a, b endpoint) int { return strings.Compare(a.Path, b.Path) })
	}
	if diff := cmp.Diff(want, got.Endpoints); diff != "" {
		t.Errorf("want (-) and understood (+): %s", diff)
	}
}

// checkHTML runs html-validate on the pages for people, with the accessibility rules. Warnings
// count as well. For each operation it also checks the page for a query with hostile values.
func checkHTML(t *testing.T, s service) {
	wanted := map[string]int{catalog.PathDocs: http.StatusOK, "/nothing/here": http.StatusNotFound}
	hostile := "?domain=" + url.QueryEscape(`"><script>alert(1)</script>&amp;<b title='x`) + "&type=%00%22'"
	for _, op := range catalog.All() {
		for _, path := range []string{op.ExampleURL(""), op.Path, op.Path + hostile} {
			wanted[path] = http.StatusPaymentRequired
		}
	}
	pages := map[string][]byte{}
	for path, status := range wanted {
		a := s.ask(t, path, "text/html")
		if a.Status != status || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%s: %d %s", path, a.Status, a.Header.Get("Content-Type"))
		}
		pages[path] = a.Body
	}
	docs := pages[catalog.PathDocs]
	wants := map[string]string{}
	for _, p := range []defect{
		{"</h1>", "</h2>", "close-order"}, {`<html lang="en"`, `<html`, "element-required-attributes"}, {"</caption>", "", "no-implicit-close"},
		{`id="errors"`, `id="limits"`, "no-dup-id"}, {`id="errors"`, `id="nowhere"`, "no-missing-references"}, {"h2", "h4", "heading-level"},
		{` scope="col"`, "", "wcag/h63"},
	} {
		pages[p.complaint], wants[p.complaint] = p.insertInto(t, docs), p.complaint
	}
	args, names := []string{validators + "html.mjs"}, map[string]string{}
	for name, page := range pages {
		path := file(t, fmt.Sprintf("%d.html", len(names)), page)
		args, names[path] = append(args, path), name
	}
	found := decodeJSON[map[string][]string](t, node(t, args...))
	if len(found) != len(pages) {
		t.Errorf("%d of %d pages were looked at", len(found), len(pages))
	}
	for path, complaints := range found {
		wantComplaint(t, names[path], complaints, wants[names[path]])
	}
}
