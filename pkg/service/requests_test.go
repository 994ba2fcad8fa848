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
	name   string
	change func(*parts)
	before func(*shop)
	// ask sends the request. If it is nil, the client pays for a lookup of example.com.
	ask           func(way) answer
	httpOnly      bool
	status        int
	code, charged string // the error code, and "charged" in the answer; see way.expect
	replayed      bool
	counts        string         // names of the expected metrics, except Requests, Faults and those about payers and releases (see request.counted)
	uncounted     bool           // the request does not count towards rolling back a release
	silent        bool           // the facilitator does not reply
	line          map[string]any // further members that the log line must have
	settles       int            // the expected number of settlements that the facilitator gets
}

// anything stands for any value of a member.
const anything = "anything"

// ticking names the stack and the function. It also sets a clock that advances by a
// millisecond with every reading, so that every duration is positive.
func ticking(p *parts) {
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

// always makes the facilitator behave in the given way at every settlement.
func always(how x402test.Behaviour) func(*shop) {
	return func(s *shop) { s.behave = func(int, string) x402test.Behaviour { return how } }
}

// first makes the facilitator behave in the given way at the first settlement, and honestly at
// every later one.
func first(how x402test.Behaviour) func(*shop) {
	return func(s *shop) {
		s.behave = func(n int, _ string) x402test.Behaviour {
			if n == 0 {
				return how
			}
			return x402test.Honest
		}
	}
}

// traced is an error that has the stack of a panic.
type traced struct{ stack string }

func (traced) Error() string   { return "a trace" }
func (b traced) Stack() string { return b.stack }

// noKey signs nothing, as if its key had not been published.
type noKey struct{}

func (noKey) Sign(context.Context, receipt.Statement) (string, error) { return "", receipt.ErrMismatch }
func (noKey) SignOffer(receipt.Offer) (string, error)                 { return "", nil }

func failsWith(err error) func() (dns.Result, error) {
	return func() (dns.Result, error) { return dns.Result{}, err }
}

// unsigned sets a client of a facilitator that cannot read its credentials. So the client
// sends no requests to the facilitator.
func unsigned(p *parts) {
	missing := func(context.Context, time.Time) (facilitator.Credentials, error) {
		return facilitator.Credentials{}, errors.New("bug: no secret")
	}
	p.Facilitator = testbed.Must(facilitator.New(facilitator.Config{
		URL: "https://facilitator.example", Credentials: facilitator.Lazy(missing, nil),
	}))
}

// tried and settled are values for request.counts: the metrics of any settlement, and those of
// a successful settlement with a lookup.
const (
	tried   = " SettleLatency Settlement" // the class of the outcome completes the name of the last metric
	settled = tried + "Settled LookupLatency"
)

// quietRequests returns the requests that are answered without a settlement.
func quietRequests() []request {
	down := func(s *shop) { s.down.Store(true) }
	uncounted := func(s *shop) { s.uncounts.Store(true) }
	page := func(w way) answer { return w.reply(w.send(http.MethodGet, dnsPath, "", "Accept", "text/html")) }
	badName := func(w way) answer { return w.ask("localhost", w.sign("example.com")) }
	sends := func(header string) func(way) answer {
		return func(w way) answer { return w.ask("example.com", header) }
	}
	return []request{
		{name: "challenge", ask: unpaid, status: 402, code: "payment_required", counts: "Challenges"},
		{name: "paywall", ask: page, httpOnly: true, status: 402, code: "unreadable", counts: "Challenges"},
		{name: "bad payment", ask: sends("e30="), status: 402, code: "payment_required"},
		{name: "another payee", ask: altered(anotherPayee), status: 402, code: "payment_required"},
		{name: "nothing is sold, and another payee", change: func(p *parts) { p.Paused = true }, ask: altered(anotherPayee), status: 402,
			code: "payment_required", uncounted: true},
		{name: "a bad signature", ask: altered(func(p *x402.Payload) { p.Payload.Signature = "0x" + strings.Repeat("11", 64) + "1b" }),
			status: 402, code: "payment_required"},
		{name: "an authorization that is over", ask: altered(func(p *x402.Payload) { p.Payload.Authorization.ValidBefore = "1" }), status: 402, code: "payment_required"},
		{name: "bad parameters", ask: badName, status: 400, code: "invalid_domain", charged: "false"},
		{name: "a slip in a parameter", httpOnly: true, ask: func(w way) answer {
			path := "/v1/tools/dns?tpye=MX&domain=localhost&utm_source=x&q=%zz" // the domain is wrong as well, but the error must be about the name tpye, which is checked first
			a := w.reply(w.get(path, w.sign("example.com")))
			if !strings.Contains(a.text, "There is no parameter \\\"tpye\\\": it is called type.") {
				w.Errorf("%s", a.text)
			}
			return a
		}, status: 400, code: "invalid_type", charged: "false"},
		{name: "a bad key", ask: badlyNamed, status: 400, code: "invalid_idempotency_key", charged: "false"},
		{name: "rate limited", change: perMinute(20), ask: untilLimited,
			status: 429, code: "rate_limited", charged: "false", counts: "RateLimited"},
		{name: "overloaded", change: slots(1), ask: whileAnotherRuns, settles: 1,
			status: 503, code: "overloaded", charged: "false", counts: "Overloaded"},
		{name: "ledger down", before: down, status: 503, code: "ledger_unavailable", charged: "null", counts: "LedgerFaults"},
		{name: "nothing is sold, and the ledger is down", change: func(p *parts) { p.Paused = true }, before: down, status: 503, code: "ledger_unavailable",
			charged: "null", counts: "LedgerFaults", uncounted: true},
		{name: "limits down", change: perMinute(300), before: uncounted,
			status: 503, code: "ledger_unavailable", charged: "null", counts: "LedgerFaults"},
		{name: "record corrupt", ask: corrupted, status: 503, code: "payment_unavailable", charged: "null", counts: "LedgerFaults"},
		{name: "a bug before the payment", change: bug, ask: unpaid,
			status: 500, code: "internal_error", charged: "false", counts: "InternalErrors"},
		{name: "no random bytes", change: noRandom, ask: unpaid, status: 500, code: "internal_error", charged: "false", counts: "InternalErrors"},
		{name: "no random bytes for a page", change: noRandom, ask: page, httpOnly: true,
			status: 500, code: "internal_error", charged: "false", counts: "InternalErrors"},
		{name: "no random bytes for a refusal", change: noRandom, ask: sends("e30="),
			status: 500, code: "internal_error", charged: "null", counts: "InternalErrors"},
		{name: "a bug in reading a payment", change: bug, ask: sends("e30="),
			status: 500, code: "internal_error", charged: "null", counts: "InternalErrors"},
	}
}

// settledRequests returns the requests that reach the facilitator.
func settledRequests() []request {
	type members = map[string]any
	doubt := func(name string, how x402test.Behaviour, change func(*parts), line members) request {
		return request{name: name, before: always(how), change: change, status: 503, settles: 1,
			code: "settlement_uncertain", charged: "null", counts: "Uncertain" + tried + "Unknown", line: line}
	}
	silent := func(r request) request {
		r.silent = true
		return r
	}
	away := func(name, code string, how x402test.Behaviour) request {
		return request{name: "turned away: " + name, before: always(how), status: 503, settles: 1, code: code, charged: "false",
			counts: "FacilitatorFaults" + tried + "TurnedAway", line: members{"settlement": "turned_away", "code": code}}
	}
	owes := func(name string, status int, code string, resolver func() (dns.Result, error), more string) request {
		return request{name: "owed: " + name, before: func(s *shop) { s.resolver = resolver }, status: status, settles: 1,
			code: code, charged: "true", counts: "Owed" + more + settled}
	}
	served := func(name string, before func(*shop), line members, more string) request {
		return request{name: name, before: before, status: 200, settles: 1, counts: "Answers" + more + settled, line: line}
	}
	fails := func(code fault.Code) func() (dns.Result, error) { return failsWith(lookup.Fault(code, nil)) }
	// A lookup that quotes a malformed header of an origin may return an error like flood.
	flood := fmt.Errorf("bug: malformed header: %q", strings.Repeat("\x01\u202e", 64000))
	panics := func() (dns.Result, error) { panic(flood) }
	all := []request{
		served("paid", nil, members{"states": "settling>settled>redeemed", "settlement": "settled"}, ""),
		served("answer not recorded", func(s *shop) { s.broken.Store(true) }, members{"states": "settling", "unrecorded": true}, " LedgerFaults"),
		served("listed", reportsExtensions(`{"bazaar":{"status":"success"}}`),
			members{"extension_responses": members{"bazaar.status": "success"}}, " ExtensionsAccepted"),
		served("not listed", reportsExtensions(`{"bazaar":{"status":"rejected","rejectedReason":"no_description","note":"x"}}`), members{
			"extension_responses": members{"bazaar.status": "rejected", "bazaar.rejectedReason": "no_description"},
		}, " ExtensionsRejected"),
		{name: "an answer that is an error", before: func(s *shop) { s.resolver = fails(lookup.NXDomain) }, settles: 1,
			status: 404, code: "nxdomain", charged: "true", counts: "Answers" + settled},
		{name: "spent on another question", ask: twice("none.example.com"), settles: 1,
			status: 402, code: "payment_required", charged: "true"},
		{name: "replayed", ask: twice("example.com"), status: 200, replayed: true, settles: 1,
			counts: "Replayed", line: members{"states": "redeemed", "settlement": nil}},
		owes("a time-out", 504, "dns_timeout", failsWith(lookup.Fault(lookup.DNSTimeout, flood)), ""),
		owes("a foreign error", 500, "internal_error", failsWith(flood), " InternalErrors"),
		owes("a code that is not the operation's", 500, "internal_error", fails(lookup.HandshakeFailed), " InternalErrors"),
		owes("a bug", 500, "internal_error", panics, " InternalErrors"),
		{name: "owed and asked for too early", before: func(s *shop) { s.resolver = fails(lookup.UpstreamUnavailable) },
			ask: twice("example.com"), settles: 1, status: 503, code: "upstream_unavailable", charged: "true", counts: "Owed"},
		silent(doubt("uncertain", x402test.FailAfter, nil, members{"settlement": "unknown", "states": "settling>uncertain", "evidence": nil})),
		silent(doubt("uncertain, and the chain cannot tell", x402test.DropAfter,
			withEvidence(x402.Finding{Cause: errors.New("no node")}), members{"evidence": "cannot_tell"})),
		{name: "uncertain by the facilitator's word", before: always(x402test.Revert), settles: 1, status: 503, code: "settlement_uncertain", charged: "null",
			counts: "Uncertain" + tried + "Unknown", line: members{"reason": "transaction_reverted"}},
		{name: "uncertain, and the chain says paid", before: always(x402test.FailAfter), settles: 1, status: 200,
			change: withEvidence(x402.Finding{Fate: x402.Paid, Transaction: txHash}),
			counts: "Answers LookupLatency" + tried + "Unknown", line: members{"evidence": "paid", "transaction": txHash}},
		{name: "uncertain, and the chain says never", before: always(x402test.FailBefore), settles: 1, status: 402, code: "payment_required",
			change: withEvidence(x402.Finding{Fate: x402.NeverPaid, Reason: "authorization was cancelled"}),
			counts: tried + "Unknown", line: members{"evidence": "never_paid"}},
		{name: "refused", before: always(x402test.Refuse), settles: 1, status: 402, code: "payment_required", counts: tried + "Refused",
			line: members{"settlement": "refused", "reason": "settlement refused: invalid_exact_evm_insufficient_balance"}},
		{name: "a false refusal, and no node", before: first(x402test.RefuseAfter), httpOnly: true, settles: 2, status: 200,
			ask: func(w way) answer {
				w.ask("example.com", w.sign("example.com"))
				return w.ask("example.com", w.sign("example.com"))
			},
			counts: "Answers LookupLatency UsedNonceCountedAsPaid" + tried + "Refused", line: members{"used_as_paid": true, "purchase": "joined"}},
		{name: "a key that cannot be read", change: func(p *parts) { p.Receipts = noKey{} }, settles: 1, status: 200,
			counts: "Answers" + settled + " Unreceipted", line: members{"unreceipted": true}},
		away("busy", "facilitator_unavailable", x402test.TooMany),
		away("wrong credentials", "facilitator_unauthorized", x402test.Unauthorized),
		{name: "no credentials", change: unsigned, status: 503, code: "facilitator_misconfigured", charged: "false",
			counts: "FacilitatorFaults" + tried + "NotSent", line: members{"settlement": "not_sent"}},
		{name: "nothing is sold", change: func(p *parts) { unsigned(p); p.Paused = true }, status: 503, code: "facilitator_misconfigured", charged: "false",
			counts: tried + "NotSent", uncounted: true},
	}
	bug := traced{strings.Repeat("goroutine 1\n", 200)}
	where := owes("a bug of which is known where it was", 500, "internal_error", failsWith(fmt.Errorf("while looking: %w", bug)), " InternalErrors")
	where.line = members{"stack": bug.stack, "error": "internal_error: while looking: a trace"}
	pending := doubt("pending", x402test.Unconfirmed, nil, nil)
	pending.settles = 2 // the service asks the facilitator twice
	lookup := owes("a failed lookup", 503, "upstream_unavailable", fails(lookup.UpstreamUnavailable), "")
	lookup.change = slots(50)
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
				c.run(way{newShop(t, ticking, c.change), tool})
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
	if c.before != nil {
		c.before(w.shop)
	}
	begun := time.Now()
	a := ask(w)
	w.expect(a, c.status, c.code, c.charged)
	if a.replayed != c.replayed || strings.Contains(a.text, "bug:") {
		w.Errorf("replayed %v: %s", a.replayed, a.text)
	}
	w.settled(c.settles)
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
	if d := cmp.Diff(c.counted(line), counts); d != "" {
		w.Errorf("metrics (-want +got):\n%s", d)
	}
	c.filtered(w.T, line, counts)
	w.showsNothing()
}
