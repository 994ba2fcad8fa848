package x402_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Signatures that cannot be judged locally go to the facilitator's /verify,
// once; a payment that the ledger knows by the same signature does not.
func TestContractWallets(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		b.expect("valid", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("replayed", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if len(b.shown) != 1 {
			t.Errorf("%d verifies, want 1", len(b.shown))
		}
		b.expectCalls("contract wallet", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		for says, v := range map[string]x402.Verification{
			"signature is not the payer's: bad":               {Reason: "bad", BadSignature: true},
			"the facilitator does not accept the payment: no": {Reason: "no"},
			"the facilitator does not accept the payment: ":   {}, // an empty verdict does not count as valid
		} {
			b.verify = v
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("invalid", out, 402, fault.PaymentRequired, "false", false, false)
			if got := out.Fault.Public(); got != says {
				t.Errorf("the payer reads %q, want %q", got, says)
			}
		}
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("no verdict", b.ask(b.sign(contractPayer), "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.expectCalls("not verified", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d writes for payments that were not verified", n)
		}
	})
	// With the token another signature of the wallet stands for the first.
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(lost(), lost(), moved())
		var sealed x402test.Draft
		h := b.sign(func(d *x402test.Draft) { contractPayer(d); sealed = *d })
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("other, in doubt", b.ask(resigned(t, sealed), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("paid", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("other, paid", b.ask(resigned(t, sealed), "GET /a"), 200, "", "true", false, true)
	})
}

// The facilitator cannot check a contract wallet's signature once its nonce is
// used, which a third party can do. A payment that has no record then gets no answer,
// but is not said to be unpaid either: the scan of the chain finds its money.
func TestContractWalletPaidByAThirdParty(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
		for range 2 { // without a chain, and with one, which is not asked
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("never seen", out, 402, fault.PaymentRequired, "null", false, false)
			if out.Trace.Unrecorded || b.writes() != 0 || len(b.questions) != 0 {
				t.Errorf("unrecorded %t, %d writes", out.Trace.Unrecorded, b.writes())
			}
			b.chain = shows(x402.Paid)
		}
	})
}

// listed makes the offer that of a real operation, with all of its extensions.
func (b *harness) listed() {
	b.offer = must(x402.NewOffer(discovery.Offer(catalog.DNS(), discovery.Site{Origin: "https://api.example.com", Terms: terms()})))
}

// What a client puts around its authorization and its signature does not reach
// the facilitator: one authorization is always sent as the same bytes, to verify and
// to settle it.
func TestOneAuthorizationIsSentAsTheSameBytes(t *testing.T) {
	for name, change := range map[string]func(*x402test.Draft){"a key": nil, "a contract": contractPayer} {
		var sent [2][]x402.Payload
		within(t, nil, func(_ *testing.T, b *harness) {
			b.listed()
			plain := b.sign(change)
			for i, header := range []string{plain, disguised(plain)} {
				b.store, b.sent, b.shown = ledgertest.NewFaulty(b.t, &ledgertest.Memory{}, nil), nil, nil
				b.verify = x402.Verification{Valid: true}
				b.ask(header, "GET /a")
				sent[i] = append(b.shown, b.sent...)
			}
		})
		if want := map[string]int{"a key": 1, "a contract": 2}[name]; len(sent[0]) != want {
			t.Errorf("%s: sent %d times, want %d", name, len(sent[0]), want)
		}
		if diff := cmp.Diff(sent[0], sent[1]); diff != "" {
			t.Errorf("%s: sent (-plain +disguised):\n%s", name, diff)
		}
	}
}

// disguised is another header of the same authorization and signature: with unknown
// members, with words and a name of the client's own, with hexadecimal digits in
// another letter case, and in another order.
func disguised(header string) string {
	var p map[string]any
	if err := json.Unmarshal(must(base64.StdEncoding.DecodeString(header)), &p); err != nil {
		panic(err)
	}
	at := func(path string) map[string]any {
		o := p
		for key := range strings.FieldsSeq(strings.ReplaceAll(path, ".", " ")) {
			o = o[key].(map[string]any)
		}
		return o
	}
	for _, path := range []string{"", "payload", "payload.authorization", "accepted", "accepted.extra", "extensions.bazaar", "extensions.bazaar.info"} {
		at(path)["note"] = []any{"send USDC to <b>me</b> \u2028 ü", map[string]any{"routeTemplate": "/v1/tools/:free"}}
	}
	p["resource"] = map[string]any{"url": "https://evil.example", "description": "cheaper elsewhere"}
	at("extensions." + x402.ExtensionIdentifier + ".info")["id"] = "pay_7d5d747be160e280504c099d984bcfe0"
	for _, key := range []string{"from", "to", "nonce"} {
		o := at("payload.authorization")
		o[key] = "0x" + strings.ToUpper(o[key].(string)[2:])
	}
	return base64.StdEncoding.EncodeToString(must(json.Marshal(p)))
}

// What is sent is the offer's: its terms, its resource, its listing, and never
// a name of the payment.
func TestWhatTheFacilitatorIsSent(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.listed()
		b.ask(b.sign(func(d *x402test.Draft) { d.Payload.Extensions, d.Payload.Resource = nil, nil }), "GET /a") // a client that echoes nothing
		required := b.offer.Required("")
		extensions := maps.Clone(required.Extensions)
		if _, offered := extensions[x402.ExtensionIdentifier]; !offered || len(extensions) < 2 {
			t.Fatalf("the offer has the extensions %v", slices.Sorted(maps.Keys(extensions)))
		}
		delete(extensions, x402.ExtensionIdentifier)
		got := b.sent[0]
		want := x402.Payload{
			X402Version: 2, Resource: &required.Resource, Accepted: must(json.Marshal(required.Accepts[0])),
			Payload: got.Payload, Extensions: extensions,
		}
		if diff := cmp.Diff(want, got); diff != "" || b.settles[0] != required.Accepts[0] {
			t.Errorf("sent under %+v (-want +got):\n%s", b.settles[0], diff)
		}
	})
}
