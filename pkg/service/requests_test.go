package service_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// request is a kind of request, together with the expected answer over HTTP and over MCP and
// the expected log line.
type request struct {
	name      string
	configure func(*parts)
	prepare   func(*shop)
	// ask sends the request. If it is nil, the client pays for a lookup of example.com.
	ask           func(way) answer
	httpOnly      bool
	status        int
	code, charged string // the error code, and "charged" in the answer; see way.expect
	replayed      bool
	metrics       string         // names of the expected metrics, except Requests, Faults and those about payers and releases (see request.wantMetrics)
	notJudged     bool           // the request does not count towards rolling back a release
	silent        bool           // the facilitator does not reply
	line          map[string]any // further members that the log line must have
	settles       int            // the expected number of settlements that the facilitator gets
}

// anything stands for any value of a member.
const anything = "anything"

// withTickingClock sets the names of the stack and of the function. It also sets a clock that
// advances by a millisecond with every reading, so that every duration is positive.
func withTickingClock(p *parts) {
	p.Stack, p.Function, p.Version = "prod", "dns-function", "7"
	var looks atomic.Int64
	p.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * time.Millisecond) }
}

// withEvidence makes every search of the chain return the same finding.
func withEvidence(f x402.Finding) func(*parts) {
	return func(p *parts) {
		p.Evidence = chainView(func(context.Context, x402.Question) x402.Finding { return f })
	}
}

// behaveAlways makes the facilitator behave in the given way at every settlement.
func behaveAlways(how x402test.Behaviour) func(*shop) {
	return func(s *shop) { s.behave = func(int, string) x402test.Behaviour { return how } }
}

// behaveFirst makes the facilitator behave in the given way at the first settlement, and
// honestly at every later one.
func behaveFirst(how x402test.Behaviour) func(*shop) {
	return func(s *shop) {
		s.behave = func(n int, _ string) x402test.Behaviour {
			if n == 0 {
				return how
			}
			return x402test.Honest
		}
	}
}

// errorWithStack is an error that has the stack of a panic.
type errorWithStack struct{ stack string }

func (errorWithStack) Error() string   { return "a trace" }
func (b errorWithStack) Stack() string { return b.stack }

// unpublishedKey signs nothing, as if its key had not been published.
type unpublishedKey struct{}

func (unpublishedKey) Sign(context.Context, receipt.Statement) (string, error) {
	return "", receipt.ErrMismatch
}
func (unpublishedKey) SignOffer(receipt.Offer) (string, error) { return "", nil }

func lookupFailing(err error) func() (dns.Result, error) {
	return func() (dns.Result, error) { return dns.Result{}, err }
}

// withoutCredentials makes the client of the facilitator unable to read its credentials. So
// the client sends no requests to the facilitator.
func withoutCredentials(p *parts) {
	missing := func(context.Context, time.Time) (facilitator.Credentials, error) {
		return facilitator.Credentials{}, errors.New("bug: no secret")
	}
	p.Facilitator = testbed.Must(facilitator.New(facilitator.Config{
		URL: "https://facilitator.example", Credentials: facilitator.Lazy(missing, nil),
	}))
}

// settleMetrics and saleMetrics are values for request.metrics: the metrics of any settlement,
// and those of a successful settlement with a lookup.
const (
	settleMetrics = " SettleLatency Settlement" // the class of the outcome completes the name of the last metric
	saleMetrics   = settleMetrics + "Settled LookupLatency"
)

// quietRequests returns the requests that are answered without a settlement.
func quietRequests() []request {
	down := func(s *shop) { s.failCalls.Store(true) }
	uncounted := func(s *shop) { s.failCounts.Store(true) }
	page := func(w way) answer { return w.reply(w.send(http.MethodGet, dnsPath, "", "Accept", "text/html")) }
	badName := func(w way) answer { return w.ask("localhost", w.sign("example.com")) }
	askWithHeader := func(header string) func(way) answer {
		return func(w way) answer { return w.ask("example.com", header) }
	}
	return []request{
		{name: "challenge", ask: unpaid, status: 402, code: "payment_required", metrics: "Challenges"},
		{name: "paywall", ask: page, httpOnly: true, status: 402, code: "unreadable", metrics: "Challenges"},
		{name: "bad payment", ask: askWithHeader("e30="), status: 402, code: "payment_required"},
		{name: "another payee", ask: payAltered(anotherPayee), status: 402, code: "payment_required"},
		{name: "nothing is sold, and another payee", configure: func(p *parts) { p.Paused = true }, ask: payAltered(anotherPayee), status: 402,
			code: "payment_required", notJudged: true},
		{name: "a bad signature", ask: payAltered(func(p *x402.Payload) { p.Payload.Signature = "0x" + strings.Repeat("11", 64) + "1b" }),
			status: 402, code: "payment_required"},
		{name: "an authorization that is over", ask: payAltered(func(p *x402.Payload) { p.Payload.Authorization.ValidBefore = "1" }), status: 402, code: "payment_required"},
		{name: "bad parameters", ask: badName, status: 400, code: "invalid_domain", charged: "false"},
		{name: "a slip in a parameter", httpOnly: true, ask: func(w way) answer {
			path := "/v1/tools/dns?tpye=MX&domain=localhost&utm_source=x&q=%zz" // the domain is wrong as well, but the error must be about the name tpye, which is checked first
			a := w.reply(w.get(path, w.sign("example.com")))
			if !strings.Contains(a.text, "There is no parameter \\\"tpye\\\": it is called type.") {
				w.Errorf("%s", a.text)
			}
			return a
		}, status: 400, code: "invalid_type", charged: "false"},
		{name: "a bad key", ask: payWithInvalidKey, status: 400, code: "invalid_idempotency_key", charged: "false"},
		{name: "rate limited", configure: perMinute(20), ask: askUntilLimited,
			status: 429, code: "rate_limited", charged: "false", metrics: "RateLimited"},
		{name: "overloaded", configure: slots(1), ask: payWhileAnotherRuns, settles: 1,
			status: 503, code: "overloaded", charged: "false", metrics: "Overloaded"},
		{name: "ledger down", prepare: down, status: 503, code: "ledger_unavailable", charged: "null", metrics: "LedgerFaults"},
		{name: "nothing is sold, and the ledger is down", configure: func(p *parts) { p.Paused = true }, prepare: down, status: 503, code: "ledger_unavailable",
			charged: "null", metrics: "LedgerFaults", notJudged: true},
		{name: "limits down", configure: perMinute(300), prepare: uncounted,
			status: 503, code: "ledger_unavailable", charged: "null", metrics: "LedgerFaults"},
		{name: "record corrupt", ask: payCorrupted, status: 503, code: "payment_unavailable", charged: "null", metrics: "LedgerFaults"},
		{name: "a bug before the payment", configure: panicOnce, ask: unpaid,
			status: 500, code: "internal_error", charged: "false", metrics: "InternalErrors"},
		{name: "no random bytes", configure: withoutRandom, ask: unpaid, status: 500, code: "internal_error", charged: "false", metrics: "InternalErrors"},
		{name: "no random bytes for a page", configure: withoutRandom, ask: page, httpOnly: true,
			status: 500, code: "internal_error", charged: "false", metrics: "InternalErrors"},
		{name: "no random bytes for a refusal", configure: withoutRandom, ask: askWithHeader("e30="),
			status: 500, code: "internal_error", charged: "null", metrics: "InternalErrors"},
		{name: "a bug in reading a payment", configure: panicOnce, ask: askWithHeader("e30="),
			status: 500, code: "internal_error", charged: "null", metrics: "InternalErrors"},
	}
}

// settledRequests returns the requests that reach the facilitator.
func settledRequests() []request {
	type members = map[string]any
	doubtfulRequest := func(name string, how x402test.Behaviour, change func(*parts), line members) request {
		return request{name: name, prepare: behaveAlways(how), configure: change, status: 503, settles: 1,
			code: "settlement_uncertain", charged: "null", metrics: "Uncertain" + settleMetrics + "Unknown", line: line}
	}
	silent := func(r request) request {
		r.silent = true
		return r
	}
	turnedAway := func(name, code string, how x402test.Behaviour) request {
		return request{name: "turned away: " + name, prepare: behaveAlways(how), status: 503, settles: 1, code: code, charged: "false",
			metrics: "FacilitatorFaults" + settleMetrics + "TurnedAway", line: members{"settlement": "turned_away", "code": code}}
	}
	owedRequest := func(name string, status int, code string, resolver func() (dns.Result, error), more string) request {
		return request{name: "owed: " + name, prepare: func(s *shop) { s.resolver = resolver }, status: status, settles: 1,
			code: code, charged: "true", metrics: "Owed" + more + saleMetrics}
	}
	answeredRequest := func(name string, before func(*shop), line members, more string) request {
		return request{name: name, prepare: before, status: 200, settles: 1, metrics: "Answers" + more + saleMetrics, line: line}
	}
	lookupFailingWith := func(code fault.Code) func() (dns.Result, error) { return lookupFailing(lookup.Fault(code, nil)) }
	// A lookup that quotes a malformed header of an origin may return such an error.
	flood := fmt.Errorf("bug: malformed header: %q", strings.Repeat("\x01\u202e", 64000))
	panickingLookup := func() (dns.Result, error) { panic(flood) }
	all := []request{
		answeredRequest("paid", nil, members{"states": "settling>settled>redeemed", "settlement": "settled"}, ""),
		answeredRequest("answer not recorded", func(s *shop) { s.failWrites.Store(true) }, members{"states": "settling", "unrecorded": true}, " LedgerFaults"),
		answeredRequest("listed", reportsExtensions(`{"bazaar":{"status":"success"}}`),
			members{"extension_responses": members{"bazaar.status": "success"}}, " ExtensionsAccepted"),
		answeredRequest("not listed", reportsExtensions(`{"bazaar":{"status":"rejected","rejectedReason":"no_description","note":"x"}}`), members{
			"extension_responses": members{"bazaar.status": "rejected", "bazaar.rejectedReason": "no_description"},
		}, " ExtensionsRejected"),
		{name: "an answer that is an error", prepare: func(s *shop) { s.resolver = lookupFailingWith(lookup.NXDomain) }, settles: 1,
			status: 404, code: "nxdomain", charged: "true", metrics: "Answers" + saleMetrics},
		{name: "spent on another question", ask: payTwice("none.example.com"), settles: 1,
			status: 402, code: "payment_required", charged: "true"},
		{name: "replayed", ask: payTwice("example.com"), status: 200, replayed: true, settles: 1,
			metrics: "Replayed", line: members{"states": "redeemed", "settlement": nil}},
		owedRequest("a time-out", 504, "dns_timeout", lookupFailing(lookup.Fault(lookup.DNSTimeout, flood)), ""),
		owedRequest("a foreign error", 500, "internal_error", lookupFailing(flood), " InternalErrors"),
		owedRequest("a code that is not the operation's", 500, "internal_error", lookupFailingWith(lookup.HandshakeFailed), " InternalErrors"),
		owedRequest("a bug", 500, "internal_error", panickingLookup, " InternalErrors"),
		{name: "owed and asked for too early", prepare: func(s *shop) { s.resolver = lookupFailingWith(lookup.UpstreamUnavailable) },
			ask: payTwice("example.com"), settles: 1, status: 503, code: "upstream_unavailable", charged: "true", metrics: "Owed"},
		silent(doubtfulRequest("uncertain", x402test.FailAfter, nil, members{"settlement": "unknown", "states": "settling>uncertain", "evidence": nil})),
		silent(doubtfulRequest("uncertain, and the chain cannot tell", x402test.DropAfter,
			withEvidence(x402.Finding{Cause: errors.New("no node")}), members{"evidence": "cannot_tell"})),
		{name: "uncertain by the facilitator's word", prepare: behaveAlways(x402test.Revert), settles: 1, status: 503, code: "settlement_uncertain", charged: "null",
			metrics: "Uncertain" + settleMetrics + "Unknown", line: members{"reason": "transaction_reverted"}},
		{name: "uncertain, and the chain says paid", prepare: behaveAlways(x402test.FailAfter), settles: 1, status: 200,
			configure: withEvidence(x402.Finding{Fate: x402.Paid, Transaction: txHash}),
			metrics:   "Answers LookupLatency" + settleMetrics + "Unknown", line: members{"evidence": "paid", "transaction": txHash}},
		{name: "uncertain, and the chain says never", prepare: behaveAlways(x402test.FailBefore), settles: 1, status: 402, code: "payment_required",
			configure: withEvidence(x402.Finding{Fate: x402.NeverPaid, Reason: "authorization was cancelled"}),
			metrics:   settleMetrics + "Unknown", line: members{"evidence": "never_paid"}},
		{name: "refused", prepare: behaveAlways(x402test.Refuse), settles: 1, status: 402, code: "payment_required", metrics: settleMetrics + "Refused",
			line: members{"settlement": "refused", "reason": "settlement refused: invalid_exact_evm_insufficient_balance"}},
		{name: "a false refusal, and no node", prepare: behaveFirst(x402test.RefuseAfter), httpOnly: true, settles: 2, status: 200,
			ask: func(w way) answer {
				w.ask("example.com", w.sign("example.com"))
				return w.ask("example.com", w.sign("example.com"))
			},
			metrics: "Answers LookupLatency UsedNonceCountedAsPaid" + settleMetrics + "Refused", line: members{"used_as_paid": true, "purchase": "joined"}},
		{name: "a key that cannot be read", configure: func(p *parts) { p.Receipts = unpublishedKey{} }, settles: 1, status: 200,
			metrics: "Answers" + saleMetrics + " Unreceipted", line: members{"unreceipted": true}},
		turnedAway("busy", "facilitator_unavailable", x402test.TooMany),
		turnedAway("wrong credentials", "facilitator_unauthorized", x402test.Unauthorized),
		{name: "no credentials", configure: withoutCredentials, status: 503, code: "facilitator_misconfigured", charged: "false",
			metrics: "FacilitatorFaults" + settleMetrics + "NotSent", line: members{"settlement": "not_sent"}},
		{name: "nothing is sold", configure: func(p *parts) { withoutCredentials(p); p.Paused = true }, status: 503, code: "facilitator_misconfigured", charged: "false",
			metrics: settleMetrics + "NotSent", notJudged: true},
	}
	bug := errorWithStack{strings.Repeat("goroutine 1\n", 200)}
	where := owedRequest("a bug of which is known where it was", 500, "internal_error", lookupFailing(fmt.Errorf("while looking: %w", bug)), " InternalErrors")
	where.line = members{"stack": bug.stack, "error": "internal_error: while looking: a trace"}
	pending := doubtfulRequest("pending", x402test.Unconfirmed, nil, nil)
	pending.settles = 2 // the service asks the facilitator twice
	lookup := owedRequest("a failed lookup", 503, "upstream_unavailable", lookupFailingWith(lookup.UpstreamUnavailable), "")
	lookup.configure = slots(50)
	lookup.line = members{"states": "settling>settled", "settlement": "settled", "unrecorded": nil}
	for _, key := range []string{
		"request_id", "ms", "claim_ms", "slot_ms", "settle_ms", "lookup_ms", "record_ms", "payer", "nonce", "transaction",
	} {
		lookup.line[key] = anything
	}
	return append(all, where, pending, lookup)
}

// TestRequests checks the answer and the metrics of each kind of request, over HTTP and over
// MCP. Each expected metric must appear exactly once, with its unit, in one CloudWatch
// directive. There must be no other metrics.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range append(quietRequests(), settledRequests()...) {
		for _, tool := range []bool{false, true} {
			if tool && c.httpOnly {
				continue
			}
			t.Run(fmt.Sprint(c.name, " over ", way{tool: tool}), func(t *testing.T) {
				t.Parallel()
				c.run(way{newShop(t, withTickingClock, c.configure), tool})
			})
		}
	}
}

func (c request) run(w way) {
	ask := c.ask
	if ask == nil {
		header := w.sign("example.com")
		ask = func(w way) answer { return w.ask("example.com", header) }
	}
	if c.prepare != nil {
		c.prepare(w.shop)
	}
	begun := time.Now()
	a := ask(w)
	w.expect(a, c.status, c.code, c.charged)
	if a.replayed != c.replayed || strings.Contains(a.text, "bug:") {
		w.Errorf("replayed %v: %s", a.replayed, a.text)
	}
	w.checkSettlements(c.settles)
	// If a bug ends the request, the response has only the headers that were set before the
	// bug, so Vary is not checked.
	varies := "Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey
	if !w.tool && c.code != "internal_error" && a.vary != varies {
		w.Errorf("a cache may give one client the answer of another: Vary %q, want %q", a.vary, varies)
	}
	line := w.lineOf(a.id)
	if amount, paid := line["amount"], line["payer"] != nil; paid != (amount == "5000") || !paid && amount != nil {
		w.Errorf("amount %v in %v", amount, line)
	}
	want := map[string]any{"msg": "request", "operation": "dns", "status": float64(c.status), "tool": nil, "transport": nil}
	single := [][]string{{"operation"}}
	if w.tool {
		want["tool"], want["transport"] = lookupTool, "mcp"
		single = append(single, []string{"transport"})
	}
	maps.Copy(want, c.line)
	for key, value := range want {
		if value == anything && line[key] != nil {
			continue
		}
		if d := cmp.Diff(value, line[key]); d != "" {
			w.Errorf("%s: %s", key, d)
		}
	}
	counts := emf(w.T, line, "Hostfacts/prod", single, begun)
	if d := cmp.Diff(c.wantMetrics(line), counts); d != "" {
		w.Errorf("metrics (-want +got):\n%s", d)
	}
	c.checkFilterMembers(w.T, line, counts)
	w.checkLogSecrets()
}
