package service_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// What a request costs, by counting: a challenge nothing at all, a paid one
// four ledger writes, two slot updates, no read and one facilitator call.
func TestWhatARequestCosts(t *testing.T) {
	s := newService(t, 300, 50)
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
	s := newService(t, 0, 1)
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

// A client over its rate gets 429, with a payment or without, and nothing is settled.
func TestRateLimited(t *testing.T) {
	const perMinute = 20
	s := newService(t, perMinute, 0)
	header := sign(t, s, dnsPath)
	var r x402test.Reply
	for range perMinute + 1 {
		if r = s.get(t, dnsPath, ""); r.Status == http.StatusTooManyRequests {
			break
		}
		if r.Status != http.StatusPaymentRequired || r.Header.Get("RateLimit-Policy") == "" || r.Header.Get("Vary") == "" {
			t.Fatalf("%d, policy %q", r.Status, r.Header.Get("RateLimit-Policy"))
		}
	}
	checkError(t, r, 429, "rate_limited", "false", true)
	checkError(t, s.get(t, dnsPath, header), 429, "rate_limited", "null", true)
	if all, _ := s.books.Settles(); all != 0 || s.store.Calls(ledgertest.Create) != 0 {
		t.Error("a limited request reached the ledger or the facilitator")
	}
	for _, path := range []string{"/v1/catalog", "/docs", "/nowhere"} {
		r = s.get(t, path, "")
		checkError(t, r, 429, "rate_limited", "false", true)
		if r.Header.Get("Vary") != "Accept-Encoding" || r.Header.Get("ETag") != "" || r.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %v", path, r.Header)
		}
	}
	if r = s.get(t, "/health", ""); r.Status != 200 {
		t.Errorf("health is limited: %d", r.Status)
	}
}

// When the limits' store is down, signed requests are rejected, and no others.
func TestRateLimitStoreDown(t *testing.T) {
	s := newService(t, 300, 0)
	header := sign(t, s, dnsPath)
	s.limits.down.Store(true)
	checkError(t, s.get(t, dnsPath, header), 503, "ledger_unavailable", "null", true)
	if all, _ := s.books.Settles(); all != 0 || s.store.Calls(ledgertest.Create) != 0 {
		t.Error("it reached the ledger or the facilitator")
	}
	for range 100 { // some of them ask the store
		if r := s.get(t, dnsPath, ""); r.Status != http.StatusPaymentRequired {
			t.Fatalf("a challenge: %d %s", r.Status, r.Body)
		}
	}
	s.limits.down.Store(false)
	if r := s.get(t, dnsPath, header); r.Status != 200 {
		t.Errorf("the same signature later: %d %s", r.Status, r.Body)
	}
}

// A failed correction of a client's count is logged, and does not change the answer.
func TestRateLimitNotCorrected(t *testing.T) {
	s := newService(t, 300, 0)
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

// One structured line a request with its metrics, and never a signature.
func TestLogLine(t *testing.T) {
	s := newService(t, 0, 50)
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

// A paid answer that could not be recorded counts as a ledger fault, although the
// payer gets the answer.
func TestUnrecordedIsCounted(t *testing.T) {
	s := newService(t, 0, 50)
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
	s := newService(t, 0, 0)
	s.resolver = func() (dns.Result, error) { return dns.Result{}, fault.New(fault.HandshakeFailed, nil) }
	checkError(t, s.buy(t, s.dns("example.com")), 500, "internal_error", "true", true)
}

// A service that lacks an operation of the catalog does not start, and says
// which.
func TestEveryOperationIsServed(t *testing.T) {
	d := partsOf(unanswering{})
	for i, op := range every(t, nil) {
		without := slices.Delete(every(t, nil), i, i+1)
		if _, err := service.All(d.seller(), without, nil, nil); err == nil || !strings.HasSuffix(err.Error(), " "+op.Entry().Slug) {
			t.Errorf("without %s: %v", op.Entry().Slug, err)
		}
	}
}
