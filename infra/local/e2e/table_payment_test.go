package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type behaviours = []x402test.Behaviour

// paymentCases are played for every priced operation, at its example URL.
func paymentCases(op catalog.Operation) []scenario {
	return slices.Concat(unpaidCases(op), paidCases(op), settlementCases(op), ledgerCases(op))
}

// unpaidCases ask without paying.
func unpaidCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "unsigned", steps: []step{ask(http.MethodGet, u, nil, unpaid())}},
		{name: "unsigned with bad parameters", steps: []step{ask(http.MethodGet, op.Path+"?domain=127.0.0.1&type=PTR", nil, unpaid())}},
		{name: "a browser", steps: []step{ask(http.MethodGet, u, header{"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}, unpaid().page())}},
		{name: "HEAD", steps: []step{ask(http.MethodHead, u, nil, unpaid().empty())}},
		{name: "HEAD with a payment settles nothing", steps: []step{signed(u), happens(func(r *run) {
			r.step(ask(http.MethodHead, u, header{"PAYMENT-SIGNATURE": r.header}, unpaid().empty()))
		})}},
		{name: "preflight", steps: []step{ask(http.MethodOptions, u, header{"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}, preflight())}},
		{name: "POST", steps: []step{ask(http.MethodPost, u, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS"))}},
	}
}

// paidCases pay, and all goes well.
func paidCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "paid and replayed", steps: []step{pay(u, result("")), again(result("").replayed())}},
		{name: "paid by a contract wallet", steps: []step{payWith(u, nil, contractWallet, result("")), again(result("").replayed())}},
		{name: "used for another URL", calls: 1, transfers: 1, steps: []step{pay(u, result("")), elsewhere(otherPath(op), spent("authorization already used for another request"))}},
	}
}

// settlementCases are the ways in which a facilitator can fail.
func settlementCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "declined, then topped up", settle: behaviours{x402test.Refuse}, calls: 2, transfers: 1, steps: []step{
			pay(u, declined("settlement refused: invalid_exact_evm_insufficient_balance")),
			// What a repeat within a second gets is TestRefusedIsSpaced in pkg/x402,
			// whose clock does not depend on how busy the machine is.
			afterSpacing(result("")),
		}},
		{name: "settlement pending, then confirmed", settle: behaviours{x402test.Pending, x402test.Pending}, calls: 2, transfers: 1, steps: []step{pay(u, result(""))}},
		{name: "facilitator fails after the transfer", settle: behaviours{x402test.FailAfter}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("").withoutHash()), again(result("").withoutHash().replayed()),
		}},
		{name: "facilitator hangs up before the transfer", settle: behaviours{x402test.DropBefore}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "facilitator is busy", settle: behaviours{x402test.TooMany}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorUnavailable)), again(result("")),
		}},
		{name: "facilitator wants credentials", settle: behaviours{x402test.Unauthorized}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorMisconfigured)), again(result("")),
		}},
		{name: "facilitator refuses the credentials", own: withToken, settle: behaviours{x402test.Unauthorized}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorUnauthorized)), again(result("")),
		}},
		{name: "facilitator is down", own: withoutFacilitator, steps: []step{
			pay(u, fails(fault.FacilitatorUnavailable)), again(fails(fault.FacilitatorUnavailable)),
		}},
		{name: "no facilitator is configured", needs: noURL, own: withoutURL, steps: []step{pay(u, fails(fault.FacilitatorMisconfigured))}},
	}
}

// ledgerCases are what the ledger and the limits decide.
func ledgerCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "in progress", steps: []step{
			inBackground(u, result(""), atTheFacilitator), again(fails(fault.PaymentInProgress)),
			elsewhere(otherPath(op), refused("authorization already used for another request")), finish(), again(result("").replayed()),
		}},
		{name: "too many requests", slow: "may wait for the next minute", own: withRate, calls: 0, steps: []step{
			signed(u), earlyInTheMinute(), tooOften(op.Path), again(fails(fault.RateLimited).charge(unknown).with("RateLimit-Policy", `"default";q=10;w=60`)),
			ask(http.MethodHead, op.Path, nil, fails(fault.RateLimited).empty()), ask(http.MethodGet, catalog.PathHealth, nil, document(http.StatusOK, jsonType, "no-store")),
		}},
		{name: "one identifier for two payments", calls: 1, transfers: 1, steps: []step{
			payWith(u, named, nil, result("")), again(result("").replayed()),
			anew(otherPath(op), named, fails(fault.IdempotencyConflict)), anew(u, named, result("").replayed()),
		}},
		{name: "ledger is down", needs: cutLedger, own: alone, steps: []step{
			signed(u), cut(), again(fails(fault.LedgerUnavailable).charge(unknown)),
			ask(http.MethodGet, u, nil, unpaid()), mend(), again(result("")),
		}},
		{name: "ledger breaks after the settlement", needs: cutLedger, own: alone, steps: []step{
			inBackground(u, result(""), atTheFacilitator), cut(), finish(),
			again(fails(fault.LedgerUnavailable).charge(unknown)), happens(func(r *run) { r.booked(op, 1, 1) }),
		}, calls: 1, transfers: 1},
		{name: "record is corrupt", needs: plantRecord, steps: []step{signed(u), corrupt(), again(fails(fault.PaymentUnavailable).charge(unknown))}},
	}
}

// otherPath is another request than the operation's example.
func otherPath(op catalog.Operation) string {
	if op.Slug == "ping" {
		return catalog.DNS().ExampleURL("")
	}
	return op.Path + "?domain=www.example.com"
}

func preflight() want {
	return want{kind: aPreflight, status: http.StatusNoContent, header: header{
		"Allow": "GET, HEAD, OPTIONS", "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
		"Access-Control-Allow-Headers": "payment-signature, idempotency-key, access-control-expose-headers, accept, content-type",
	}}
}

// alone asks for a deployment of its own and changes nothing.
func alone(testing.TB, *lab, *setup) {}

func withToken(_ testing.TB, _ *lab, s *setup)           { s.token = "e2e-token" }
func withRate(_ testing.TB, _ *lab, s *setup)            { s.rate = "10" }
func withOnePlace(_ testing.TB, _ *lab, s *setup)        { s.single = "1" }
func withoutURL(_ testing.TB, _ *lab, s *setup)          { s.facilitator = "" }
func withoutFacilitator(tb testing.TB, _ *lab, s *setup) { s.facilitator = "http://" + closedPort(tb) }
func withoutResolver(tb testing.TB, _ *lab, s *setup)    { s.resolvers = closedPort(tb) }

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
			e := r.d.get(r, r.client, s.path, "")
			if e.status == http.StatusTooManyRequests {
				r.check(e, *s.want)
				return
			}
			r.check(e, unpaid())
		}
		r.Error("asked 20 times with a limit of 10")
	}}
}

// refusalCases are payments that are not in order: each is a 402 that names
// the fault, and nothing is settled. One for each of those who can refuse: the
// decoder, the offer, the signature and the facilitator. Every reason of theirs
// stands in the tests of pkg/x402.
func refusalCases() []scenario {
	return append([]scenario{
		bad("base64 with stray bits", "not base64", strayBits),
		bad("a high s", "upper half", highS),
		bad("somebody else's", "invalid_exact_evm_signature", flipSignature),
		odd("too little", "authorization.value is 999", func(d *x402test.Draft) { d.Payload.Payload.Authorization.Value = "999" }),
		odd("an altered echo", "extension_echo_mismatch", func(d *x402test.Draft) {
			d.Payload.Extensions["bazaar"] = json.RawMessage(`{"info":{}}`)
		}),
	}, boundsCases()...)
}

// bad is a header that was spoilt after signing.
func bad(name, reason string, spoil func(string) string) scenario {
	return scenario{name: "signature: " + name, steps: []step{payWith(refusedPath, nil, spoil, refused(reason)), again(refused(reason))}}
}

// odd is a payment that was properly signed and is not what was offered.
func odd(name, reason string, edit func(*x402test.Draft)) scenario {
	return scenario{name: "payment: " + name, steps: []step{payWith(refusedPath, edit, nil, refused(reason))}}
}

// refusedPath is what is asked for with payments that are refused.
const refusedPath = "/v1/tools/ping"

// boundsCases: the gateway takes 10,240 bytes of headers in all, the code
// 16 KiB of signature, and both one signature.
func boundsCases() []scenario {
	over := func(n int) func(string) string { return constant(strings.Repeat("A", n)) }
	fits := bad("8 KB of nothing", "not acceptable JSON", over(8<<10))
	huge := bad("200 KB", "longer than 16384 bytes", over(200<<10))
	huge.needs = largeHeaders
	stopped := scenario{name: "signature: stopped by the gateway", needs: gateway, steps: []step{
		payWith(refusedPath, nil, over(16<<10), want{kind: fromGateway, status: http.StatusRequestHeaderFieldsTooLarge}),
	}}
	twice := scenario{name: "signature: twice", needs: largeHeaders, steps: []step{signed(refusedPath), sendTwice(refused("PAYMENT-SIGNATURE was sent 2 times"))}}
	joined := scenario{name: "signature: twice, joined by the gateway", needs: gateway, steps: []step{signed(refusedPath), sendTwice(refused("not base64"))}}
	return []scenario{fits, huge, stopped, twice, joined}
}

// sendTwice sends the payment in two header lines.
func sendTwice(w want) step {
	return step{want: &w, do: func(r *run, s step) {
		e, err := r.d.send(r.Context(), r.client, http.MethodGet, r.path, http.Header{"Payment-Signature": {r.header, r.header}})
		if err != nil {
			r.Fatal(err)
		}
		r.check(e, *s.want)
	}}
}

func constant(s string) func(string) string { return func(string) string { return s } }
