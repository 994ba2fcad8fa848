package service_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ticking is a clock that moves with every reading, so that no duration is zero.
func ticking(d *parts) {
	var looks atomic.Int64
	d.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * time.Millisecond) }
}

// withEvidence has the chain always say the same.
func withEvidence(f x402.Finding) func(*parts) {
	return func(d *parts) {
		d.Evidence = chainView(func(context.Context, x402.Question) x402.Finding { return f })
	}
}

// always is a facilitator whose settlements all go one way.
func always(how x402test.Behaviour) func(*testing.T, *testService) {
	return func(_ *testing.T, s *testService) { s.behave = func(int, string) x402test.Behaviour { return how } }
}

func looksUp(code fault.Code) func(*testing.T, *testService) {
	return func(_ *testing.T, s *testService) {
		s.resolver = func() (dns.Result, error) { return dns.Result{}, fault.New(code, nil) }
	}
}

const (
	aCount  = "1 Count"
	aTime   = "some Milliseconds"
	txHash  = "0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"
	dnsPath = "/v1/tools/dns?domain=example.com"
)

// values are metrics by name, each as "value unit".
type values map[string]string

// and adds metrics to those of another kind of request.
func (v values) and(names ...string) values {
	sum := values{}
	for name, value := range v {
		sum[name] = value
	}
	for _, name := range names {
		sum[name] = aCount
	}
	return sum
}

// What every request, every settlement and every lookup counts as.
func asked() values { return values{"Requests": aCount} }
func failed() values {
	return asked().and("Faults")
}
func tried(v values, class string) values {
	v = v.and("Settlement" + class)
	v["SettleLatency"] = aTime
	return v
}
func lookedUp(v values) values {
	v = v.and()
	v["LookupLatency"] = aTime
	return v
}

// request is one kind of request and what its line must say.
type request struct {
	name   string
	rate   int // requests a minute; 0 is no limit
	cap    int // lookups at once; 0 is no cap
	change func(*parts)
	before func(*testing.T, *testService)
	// do sends it; nil pays for a lookup.
	do     func(*testing.T, *testService) x402test.Reply
	status int
	want   values
	line   map[string]any // further members
}

func get(path string) func(*testing.T, *testService) x402test.Reply {
	return func(t *testing.T, s *testService) x402test.Reply {
		t.Helper()
		return s.get(t, path, "")
	}
}

func (s *testService) get(t *testing.T, path, header string) x402test.Reply {
	t.Helper()
	r, err := s.Get(t.Context(), s.url+path, header)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send makes a request of any kind. The headers are names and values by turns.
func (s *testService) send(t *testing.T, method, path, body string, headers ...string) x402test.Reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return x402test.Reply{Status: res.StatusCode, Header: res.Header, Body: answer}
}

// twice pays, and sends the same payment again.
func twice(t *testing.T, s *testService) x402test.Reply {
	t.Helper()
	_, header, err := s.Buy(t.Context(), s.url+dnsPath)
	if err != nil {
		t.Fatal(err)
	}
	return s.get(t, dnsPath, header)
}

// whileAnotherRuns pays while the lookup of another payment is running.
func whileAnotherRuns(t *testing.T, s *testService) x402test.Reply {
	t.Helper()
	s.hold, s.begun = make(chan struct{}), make(chan struct{}, 2)
	first := make(chan error, 1)
	go func() {
		_, _, err := s.Buy(context.WithoutCancel(t.Context()), s.dns("one.example.com"))
		first <- err
	}()
	<-s.begun
	r := s.buy(t, s.url+dnsPath)
	line := s.line(t) // the first one's comes later
	t.Cleanup(func() {
		close(s.hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
	if line["status"] != float64(r.Status) {
		t.Fatalf("the last line is %v", line)
	}
	return r
}

func rateLimited(t *testing.T, s *testService) x402test.Reply {
	t.Helper()
	for range 100 { // a window may turn over meanwhile
		if r := s.get(t, dnsPath, ""); r.Status == http.StatusTooManyRequests {
			return r
		}
	}
	t.Fatal("nobody limits the rate")
	return x402test.Reply{}
}

// quietRequests are answered without a settlement.
func quietRequests() []request {
	return []request{
		{name: "challenge", do: get(dnsPath), status: 402, want: asked().and("Challenges")},
		{name: "paywall", status: 402, want: asked().and("Challenges"), do: func(t *testing.T, s *testService) x402test.Reply {
			return s.as(t, http.MethodGet, dnsPath, "text/html", "")
		}},
		{name: "bad payment", do: func(t *testing.T, s *testService) x402test.Reply { return s.get(t, dnsPath, "garbage") }, status: 402, want: asked()},
		{name: "bad parameters", do: func(t *testing.T, s *testService) x402test.Reply { return s.buy(t, s.dns("localhost")) }, status: 400, want: asked()},
		{name: "rate limited", rate: 20, do: rateLimited, status: 429, want: asked().and("RateLimited")},
		{name: "overloaded", cap: 1, do: whileAnotherRuns, status: 503, want: failed().and("Overloaded")},
		{name: "ledger down", before: func(_ *testing.T, s *testService) { s.down.Store(true) }, status: 503, want: failed().and("LedgerFaults")},
		{name: "record corrupt", do: corrupted, status: 503, want: failed().and("LedgerFaults")},
		{name: "a bug before the payment", change: withBug, do: get(dnsPath), status: 500, want: failed().and("InternalErrors")},
	}
}

// withBug has a request panic before anything is paid for.
func withBug(d *parts) {
	origin := d.Origin
	var asked atomic.Bool
	d.Origin = func(r *http.Request) string {
		if asked.CompareAndSwap(false, true) {
			panic("bug")
		}
		return origin(r)
	}
}

// corrupted sends a payment whose record cannot be one.
func corrupted(t *testing.T, s *testService) x402test.Reply {
	t.Helper()
	header := sign(t, s, dnsPath)
	p := must(x402.DecodePayment(header))
	key := ledger.Key("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
	if err := s.memory.Plant(t.Context(), key, []byte(`{"key":"`+key+`","state":"paid twice"}`)); err != nil {
		t.Fatal(err)
	}
	return s.get(t, dnsPath, header)
}

// settledRequests reach the facilitator.
func settledRequests() []request {
	paid := lookedUp(tried(asked(), "Settled"))
	owed := lookedUp(tried(failed(), "Settled")).and("Owed")
	unsure := tried(failed().and("Uncertain"), "Unknown")
	turnedAway := tried(failed().and("FacilitatorFaults"), "TurnedAway")
	return []request{
		{name: "paid", status: 200, want: paid.and("Answers"), line: map[string]any{"states": "settling>settled>redeemed", "settlement": "settled"}},
		{name: "an answer that is an error", before: looksUp(fault.NXDomain), status: 404, want: paid.and("Answers")},
		{name: "replayed", do: twice, status: 200, want: asked().and("Replayed"), line: map[string]any{"states": "redeemed", "settlement": nil}},
		{name: "owed", before: looksUp(fault.UpstreamUnavailable), status: 503, want: owed},
		{name: "owed by a time-out", before: looksUp(fault.DNSTimeout), status: 504, want: owed},
		{name: "owed by a bug", before: func(_ *testing.T, s *testService) {
			s.resolver = func() (dns.Result, error) { panic("bug") }
		}, status: 500, want: owed.and("InternalErrors")},
		{name: "owed and asked for too early", before: looksUp(fault.UpstreamUnavailable), do: twice, status: 503, want: failed().and("Owed")},
		{name: "answer not recorded", before: func(_ *testing.T, s *testService) { s.broken.Store(true) }, status: 200, want: paid.and("Answers", "LedgerFaults"), line: map[string]any{"unrecorded": true}},
		{name: "uncertain", before: always(x402test.FailAfter), status: 503, want: unsure, line: map[string]any{"settlement": "unknown", "states": "settling>uncertain", "evidence": nil}},
		{name: "refused", before: always(x402test.Refuse), status: 402, want: tried(asked(), "Refused"), line: map[string]any{"settlement": "refused", "reason": "settlement refused: invalid_exact_evm_insufficient_balance"}},
		{name: "turned away: busy", before: always(x402test.TooMany), status: 503, want: turnedAway, line: map[string]any{"settlement": "turned_away", "code": "facilitator_unavailable"}},
		{name: "turned away: no credentials", before: always(x402test.Unauthorized), status: 503, want: turnedAway, line: map[string]any{"code": "facilitator_misconfigured"}},
		{name: "turned away: wrong credentials", change: unauthorized, status: 503, want: turnedAway, line: map[string]any{"code": "facilitator_unauthorized"}},
		{name: "uncertain, and the chain says paid", before: always(x402test.FailAfter), change: withEvidence(x402.Finding{Verdict: x402.Paid, Transaction: txHash}), status: 200,
			want: lookedUp(tried(asked().and("Answers"), "Unknown")), line: map[string]any{"evidence": "paid", "transaction": txHash}},
		{name: "uncertain, and the chain says never", before: always(x402test.FailBefore), change: withEvidence(x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}), status: 402,
			want: tried(asked(), "Unknown"), line: map[string]any{"evidence": "never_paid"}},
		{name: "uncertain, and the chain cannot tell", before: always(x402test.FailAfter), change: withEvidence(x402.Finding{Cause: errors.New("no node")}), status: 503,
			want: unsure, line: map[string]any{"evidence": "cannot_tell"}},
		{name: "listed", before: noted(`{"bazaar":{"status":"success"}}`), status: 200, want: paid.and("Answers", "ExtensionsAccepted"),
			line: map[string]any{"extension_responses": map[string]any{"bazaar.status": "success"}}},
		{name: "not listed", before: noted(`{"bazaar":{"status":"rejected","rejectedReason":"no_description","note":"x"}}`), status: 200, want: paid.and("Answers", "ExtensionsRejected"),
			line: map[string]any{"extension_responses": map[string]any{"bazaar.status": "rejected", "bazaar.rejectedReason": "no_description"}}},
	}
}

// noted is a facilitator that says what it made of an extension.
func noted(what string) func(*testing.T, *testService) {
	return func(_ *testing.T, s *testService) {
		s.front = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("EXTENSION-RESPONSES", base64.StdEncoding.EncodeToString([]byte(what)))
			return false
		}
	}
}

// unauthorized has the service call a facilitator with a token that it does not
// take.
func unauthorized(d *parts) {
	token, err := facilitator.Bearer("wrong")
	if err != nil {
		panic(err)
	}
	refuses := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody}, nil
	}
	if d.Facilitator, err = facilitator.New(facilitator.Config{URL: "https://facilitator.example", Credentials: token, Transport: roundTrip(refuses)}); err != nil {
		panic(err)
	}
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
