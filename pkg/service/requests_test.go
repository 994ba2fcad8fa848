package service_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// request is one kind of request: what it is answered over HTTP and over MCP, and
// what its log line says.
type request struct {
	name   string
	change func(*parts)
	before func(*shop)
	// ask sends it; nil pays for a lookup of example.com.
	ask           func(way) answer
	httpOnly      bool
	status        int
	code, charged string // see way.expect
	replayed      bool
	want          values
	line          map[string]any // further members
	settles       int            // that the facilitator is sent
}

// anything stands for whatever is there.
const anything = "anything"

// ticking is a clock that moves with every reading, so that no duration is zero.
func ticking(p *parts) {
	var looks atomic.Int64
	p.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * time.Millisecond) }
}

// withEvidence has the chain always say the same.
func withEvidence(f x402.Finding) func(*parts) {
	return func(p *parts) {
		p.Evidence = chainView(func(context.Context, x402.Question) x402.Finding { return f })
	}
}

// always is a facilitator whose settlements all go one way.
func always(how x402test.Behaviour) func(*shop) {
	return func(s *shop) { s.behave = func(int, string) x402test.Behaviour { return how } }
}

// looksUp has every lookup end so.
func looksUp(code fault.Code) func(*shop) {
	return func(s *shop) { s.resolver = failsWith(fault.New(code, nil)) }
}

func failsWith(err error) func() (dns.Result, error) {
	return func() (dns.Result, error) { return dns.Result{}, err }
}

const (
	aCount = "1 Count"
	aTime  = "some Milliseconds"
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
func asked() values  { return values{"Requests": aCount} }
func failed() values { return asked().and("Faults") }

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

// Ways to ask.
func unpaid(w way) answer { return w.ask("example.com", "") }

// twice pays, and sends the same payment again.
func twice(w way) answer {
	header := w.sign("example.com")
	w.ask("example.com", header)
	return w.ask("example.com", header)
}

// forAnother pays, and sends the same payment for another lookup.
func forAnother(w way) answer {
	header := w.sign("example.com")
	w.ask("example.com", header)
	return w.ask("none.example.com", header)
}

// badlyNamed pays for a purchase with a key that is none.
func badlyNamed(w way) answer {
	const key = "with space"
	header := w.sign("example.com")
	if w.tool {
		return w.result(w.call(domain("example.com"), header, key))
	}
	return w.reply(w.send(http.MethodGet, dnsPath, "", x402.HeaderSignature, header, x402.HeaderKey, key))
}

// whileAnotherRuns pays while the lookup of another payment is running.
func whileAnotherRuns(w way) answer {
	end := w.lookupRuns(w.sign("one.example.com"))
	defer end()
	return w.buy("example.com")
}

func untilLimited(w way) answer {
	for range 100 {
		if a := unpaid(w); a.code == string(fault.RateLimited) {
			return a
		}
	}
	w.Fatal("nobody limits the rate")
	return answer{}
}

// bug has a request panic before anything is paid for.
func bug(p *parts) {
	origin := p.Origin
	var asked atomic.Bool
	p.Origin = func(r *http.Request) string {
		if asked.CompareAndSwap(false, true) {
			panic("bug: x402Version accepts")
		}
		return origin(r)
	}
}

// corrupted sends a payment whose record cannot be one.
func corrupted(w way) answer {
	header := w.sign("example.com")
	p, terms := must(x402.DecodePayment(header)), testTerms()
	key := ledger.Key(terms.Network, strings.ToLower(terms.Asset), p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
	if err := w.memory.Plant(w.Context(), key, []byte(`{"key":"`+key+`","state":"paid twice"}`)); err != nil {
		w.Fatal(err)
	}
	return w.ask("example.com", header)
}

// noted is a facilitator that says what it made of an extension.
func noted(what string) func(*shop) {
	return func(s *shop) {
		s.front = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("EXTENSION-RESPONSES", base64.StdEncoding.EncodeToString([]byte(what)))
			return false
		}
	}
}

// unauthorized has the service call a facilitator with a token that it does not
// take.
func unauthorized(p *parts) {
	refuses := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody}, nil
	}
	p.Facilitator = must(facilitator.New(facilitator.Config{
		URL: "https://facilitator.example", Credentials: must(facilitator.Bearer("wrong")), Transport: roundTrip(refuses),
	}))
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// quietRequests are answered without a settlement.
func quietRequests() []request {
	down := func(s *shop) { s.down.Store(true) }
	return []request{
		{name: "challenge", ask: unpaid, status: 402, code: "payment_required", want: asked().and("Challenges")},
		{name: "paywall", httpOnly: true, status: 402, code: "unreadable", want: asked().and("Challenges"),
			ask: func(w way) answer { return w.reply(w.as(http.MethodGet, dnsPath, "text/html", "")) }},
		{name: "bad payment", status: 402, code: "payment_required", want: asked(),
			ask: func(w way) answer { return w.ask("example.com", "garbage!") }},
		{name: "bad parameters", status: 400, code: "invalid_domain", charged: "false", want: asked(),
			ask: func(w way) answer { return w.ask("localhost", w.sign("example.com")) }},
		{name: "a bad key", ask: badlyNamed, status: 400, code: "invalid_idempotency_key", charged: "false", want: asked()},
		{name: "rate limited", change: perMinute(20), ask: untilLimited,
			status: 429, code: "rate_limited", charged: "false", want: asked().and("RateLimited")},
		{name: "overloaded", change: slots(1), ask: whileAnotherRuns, settles: 1,
			status: 503, code: "overloaded", charged: "false", want: failed().and("Overloaded")},
		{name: "ledger down", before: down,
			status: 503, code: "ledger_unavailable", charged: "null", want: failed().and("LedgerFaults")},
		{name: "limits down", change: perMinute(300), before: func(s *shop) { s.uncounts.Store(true) },
			status: 503, code: "ledger_unavailable", charged: "null", want: failed().and("LedgerFaults")},
		{name: "record corrupt", ask: corrupted,
			status: 503, code: "payment_unavailable", charged: "null", want: failed().and("LedgerFaults")},
		{name: "a bug before the payment", change: bug, ask: unpaid,
			status: 500, code: "internal_error", charged: "false", want: failed().and("InternalErrors")},
		{name: "a bug in reading a payment", change: bug, ask: func(w way) answer { return w.ask("example.com", "e30=") },
			status: 500, code: "internal_error", charged: "null", want: failed().and("InternalErrors")},
	}
}

// settledRequests reach the facilitator.
func settledRequests() []request {
	paid := lookedUp(tried(asked(), "Settled"))
	owed := lookedUp(tried(failed(), "Settled")).and("Owed")
	unsure := tried(failed().and("Uncertain"), "Unknown")
	turnedAway := tried(failed().and("FacilitatorFaults"), "TurnedAway")
	doubt := func(name string, how x402test.Behaviour, change func(*parts), line map[string]any) request {
		return request{name: name, before: always(how), change: change, status: 503, settles: 1,
			code: "settlement_uncertain", charged: "null", want: unsure, line: line}
	}
	away := func(name, code string, how x402test.Behaviour) request {
		return request{name: "turned away: " + name, before: always(how), status: 503, settles: 1,
			code: code, charged: "false", want: turnedAway, line: map[string]any{"settlement": "turned_away", "code": code}}
	}
	owes := func(name string, status int, code string, before func(*shop), more ...string) request {
		return request{name: "owed: " + name, before: before, status: status, settles: 1,
			code: code, charged: "true", want: owed.and(more...)}
	}
	served := func(name string, before func(*shop), line map[string]any, more ...string) request {
		return request{name: name, before: before, status: 200, settles: 1,
			want: paid.and("Answers").and(more...), line: line}
	}
	all := []request{
		served("paid", nil, map[string]any{"states": "settling>settled>redeemed", "settlement": "settled"}),
		served("answer not recorded", func(s *shop) { s.broken.Store(true) },
			map[string]any{"states": "settling", "unrecorded": true}, "LedgerFaults"),
		served("listed", noted(`{"bazaar":{"status":"success"}}`),
			map[string]any{"extension_responses": map[string]any{"bazaar.status": "success"}}, "ExtensionsAccepted"),
		served("not listed", noted(`{"bazaar":{"status":"rejected","rejectedReason":"no_description","note":"x"}}`),
			map[string]any{"extension_responses": map[string]any{
				"bazaar.status": "rejected", "bazaar.rejectedReason": "no_description",
			}}, "ExtensionsRejected"),
		{name: "an answer that is an error", before: looksUp(fault.NXDomain), settles: 1,
			status: 404, code: "nxdomain", charged: "true", want: paid.and("Answers")},
		{name: "spent on another question", ask: forAnother, status: 402, code: "payment_required", charged: "true", settles: 1,
			want: asked()},
		{name: "replayed", ask: twice, status: 200, replayed: true, settles: 1,
			want: asked().and("Replayed"), line: map[string]any{"states": "redeemed", "settlement": nil}},
		owes("a time-out", 504, "dns_timeout", looksUp(fault.DNSTimeout)),
		owes("a code that is not the operation's", 500, "internal_error", looksUp(fault.HandshakeFailed), "InternalErrors"),
		owes("a bug", 500, "internal_error", func(s *shop) {
			s.resolver = func() (dns.Result, error) { panic("bug") }
		}, "InternalErrors"),
		{name: "owed and asked for too early", before: looksUp(fault.UpstreamUnavailable), ask: twice, settles: 1,
			status: 503, code: "upstream_unavailable", charged: "true", want: failed().and("Owed")},
		doubt("uncertain", x402test.FailAfter, nil,
			map[string]any{"settlement": "unknown", "states": "settling>uncertain", "evidence": nil}),
		doubt("cut off", x402test.DropAfter, nil, nil),
		doubt("uncertain, and the chain cannot tell", x402test.FailAfter,
			withEvidence(x402.Finding{Cause: errors.New("no node")}), map[string]any{"evidence": "cannot_tell"}),
		{name: "uncertain, and the chain says paid", before: always(x402test.FailAfter), settles: 1,
			change: withEvidence(x402.Finding{Verdict: x402.Paid, Transaction: txHash}), status: 200,
			want: lookedUp(tried(asked().and("Answers"), "Unknown")),
			line: map[string]any{"evidence": "paid", "transaction": txHash}},
		{name: "uncertain, and the chain says never", before: always(x402test.FailBefore), settles: 1,
			change: withEvidence(x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}), status: 402,
			code: "payment_required", want: tried(asked(), "Unknown"), line: map[string]any{"evidence": "never_paid"}},
		{name: "refused", before: always(x402test.Refuse), settles: 1,
			status: 402, code: "payment_required", want: tried(asked(), "Refused"), line: map[string]any{
				"settlement": "refused", "reason": "settlement refused: invalid_exact_evm_insufficient_balance",
			}},
		away("busy", "facilitator_unavailable", x402test.TooMany),
		away("no credentials", "facilitator_misconfigured", x402test.Unauthorized),
	}
	wrong := away("wrong credentials", "facilitator_unauthorized", x402test.Honest)
	wrong.change, wrong.settles = unauthorized, 0
	pending := doubt("pending", x402test.Unconfirmed, nil, nil)
	pending.settles = 2 // it is asked again once
	lookup := owes("a failed lookup", 503, "upstream_unavailable", looksUp(fault.UpstreamUnavailable))
	lookup.change = slots(50)
	lookup.line = map[string]any{"states": "settling>settled", "settlement": "settled", "unrecorded": nil}
	for _, key := range []string{
		"request_id", "ms", "claim_ms", "slot_ms", "settle_ms", "lookup_ms", "record_ms", "payer", "nonce", "transaction",
	} {
		lookup.line[key] = anything
	}
	return append(all, wrong, pending, lookup)
}
