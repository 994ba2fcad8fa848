package x402_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestStoreFailsBeforeTheClaim plays a store that fails before or during the claim. The
// payment must not be sent, and the answer must not say whether the payment was charged. When
// the store works again, the payment must be answered.
func TestStoreFailsBeforeTheClaim(t *testing.T) {
	for op, payer := range map[ledgertest.Op]func(*x402test.Draft){ledgertest.Fetch: contractPayer, ledgertest.Create: nil} {
		withHarness(t, ledgertest.Failing(op, ledgertest.FailBefore, 1), func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			h := b.sign(payer)
			b.expect("store down", b.ask(h, "GET /a"), expected{status: 503, code: fault.LedgerUnavailable, charged: "null", retryable: true})
			b.expectCalls("store down", 0, 0)
			b.expect("store up", b.ask(h, "GET /a"), answered())
		})
	}
}

// TestCorruptRecords plays payments whose records are corrupt. A payment that was sent before
// must not be sent again. If a payment was never sent, and only the amount on its record is
// corrupt, the payment must be sent, and the chain must not be asked about it.
func TestCorruptRecords(t *testing.T) {
	redeemed := func(r *ledger.Payment) {
		r.State, r.Receipt, r.SettledAt, r.AnsweredAt = ledger.Redeemed, &ledger.Receipt{Transaction: tx}, time.Now(), time.Now()
	}
	for name, c := range map[string]struct {
		settle  x402.Settlement
		change  func(*ledger.Payment)
		charged string
	}{
		"redeemed without an answer": {declined(), func(r *ledger.Payment) {
			redeemed(r)
			r.Answer = &ledger.Answer{Stored: true, Encoding: "gzip"}
		}, "true"},
		"redeemed without a receipt": {declined(), func(r *ledger.Payment) {
			redeemed(r)
			r.Receipt, r.Answer = nil, &ledger.Answer{Stored: true}
		}, "true"},
		"in doubt without terms": {lostReply(), func(r *ledger.Payment) { r.Terms = json.RawMessage(`[]`) }, "null"},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.verify = x402.Verification{Valid: true}
			b.settle = settleWith(c.settle)
			h := b.sign(contractPayer)
			b.ask(h, "GET /a")
			b.rewrite(h, c.change)
			b.expect(name, b.ask(h, "GET /a"), expected{status: 503, code: fault.PaymentUnavailable, charged: c.charged, retryable: true})
			b.expectCalls(name, 1, 0)
		})
	}
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.chain = chainShowing(x402.NeverPaid)
		b.settle = settleWith(x402.Settlement{Class: x402.NotSent})
		h := b.sign(nil)
		b.expect("not sent", b.ask(h, "GET /a"), expected{status: 503, code: fault.FacilitatorUnavailable, charged: "false", retryable: true})
		b.rewrite(h, func(r *ledger.Payment) { r.Terms = json.RawMessage(`{"amount":"-5"}`) })
		b.settle = settleWith(x402.Settlement{Class: x402.Unknown})
		b.expect("doubt", b.ask(h, "GET /a"), uncertain())
		if len(b.questions) != 0 {
			t.Error("the chain was asked")
		}
	})
}

// TestNoTime plays requests with little time. If too little time is left to settle, the
// payment must not be claimed. If less than two seconds are left after the claim, the payment
// must not be sent.
func TestNoTime(t *testing.T) {
	for _, c := range []struct {
		requestTime, slotDelay time.Duration // the time of the request; how long it takes to get a slot
		claimed, sent          bool
	}{
		{12 * time.Second, 0, true, true},
		{12*time.Second - time.Millisecond, 0, false, false},
		{27 * time.Second, 15 * time.Second, true, true},
		{27 * time.Second, 15*time.Second + time.Millisecond, true, false},
		{27 * time.Second, time.Minute, true, false},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.slots = &countedSlots{delay: c.slotDelay}
			b.requestTime = c.requestTime
			out := b.ask(b.sign(nil), "GET /a")
			if !c.sent {
				charged := map[bool]string{true: "false", false: "null"}[c.claimed]
				b.expect(fmt.Sprint(c), out, expected{status: 503, code: fault.PaymentUnavailable, charged: charged, retryable: true})
			}
			if claimed := b.store.Calls(ledgertest.Create) == 2; claimed != c.claimed || (len(b.settleTerms) == 1) != c.sent {
				t.Errorf("%+v: %d %v, claimed %t, %d sent", c, out.Status, out.Fault, claimed, len(b.settleTerms))
			}
		})
	}
}

// TestBudgetOfEachCall checks how long each call may take. A call of /verify has 3 s. A
// settlement has 15 s. The settlement of a payment in doubt has 13 s, because the request also
// needs 4 s for the chain, 8 s for the lookup and 2 s for the writes.
func TestBudgetOfEachCall(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.chain = chainShowing(x402.CannotTell)
		b.verify = x402.Verification{Valid: true}
		b.work = func(ctx context.Context, _ int) ([]byte, error) {
			if until, _ := ctx.Deadline(); time.Until(until) != 8*time.Second {
				t.Errorf("the lookup has %s, want 8 s", time.Until(until))
			}
			return []byte("{}"), nil
		}
		h := b.sign(contractPayer)
		until := time.Now().Add(27*time.Second + 3*time.Second) // the request's deadline, plus leaseMargin
		b.settle = func(context.Context, int) x402.Settlement {
			if r := b.storedPayment(h); !r.LeaseUntil.Equal(until) {
				t.Errorf("the lease ends at %s, want %s", r.LeaseUntil, until)
			}
			return lostReply()
		}
		b.expect("unknown", b.ask(h, "GET /a"), uncertain())
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			<-ctx.Done()
			return x402.Settlement{Class: x402.Unknown}
		}
		b.chain = chainShowing(x402.Paid)
		b.expect("in doubt, at the last moment", b.ask(h, "GET /a"), answered())
		if got := fmt.Sprint(b.timeLeft); got != "[3s 15s 4s 13s 4s]" {
			t.Errorf("verify, and settle and chain twice: %s", got)
		}
	})
}

// TestChainWithLittleTime checks that the chain is asked within the time that is left, if at
// least half a second is left.
func TestChainWithLittleTime(t *testing.T) {
	for settleDelay, want := range map[time.Duration]string{
		15 * time.Second:                          "[2s]",
		16500 * time.Millisecond:                  "[500ms]",
		16500*time.Millisecond + time.Microsecond: "[]",
		time.Minute:                               "[]",
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.chain = chainShowing(x402.StillOpen)
			b.settle = func(context.Context, int) x402.Settlement {
				time.Sleep(settleDelay)
				return x402.Settlement{Class: x402.Unknown}
			}
			b.expect("unknown", b.ask(b.sign(nil), "GET /a"), uncertain())
			if got := fmt.Sprint(b.timeLeft[1:]); got != want {
				t.Errorf("settled after %s: the chain had %s, want %s", settleDelay, got, want)
			}
		})
	}
}

// TestSlots checks that nothing is settled and nothing is looked up without a free slot. If no
// slot is free, the claim is given back, and no lookup is counted. A replay needs no slot. A
// slot that cannot be released does not change the answer.
func TestSlots(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		r := &countedSlots{acquireErr: fault.New(fault.Overloaded, nil)}
		b.slots = r
		h := b.sign(nil)
		b.expect("full", b.ask(h, "GET /a"), expected{status: 503, code: fault.Overloaded, charged: "false", retryable: true})
		b.expectCalls("full", 0, 0)
		r.acquireErr = nil
		b.work = lookUpWith(lookup.DNSTimeout)
		b.expect("room, owed", b.ask(h, "GET /a"), expected{status: 504, code: lookup.DNSTimeout, charged: "true", retryable: true, receipt: true})
		time.Sleep(time.Second)
		r.acquireErr = fault.New(fault.Overloaded, nil)
		for _, r.delay = range []time.Duration{0, 28 * time.Second} { // the second delay ends after the deadline
			b.expect("full again, owed", b.ask(h, "GET /a"), expected{status: 503, code: fault.Overloaded, charged: "true", retryable: true, receipt: true})
			if kept := b.storedPayment(h); kept.Lookups != 1 || !kept.LeaseUntil.IsZero() {
				t.Errorf("no slot after %s: %d lookups, lease until %s", r.delay, kept.Lookups, kept.LeaseUntil)
			}
		}
		r.delay = 0
		r.acquireErr, r.releaseErr = nil, errors.New("store down")
		b.work = lookUpWith("")
		b.expect("room again", b.ask(h, "GET /a"), answered())
		b.expect("a replay takes no slot", b.ask(h, "GET /a"), answered())
		b.expectCalls("in all", 1, 2)
		if r.taken != 2 || r.released != 2 {
			t.Errorf("%d slots taken, %d released", r.taken, r.released)
		}
	})
}

// TestContractWallets plays payments whose signatures the Gate cannot check locally. The Gate
// must send each signature to the facilitator's /verify, and must claim the payment only if
// the facilitator says that the signature is valid. A payment on record must not be verified
// again.
func TestContractWallets(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		for says, v := range map[string]x402.Verification{
			"signature is not the payer's: bad":               {Reason: "bad", BadSignature: true},
			"the facilitator does not accept the payment: no": {Reason: "no"},
			"the facilitator does not accept the payment: ":   {}, // an empty reply does not count as valid
		} {
			b.verify = v
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("invalid", out, expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			if got := out.Fault.Public(); got != says {
				t.Errorf("the payer reads %q, want %q", got, says)
			}
		}
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("no verdict", b.ask(b.sign(contractPayer), "GET /a"), expected{status: 503, code: fault.FacilitatorUnavailable, charged: "false", retryable: true})
		b.expectCalls("not verified", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d writes for payments that were not verified", n)
		}
	})
	// A request with the retry token of the first claim may have another signature by the same
	// wallet. The other signature is accepted without another call of /verify.
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Valid: true}
		b.settle = settleWith(lostReply(), lostReply(), moved())
		var sealed x402test.Draft
		h := b.sign(func(d *x402test.Draft) { contractPayer(d); sealed = *d })
		b.expect("in doubt", b.ask(h, "GET /a"), uncertain())
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("other, in doubt", b.ask(copyResigned(t, sealed), "GET /a"), uncertain())
		b.expect("paid", b.ask(h, "GET /a"), answered())
		b.expect("other, paid", b.ask(copyResigned(t, sealed), "GET /a"), answered())
		if len(b.verifyPayloads) != 1 {
			t.Errorf("%d verifies, want 1", len(b.verifyPayloads))
		}
	})
}

// TestContractWalletPaidByAThirdParty checks a contract wallet's payment whose nonce a third
// party has used. A facilitator can then no longer check the signature. If there is no record,
// the payment gets no answer. But the reply does not say that nothing was charged, because the
// Reconciler will find the transfer on the chain.
func TestContractWalletPaidByAThirdParty(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.verify = x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
		for range 2 { // the second time there is a node, which must not be asked
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect("never seen", out, expected{status: 402, code: fault.PaymentRequired, charged: "null"})
			if out.Trace.Unrecorded || b.writes() != 0 || len(b.questions) != 0 {
				t.Errorf("unrecorded %t, %d writes", out.Trace.Unrecorded, b.writes())
			}
			b.chain = chainShowing(x402.Paid)
		}
	})
}

// useListedOffer gives the harness the offer of a real operation, with all its extensions. It
// reads the offer from a golden file of package discovery: an import of that package would
// bring the dependencies of the web pages into the go.sum of every seller.
func (b *harness) useListedOffer() {
	var offers map[string]x402.PaymentRequired
	if err := json.Unmarshal(must(os.ReadFile("../discovery/testdata/golden/offers.json")), &offers); err != nil {
		panic(err)
	}
	dns := offers["dns"]
	dns.Accepts = []x402.Requirements{terms().Requirements(dns.Accepts[0].Amount)}
	b.offer = must(x402.NewOffer(dns))
}

// TestOneAuthorizationIsSentAsTheSameBytes checks that one authorization is always sent as the
// same bytes, both for verifying and for settling. The facilitator sees nothing that a client
// adds to its authorization and signature.
func TestOneAuthorizationIsSentAsTheSameBytes(t *testing.T) {
	for name, change := range map[string]func(*x402test.Draft){"a key": nil, "a contract": contractPayer} {
		var sent [2][]x402.Payload
		withHarness(t, nil, func(_ *testing.T, b *harness) {
			b.useListedOffer()
			plain := b.sign(change)
			for i, header := range []string{plain, disguised(plain)} {
				b.store, b.settlePayloads, b.verifyPayloads = ledgertest.NewFaulty(b.t, &ledgertest.Memory{}, nil), nil, nil
				b.verify = x402.Verification{Valid: true}
				b.ask(header, "GET /a")
				sent[i] = append(b.verifyPayloads, b.settlePayloads...)
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

// disguised returns another header for the same authorization and signature. The header has
// unknown members, another resource, a payment-identifier, hexadecimal digits in the other
// letter case, and another order of members.
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

// TestWhatTheFacilitatorIsSent checks that the facilitator gets the terms, the resource and
// the extensions of the offer, except the payment-identifier extension.
func TestWhatTheFacilitatorIsSent(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.useListedOffer()
		b.ask(b.sign(func(d *x402test.Draft) { d.Payload.Extensions, d.Payload.Resource = nil, nil }), "GET /a") // this client echoes nothing
		required := b.offer.Required("")
		extensions := maps.Clone(required.Extensions)
		if _, offered := extensions[x402.ExtensionIdentifier]; !offered || len(extensions) < 2 {
			t.Fatalf("the offer has the extensions %v", slices.Sorted(maps.Keys(extensions)))
		}
		delete(extensions, x402.ExtensionIdentifier)
		got := b.settlePayloads[0]
		want := x402.Payload{
			X402Version: 2, Resource: &required.Resource, Accepted: must(json.Marshal(required.Accepts[0])),
			Payload: got.Payload, Extensions: extensions,
		}
		if diff := cmp.Diff(want, got); diff != "" || b.settleTerms[0] != required.Accepts[0] {
			t.Errorf("sent under %+v (-want +got):\n%s", b.settleTerms[0], diff)
		}
	})
}
