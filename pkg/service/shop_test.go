package service_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	txHash     = "0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"
	dnsPath    = "/v1/tools/dns?domain=example.com"
	lookupTool = "dns_lookup"
)

func pathOf(domain string) string { return "/v1/tools/dns?domain=" + domain }

// shop is the whole service on loopback. It has a client that pays, a facilitator that moves
// play money, and stores and a lookup that count their calls.
type shop struct {
	*testing.T
	client      *x402test.Client
	url         string
	memory      *ledgertest.Memory
	store       *ledgertest.Faulty
	limits      limittest.Watched
	facilitator *x402test.Facilitator
	log         programs.Output
	level       slog.LevelVar   // the level of the log
	signed      testbed.Secrets // all payments of the client
	tokens      []string        // the tokens in the offers that the client signed

	lookups atomic.Int32 // the number of lookups of the DNS Explorer

	resolver   func() (dns.Result, error)
	failWrites atomic.Bool // every write to the ledger fails, except the one that claims a payment
	failCalls  atomic.Bool // every call to the ledger's store fails
	failCounts atomic.Bool // every attempt of the rate limit to count a request fails
	// behave returns the behaviour of the nth settlement. If it is nil, all settlements are
	// honest.
	behave func(n int, key string) x402test.Behaviour
	// extensions is what the facilitator reports about extensions, in the form of its response
	// header.
	extensions string
}

// Lookup is the DNS lookup of the service.
func (s *shop) Lookup(_ context.Context, q dns.Query) (dns.Result, error) {
	s.lookups.Add(1)
	if s.resolver != nil {
		return s.resolver()
	}
	return noRecords(q), nil
}

// noRecords returns the result for a name without records.
func noRecords(q dns.Query) dns.Result {
	return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR", Resolver: "127.0.0.1", Records: []dns.Record{}}
}

// newShop opens a shop without limits and applies the changes to its parts. A change may be
// nil.
func newShop(t *testing.T, changes ...func(*parts)) *shop {
	t.Helper()
	s := &shop{T: t, memory: &ledgertest.Memory{}}
	s.limits.Before = func(_ context.Context, c limittest.Call) error {
		if s.failCounts.Load() && c.Verb == "count" {
			return errors.New("the store is down")
		}
		return nil
	}
	s.store = ledgertest.NewFaulty(t, s.memory, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if s.failCalls.Load() || op == ledgertest.Replace && s.failWrites.Load() {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	terms := testTerms()
	behave := func(n int, key string) x402test.Behaviour {
		if s.behave == nil {
			return x402test.Honest
		}
		return s.behave(n, key)
	}
	s.facilitator = testbed.Must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now, Behave: behave}))
	settler := testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.extensions != "" {
			w.Header().Set("EXTENSION-RESPONSES", s.extensions)
		}
		s.facilitator.ServeHTTP(w, r)
	}))
	var requests atomic.Int64
	p := parts{
		Platform: platform(), Offering: service.Offering{Site: discovery.Site{Terms: terms, DuplicateWindow: 45 * time.Second}},
		Facilitator: testbed.Must(facilitator.New(facilitator.Config{
			URL: settler, Credentials: testbed.Must(facilitator.Bearer("token")),
		})), DNS: s,
		Limits: service.Limits{Leases: &s.limits},
	}
	p.Log = slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: &s.level, ReplaceAttr: untrusted.Attr}))
	p.RequestID = func(*http.Request) string { return fmt.Sprint(requests.Add(1)) }
	for _, change := range changes {
		if change != nil {
			change(&p)
		}
	}
	if p.Ledger == nil {
		p.Ledger = s.store
	}
	p.Limits.Single, p.Limits.Bundle = p.slots, p.slots
	if p.perMinute > 0 {
		// The limit uses a clock that stands still, so that its minute does not end during the
		// test.
		begun := time.Now()
		p.Limits.Rate = limit.NewRate(p.perMinute, &s.limits, func() time.Time { return begun })
	}
	server := httptest.NewServer(p.handler())
	t.Cleanup(server.Close)
	s.client = &x402test.Client{HTTP: server.Client(), Wallet: testbed.Must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	s.url = server.URL
	return s
}

// perMinute returns a change that allows each client n requests a minute.
func perMinute(n int) func(*parts) { return func(p *parts) { p.perMinute = n } }

// slots returns a change that lets at most n lookups of each operation run at the same time.
func slots(n int) func(*parts) { return func(p *parts) { p.slots = n } }

func (s *shop) get(path, header string) x402test.Reply {
	return testbed.Must(s.client.Get(s.Context(), s.url+path, header))
}

// send sends any request. headers are names, each followed by its value.
func (s *shop) send(method, path, body string, headers ...string) x402test.Reply {
	s.Helper()
	r := testbed.Must(http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body)))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res := testbed.Must(s.client.HTTP.Do(r))
	defer res.Body.Close()
	return x402test.Reply{Status: res.StatusCode, Header: res.Header, Body: testbed.Must(io.ReadAll(res.Body))}
}

// pay signs an offer and returns the payment.
func (s *shop) pay(offer x402.PaymentRequired) (header string) {
	header = testbed.Must(s.client.Wallet.Pay(offer, time.Now()))
	s.signed.Add(header)
	s.tokens = append(s.tokens, tokenOf(testbed.Must(json.Marshal(offer))))
	return header
}

// sign asks for the offer of a path, signs it and returns the payment.
func (s *shop) sign(path string) (header string) {
	return s.pay(testbed.Must(s.client.Challenge(s.Context(), s.url+path)))
}

// buy pays for a request to a path, and checks that the service answers it.
func (s *shop) buy(path string) {
	s.Helper()
	if r := s.get(path, s.sign(path)); r.Status != http.StatusOK {
		s.Fatalf("%s: %d %s", path, r.Status, r.Body)
	}
}

// checkSettlements checks the number of settlements that the facilitator got.
func (s *shop) checkSettlements(want int) {
	s.Helper()
	if all, _ := s.facilitator.Settles(); all != want {
		s.Errorf("%d settles, want %d", all, want)
	}
}

// checkEqual fails the test if two values differ.
func checkEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// parts holds the components of a service in these tests. Each test changes some of them.
type parts struct {
	service.Platform
	service.Offering
	Ledger      ledger.Store
	Facilitator x402.Facilitator
	Evidence    x402.Evidence
	Limits      service.Limits
	DNS         lookup.Looker[dns.Query, dns.Result]

	perMinute, slots int // the limits of a shop; 0 means no limit
}

// platform returns a platform that discards its log.
func platform() service.Platform {
	return service.Platform{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Random: rand.Reader,
		Origin:    func(*http.Request) string { return "https://api.example.com" },
		RequestID: func(*http.Request) string { return rand.Text() },
	}
}

func (p parts) seller() *service.Seller {
	return testbed.Must(service.NewSeller(p.Platform, p.Offering, p.Ledger, x402.One(p.Facilitator), p.Evidence, p.Limits))
}

// handler returns a handler for the whole service.
func (p parts) handler() http.Handler {
	return testbed.Must(service.All(p.seller(), allOperations(p.DNS),
		service.Health(p.Platform, p.Offering, p.Limits.Rate, nil, nil, nil), service.Discovery(p.Platform, p.Offering, p.Limits.Rate)))
}

// allOperations returns every operation as the deployment makes it, except that the DNS
// Explorer uses c.
func allOperations(c lookup.Looker[dns.Query, dns.Result]) []service.Operation {
	local := testbed.Must(boot.ParseLocal(func(string) string { return "" }))
	local.FacilitatorURL = "http://127.0.0.1:1" // not called in any test
	stores := boot.Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}}
	all := operations.All(testbed.Must(local.Components(stores, slog.New(slog.DiscardHandler), time.Now)))
	for i, op := range all {
		if op.Entry().Slug == catalog.DNS().Slug {
			all[i] = service.DNS(c)
		}
	}
	return all
}

// checkLogSecrets checks that the log contains no secret part of a payment, no retry token and
// nothing about the request. A retry token must stay secret: with the token, and a payment
// copied from the chain, anybody could get the answer. checkLogSecrets also checks that the
// length of a line is bounded, whatever a peer sends.
func (s *shop) checkLogSecrets(secrets ...string) {
	s.Helper()
	log := s.log.String()
	for _, secret := range append(secrets, append(s.tokens, s.signed.Shown(log), "example.com", "\u202e")...) {
		if secret != "" && strings.Contains(log, secret) {
			s.Errorf("the log shows %q:\n%.4000s", secret, log)
		}
	}
	for line := range strings.Lines(log) {
		if len(line) > 4400 {
			s.Errorf("%d bytes of log, %.300q", len(line), line)
		}
	}
}

// lineOf returns the only line about a request in the log. The line may be written after the
// answer is sent, so lineOf waits for it.
func (s *shop) lineOf(id string) map[string]any {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		var found []map[string]any
		for text := range strings.Lines(s.log.String()) {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				s.Fatalf("%v: %s", err, text)
			}
			if line["msg"] == "request" && line["request_id"] == id {
				found = append(found, line)
			}
		}
		if len(found) > 0 {
			checkEqual(s, "lines of request "+id, len(found), 1)
			return found[0]
		}
	}
	s.Fatalf("no line of request %s:\n%s", id, s.log.String())
	return nil
}
