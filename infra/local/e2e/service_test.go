package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/mcp/mcptest"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestMain(m *testing.M) {
	// Two cases at a time, which is what two cores would get, would take minutes.
	testbed.Parallel(12)
	os.Exit(testbed.Main(m))
}

// story is what one payer does with a service, from the outside. What the handlers say in
// every case is in the tests of pkg/service: here it is said by programs.
type story struct {
	name    string
	own     func(*setup)         // a configuration that is not everybody's
	settle  []x402test.Behaviour // how the payer's settlements go; then honestly
	play    func(r *run)
	amount  string // that moves; empty is the price of a lookup
	calls   int    // to /settle, of which one moves money if there is any
	lookups int    // of the payer's own name
}

func stories() []story {
	ping, dns := catalog.Ping().Path, catalog.DNS().Path
	return []story{
		{name: "offers and pages of every operation", play: playOffers},
		{name: "free documents", play: playDocuments},
		{name: "ready", play: func(r *run) {
			e := r.asks(http.MethodGet, catalog.PathReady, nil, want{status: http.StatusOK})
			mentions(r, "/ready", string(e.Body), `"ledger":{"status":"ok"}`, `"facilitator":{"status":"ok"}`, `"resolvers":{"status":"ok"}`)
		}},
		{name: "not ready without a facilitator", own: func(s *setup) { s.facilitator = "http://127.0.0.1:1" }, play: func(r *run) {
			e := r.asks(http.MethodGet, catalog.PathReady, nil, want{status: http.StatusServiceUnavailable})
			mentions(r, "/ready", string(e.Body), `"facilitator":{"status":"failing","code":"facilitator_unavailable"`)
			r.asks(http.MethodGet, catalog.PathHealth, nil, want{status: http.StatusOK})
			r.buys(ping, fails(fault.FacilitatorUnavailable))
		}},
		{name: "paid, in other words, and by the tool", calls: 1, lookups: 1, play: func(r *run) {
			r.buys(r.lookUp(modeHealthy), r.answer())
			upper := strings.ToUpper(r.name) + "."
			for _, same := range []string{"?domain=" + r.name, "?type=a&domain=" + upper, "?x=1&domain=" + r.name + "&type=A"} {
				r.paysFor(dns+same, r.answer().replayed())
			}
			r.paysFor(dns+"?domain="+r.name+"&type=AAAA", paidFor("another request"))
			r.paysFor(ping, paidFor("another request"))
			r.answeredByTool()
		}},
		{name: "an internationalised name", calls: 1, play: func(r *run) {
			r.buys(lookUp("b%C3%BCcher.example.com", "mx"), result(`{"domain":"xn--bcher-kva.example.com","type":"MX","rcode":"NOERROR",`+
				`"resolver":"127.0.0.1","ttl":300,"records":[{"preference":5,"exchange":"mail.example.com"}]}`))
		}},
		{name: "ping needs no resolver", amount: catalog.Ping().Amount, calls: 1, own: func(s *setup) { s.resolvers = "127.0.0.1:1" }, play: func(r *run) {
			ok := result(`{"ok":true,"service":"` + catalog.Service + `"}`)
			r.buys(ping+"?probe=1&domain=127.0.0.1&probe=%ff", ok)
			r.paysFor(ping+"?%zz;", ok.replayed())
		}},
		{name: "paid by a contract wallet", calls: 1, play: func(r *run) {
			r.sign(r.lookUp(modeHealthy), nil, contractWallet)
			r.pays(r.answer())
			r.pays(r.answer().replayed())
		}},
		{name: "not in order", play: func(r *run) {
			flip := resign(func(b []byte) []byte { return append(b[:64], b[64]^27^28) })
			r.sign(ping, nil, flip)
			r.pays(refused("invalid_exact_evm_signature"))
			r.sign(ping, nil, func(string) string { return strings.Repeat("A", 8<<10) })
			r.pays(refused("not acceptable JSON"))
			r.sign(ping, nil, nil)
			r.asks(http.MethodHead, ping, paidBy(r.header), want{status: http.StatusPaymentRequired})
		}},
		{name: "declined, then topped up", settle: []x402test.Behaviour{x402test.Refuse}, calls: 2, play: func(r *run) {
			r.buys(r.lookUp(modeHealthy), want{code: fault.PaymentRequired, receipt: true, message: "invalid_exact_evm_insufficient_balance"})
			r.eventually(r.answer())
		}},
		{name: "the facilitator fails after the transfer", settle: []x402test.Behaviour{x402test.FailAfter}, calls: 2, play: func(r *run) {
			r.buys(r.lookUp(modeHealthy), fails(fault.SettlementUncertain))
			blind := r.answer()
			blind.blind = true
			r.pays(blind)
			r.pays(blind.replayed())
		}},
		{name: "no such name, corrected after bad parameters", calls: 1, play: func(r *run) {
			r.buys(lookUp("localhost", "A"), fails(lookup.InvalidDomain))
			r.paysFor(lookUp("example.com", "PTR"), fails(lookup.InvalidType))
			r.paysFor(lookUp("nope.example.com", "A"), fails(lookup.NXDomain))
			r.paysFor(lookUp("nope.example.com", "A"), fails(lookup.NXDomain).replayed())
		}},
		{name: "owed, then answered", calls: 1, play: func(r *run) {
			r.buys(r.lookUp(modeRefused), fails(lookup.UpstreamUnavailable))
			r.lab.dns.gate(r.name).open()
			r.eventually(r.answer())
			r.pays(r.answer().replayed())
		}},
		{name: "in progress after the settlement", calls: 1, lookups: 1, play: func(r *run) {
			r.sign(r.lookUp(modeHeld), nil, nil)
			wait := r.begin(r.path)
			r.lab.dns.gate(r.name).await(r, "look up")
			r.pays(fails(fault.PaymentInProgress).afterPaying())
			r.lab.dns.gate(r.name).open()
			e, err := wait()
			if err != nil {
				r.Fatal(err)
			}
			r.check(e, r.answer())
			r.pays(r.answer().replayed())
		}},
	}
}

// TestService plays the stories with the local runner and with the built functions. A
// quick run plays them with the runner.
func TestService(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for world, starts := range map[string]func(testing.TB) opener{
		"local": func(testing.TB) opener { return openLocal },
		"lambda": func(tb testing.TB) opener {
			verifyOnly(tb, "needs the built functions, and Node for the DynamoDB server")
			db := testbed.StartDynamo(tb)
			return func(tb testing.TB, l *lab, s setup) *deployment {
				s.table, s.endpoint = db.Table(tb), db.URL
				return openFunctions(tb, l, s, nil)
			}
		},
	} {
		t.Run(world, func(t *testing.T) {
			t.Parallel()
			open := starts(t)
			shared := open(t, l, l.setup())
			for _, s := range stories() {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					fairly(t, func(tb testing.TB, p *pace) { s.tell(tb, p, l, shared, open) })
				})
			}
		})
	}
}

func (s story) tell(tb testing.TB, p *pace, l *lab, d *deployment, open opener) {
	if s.own != nil {
		changed := l.setup()
		s.own(&changed)
		d = open(tb, l, changed)
	}
	r := newRun(tb, l, d, pacedClient(p), s.settle...)
	s.play(r)
	if s.amount == "" {
		s.amount = catalog.DNS().Amount
	}
	r.booked(s.amount, s.calls, min(s.calls, 1))
	if s.lookups > 0 {
		is(tb, "lookups of "+r.name, l.dns.lookups(r.name), s.lookups)
	}
}

// playOffers: each operation is offered at its price to this payee, in the body as in the
// header, and as a page to a browser.
func playOffers(r *run) {
	for _, op := range catalog.All() {
		e := r.asks(http.MethodGet, op.ExampleURL(""), nil, unpaid())
		offer, err := e.Required()
		var body x402.PaymentRequired
		if d := cmp.Diff([]x402.Requirements{r.lab.terms.Requirements(op.Amount)}, offer.Accepts); d != "" || err != nil || json.Unmarshal(e.Body, &body) != nil {
			r.Errorf("%s is offered for %v, %s", op.Slug, err, d)
		}
		if d := cmp.Diff(offer, body); d != "" || offer.Resource.URL != r.d.origin+op.Path {
			r.Errorf("%s: header and body differ, or are not of %s: %s", op.Slug, r.d.origin, d)
		}
		page := r.asks(http.MethodGet, op.ExampleURL(""), header{"Accept": "text/html"}, want{status: http.StatusPaymentRequired})
		mentions(r, "the page", string(page.Body), "<!DOCTYPE html>", op.Price())
		r.asks(http.MethodHead, op.Path, nil, want{status: http.StatusPaymentRequired})
		r.asks(http.MethodPost, op.Path, nil, fails(fault.MethodNotAllowed))
		r.asks(http.MethodOptions, op.Path, header{"Origin": "https://page.example"}, want{status: http.StatusNoContent})
	}
}

// playDocuments: each is served, and once more only when it has changed.
func playDocuments(r *run) {
	for _, path := range []string{
		catalog.PathHealth, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathManifest, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathDocs,
	} {
		e := r.asks(http.MethodGet, path, nil, want{status: http.StatusOK})
		if tag := e.Header.Get("ETag"); path != catalog.PathHealth {
			r.asks(http.MethodGet, path, header{"If-None-Match": tag}, want{status: http.StatusNotModified})
		}
		r.asks(http.MethodHead, path, header{"Accept": "text/html"}, want{status: http.StatusOK})
		r.asks(http.MethodPut, path, nil, fails(fault.MethodNotAllowed))
		if path == catalog.PathOpenAPI {
			is(r, "the description", strings.ReplaceAll(string(e.Body), r.d.origin, describedOrigin), rendered(path))
		}
	}
	// A letter by its number is the same path (RFC 3986 section 6.2.2.2).
	r.asks(http.MethodGet, "/doc%73", nil, want{status: http.StatusOK})
	for _, path := range []string{"/nope", "/v1/tools/dns/", "/v1/tools/DNS", "/v1/tools/dns%2f", "//v1/tools/dns", "/%00", "/%ff", "/v1/tools/..%2fping"} {
		r.asks(http.MethodGet, path, nil, fails(catalog.UnknownPath))
	}
}

// answeredByTool: the tool has the last answer of the path, and its receipt.
func (r *run) answeredByTool() {
	receipt := must(r.first.Receipt())
	a, err := mcptest.Call(r.Context(), &x402test.Client{HTTP: r.client}, r.d.base+catalog.PathMCP, catalog.DNS().Tool, map[string]any{"domain": r.name}, r.header, "")
	if err != nil || a.IsError || a.Text() != string(r.first.Body) || !a.Meta.Replayed || a.Meta.Receipt == nil || *a.Meta.Receipt != receipt {
		r.Errorf("%s, and by the tool %s: %v", r.first, a.Raw, err)
	}
}

// describedOrigin is the origin that the judging description is rendered for.
const describedOrigin = "https://judge.example.com"

func rendered(path string) string {
	config := must(boot.ReadLocal(func(string) string { return "" }))
	site := discovery.Site{Origin: describedOrigin, Terms: config.Terms, DuplicateWindow: config.DuplicateWindow}
	doc, _ := discovery.New(site).Find(path)
	return string(doc.Body())
}

// described is the OpenAPI description that every answer of every world is held to.
var described = sync.OnceValue(func() *clients.OpenAPI {
	return must(clients.ParseOpenAPI([]byte(rendered(catalog.PathOpenAPI)), []byte(rendered(catalog.PathDocs))))
})

func checkDescribed(tb testing.TB, e exchange) {
	path := e.path // as clients spell it
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	answer := clients.Answer{Method: e.method, Path: path, Status: e.Status, Header: e.Header, Body: e.Body}
	if err := described().Check(answer); err != nil {
		tb.Error(err)
	}
}

// verifyOnly skips what a quick run leaves out: go test -short needs Go alone, and waits
// for nothing that takes long.
func verifyOnly(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("runs in make verify: " + why)
	}
}

type pace = testbed.Pace

// paced is a transport that notes how long answers take to begin.
type paced struct {
	*http.Transport
	pace *pace
}

func (t paced) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	defer func() { t.pace.Took(time.Since(begun)) }()
	return t.Transport.RoundTrip(r)
}

func pacedClient(p *pace) *http.Client {
	c := newClient()
	c.Transport = paced{c.Transport.(*http.Transport), p}
	return c
}

// fairly plays a test of the service, of whose time-outs that of an attempt at a call of
// the store is the shortest.
func fairly(t testing.TB, play func(tb testing.TB, p *pace)) {
	t.Helper()
	testbed.Fairly(t, dynamo.DefaultAttemptTimeout, play)
}
