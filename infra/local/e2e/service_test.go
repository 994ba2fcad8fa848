package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the built programs contain this package; the import makes go test notice its changes
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestMain(m *testing.M) {
	// By default, "go test" runs only as many cases at a time as the machine has cores. With
	// two cores that would take minutes.
	testbed.Parallel(12)
	m.Run()
}

// TestService checks a service from the outside, as its clients see it: the offers, the free
// documents, a facilitator that cannot be reached, and a payment that is sent repeatedly. The
// service is the local runner or the built functions; a quick run uses only the runner.
func TestService(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for world, open := range map[string]func(testing.TB, setup) *deployment{
		"local": func(tb testing.TB, s setup) *deployment { return openLocal(tb, l, s) },
		"lambda": func(tb testing.TB, s setup) *deployment {
			db := cloud.StartDynamo(tb)
			s.table, s.endpoint = db.Table(tb), db.URL
			return openFunctions(tb, l, s, nil)
		},
	} {
		t.Run(world, func(t *testing.T) {
			t.Parallel()
			shared := open(t, l.setup())
			for name, play := range map[string]func(*run){
				"offers and pages of every operation": playOffers, "free documents": playDocuments,
				"not ready without a facilitator": func(r *run) {
					s := l.setup()
					s.env["FACILITATOR_URL"] = "http://127.0.0.1:1"
					r.deployment = open(r, s)
					e := r.askAndCheck(wantAnswer{status: http.StatusServiceUnavailable}, http.MethodGet, catalog.PathReady)
					checkContains(r, "/ready", string(e.Body), `"facilitator":{"status":"failing","code":"facilitator_unavailable"`)
					r.askAndCheck(wantAnswer{status: http.StatusOK}, http.MethodGet, catalog.PathHealth)
					r.buyAndCheck(catalog.Ping().Path, wantError(fault.FacilitatorUnavailable, "false"))
				},
				"paid, in other words, and by the tool": playPaid,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					runFairly(t, func(tb testing.TB, p *testbed.Pace) {
						r := newRun(tb, l, shared, p)
						play(r)
						r.checkSettlements(r.resultCount, r.resultCount)
					})
				})
			}
		})
	}
}

// playPaid checks that the same payment gets the same answer again, even if the question is
// spelled differently or is asked through the MCP tool. The payment must not get the answer to
// another question.
func playPaid(r *run) {
	dns := catalog.DNS().Path
	r.buyAndCheck(lookUp(r.domain, "A"), r.wantResult())
	for _, same := range []string{"?domain=" + r.domain, "?type=a&domain=" + strings.ToUpper(r.domain) + ".", "?x=1&domain=" + r.domain + "&type=A"} {
		r.payForPath(dns+same, r.wantResult().asReplay())
	}
	other := wantRefusal("another request")
	other.hasReceipt = true
	r.payForPath(dns+"?domain="+r.domain+"&type=AAAA", other)
	r.payForPath(catalog.Ping().Path, other)
	if r.Failed() {
		return
	}
	receipt := testbed.Must(r.firstResult.Receipt())
	a, err := mcptest.Call(r.Context(), &x402test.Client{HTTP: r.client}, r.deployment.base+catalog.PathMCP, catalog.DNS().Tool, map[string]any{"domain": r.domain}, r.paymentHeader, "")
	if err != nil || a.IsError || a.Text() != string(r.firstResult.Body) || !a.Meta.Replayed || a.Meta.Receipt == nil || *a.Meta.Receipt != receipt {
		r.Errorf("%s, and by the tool %s: %v", r.firstResult, a.Raw, err)
	}
	checkEqual(r, "lookups", r.lab.dns.lookups(r.domain), 1)
}

// playOffers checks that each operation is offered at its price in the body, in the header and
// on the page.
func playOffers(r *run) {
	required := wantAnswer{status: http.StatusPaymentRequired}
	for _, op := range catalog.All() {
		e := r.askAndCheck(wantRefusal("Payment required"), http.MethodGet, op.ExampleURL(""))
		var body x402.PaymentRequired
		testbed.Check(json.Unmarshal(e.Body, &body))
		offer := testbed.Must(e.Required())
		terms := []x402.Requirements{r.lab.terms.Requirements(op.Amount)}
		if _, signed := offer.Extensions[x402.ExtensionReceipt]; !signed { // the header had no room for the signed offers
			delete(body.Extensions, x402.ExtensionReceipt)
		}
		if d := cmp.Diff(offer, body) + cmp.Diff(terms, offer.Accepts); d != "" || offer.Resource.URL != r.deployment.origin+op.Path {
			r.Errorf("%s is offered at %s: %s", op.Slug, offer.Resource.URL, d)
		}
		page := r.askAndCheck(required, http.MethodGet, op.ExampleURL(""), "Accept", "text/html")
		checkContains(r, "the page", string(page.Body), "<!DOCTYPE html>", op.Price())
		r.askAndCheck(required, http.MethodHead, op.Path)
		r.askAndCheck(wantError(fault.MethodNotAllowed, "false"), http.MethodPost, op.Path)
		r.askAndCheck(wantAnswer{status: http.StatusNoContent}, http.MethodOptions, op.Path, "Origin", "https://page.example")
	}
}

// playDocuments checks that each document is served, and that a client which has the current
// version does not get it again. It also checks that /ready reports no failure, and that other
// paths are unknown.
func playDocuments(r *run) {
	ok := wantAnswer{status: http.StatusOK}
	for _, path := range []string{
		catalog.PathHealth, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathManifest, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathDocs,
	} {
		e := r.askAndCheck(ok, http.MethodGet, path)
		if tag := e.Header.Get("ETag"); path != catalog.PathHealth {
			r.askAndCheck(wantAnswer{status: http.StatusNotModified}, http.MethodGet, path, "If-None-Match", tag)
		}
		r.askAndCheck(ok, http.MethodHead, path, "Accept", "text/html")
		r.askAndCheck(wantError(fault.MethodNotAllowed, "false"), http.MethodPut, path)
		if path == catalog.PathOpenAPI {
			checkEqual(r, "the description", strings.ReplaceAll(string(e.Body), r.deployment.origin, openAPIOrigin), documentAt(path))
		}
	}
	e := r.askAndCheck(ok, http.MethodGet, catalog.PathReady)
	checkContains(r, "/ready", string(e.Body), `"ledger":{"status":"ok"}`, `"facilitator":{"status":"ok"}`, `"resolvers":{"status":"ok"}`)
	// A percent-encoded letter does not change the path (RFC 3986 section 6.2.2.2).
	r.askAndCheck(ok, http.MethodGet, "/doc%73")
	for _, path := range []string{"/nope", "/v1/tools/dns/", "/v1/tools/DNS", "/v1/tools/dns%2f", "//v1/tools/dns", "/%00", "/%ff", "/v1/tools/..%2fping"} {
		r.askAndCheck(wantError(catalog.UnknownPath, "false"), http.MethodGet, path)
	}
}

// openAPIOrigin is the service's origin in the OpenAPI description with which
// checkAgainstOpenAPI compares answers.
const openAPIOrigin = "https://judge.example.com"

func documentAt(path string) string {
	config := testbed.Must(boot.ParseLocal(func(string) string { return "" }))
	site := discovery.Site{Origin: openAPIOrigin, Terms: config.Terms, DuplicateWindow: config.DuplicateWindow}
	doc, _ := discovery.New(site).Find(path)
	return string(doc.Body())
}

// openAPI returns the OpenAPI description that every answer of this suite must match.
var openAPI = sync.OnceValue(func() *clients.OpenAPI {
	return testbed.Must(clients.ParseOpenAPI([]byte(documentAt(catalog.PathOpenAPI)), []byte(documentAt(catalog.PathDocs))))
})

func checkAgainstOpenAPI(tb testing.TB, e exchange) {
	path := e.path // the path is percent-encoded, as the client sent it
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	if err := openAPI().Check(e.method, path, e.Reply); err != nil {
		tb.Error(err)
	}
}

// skipInShort skips a test in a quick run, because "go test -short" must need nothing but Go.
// reason says what the test needs.
func skipInShort(tb testing.TB, reason string) {
	if testing.Short() {
		tb.Skip("runs in make verify: " + reason)
	}
}

// runFairly calls testbed.Fairly with the shortest time-out of the service.
func runFairly(t testing.TB, play func(tb testing.TB, p *testbed.Pace)) {
	testbed.Fairly(t, dynamo.DefaultAttemptTimeout, play)
}
