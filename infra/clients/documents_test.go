package clients

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestDocuments holds everything that one service publishes against public
// validators and against each other. Each validator is also shown a document that is
// broken on purpose, so that it is seen to fail.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, check := range map[string]func(*testing.T, service){
		"OpenAPI": checkOpenAPI, "live answers": checkLiveAnswers, "agentcash": checkAgentcash, "HTML": checkHTML,
		"anchors": checkAnchors, "prices": checkPrices, "extensions": checkExtensions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

// ask makes one request, follows no redirect, and reads the answer whole.
func (s service) ask(t *testing.T, method, path, accept string) Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Method: method, Path: path, Status: res.StatusCode, Header: res.Header, Body: body}
}

// document is a free document.
func (s service) document(t *testing.T, path string) []byte {
	t.Helper()
	a := s.ask(t, http.MethodGet, path, "")
	if a.Status != http.StatusOK {
		t.Fatalf("%s: %d %.300s", path, a.Status, a.Body)
	}
	return a.Body
}

// broken is a document with something replaced, everywhere. It fails the test
// when there is nothing to replace: a validator would be shown a good one.
func broken(t *testing.T, doc []byte, old, other string) []byte {
	t.Helper()
	if !bytes.Contains(doc, []byte(old)) {
		t.Errorf("the document has no %q to break", old)
	}
	return bytes.ReplaceAll(doc, []byte(old), []byte(other))
}

// wantComplaint wants a validator to complain about this; empty: to be content.
func wantComplaint(t *testing.T, what string, complaints []string, about string) {
	t.Helper()
	if about == "" && len(complaints) > 0 || !strings.Contains(strings.Join(complaints, "\n"), about) {
		t.Errorf("%s: complains of %q, want something about %q", what, complaints, about)
	}
}

// validators is the folder of what runs and configures them.
const validators = "testdata/validators/"

// node runs a JavaScript program and returns what it prints. A validator that finds
// something may end with 1; any other failure is one of the test.
func node(t *testing.T, args ...string) []byte {
	t.Helper()
	for _, name := range args { // so that the cache of go test knows of them
		_, _ = os.Stat(name)
	}
	cmd := testbed.Command(t, testbed.Node(t, "."), args...)
	// No news, no reports home, no colours.
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

// file writes a document to where a validator can read it.
func file(t *testing.T, name string, doc []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkAgentcash: the reader that x402scan is built on has no warning, and has
// understood what is for sale.
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
	got := decoded[struct {
		Warnings  []struct{ Where, Code, Severity, Message string }
		Trust     string
		Endpoints []endpoint
	}](t, node(t, validators+"agentcash.mjs", s.url))
	if len(got.Warnings) > 0 || got.Trust != "origin_hosted" {
		t.Errorf("it trusts the origin as %q, and warns: %+v", got.Trust, got.Warnings)
	}
	var want []endpoint
	for _, path := range catalog.FreePaths() {
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

// fits holds a value to a schema of the 2020-12 draft.
func fits(t *testing.T, schema, value []byte) []string {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("test:///schema.json", decoded[any](t, schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("test:///schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(decoded[any](t, value)); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// offerOf is the offer of an operation as it comes over the wire.
func offerOf(t *testing.T, s service, op catalog.Operation) (raw []byte, offer x402.PaymentRequired) {
	t.Helper()
	a := s.ask(t, http.MethodGet, op.Path, "application/json")
	raw, err := base64.StdEncoding.DecodeString(a.Header.Get(x402.HeaderRequired))
	if err != nil || a.Status != http.StatusPaymentRequired {
		t.Fatalf("%s: %d, %v", op.Path, a.Status, err)
	}
	return raw, decoded[x402.PaymentRequired](t, raw)
}

// maxEncoded is what PAYMENT-REQUIRED stays below: clients echo it, and API
// Gateway bounds what they send (design 8).
const maxEncoded = 4096

// checkExtensions does what a facilitator does before it lists an offer: info
// against schema, with a schema that needs no other document.
func checkExtensions(t *testing.T, s service) {
	for _, op := range catalog.All() {
		raw, offer := offerOf(t, s, op)
		if n := base64.StdEncoding.EncodedLen(len(raw)); n >= maxEncoded || len(offer.Extensions) != 3 {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes and %d extensions", op.Slug, n, len(offer.Extensions))
		}
		for name, extension := range offer.Extensions {
			e := decoded[struct{ Info, Schema json.RawMessage }](t, extension)
			if bytes.Contains(e.Schema, []byte(`"$ref"`)) || bytes.Contains(e.Schema, []byte(`"$id"`)) {
				t.Errorf("%s: %s: the schema refers to another: %s", op.Slug, name, e.Schema)
			}
			wantComplaint(t, op.Slug+" "+name, fits(t, e.Schema, e.Info), "")
		}
		e := decoded[struct{ Info, Schema json.RawMessage }](t, offer.Extensions["bazaar"])
		spoils := []spoil{
			{`"method":"GET"`, `"method":"POST"`, "/input/method"}, {`"type":"http"`, `"type":"mcp"`, "/input/type"},
			{`"queryParams":{`, `"body":{},"queryParams":{`, "'body' not allowed"},
		}
		if op.Kind != catalog.SmokeTest { // its one parameter is optional
			spoils = append(spoils, spoil{`"domain":`, `"host":`, "missing property 'domain'"})
		}
		for _, p := range spoils {
			wantComplaint(t, op.Slug, fits(t, e.Schema, broken(t, e.Info, p.old, p.other)), p.about)
		}
	}
}

// htmlPages are the pages for people: the documentation, the paywall of every
// operation, the last one with a query that is not a domain, and the page for
// unknown paths.
func htmlPages(t *testing.T, s service) map[string][]byte {
	t.Helper()
	wanted := map[string]int{catalog.PathDocs: http.StatusOK, "/nothing/here": http.StatusNotFound}
	hostile := "?domain=" + url.QueryEscape(`"><script>alert(1)</script>&amp;<b title='x`) + "&type=%00%22'"
	for _, op := range catalog.All() {
		for _, path := range []string{op.ExampleURL(""), op.Path, op.Path + hostile} {
			wanted[path] = http.StatusPaymentRequired
		}
	}
	pages := map[string][]byte{}
	for path, status := range wanted {
		a := s.ask(t, http.MethodGet, path, "text/html")
		if a.Status != status || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%s: %d %s", path, a.Status, a.Header.Get("Content-Type"))
		}
		pages[path] = a.Body
	}
	return pages
}

// checkHTML is html-validate, with its recommended rules and those of accessibility,
// warnings included.
func checkHTML(t *testing.T, s service) {
	pages := htmlPages(t, s)
	docs := pages[catalog.PathDocs]
	about := map[string]string{"docs broken": "close-order", "paywall broken": "element-required-attributes", "no end": "no-implicit-close"}
	pages["docs broken"] = broken(t, docs, "</h1>", "</h2>")
	pages["paywall broken"] = broken(t, pages[catalog.Ping().Path], `<html lang="en"`, `<html`)
	pages["no end"] = broken(t, docs, "</caption>", "")
	args, names := []string{validators + "html.mjs"}, map[string]string{}
	for name, page := range pages {
		path := file(t, fmt.Sprintf("%d.html", len(names)), page)
		args, names[path] = append(args, path), name
	}
	found := decoded[map[string][]string](t, node(t, args...))
	if len(found) != len(pages) {
		t.Errorf("%d of %d pages were looked at", len(found), len(pages))
	}
	for path, complaints := range found {
		wantComplaint(t, names[path], complaints, about[names[path]])
	}
}

// checkAnchors: whatever of a document, an error or a page points into the documentation
// arrives at one place.
func checkAnchors(t *testing.T, s service) {
	ids := map[string]int{}
	docs := s.document(t, catalog.PathDocs)
	for _, m := range regexp.MustCompile(`<[a-z0-9]+(?: [^>]*)? id="([^"]+)"`).FindAllSubmatch(docs, -1) {
		ids[string(m[1])]++
	}
	seen := map[string]bool{}
	collect := func(name string, doc []byte, start string) {
		links := regexp.MustCompile(start+`#([a-zA-Z0-9_-]+)`).FindAllSubmatch(doc, -1)
		if len(links) == 0 && name != catalog.PathLLMsFull { // it says everything itself
			t.Errorf("%s points to no place of the documentation", name)
		}
		for _, m := range links {
			if seen[string(m[1])] = true; ids[string(m[1])] != 1 {
				t.Errorf("%s points to #%s, which is there %d times", name, m[1], ids[string(m[1])])
			}
		}
	}
	link := regexp.QuoteMeta(s.url + catalog.PathDocs)
	for _, path := range []string{catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMs, catalog.PathLLMsFull} {
		collect(path, s.document(t, path), link)
	}
	collect(catalog.PathDocs, docs, `href="(?:`+catalog.PathDocs+`)?`)
	for _, op := range catalog.All() {
		collect(op.Slug+" as a page", s.ask(t, http.MethodGet, op.Path, "text/html").Body, `href="(?:`+link+`|`+catalog.PathDocs+`)`)
		collect("an error of "+op.Slug, s.ask(t, http.MethodPost, op.Path, "").Body, link)
		if ids[op.Slug] != 1 {
			t.Errorf("#%s is there %d times", op.Slug, ids[op.Slug])
		}
	}
	if !slices.ContainsFunc(catalog.All(), func(op catalog.Operation) bool { return seen[op.Slug] }) || !seen["errors"] {
		t.Errorf("only %v are pointed to", seen)
	}
}
