package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// validator is one of OpenAPI descriptions. It is given all documents at once
// and says what it has to say about each.
type validator func(t *testing.T, docs map[string][]byte) map[string][]string

// asFiles are the documents as files, and their names by file.
func asFiles(t *testing.T, docs map[string][]byte) (paths []string, names map[string]string) {
	t.Helper()
	names = map[string]string{}
	for name, doc := range docs {
		path := file(t, fmt.Sprintf("%d.json", len(paths)), doc)
		paths, names[filepath.Base(path)] = append(paths, path), name
	}
	return paths, names
}

// schemaValidator is @seriousme/openapi-schema-validator: is it OpenAPI 3.1.
func schemaValidator(t *testing.T, docs map[string][]byte) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	paths, names := asFiles(t, docs)
	for _, path := range paths {
		got := decoded[struct {
			Valid  bool
			Errors json.RawMessage
		}](t, run(t, bin(t, "validate-api"), path))
		if !got.Valid {
			found[names[filepath.Base(path)]] = []string{string(got.Errors)}
		}
	}
	return found
}

// redocly is the lint of Redocly, warnings included.
func redocly(t *testing.T, docs map[string][]byte) map[string][]string {
	t.Helper()
	paths, names := asFiles(t, docs)
	found := map[string][]string{}
	out := run(t, append([]string{bin(t, "redocly"), "lint", "--config", validators + "redocly.yaml", "--format", "json", "--max-problems", "1000"}, paths...)...)
	reports := 0
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); reports++ { // one after the other
		var report struct{ Problems []redoclyProblem }
		if err := d.Decode(&report); err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			if len(p.Location) == 0 {
				t.Fatalf("a problem without a place: %+v", p)
			}
			name := names[filepath.Base(p.Location[0].Source.Ref)]
			found[name] = append(found[name], fmt.Sprintf("%s %s at %s: %s", p.Severity, p.RuleID, p.Location[0].Pointer, p.Message))
		}
	}
	if reports != len(docs) {
		t.Errorf("%d reports on %d documents", reports, len(docs))
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
func spectral(t *testing.T, docs map[string][]byte) map[string][]string {
	t.Helper()
	paths, names := asFiles(t, docs)
	out := string(run(t, append([]string{bin(t, "spectral"), "lint", "--ruleset", validators + "spectral.yaml", "--format", "json"}, paths...)...))
	// It follows the JSON with a word for people when there is nothing to say.
	out, _, _ = strings.Cut(out, "No results with")
	found := map[string][]string{}
	for _, p := range decoded[[]struct {
		Code, Message, Source string
		Path                  []string
	}](t, []byte(out)) {
		name := names[filepath.Base(p.Source)]
		found[name] = append(found[name], fmt.Sprintf("%s at %s: %s", p.Code, strings.Join(p.Path, "."), p.Message))
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
	t.Helper()
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
			docs := map[string][]byte{"as served": doc}
			for i, group := range c.spoils {
				spoilt := doc
				for _, s := range group {
					spoilt = broken(t, spoilt, s.old, s.other)
				}
				docs[fmt.Sprint(i)] = spoilt
			}
			found := c.validate(t, docs)
			wantNone(t, found["as served"])
			for i, group := range c.spoils {
				for _, s := range group {
					wantOne(t, found[fmt.Sprint(i)], s.about)
				}
			}
		})
	}
}

// checkLiveAnswers asks for what costs nothing: the free documents,
// every offer in each form, and what is refused. What is paid for is held to
// the description in infra/simnet and infra/local/e2e.
func checkLiveAnswers(t *testing.T, s service) {
	t.Helper()
	api, err := ParseOpenAPI(s.document(t, catalog.PathOpenAPI), s.document(t, catalog.PathDocs))
	if err != nil {
		t.Fatal(err)
	}
	check := func(method, path, accept string) {
		t.Helper()
		a := s.ask(t, method, path, accept)
		if err := api.Check(Answer{Method: method, Path: path, Status: a.Status, Header: a.Header, Body: a.Body}); err != nil {
			t.Error(err)
		}
	}
	paths := catalog.FreePaths()
	for _, op := range catalog.All() {
		paths = append(paths, op.Path, op.Path+"?domain=example.com")
	}
	for _, path := range append(paths, "/nope", "/v1/tools/dns/") {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
			for _, accept := range []string{"application/json", "text/html"} {
				check(method, path, accept)
			}
		}
	}
}
