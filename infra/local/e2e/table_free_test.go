package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// What the free paths say about themselves.
const (
	cached = "public, max-age=300"
	plain  = "text/plain; charset=utf-8"
	page   = "text/html; charset=utf-8"
)

// freeCases are the paths that cost nothing.
func freeCases() []scenario {
	return slices.Concat(documentCases(), unknownCases(), healthCases())
}

func documentCases() []scenario {
	var cases []scenario
	for _, d := range []struct {
		path, contentType string
		contains          []string
	}{
		{catalog.PathCatalog, "application/json", []string{`"x402Version"`, catalog.DNS().Path, catalog.Ping().Path}},
		{catalog.PathOpenAPI, "application/json", []string{`"3.1.0"`, `"0.1.0"`, catalog.PathReady}},
		{catalog.PathManifest, "application/json", []string{`"ownershipProofs"`, `"payTo"`}},
		{catalog.PathLLMs, plain, []string{"PAYMENT-SIGNATURE", catalog.DNS().Path}},
		{catalog.PathLLMsFull, plain, []string{"payment_in_progress", catalog.DNS().Path}},
		{catalog.PathDocs, page, []string{"<!DOCTYPE html>", `id="dns"`, `id="errors"`}},
		{"/robots.txt", plain, []string{"User-agent: *"}},
		{"/favicon.svg", "image/svg+xml", []string{"<svg"}},
	} {
		w := document(http.StatusOK, d.contentType, cached, d.contains...)
		bare := document(http.StatusOK, d.contentType, cached).empty()
		cases = append(cases, scenario{name: "document " + d.path, steps: []step{
			ask(http.MethodGet, d.path, nil, w), conditional(d.path),
			ask(http.MethodHead, d.path, nil, bare),
			ask(http.MethodGet, d.path, header{"If-None-Match": `"another"`}, w),
			ask(http.MethodGet, d.path, header{"Range": "bytes=9999999-", "If-Range": `"x"`}, w),
			ask(http.MethodGet, d.path, header{"Range": "bytes=0-0"}, w),
			ask(http.MethodGet, d.path, header{"If-Match": `"another"`, "If-Unmodified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"}, w),
			ask(http.MethodGet, escaped(d.path), nil, w),
			ask(http.MethodOptions, d.path, nil, preflight()),
			ask(http.MethodPut, d.path, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS")),
		}})
	}
	return append(cases, scenario{name: "the root leads to the documentation", steps: []step{
		ask(http.MethodGet, "/", nil, document(http.StatusFound, plain, cached).with("Location", catalog.PathDocs)),
	}})
}

// escaped spells the last letter of a path by its number, which is the same
// path (RFC 3986 section 6.2.2.2).
func escaped(path string) string {
	return fmt.Sprintf("%s%%%02X", path[:len(path)-1], path[len(path)-1])
}

func unknownCases() []scenario {
	var cases []scenario
	for _, path := range []string{
		"/nope", "/v1/tools/dns/", "/v1/tools/DNS", "/v1/tools/dns%2f", "//v1/tools/dns", "/%00", "/%ff", "/v1/tools/..%2fping",
	} {
		cases = append(cases, scenario{name: "unknown path " + fmt.Sprintf("%q", path), steps: []step{
			ask(http.MethodGet, path, nil, fails(fault.UnknownPath)), ask(http.MethodHead, path, nil, fails(fault.UnknownPath).empty()),
			ask(http.MethodPost, path, nil, fails(fault.UnknownPath)), ask(http.MethodDelete, path, header{"PAYMENT-SIGNATURE": "garbage"}, fails(fault.UnknownPath).charge(unknown)),
		}})
	}
	return cases
}

func healthCases() []scenario {
	healthy := document(http.StatusOK, jsonType, "no-store", `"status":"ok"`, catalog.Service)
	return []scenario{
		{name: "health", steps: []step{
			ask(http.MethodGet, catalog.PathHealth, nil, healthy), ask(http.MethodHead, catalog.PathHealth, nil, document(http.StatusOK, jsonType, "no-store").empty()),
			ask(http.MethodPost, catalog.PathHealth, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS")),
			ask(http.MethodOptions, catalog.PathHealth, nil, preflight()),
		}},
		{name: "ready", steps: []step{ask(http.MethodGet, catalog.PathReady, nil, ready("", ""))}},
		{name: "not ready: facilitator is down", own: withoutFacilitator, steps: []step{
			ask(http.MethodGet, catalog.PathReady, nil, ready("facilitator", string(fault.FacilitatorUnavailable))), ask(http.MethodGet, catalog.PathHealth, nil, healthy),
		}},
		{name: "not ready: resolver is down", own: withoutResolver, steps: []step{
			ask(http.MethodGet, catalog.PathReady, nil, ready("resolvers", string(fault.UpstreamUnavailable))),
		}},
		{name: "not ready: ledger is down", needs: cutLedger, own: alone, steps: []step{
			cut(), ask(http.MethodGet, catalog.PathReady, nil, ready("ledger", "")),
		}},
	}
}

// ready is the answer of /ready with at most one check failing; code is what
// the check says, if it says one.
func ready(failing, code string) want {
	status, w := "ready", document(http.StatusOK, jsonType, "no-store")
	if failing != "" {
		status, w = "not_ready", document(http.StatusServiceUnavailable, jsonType, "no-store")
	}
	w.contains = append(w.contains, `"status":"`+status+`"`)
	for _, name := range []string{"ledger", "facilitator", "resolvers"} {
		switch {
		case name != failing:
			w.contains = append(w.contains, `"`+name+`":{"status":"ok"}`)
		case code == "":
			w.contains = append(w.contains, `"`+name+`":{"status":"failing","message":"`)
		default:
			w.contains = append(w.contains, `"`+name+`":{"status":"failing","code":"`+code+`","message":"`)
		}
	}
	return w
}

// conditional asks for a document with the ETag that it has.
func conditional(path string) step {
	w := want{kind: aNotModified, status: http.StatusNotModified}
	return step{path: path, want: &w, do: func(r *run, s step) {
		tag := r.last.header.Get("ETag")
		if tag == "" {
			r.Fatal("the document has no ETag")
		}
		r.step(ask(http.MethodGet, path, header{"If-None-Match": tag}, *s.want))
	}}
}

// The table must hold every code that an operation lists, of those that can be
// answered here.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]map[fault.Code]bool{}
	for _, s := range table(t) {
		path := ""
		for _, st := range flat(s.steps) {
			if st.path != "" {
				path = st.path
			}
			if op, ok := opOf(path); ok && st.want != nil {
				if seen[op.Slug] == nil {
					seen[op.Slug] = map[fault.Code]bool{}
				}
				seen[op.Slug][st.want.code] = true
			}
		}
	}
	for _, op := range catalog.All() {
		if !answeredHere(op) {
			continue
		}
		for _, code := range op.AllErrors() {
			if !seen[op.Slug][code] {
				t.Errorf("%s: no case answers %s", op.Slug, code)
			}
		}
		if !seen[op.Slug][""] {
			t.Errorf("%s: no case answers 200", op.Slug)
		}
	}
}

// flat are the steps of a case, those of others in between.
func flat(steps []step) []step {
	var all []step
	for _, s := range steps {
		all = append(append(all, s), flat(s.inner)...)
	}
	return all
}
