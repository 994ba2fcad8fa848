package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
)

// TestDocuments holds everything that one service publishes against public
// validators and against each other. Each validator is also shown a document that is
// broken on purpose, so that it is seen to fail.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, check := range map[string]func(*testing.T, service){
		"OpenAPI": checkOpenAPI, "agentcash": checkAgentcash, "HTML": checkHTML,
		"prices": checkPrices,
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
	for _, path := range freePaths() {
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

// checkHTML is html-validate, with its recommended rules and those of accessibility,
// warnings included. It reads the pages for people: the documentation, the paywall of
// every operation, the last one with a query that is not a domain, and the page for
// unknown paths.
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
		a := s.ask(t, http.MethodGet, path, "text/html")
		if a.Status != status || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%s: %d %s", path, a.Status, a.Header.Get("Content-Type"))
		}
		pages[path] = a.Body
	}
	docs := pages[catalog.PathDocs]
	about := map[string]string{}
	for _, p := range []spoil{
		{"</h1>", "</h2>", "close-order"}, {`<html lang="en"`, `<html`, "element-required-attributes"}, {"</caption>", "", "no-implicit-close"},
		{`id="errors"`, `id="limits"`, "no-dup-id"}, {`id="errors"`, `id="nowhere"`, "no-missing-references"}, {"h2", "h4", "heading-level"},
		{` scope="col"`, "", "wcag/h63"},
	} {
		pages[p.about], about[p.about] = broken(t, docs, p.old, p.other), p.about
	}
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

// freePaths are the free paths of spec §4.1 in its order.
func freePaths() []string {
	return []string{
		catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathManifest, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathDocs,
	}
}
