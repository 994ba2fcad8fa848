package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// shop is the whole service in this process, with everything that it does to
// the world counted.
type shop struct {
	*x402test.Client
	url      string
	memory   *ledgertest.Memory
	store    *ledgertest.Faulty
	limits   *counted
	books    *x402test.Facilitator
	dials    atomic.Int32 // connections to the facilitator
	lookups  atomic.Int32
	begun    chan struct{} // when set, a lookup says that it began
	hold     chan struct{} // when set, lookups wait for it
	log      lockedBuffer
	resolver func() (dns.Result, error)
	broken   atomic.Bool // every write after a claim's fails
	down     atomic.Bool // every call of the ledger's store fails
	// behave is how the settlements go; honestly when nil. front may answer the
	// service in the facilitator's place.
	behave func(n int, key string) x402test.Behaviour
	front  func(w http.ResponseWriter, r *http.Request) (answered bool)
}

// counted counts the calls of the limits' store.
type counted struct {
	limit.Memory
	updates, adds atomic.Int32
	down          atomic.Bool // every count fails
}

func (c *counted) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	c.adds.Add(1)
	if c.down.Load() {
		return limit.Units{}, errors.New("the store is down")
	}
	return c.Memory.Add(ctx, client, window, n)
}

func (c *counted) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	c.adds.Add(1)
	if c.down.Load() {
		return limit.Units{}, false, errors.New("the store is down")
	}
	return c.Memory.Take(ctx, client, window, n, most)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Acquire and Remove are the slot updates.
func (c *counted) Acquire(ctx context.Context, op string, l limit.Lease, n int) ([]limit.Lease, bool, error) {
	c.updates.Add(1)
	return c.Memory.Acquire(ctx, op, l, n)
}

func (c *counted) Remove(ctx context.Context, op string, ls ...limit.Lease) error {
	c.updates.Add(1)
	return c.Memory.Remove(ctx, op, ls...)
}

// Lookup is the DNS lookup of the shop.
func (s *shop) Lookup(ctx context.Context, q dns.Query) (dns.Result, error) {
	s.lookups.Add(1)
	if s.begun != nil {
		s.begun <- struct{}{}
	}
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return dns.Result{}, fault.New(fault.DNSTimeout, ctx.Err())
		}
	}
	if s.resolver != nil {
		return s.resolver()
	}
	return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR", Resolver: "127.0.0.1", Records: []dns.Record{}}, nil
}

func open(t *testing.T, perMinute, single int) *shop {
	t.Helper()
	return openWith(t, perMinute, single, func(*parts) {})
}

// openWith is open with a change to what the service is made of.
func openWith(t *testing.T, perMinute, single int, change func(*parts)) *shop {
	t.Helper()
	terms := x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
	s := &shop{limits: &counted{}, memory: &ledgertest.Memory{}}
	s.store = ledgertest.NewFaulty(t, s.memory, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if s.down.Load() || op == ledgertest.Replace && s.broken.Load() {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	var err error
	config := x402test.FacilitatorConfig{Terms: terms, Now: time.Now, Behave: func(n int, key string) x402test.Behaviour {
		if s.behave == nil {
			return x402test.Honest
		}
		return s.behave(n, key)
	}}
	if s.books, err = x402test.NewFacilitator(config); err != nil {
		t.Fatal(err)
	}
	settler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.dials.Add(1)
		if s.front == nil || !s.front(w, r) {
			s.books.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(settler.Close)
	client, err := facilitator.New(facilitator.Config{URL: settler.URL})
	if err != nil {
		t.Fatal(err)
	}
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id", ids.Add(1)) }
	d := parts{
		Platform: platform(), Offering: service.Offering{Terms: terms, DuplicateWindow: 45 * time.Second},
		Ledger: ledger.New(s.store, time.Now, newID), Facilitator: client, DNS: s,
		Limits: service.Limits{Leases: s.limits, Single: single, Bundle: single, NewID: newID},
	}
	d.Log = printable.Log(slog.New(slog.NewJSONHandler(&s.log, nil)))
	d.RequestID = func(*http.Request) string { return newID() }
	if perMinute > 0 {
		// Its minute does not end, however long a test takes.
		begun := time.Now()
		d.Limits.Rate = limit.NewRate(limit.RateConfig{PerMinute: perMinute, Counter: s.limits, Now: func() time.Time { return begun }})
	}
	change(&d)
	server := httptest.NewServer(d.whole(t))
	t.Cleanup(server.Close)
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = &x402test.Client{HTTP: server.Client(), Wallet: wallet, Now: time.Now}
	s.url = server.URL
	return s
}

func (s *shop) dns(name string) string { return s.url + "/v1/tools/dns?domain=" + name }

func (s *shop) buy(t *testing.T, url string) x402test.Reply {
	t.Helper()
	r, _, err := s.Buy(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What a request costs, by counting: a challenge nothing at all, a paid one
// four ledger writes, two slot updates, no read and one facilitator call.
func TestWhatARequestCosts(t *testing.T) {
	s := open(t, 300, 50)
	ledgerCalls := func() (writes, reads int) {
		return s.store.Calls(ledgertest.Create) + s.store.Calls(ledgertest.Replace), s.store.Calls(ledgertest.Fetch)
	}
	if _, err := s.Challenge(t.Context(), s.dns("example.com")); err != nil {
		t.Fatal(err)
	}
	if w, r := ledgerCalls(); w+r != 0 || s.dials.Load() != 0 || s.limits.updates.Load() != 0 || s.limits.adds.Load() != 0 {
		t.Errorf("a challenge cost %d writes, %d reads, %d facilitator calls, %d slot updates, %d counts", w, r, s.dials.Load(), s.limits.updates.Load(), s.limits.adds.Load())
	}
	if r := s.buy(t, s.dns("example.com")); r.Status != 200 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if w, r := ledgerCalls(); w != 4 || r != 0 || s.dials.Load() != 1 || s.limits.updates.Load() != 2 {
		t.Errorf("a paid request cost %d writes, %d reads, %d facilitator calls, %d slot updates; want 4, 0, 1, 2", w, r, s.dials.Load(), s.limits.updates.Load())
	}
	// Another signature for the same question: its claim, the purchase, which is
	// another's, that one's record, and its own end.
	if r := s.buy(t, s.dns("example.com")); r.Status != 200 || r.Header.Get(x402.HeaderReplayed) == "" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if w, r := ledgerCalls(); w != 4+3 || r != 1 || s.dials.Load() != 1 || s.limits.updates.Load() != 2 {
		t.Errorf("a second signature cost %d writes, %d reads, %d facilitator calls, %d slot updates; want 3, 1, 0, 0", w-4, r, s.dials.Load()-1, s.limits.updates.Load()-2)
	}
	before := s.limits.updates.Load()
	if r := s.buy(t, s.url+"/v1/tools/ping"); r.Status != 200 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if s.limits.updates.Load() != before {
		t.Error("the smoke test takes a slot")
	}
	if w, r := ledgerCalls(); w != 7+3 || r != 1 {
		t.Errorf("a smoke test cost %d writes and %d reads; want 3 and none", w-7, r-1)
	}
}

// The cap answers overloaded before any money moves, and the same signature
// works once there is room.
func TestOverloaded(t *testing.T) {
	s := open(t, 0, 1)
	s.hold, s.begun = make(chan struct{}), make(chan struct{}, 2)
	first := make(chan x402test.Reply)
	go func() {
		r, _, err := s.Buy(context.WithoutCancel(t.Context()), s.dns("one.example.com"))
		if err != nil {
			t.Error(err)
		}
		first <- r
	}()
	<-s.begun // the first one is at work
	r, header, err := s.Buy(t.Context(), s.dns("two.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, r, 503, "overloaded", "false", true)
	if all, _ := s.books.Settles(); all != 1 {
		t.Errorf("%d settles, the overloaded one must not be among them", all)
	}
	close(s.hold)
	if r := <-first; r.Status != 200 {
		t.Errorf("the first: %d %s", r.Status, r.Body)
	}
	if r, err = s.Get(t.Context(), s.dns("two.example.com"), header); err != nil || r.Status != 200 {
		t.Errorf("the same signature later: %d %s %v", r.Status, r.Body, err)
	}
}

// A client over its rate is told so, signed or not, and nothing moves.
func TestRateLimited(t *testing.T) {
	const perMinute = 20
	s := open(t, perMinute, 0)
	header, err := s.Sign(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	var r x402test.Reply
	for range perMinute + 1 {
		if r, err = s.Get(t.Context(), s.dns("example.com"), ""); err != nil {
			t.Fatal(err)
		}
		if r.Status == http.StatusTooManyRequests {
			break
		}
		if r.Status != http.StatusPaymentRequired || r.Header.Get("RateLimit-Policy") == "" || r.Header.Get("Vary") == "" {
			t.Fatalf("%d, policy %q", r.Status, r.Header.Get("RateLimit-Policy"))
		}
	}
	checkError(t, r, 429, "rate_limited", "false", true)
	if r, err = s.Get(t.Context(), s.dns("example.com"), header); err != nil {
		t.Fatal(err)
	}
	checkError(t, r, 429, "rate_limited", "null", true)
	if all, _ := s.books.Settles(); all != 0 || s.store.Calls(ledgertest.Create) != 0 {
		t.Error("a limited request reached the ledger or the facilitator")
	}
	for _, path := range []string{"/v1/catalog", "/docs", "/nowhere"} {
		if r, err = s.Get(t.Context(), s.url+path, ""); err != nil {
			t.Fatal(err)
		}
		checkError(t, r, 429, "rate_limited", "false", true)
		if r.Header.Get("Vary") != "Accept-Encoding" || r.Header.Get("ETag") != "" || r.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %v", path, r.Header)
		}
	}
	if r, err = s.Get(t.Context(), s.url+"/health", ""); err != nil || r.Status != 200 {
		t.Errorf("health is limited: %d %v", r.Status, err)
	}
}

// A limit that nobody can count by turns signed requests away, and no others.
func TestRateLimitStoreDown(t *testing.T) {
	s := open(t, 300, 0)
	header, err := s.Sign(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	s.limits.down.Store(true)
	r, err := s.Get(t.Context(), s.dns("example.com"), header)
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, r, 503, "ledger_unavailable", "null", true)
	if all, _ := s.books.Settles(); all != 0 || s.store.Calls(ledgertest.Create) != 0 {
		t.Error("it reached the ledger or the facilitator")
	}
	for range 100 { // some of them ask the store
		if r := s.get(t, dnsPath, ""); r.Status != http.StatusPaymentRequired {
			t.Fatalf("a challenge: %d %s", r.Status, r.Body)
		}
	}
	s.limits.down.Store(false)
	if r, err = s.Get(t.Context(), s.dns("example.com"), header); err != nil || r.Status != 200 {
		t.Errorf("the same signature later: %d %s %v", r.Status, r.Body, err)
	}
}

// A correction that fails is logged, and changes nothing for anybody.
func TestRateLimitNotCorrected(t *testing.T) {
	s := open(t, 300, 0)
	s.resolver = func() (dns.Result, error) {
		s.limits.down.Store(true) // after the request was counted
		return dns.Result{Domain: "example.com", Records: []dns.Record{}}, nil
	}
	if r := s.buy(t, s.dns("example.com")); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if !strings.Contains(s.log.String(), "rate limit not corrected") {
		t.Error("nothing is logged")
	}
}

// checkError compares an error answer with what a client relies on.
func checkError(t *testing.T, r x402test.Reply, status int, code, charged string, retryable bool) {
	t.Helper()
	var body struct {
		Error struct {
			Code, Message string
			Charged       *bool
			Retryable     bool
		}
		RequestID string `json:"request_id"`
		DocsURL   string `json:"docs_url"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	got := "null"
	if body.Error.Charged != nil {
		got = fmt.Sprint(*body.Error.Charged)
	}
	if r.Status != status || body.Error.Code != code || got != charged || body.Error.Retryable != retryable || body.Error.Message == "" {
		t.Errorf("%d %s, want %d %s charged %s retryable %v", r.Status, r.Body, status, code, charged, retryable)
	}
	if body.RequestID == "" || body.DocsURL != "https://api.example.com/docs#error-"+body.Error.Code {
		t.Errorf("request_id %q, docs_url %q", body.RequestID, body.DocsURL)
	}
	if info, _ := fault.Of(fault.Code(code)); info.After > 0 && r.RetryAfter() == 0 {
		t.Error("no Retry-After")
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("headers %v", r.Header)
	}
}

// One structured line a request with its metrics, and never a signature.
func TestLogLine(t *testing.T) {
	s := open(t, 0, 50)
	s.resolver = func() (dns.Result, error) { return dns.Result{}, fault.New(fault.UpstreamUnavailable, nil) }
	r, header, err := s.Buy(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, r, 503, "upstream_unavailable", "true", true)
	line := s.line(t)
	for key, want := range map[string]any{
		"msg": "request", "operation": "dns", "status": 503.0, "code": "upstream_unavailable",
		"states": "settling>settled", "settlement": "settled", "Owed": 1.0, "Faults": 1.0, "SettlementSettled": 1.0, "Requests": 1.0,
		"LedgerFaults": nil, "unrecorded": nil,
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	for _, key := range []string{"request_id", "ms", "claim_ms", "slot_ms", "settle_ms", "lookup_ms", "record_ms", "payer", "nonce", "transaction", "_aws", "SettleLatency", "LookupLatency"} {
		if line[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	s.showsNothing(t, header)
	if strings.Contains(s.log.String(), "example.com?") {
		t.Error("a query is in the log")
	}
}

// An answer that was sold and could not be written down is a fault of the
// ledger, though the payer sees none.
func TestUnrecordedIsCounted(t *testing.T) {
	s := open(t, 0, 50)
	s.broken.Store(true)
	if r := s.buy(t, s.dns("example.com")); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	line := s.line(t)
	for key, want := range map[string]any{"status": 200.0, "states": "settling", "LedgerFaults": 1.0, "Answers": 1.0, "unrecorded": true} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
}

// Every code that an operation answers is on its list: one that is not is a
// bug of ours and says so.
func TestUnlistedCodes(t *testing.T) {
	s := open(t, 0, 0)
	s.resolver = func() (dns.Result, error) { return dns.Result{}, fault.New(fault.HandshakeFailed, nil) }
	checkError(t, s.buy(t, s.dns("example.com")), 500, "internal_error", "true", true)
}

// A service that lacks an operation of the catalog does not start, and says
// which.
func TestEveryOperationIsServed(t *testing.T) {
	d := partsOf(silent{})
	for i, op := range every(t, nil) {
		without := slices.Delete(every(t, nil), i, i+1)
		if _, err := service.All(d.seller(), without, nil, nil); err == nil || !strings.HasSuffix(err.Error(), " "+op.Entry().Slug) {
			t.Errorf("without %s: %v", op.Entry().Slug, err)
		}
	}
}
