package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const duplicateWindow = 45 * time.Second

// expectReplay checks that an outcome replays the answer that an earlier payment bought.
func (b *harness) expectReplay(what string, first, again x402.Outcome) {
	b.t.Helper()
	b.expect(what, again, expected{status: first.Status, charged: "true", receipt: true})
	if !again.Replayed || string(again.Body) != string(first.Body) || !reflect.DeepEqual(again.Receipt, first.Receipt) {
		b.t.Errorf("%s: %+v is not a replay of %+v", what, again, first)
	}
}

// markInDoubt changes a record as if the payment was sent and the facilitator gave no reply.
func markInDoubt(r *ledger.Payment) { r.Doubt, r.Sent = true, true }

// TestOnePurchaseOneCharge plays a payer who signs again for the same request. Without a key,
// the payer must not be charged again before the duplicate window ends. With the same key, the
// payer must not be charged again for a day. Another payer, another key, or another request
// without a key makes a separate purchase. Another request with the same key is a conflict.
func TestOnePurchaseOneCharge(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.window = duplicateWindow
		var n atomic.Int32
		b.work = func(context.Context, int) ([]byte, error) { return fmt.Appendf(nil, `{"n":%d}`, n.Add(1)), nil }
		first := b.ask(b.sign(nil), "GET /a")
		b.expect("first", first, answered())
		time.Sleep(duplicateWindow - time.Nanosecond)
		second := b.sign(nil)
		b.expectReplay("second signature", first, b.ask(second, "GET /a"))
		if r := b.storedPayment(second); r.State != ledger.Superseded || r.Sent || r.Payload != nil {
			t.Errorf("second signature: %+v", r)
		}
		b.expectCalls("two signatures", 1, 1)
		time.Sleep(time.Nanosecond)
		b.window = 2 * duplicateWindow // later answers have a longer window
		b.expect("after the window", b.ask(b.sign(nil), "GET /a"), answered())
		b.expectCalls("after the window", 2, 2)
		b.expectReplay("the superseded one, after the window", x402.Outcome{Status: 200, Body: []byte(`{"n":2}`), Receipt: first.Receipt}, b.ask(second, "GET /a"))
		b.expect("another question", b.ask(b.sign(nil), "GET /b"), answered())
		b.expectCalls("another question", 3, 3)

		b.keys = []string{"order-7"}
		keyed := b.ask(b.sign(nil), "GET /a")
		b.expect("a key", keyed, answered())
		b.expectCalls("a key", 4, 4)
		time.Sleep(ledger.KeptFor - time.Nanosecond)
		b.expectReplay("the same key", keyed, b.ask(b.sign(nil), "GET /a"))
		elsewhere := b.sign(nil)
		b.expect("the same key, elsewhere", b.ask(elsewhere, "GET /b"), expected{status: 409, code: fault.IdempotencyConflict, charged: "false"})
		b.rewrite(elsewhere, markInDoubt)
		b.expect("that, in doubt", b.ask(elsewhere, "GET /b"), expected{status: 409, code: fault.IdempotencyConflict, charged: "null"})
		b.keys = []string{`"order-7"`}
		b.expectReplay("the same key in quotes", keyed, b.ask(b.sign(nil), "GET /a"))
		time.Sleep(time.Nanosecond)
		b.expect("the same key, a day later", b.ask(b.sign(nil), "GET /a"), answered())
		b.keys = []string{"order-8"}
		b.expect("another key", b.ask(b.sign(nil), "GET /a"), answered())
		b.expectCalls("in all", 6, 6)

		wallet := must(x402test.NewWallet(strings.NewReader(strings.Repeat("another payer has another key...", 9))))
		b.wallet = wallet
		b.expect("another payer, the same key", b.ask(b.sign(nil), "GET /a"), answered())
		b.expectCalls("another payer", 7, 7)
	})
}

// TestOwnerOfAPurchase checks the answer to a second payment for a purchase that a first
// payment owns. Each row has a different state of the first payment.
func TestOwnerOfAPurchase(t *testing.T) {
	never, open, unseen := chainShowing(x402.NeverPaid), chainShowing(x402.StillOpen), chainShowing(x402.CannotTell)
	failing := func(b *harness) { b.work = lookUpWith(lookup.DNSTimeout) }
	working := func(b *harness) { b.work = lookUpWith("") }
	exhausting := func(b *harness) { failing(b); b.maxRuns = 5 }
	refunds := func(b *harness, h string) {
		working(b)
		b.rewrite(h, func(r *ledger.Payment) { r.SendingBack = &ledger.SendingBack{At: time.Now(), By: "an operator"} })
	}
	spend := func(b *harness, h string) {
		for _, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
			time.Sleep(wait)
			b.ask(h, "GET /a")
		}
		working(b)
	}
	for _, c := range []ownerRow{
		{name: "in doubt, and it moves", first: lostReply(), second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "in doubt, and still in doubt", first: lostReply(), second: lostReply(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 2, secondState: ledger.Refused, firstState: ledger.Uncertain},
		{name: "in doubt, the chain saw it move", chain: unseen, laterChain: chainShowing(x402.Paid), first: lostReply(), second: lostReply(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "in doubt, proven dead", chain: unseen, laterChain: never, first: lostReply(), second: lostReply(), status: 402, code: fault.PaymentRequired, charge: "false", sent: 3, secondState: ledger.Refused, firstState: ledger.Superseded},
		{name: "in doubt past its window, open", chain: unseen, laterChain: open, first: lostReply(), wait: 5 * time.Minute, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, secondState: ledger.Refused, firstState: ledger.Uncertain},
		{name: "in doubt past its window, dead", chain: unseen, laterChain: never, first: lostReply(), wait: 5 * time.Minute, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Redeemed, firstState: ledger.Superseded},
		{name: "in doubt past its window, nobody sees it", first: lostReply(), wait: time.Hour, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, secondState: ledger.Refused, firstState: ledger.Uncertain},

		{name: "refused, and refused again", first: declined(), wait: time.Second, second: declined(), status: 402, code: fault.PaymentRequired, charge: "false", sent: 2, secondState: ledger.Refused, firstState: ledger.Refused},
		{name: "refused a moment ago", first: declined(), second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "refused twice, the last time a moment ago", first: declined(), after: func(b *harness, h string) { time.Sleep(time.Second); b.ask(h, "GET /a") }, second: moved(), status: 402, code: fault.PaymentRequired, charge: "false", sent: 2, secondState: ledger.Refused, firstState: ledger.Refused},
		{name: "refused, and it moves now", first: declined(), wait: time.Second, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "refused, and in doubt now", first: declined(), wait: time.Second, second: lostReply(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 2, secondState: ledger.Refused, firstState: ledger.Uncertain},
		{name: "refused past its window, blind, early", first: declined(), wait: 15 * time.Minute, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, secondState: ledger.Refused, firstState: ledger.Refused},
		{name: "refused past its window, blind", first: declined(), wait: 15*time.Minute + time.Second, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Redeemed, firstState: ledger.Superseded},
		{name: "refused past its window, the chain says open", chain: unseen, laterChain: open, first: declined(), wait: time.Hour, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, secondState: ledger.Refused, firstState: ledger.Refused},
		{name: "turned away, and turned away again", first: turnedAway(), second: turnedAway(), status: 503, code: fault.FacilitatorUnauthorized, charge: "false", retry: true, sent: 2, secondState: ledger.Refused, firstState: ledger.Refused},
		{name: "turned away, and it moves now", first: turnedAway(), second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "never sent", first: unreached(), second: moved(), status: 200, charge: "true", sent: 2, runs: 1, secondState: ledger.Redeemed, firstState: ledger.Superseded},

		{name: "owed", before: failing, after: func(b *harness, _ string) { working(b); time.Sleep(time.Second) }, first: moved(), second: moved(), status: 200, charge: "true", sent: 1, runs: 2, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "owed, too early", before: failing, after: func(b *harness, _ string) { working(b) }, first: moved(), second: moved(), status: 504, code: lookup.DNSTimeout, charge: "true", retry: true, sent: 1, runs: 1, secondState: ledger.Superseded, firstState: ledger.Settled},
		{name: "owed after five lookups, too early", before: failing, after: spend, first: moved(), second: moved(), status: 504, code: lookup.DNSTimeout, charge: "true", retry: true, sent: 1, runs: 5, secondState: ledger.Superseded, firstState: ledger.Settled},
		{name: "owed after five lookups", before: failing, after: spend, wait: 20 * time.Minute, first: moved(), second: moved(), status: 200, charge: "true", sent: 1, runs: 6, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "owed for a week", before: failing, after: spend, wait: 7 * 24 * time.Hour, first: moved(), second: moved(), status: 200, charge: "true", sent: 1, runs: 6, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "owed for a week, with a key", keyed: true, before: failing, after: spend, wait: 7 * 24 * time.Hour, first: moved(), second: moved(), status: 200, charge: "true", sent: 1, runs: 6, secondState: ledger.Superseded, firstState: ledger.Redeemed},
		{name: "no lookup left", before: exhausting, after: spend, first: moved(), second: moved(), status: 504, code: lookup.DNSTimeout, charge: "true", sent: 1, runs: 5, secondState: ledger.Superseded, firstState: ledger.Settled},
		{name: "no lookup left, a week later", before: exhausting, after: spend, wait: 7 * 24 * time.Hour, first: moved(), second: moved(), status: 504, code: lookup.DNSTimeout, charge: "true", sent: 1, runs: 5, secondState: ledger.Superseded, firstState: ledger.Settled},
		{name: "a refund is begun", before: failing, after: refunds, first: moved(), second: moved(), status: 200, charge: "true", sent: 2, runs: 2, secondState: ledger.Redeemed, firstState: ledger.Settled},

		{name: "its record is gone", first: moved(), wait: 36 * 24 * time.Hour, keyed: true, second: moved(), status: 200, charge: "true", sent: 2, runs: 2, secondState: ledger.Redeemed},
	} {
		t.Run(c.name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				first := b.buyFirst(c)
				b.buySecond(c, first)
			})
		})
	}
}

// ownerRow is a payment that opens a purchase, and a second payment for the same purchase.
type ownerRow struct {
	name       string
	chain      func() x402.Finding // what the chain shows when the first payment is sent; nil means that there is no node
	laterChain func() x402.Finding // what the chain shows when the second payment is sent
	first      x402.Settlement
	before     func(b *harness)           // called before the first payment
	after      func(b *harness, h string) // called after the first payment
	wait       time.Duration
	keyed      bool
	second     x402.Settlement
	status     int
	code       fault.Code
	charge     string
	retry      bool
	// These are the total numbers of settlements sent and of lookups run.
	sent, runs  int
	secondState ledger.State // state of the second payment at the end
	firstState  ledger.State // state of the first payment at the end
}

// buyFirst sends the first payment.
func (b *harness) buyFirst(c ownerRow) (signature string) {
	b.window, b.chain = duplicateWindow, c.chain
	if c.keyed {
		b.keys = []string{"key"}
	}
	if c.before != nil {
		c.before(b)
	}
	b.settle = settleWith(c.first)
	signature = b.sign(nil)
	b.ask(signature, "GET /a")
	if c.after != nil {
		c.after(b, signature)
	}
	time.Sleep(c.wait)
	return signature
}

// buySecond sends the second payment, and checks the final state of both payments.
func (b *harness) buySecond(c ownerRow, first string) {
	b.t.Helper()
	b.chain = c.laterChain
	b.settle = settleWith(c.second)
	second := b.sign(nil)
	out := b.ask(second, "GET /a")
	b.expect("second", out, expected{status: c.status, code: c.code, charged: c.charge, retryable: c.retry, receipt: c.charge == "true"})
	b.expectCalls("second", c.sent, c.runs)
	if r := b.storedPayment(second); r.State != c.secondState {
		b.t.Errorf("the second is %s, want %s (%s)", r.State, c.secondState, r.Reason)
	}
	if c.firstState != "" && b.storedPayment(first).State != c.firstState {
		b.t.Errorf("the first is %s, want %s", b.storedPayment(first).State, c.firstState)
	}
	// Each time the first payment is sent, it must have the same bytes.
	for _, p := range b.settlePayloads {
		if p.Payload.Authorization.Nonce == b.settlePayloads[0].Payload.Authorization.Nonce && !reflect.DeepEqual(p, b.settlePayloads[0]) {
			b.t.Errorf("sent %+v, then %+v", b.settlePayloads[0], p)
		}
	}
	if out.Fault == nil || out.Fault.Code != fault.SettlementUncertain {
		return
	}
	advice := out.Fault.Public()
	if !strings.Contains(advice, "Idempotency-Key") || strings.Contains(advice, "after 20") != (c.chain != nil) {
		b.t.Errorf("the advice is %q", advice)
	}
}

// TestPaymentIdentifier checks that a payer's payment-identifier is a purchase key. Another
// payment with the same identifier joins the purchase. The same identifier with another
// request is a conflict. An invalid identifier is refused.
func TestPaymentIdentifier(t *testing.T) {
	const id = `"pay_7d5d747be160e280504c099d984bcfe0"`
	withHarness(t, nil, func(t *testing.T, b *harness) {
		named := func(id string) string {
			return b.sign(func(d *x402test.Draft) {
				d.Payload.Extensions[x402.ExtensionIdentifier] = json.RawMessage(`{"info":{"required":false,"id":` + id + `}}`)
			})
		}
		first := b.ask(named(id), "GET /a")
		b.expect("first", first, answered())
		b.expectReplay("same id, other payment", first, b.ask(named(id), "GET /a"))
		b.expect("same id, other request", b.ask(named(id), "GET /b"), expected{status: 409, code: fault.IdempotencyConflict, charged: "false"})
		b.expectCalls("conflict", 1, 1)
		for _, bad := range []string{`"short"`, `5`, `"pay_7d5d747be160e280504c099d984bcfe|"`, `"` + strings.Repeat("a", 129) + `"`} {
			b.expect("id "+bad, b.ask(named(bad), "GET /a"), expected{status: 400, code: fault.InvalidIdempotencyKey, charged: "false"})
		}
	})
}

// TestEachPingIsAPurchase checks that, without a key, each payment for a ping is settled and
// gets a new answer. Pings with the same key are one purchase.
func TestEachPingIsAPurchase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.window = duplicateWindow
		b.noImplicitRetry = true
		h := b.sign(nil)
		b.expect("ping", b.ask(h, "GET /ping"), answered())
		if n := b.writes(); n != 3 {
			t.Errorf("%d writes, want 3", n)
		}
		b.expect("again", b.ask(h, "GET /ping"), answered())
		b.expect("another", b.ask(b.sign(nil), "GET /ping"), answered())
		b.expectCalls("two pings", 2, 2)
		b.keys = []string{"k"}
		b.expect("with a key", b.ask(b.sign(nil), "GET /ping"), answered())
		b.expect("with the same key", b.ask(b.sign(nil), "GET /ping"), answered())
		b.expectCalls("with a key", 3, 3)
	})
}

// TestInvalidKeys checks that an invalid key is refused before anything is written, that
// nothing is charged, and that unusual but valid keys are accepted.
func TestInvalidKeys(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		for _, keys := range [][]string{{""}, {`""`}, {"a b"}, {"\x7f"}, {"é"}, {strings.Repeat("k", 256)}, {"a", "a"}, {"a\tb"}} {
			b.keys = keys
			b.expect(fmt.Sprintf("%q", keys), b.ask(h, "GET /a"), expected{status: 400, code: fault.InvalidIdempotencyKey, charged: "false"})
		}
		if b.writes() != 0 {
			t.Errorf("%d writes", b.writes())
		}
		for _, key := range []string{"k", `"`, `"a`, "a,b", "~!", strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`} {
			b.keys = []string{key}
			b.expect(key, b.ask(b.sign(nil), "GET /a"), answered())
		}
		b.keys = []string{"a b"}
		b.expect("charged before", b.ask(h, "GET /a"), expected{status: 400, code: fault.InvalidIdempotencyKey, charged: "false"})
	})
}

// TestRefusedSignatureHoldsThePurchase plays a payment that was refused for its signature. The
// purchase stays blocked while the authorization of this payment can still be executed. The
// answer to a second payment must advise a new Idempotency-Key. A payment with a new key must
// be answered.
func TestRefusedSignatureHoldsThePurchase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.window, b.chain = duplicateWindow, chainShowing(x402.StillOpen)
		bad := x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_signature", BadSignature: true}
		b.settle = settleWith(bad, bad, moved())
		b.ask(b.sign(nil), "GET /a")
		for _, when := range []string{"asked again", "from the record"} {
			time.Sleep(2 * time.Second)
			h := b.sign(nil)
			out := b.ask(h, "GET /a")
			b.expect(when, out, expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			if says := out.Fault.Public(); !strings.Contains(says, "To buy at once, send a new Idempotency-Key") {
				t.Errorf("%s: %q", when, says)
			}
			b.rewrite(h, markInDoubt)
			b.expect(when+", in doubt itself", b.ask(h, "GET /a"), uncertain())
		}
		b.keys = []string{"order-2"}
		b.expect("a new key", b.ask(b.sign(nil), "GET /a"), answered())
	})
}

// TestWithoutExtensions plays a payment that came without its offer's extensions. If other
// payments can join the purchase, the answer must tell the payer to sign a new payment, which
// is not charged. Otherwise it must say that this payment cannot be repeated once it is paid.
// A payment with the retry token gets neither advice.
func TestWithoutExtensions(t *testing.T) {
	for name, c := range map[string]bareRow{
		"with":               {token: true},
		"without":            {wantAdvice: signAgain},
		"without a purchase": {noImplicitRetry: true, wantAdvice: noRepeat},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				b.window = duplicateWindow
				b.noImplicitRetry = c.noImplicitRetry
				h := b.sign(func(d *x402test.Draft) {
					if !c.token {
						delete(d.Payload.Extensions, "retry-token")
					}
				})
				b.work = lookUpWith(lookup.DNSTimeout, "")
				inFlight := make(chan x402.Outcome, 1)
				b.settle = func(context.Context, int) x402.Settlement {
					time.Sleep(2 * time.Second)
					return moved()
				}
				go func() { time.Sleep(time.Second); inFlight <- b.ask(h, "GET /a") }()
				owed := b.ask(h, "GET /a")
				b.expect("owed", owed, expected{status: 504, code: lookup.DNSTimeout, charged: "true", retryable: true, receipt: true})
				c.check(t, "owed", owed)
				c.check(t, "in flight", <-inFlight)
				if !c.token {
					used := b.ask(h, "GET /a")
					b.expect("used", used, expected{status: 402, code: fault.PaymentRequired, charged: "true"})
					if !strings.Contains(used.Fault.Public(), "sign a new one") {
						t.Errorf("%q", used.Fault.Public())
					}
				}
				time.Sleep(time.Second)
				if !c.noImplicitRetry {
					b.expect("signed again", b.ask(b.sign(nil), "GET /a"), answered())
					b.expectCalls("in all", 1, 2)
				}
			})
		})
	}
}

// bareRow is a payment that may come without its offer's extensions, and the expected advice.
type bareRow struct {
	noImplicitRetry bool // x402.Job.NoImplicitRetry: each request is a separate purchase
	token           bool
	wantAdvice      string // what the answer must advise: signAgain, noRepeat or neither
}

const (
	signAgain = "sign a new one, which is not charged again"
	noRepeat  = "cannot be repeated once it is paid"
)

// check checks what the answer advises the payer to do.
func (c bareRow) check(t *testing.T, what string, out x402.Outcome) {
	t.Helper()
	told := out.Fault.Public()
	if strings.Contains(told, "same PAYMENT-SIGNATURE") && !c.token {
		t.Errorf("%s: %q", what, told)
	}
	for _, text := range []string{signAgain, noRepeat} {
		if strings.Contains(told, text) != (text == c.wantAdvice) {
			t.Errorf("%s: %q", what, told)
		}
	}
}
