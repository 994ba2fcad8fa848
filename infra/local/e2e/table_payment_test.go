package e2e

import (
	"encoding/base64"
	"math/big"
	"net/http"
	"slices"
	"strconv"
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
	return slices.Concat(unpaidCases(op), paidCases(op), toldCases(op), settlementCases(op), ledgerCases(op))
}

// unpaidCases ask without paying.
func unpaidCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "unsigned", steps: []step{ask(http.MethodGet, u, nil, unpaid())}},
		{name: "unsigned and bare", steps: []step{ask(http.MethodGet, op.Path, nil, unpaid())}},
		{name: "unsigned with bad parameters", steps: []step{ask(http.MethodGet, op.Path+"?domain=127.0.0.1&type=PTR", nil, unpaid())}},
		{name: "a browser", steps: []step{ask(http.MethodGet, u, header{"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}, unpaid().page())}},
		{name: "a browser with a hostile query", steps: []step{ask(http.MethodGet, op.Path+"?domain=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", header{"Accept": "text/html"}, unpaid().page())}},
		{name: "a browser's HEAD", steps: []step{ask(http.MethodHead, u, header{"Accept": "text/html"}, unpaid().page().empty())}},
		{name: "anything goes", steps: []step{ask(http.MethodGet, u, header{"Accept": "*/*"}, unpaid())}},
		{name: "HEAD", steps: []step{ask(http.MethodHead, u, nil, unpaid().empty())}},
		{name: "HEAD with a payment settles nothing", steps: []step{signed(u), happens(func(r *run) {
			r.step(ask(http.MethodHead, u, header{"PAYMENT-SIGNATURE": r.header}, unpaid().empty()))
		})}},
		{name: "preflight", steps: []step{ask(http.MethodOptions, u, header{"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}, preflight())}},
		{name: "POST", steps: []step{ask(http.MethodPost, u, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS"))}},
		{name: "DELETE", steps: []step{ask(http.MethodDelete, u, nil, fails(fault.MethodNotAllowed).with("Allow", "GET, HEAD, OPTIONS"))}},
	}
}

// paidCases pay, and all goes well.
func paidCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	return []scenario{
		{name: "paid", steps: []step{pay(u, result(""))}},
		{name: "paid and replayed", steps: []step{pay(u, result("")), again(result("").replayed()), again(result("").replayed())}},
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
		{name: "settlement pending for long", settle: behaviours{x402test.Unconfirmed, x402test.Unconfirmed}, calls: 3, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")), again(result("").replayed()),
		}},
		{name: "facilitator fails after the transfer", settle: behaviours{x402test.FailAfter}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("").withoutHash()), again(result("").withoutHash().replayed()),
		}},
		{name: "facilitator hangs up after the transfer", settle: behaviours{x402test.DropAfter}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("").withoutHash()),
		}},
		{name: "facilitator fails before the transfer", settle: behaviours{x402test.FailBefore}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "facilitator hangs up before the transfer", settle: behaviours{x402test.DropBefore}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "facilitator is silent", slow: "waits until a settlement has taken too long", settle: behaviours{x402test.Hang}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "refused while in doubt", settle: behaviours{x402test.FailBefore, x402test.Refuse}, calls: 3, transfers: 1, steps: []step{
			pay(u, fails(fault.SettlementUncertain)), again(fails(fault.SettlementUncertain)), again(result("")),
		}},
		{name: "facilitator is busy", settle: behaviours{x402test.TooMany}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorUnavailable)), again(result("")),
		}},
		{name: "facilitator wants credentials", settle: behaviours{x402test.Unauthorized}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorMisconfigured)), again(result("")),
		}},
		{name: "facilitator refuses the credentials", own: withToken, settle: behaviours{x402test.Unauthorized}, calls: 2, transfers: 1, steps: []step{
			pay(u, fails(fault.FacilitatorUnauthorized)), happens(sentToken), again(result("")),
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
		{name: "ledger broke after the settlement", needs: cutLedger | skipTime, own: alone, steps: []step{
			inBackground(u, result(""), atTheFacilitator), cut(), finish(), mend(), again(fails(fault.PaymentInProgress)),
			later(31 * time.Second), again(result("").withoutHash()), again(result("").withoutHash().replayed()),
		}, calls: 2, transfers: 1},
		{name: "record is corrupt", needs: plantRecord, steps: []step{signed(u), corrupt(), again(fails(fault.PaymentUnavailable).charge(unknown))}},
		{name: "spent for a day", needs: skipTime, own: alone, calls: 1, transfers: 1, steps: []step{
			pay(u, result("")), later(23 * time.Hour), again(result("").replayed()), later(2 * time.Hour), again(spent("authorization already used")),
		}},
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

// sentToken: the configured token went to the facilitator.
func sentToken(r *run) {
	r.lab.mu.Lock()
	defer r.lab.mu.Unlock()
	is[string](r, "Authorization", r.lab.bearer[r.payer], "Bearer e2e-token")
}

// refusalCases are payments that are not in order: each is a 402 that names
// the fault, and nothing is settled.
func refusalCases() []scenario {
	return slices.Concat(malformedCases(), mismatchCases(), boundsCases())
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

func malformedCases() []scenario {
	return []scenario{
		bad("empty", "not acceptable JSON", constant("")),
		bad("garbage", "not base64", constant("garbage!")),
		bad("base64url", "not base64", constant("eyJ4IjoiPz8_In0")),
		bad("base64 with stray bits", "not base64", strayBits),
		bad("base64 of garbage", "not acceptable JSON", constant("Z2FyYmFnZQ==")),
		bad("base64 of an array", "not acceptable JSON", inJSON(`[]`)),
		bad("base64 of null", "not acceptable JSON", inJSON(`null`)),
		bad("an empty object", "x402Version must be a number", inJSON(`{}`)),
		bad("truncated", "PAYMENT-SIGNATURE is not", func(s string) string { return s[:len(s)/2] }),
		bad("a byte short", "PAYMENT-SIGNATURE is not", func(s string) string { return strings.TrimRight(s, "=")[:len(strings.TrimRight(s, "="))-2] }),
		bad("something follows", "not acceptable JSON", reencode(func(s string) string { return s + "{}" })),
		bad("deep", "not acceptable JSON", inJSON(strings.Repeat(`{"a":`, 200)+"1"+strings.Repeat("}", 200))),
		bad("not UTF-8", "not acceptable JSON", inJSON("{\"x402Version\":2,\"\xff\":1}")),
		bad("duplicate members", "not acceptable JSON", reencode(func(s string) string { return strings.Replace(s, `{`, `{"x402Version":1,`, 1) })),
		bad("version 1", `x402Version is "1", this server speaks 2`, replacing(`"x402Version":2`, `"x402Version":1`)),
		bad("version as text", "x402Version must be a number", replacing(`"x402Version":2`, `"x402Version":"2"`)),
		bad("version 2.0", `x402Version is "2.0"`, replacing(`"x402Version":2`, `"x402Version":2.0`)),
		bad("no accepted", "accepted", dropping("accepted")),
		bad("no payload", "payload", dropping("payload")),
		bad("Permit2", "Permit2", replacing(`"payload":{`, `"payload":{"permit2Authorization":{},`)),
		bad("a number for a string", "value", replacing(`"value":"1000"`, `"value":1000`)),
		bad("a negative value", "decimal uint256", replacing(`"value":"1000"`, `"value":"-1000"`)),
		bad("a value above 2^256", "uint256", replacing(`"value":"1000"`, `"value":"2`+strings.Repeat("0", 77)+`"`)),
		bad("a leading zero", "leading zeros", replacing(`"value":"1000"`, `"value":"01000"`)),
		bad("a short nonce", "nonce: must be 32 bytes of hex", replacing(`"nonce":"0x`, `"nonce":"0xzz`)),
		bad("a signature that is no hex", "payload.signature", replacing(`"signature":"0x`, `"signature":"0xzz`)),
		bad("v of 29", "v is 29", withV(29)),
		bad("a high s", "upper half", highS),
		bad("somebody else's", "invalid_exact_evm_signature", flipSignature),
		bad("changed after signing", "invalid_exact_evm_signature", replacing(`"validAfter":"0"`, `"validAfter":"1"`)),
	}
}

func mismatchCases() []scenario {
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	return []scenario{
		odd("another scheme", `accepted.scheme is "upto"`, accepted("scheme", "upto")),
		odd("another network", `accepted.network is "eip155:1"`, accepted("network", "eip155:1")),
		odd("another token", "accepted.asset is", accepted("asset", "0x0000000000000000000000000000000000000001")),
		odd("another letter case", "accepted.asset is", func(d *x402test.Draft) { acceptedText(d, strings.ToLower(d.Terms.Asset), d.Terms.Asset) }),
		odd("another price accepted", `accepted.amount is "1"`, accepted("amount", "1")),
		odd("another payee accepted", "accepted.payTo is", accepted("payTo", "0x0000000000000000000000000000000000000001")),
		odd("another time-out", "accepted.maxTimeoutSeconds", func(d *x402test.Draft) { acceptedText(d, `"maxTimeoutSeconds":3000`, `"maxTimeoutSeconds":300`) }),
		odd("another flow", "accepted.extra", func(d *x402test.Draft) { acceptedText(d, "after", "upfront") }),
		odd("another payee", "authorization.to is", func(d *x402test.Draft) {
			d.Payload.Payload.Authorization.To = "0x0000000000000000000000000000000000000001"
		}),
		odd("too little", "authorization.value is 999", func(d *x402test.Draft) { d.Payload.Payload.Authorization.Value = "999" }),
		odd("too much", "authorization.value is 1001", func(d *x402test.Draft) { d.Payload.Payload.Authorization.Value = "1001" }),
		odd("expired", "validBefore is past", func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = in(-time.Minute) }),
		odd("about to expire", "validBefore is past", func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = in(4 * time.Second) }),
		odd("not valid yet", "validAfter is in the future", func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidAfter = in(time.Hour) }),
		odd("valid for ever", "more than 24 hours away", func(d *x402test.Draft) {
			d.Payload.Payload.Authorization.ValidBefore = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
		}),
		odd("under another token's domain", "invalid_exact_evm_signature", func(d *x402test.Draft) { d.Terms.Name = "USDC" }),
		odd("under another chain's domain", "invalid_exact_evm_signature", func(d *x402test.Draft) { d.Terms.Network = "eip155:84532" }),
		odd("an altered echo", "extension_echo_mismatch", echoed(`{"info":{}}`)),
	}
}

// boundsCases: the gateway takes 10,240 bytes of headers in all, the code
// 16 KiB of signature, and both one signature.
func boundsCases() []scenario {
	over := func(n int) func(string) string { return constant(strings.Repeat("A", n)) }
	fits := bad("8 KB of nothing", "not acceptable JSON", over(8<<10))
	large := bad("oversized", "longer than 16384 bytes", over(16<<10+4))
	huge := bad("200 KB", "longer than 16384 bytes", over(200<<10))
	large.needs, huge.needs = largeHeaders, largeHeaders
	stopped := scenario{name: "signature: stopped by the gateway", needs: gateway, steps: []step{
		payWith(refusedPath, nil, over(16<<10), want{kind: fromGateway, status: http.StatusRequestHeaderFieldsTooLarge}),
	}}
	twice := scenario{name: "signature: twice", needs: largeHeaders, steps: []step{signed(refusedPath), sendTwice(refused("PAYMENT-SIGNATURE was sent 2 times"))}}
	joined := scenario{name: "signature: twice, joined by the gateway", needs: gateway, steps: []step{signed(refusedPath), sendTwice(refused("not base64"))}}
	return []scenario{fits, large, huge, stopped, twice, joined}
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

func inJSON(s string) func(string) string {
	return constant(base64.StdEncoding.EncodeToString([]byte(s)))
}
