package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type behaviours = []x402test.Behaviour

func unpaidCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "unsigned", steps: []step{ask(http.MethodGet, u, nil, unpaid())}},
		{name: "unsigned with bad parameters", steps: []step{ask(http.MethodGet, op.Path+"?domain=127.0.0.1&type=PTR", nil, unpaid())}},
		{name: "a browser", steps: []step{ask(http.MethodGet, u, header{"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}, unpaid().page())}},
		{name: "HEAD", steps: []step{ask(http.MethodHead, u, nil, unpaid().empty())}},
		{name: "HEAD with a payment settles nothing", steps: []step{signed(u), happens(func(r *run) {
			r.check(r.ask(http.MethodHead, u, paidBy(r.header)), unpaid().empty())
		})}},
		{name: "preflight", steps: []step{ask(http.MethodOptions, u, header{"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}, preflight())}},
		{name: "POST", steps: []step{ask(http.MethodPost, u, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS"))}},
	}
}

// paymentCases are played for every priced operation, at its example URL: all goes
// well, or the facilitator, the ledger or the limits have something against it.
func paymentCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "paid and replayed", steps: []step{pay(u, result("")), again(result("").replayed())}},
		{name: "paid by a contract wallet", steps: []step{payWith(u, nil, contractWallet, result("")), again(result("").replayed())}},
		{name: "used for another URL", calls: 1, steps: []step{pay(u, result("")), elsewhere(otherPath(op), spent("authorization already used for another request"))}},
		{name: "declined, then topped up", settle: behaviours{x402test.Refuse}, calls: 2, steps: []step{
			pay(u, declined("settlement refused: invalid_exact_evm_insufficient_balance")),
			// What a repeat within a second gets is TestRefusedIsSpaced in pkg/x402,
			// whose clock does not depend on how busy the machine is.
			eventually(result("")),
		}},
		{name: "settlement pending, then confirmed", settle: behaviours{x402test.Pending, x402test.Pending}, calls: 2, steps: []step{pay(u, result(""))}},
		{name: "facilitator fails after the transfer", settle: behaviours{x402test.FailAfter}, calls: 2, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("").withoutHash()), again(result("").withoutHash().replayed()),
		}},
		{name: "facilitator hangs up before the transfer", settle: behaviours{x402test.DropBefore}, calls: 2, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "facilitator is busy", settle: behaviours{x402test.TooMany}, calls: 2, steps: []step{
			pay(u, fails(fault.FacilitatorUnavailable)), again(result("")),
		}},
		{name: "facilitator wants credentials", settle: behaviours{x402test.Unauthorized}, calls: 2, steps: []step{
			pay(u, fails(fault.FacilitatorMisconfigured)), again(result("")),
		}},
		{name: "facilitator refuses the credentials", own: withToken, settle: behaviours{x402test.Unauthorized}, calls: 2, steps: []step{
			pay(u, fails(fault.FacilitatorUnauthorized)), again(result("")),
		}},
		{name: "facilitator is down", own: withoutFacilitator, steps: []step{
			pay(u, fails(fault.FacilitatorUnavailable)), again(fails(fault.FacilitatorUnavailable)),
		}},
		{name: "no facilitator is configured", harms: true, own: withoutURL, steps: []step{pay(u, fails(fault.FacilitatorMisconfigured))}},
		{name: "in progress", steps: []step{
			inBackground(u, result(""), atTheFacilitator), again(fails(fault.PaymentInProgress)),
			elsewhere(otherPath(op), refused("authorization already used for another request")), finish(), again(result("").replayed()),
		}},
		{name: "too many requests", slow: "may wait for the next minute", own: withRate, calls: 0, steps: []step{
			signed(u), earlyInTheMinute(), tooOften(op.Path), again(fails(fault.RateLimited).charge(unknown).with("RateLimit-Policy", `"default";q=10;w=60`)),
			ask(http.MethodHead, op.Path, nil, fails(fault.RateLimited).empty()), ask(http.MethodGet, catalog.PathHealth, nil, document(http.StatusOK, jsonType, "no-store")),
		}},
		{name: "one identifier for two payments", calls: 1, steps: []step{
			payWith(u, named, nil, result("")), again(result("").replayed()),
			payWith(otherPath(op), named, nil, fails(fault.IdempotencyConflict)), payWith(u, named, nil, result("").replayed()),
		}},
		{name: "ledger is down", harms: true, own: alone, steps: []step{
			signed(u), cut(), again(fails(fault.LedgerUnavailable).charge(unknown)),
			ask(http.MethodGet, u, nil, unpaid()), mend(), again(result("")),
		}},
		{name: "ledger breaks after the settlement", harms: true, own: alone, steps: []step{
			inBackground(u, result(""), atTheFacilitator), cut(), finish(),
			again(fails(fault.LedgerUnavailable).charge(unknown)), happens(func(r *run) { r.booked(op.Amount, 1, 1) }),
		}, calls: 1},
		{name: "record is corrupt", harms: true, steps: []step{signed(u), corrupt(), again(fails(fault.PaymentUnavailable).charge(unknown))}},
	}
}

func otherPath(op catalog.Operation) string {
	if op.Slug == "ping" {
		return catalog.DNS().ExampleURL("")
	}
	return op.Path + "?domain=www.example.com"
}

func preflight() want {
	return want{kind: bodiless, status: http.StatusNoContent, header: header{
		"Allow": "GET, HEAD, OPTIONS", "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
		"Access-Control-Allow-Headers": "payment-signature, idempotency-key, access-control-expose-headers, accept, content-type",
	}}
}

// alone asks for a separate deployment and changes nothing.
func alone(testing.TB, *setup) {}

func withToken(_ testing.TB, s *setup)           { s.token = "e2e-token" }
func withRate(_ testing.TB, s *setup)            { s.more["RATE_LIMIT_PER_MINUTE"] = "10" }
func withOnePlace(_ testing.TB, s *setup)        { s.more["CONCURRENCY_SINGLE"] = "1" }
func withoutURL(_ testing.TB, s *setup)          { s.facilitator = "" }
func withoutFacilitator(tb testing.TB, s *setup) { s.facilitator = "http://" + closedPort(tb) }
func withoutResolver(tb testing.TB, s *setup)    { s.resolvers = closedPort(tb) }

// earlyInTheMinute waits, when a minute is about to end, for the next one: the
// limit's windows are the minutes of the clock.
func earlyInTheMinute() step {
	return happens(func(r *run) {
		if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 30*time.Second {
			r.pause(left)
		}
	})
}

// tooOften asks until it is told that it asks too often.
func tooOften(path string) step {
	w := fails(fault.RateLimited)
	return step{path: path, want: &w, do: func(r *run, s step) {
		for range 20 {
			e := r.ask(http.MethodGet, s.path, nil)
			if e.Status == http.StatusTooManyRequests {
				r.check(e, *s.want)
				return
			}
			r.check(e, unpaid())
		}
		r.Error("asked 20 times with a limit of 10")
	}}
}

// refusalCases are payments that are not in order: each is a 402 that names the fault, and
// nothing is settled. One for each of those who can refuse: the decoder, the offer, the signature
// and the facilitator. Every reason of theirs stands in the tests of pkg/x402.
func refusalCases() []scenario {
	u := catalog.Ping().Path
	bad := func(name, reason string, edit func(*x402test.Draft), spoil func(string) string) scenario {
		return scenario{name: "refused: " + name, steps: []step{payWith(u, edit, spoil, refused(reason)), again(refused(reason))}}
	}
	return []scenario{
		bad("somebody else's", "invalid_exact_evm_signature", nil, flip),
		bad("too little", "authorization.value is 999", func(d *x402test.Draft) { d.Payload.Payload.Authorization.Value = "999" }, nil),
		bad("an altered echo", "extension_echo_mismatch", func(d *x402test.Draft) {
			d.Payload.Extensions["bazaar"] = json.RawMessage(`{"info":{}}`)
		}, nil),
		bad("base64 with stray bits", "not base64", nil, func(string) string { return "e31=" }), // e30= is {}
		bad("8 KB of nothing", "not acceptable JSON", nil, func(string) string { return strings.Repeat("A", 8<<10) }),
	}
}

// What the free paths say about themselves.
const (
	cached = "public, max-age=300"
	plain  = "text/plain; charset=utf-8"
)

func freeCases() []scenario {
	var cases []scenario
	for path, contentType := range map[string]string{
		catalog.PathCatalog: "application/json", catalog.PathOpenAPI: "application/json", catalog.PathManifest: "application/json",
		catalog.PathLLMs: plain, catalog.PathLLMsFull: plain, catalog.PathDocs: pageType,
		"/robots.txt": plain, "/favicon.svg": "image/svg+xml",
	} {
		w := document(http.StatusOK, contentType, cached)
		unchanged := want{kind: bodiless, status: http.StatusNotModified}
		cases = append(cases, scenario{name: "document " + path, steps: []step{
			ask(http.MethodGet, path, nil, w), happens(func(r *run) {
				r.step(ask(http.MethodGet, path, header{"If-None-Match": r.last.Header.Get("ETag")}, unchanged))
			}),
			ask(http.MethodHead, path, nil, w.empty()),
			ask(http.MethodGet, path, header{"If-None-Match": `"another"`}, w),
			// The last letter by its number is the same path (RFC 3986 section 6.2.2.2).
			ask(http.MethodGet, fmt.Sprintf("%s%%%02X", path[:len(path)-1], path[len(path)-1]), nil, w),
			ask(http.MethodOptions, path, nil, preflight()),
			ask(http.MethodPut, path, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS")),
		}})
	}
	for _, path := range []string{
		"/nope", "/v1/tools/dns/", "/v1/tools/DNS", "/v1/tools/dns%2f", "//v1/tools/dns", "/%00", "/%ff", "/v1/tools/..%2fping",
	} {
		cases = append(cases, scenario{name: fmt.Sprintf("unknown path %q", path), steps: []step{
			ask(http.MethodGet, path, nil, fails(catalog.UnknownPath)), ask(http.MethodHead, path, nil, fails(catalog.UnknownPath).empty()),
			ask(http.MethodPost, path, nil, fails(catalog.UnknownPath)),
			ask(http.MethodDelete, path, header{"PAYMENT-SIGNATURE": "garbage"}, fails(catalog.UnknownPath).charge(unknown)),
		}})
	}
	const health = catalog.PathHealth
	ok := document(http.StatusOK, jsonType, "no-store")
	healthy := ask(http.MethodGet, health, nil, document(http.StatusOK, jsonType, "no-store", `"status":"ok"`, catalog.Service))
	return append(cases, []scenario{
		{name: "the description is that which answers are held to", steps: []step{
			ask(http.MethodGet, catalog.PathOpenAPI, nil, document(http.StatusOK, "application/json", cached)), happens(func(r *run) {
				is(r, "the description", strings.ReplaceAll(string(r.last.Body), r.d.origin, describedOrigin), description())
			}),
		}},
		{name: "the root leads to the documentation", steps: []step{
			ask(http.MethodGet, "/", nil, document(http.StatusFound, plain, cached).with("Location", catalog.PathDocs)),
		}},
		{name: "health", steps: []step{
			healthy, ask(http.MethodHead, health, nil, ok.empty()), ask(http.MethodOptions, health, nil, preflight()),
			ask(http.MethodPost, health, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS")),
		}},
		{name: "ready", steps: []step{ready("", "")}},
		{name: "not ready: facilitator is down", own: withoutFacilitator, steps: []step{ready("facilitator", `"code":"facilitator_unavailable","message":"`), healthy}},
		{name: "not ready: ledger is down", harms: true, own: alone, steps: []step{cut(), ready("ledger", `"message":"`)}},
	}...)
}

// ready asks /ready, of which at most one check is failing, and says why.
func ready(failing, why string) step {
	status, w := "ready", document(http.StatusOK, jsonType, "no-store")
	if failing != "" {
		status, w = "not_ready", document(http.StatusServiceUnavailable, jsonType, "no-store")
	}
	w.contains = append(w.contains, `"status":"`+status+`"`)
	for _, name := range []string{"ledger", "facilitator", "resolvers"} {
		says := `"status":"ok"}`
		if name == failing {
			says = `"status":"failing",` + why
		}
		w.contains = append(w.contains, `"`+name+`":{`+says)
	}
	return ask(http.MethodGet, catalog.PathReady, nil, w)
}
