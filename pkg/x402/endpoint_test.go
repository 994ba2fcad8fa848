package x402_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// These are two endpoints that sell the same thing. In these tests, the first payment of a
// purchase is always made at firstEndpoint.
const firstEndpoint, otherEndpoint = "GET https://a.example/a", "GET https://b.example/a"

// bringTo makes a first payment at the first endpoint, and returns its header. After that, the
// payment is answered, owed, in doubt or refused, as the parameter state says.
func bringTo(b *harness, state string) (header string) {
	b.t.Helper()
	b.endpoint, b.window = firstEndpoint, duplicateWindow
	header = b.sign(nil)
	switch state {
	case "owed":
		b.work = lookUpWith(lookup.DNSTimeout, "")
	case "in doubt":
		b.settle = settleWith(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, moved())
	case "refused":
		b.settle = settleWith(x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"}, moved())
	}
	b.ask(header, "GET /a")
	time.Sleep(2 * time.Second)
	return header
}

// TestOtherEndpoint plays a payment that was claimed at one endpoint and is then sent to
// another. The other endpoint must refuse the payment in any state. It must not run the job,
// replay an answer or send the payment, and must tell the payer whether the payment is
// charged. The first endpoint must then answer the payment.
func TestOtherEndpoint(t *testing.T) {
	for state, charged := range map[string]string{"answered": "true", "owed": "true", "in doubt": "null", "refused": "false"} {
		t.Run(state, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				header := bringTo(b, state)
				settles, runs := len(b.settleTerms), int(b.runs.Load())
				b.endpoint = otherEndpoint
				out := b.ask(header, "GET /a")
				b.expect("there", out, expected{status: 402, code: fault.PaymentRequired, charged: charged, receipt: charged == "true"})
				if out.Body != nil || out.Replayed {
					t.Errorf("there: %s", out.Body)
				}
				b.expectCalls("there", settles, runs)
				b.endpoint = firstEndpoint
				b.expect("here", b.ask(header, "GET /a"), answered())
			})
		})
	}
}

// TestNoEndpointOnRecord plays a payment whose record comes from a release that did not record
// endpoints. An endpoint other than the first must answer this payment.
func TestNoEndpointOnRecord(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, b *harness) {
		header := bringTo(b, "owed")
		b.rewrite(header, func(r *ledger.Payment) { r.Endpoint = "" })
		b.endpoint = otherEndpoint
		b.expect("owed", b.ask(header, "GET /a"), answered())
		b.expectCalls("in all", 1, 2)
	})
}

// TestBoughtElsewhere plays a first payment at one endpoint, and then a new signature at
// another. If the first payment was answered or its answer is owed, the new signature must buy
// at the other endpoint. If the first payment is in doubt or was refused, the chain decides.
// Once the chain shows that the first payment was paid or never will be, the new signature
// must buy. Before that, or without a node, the outcome must be uncertain. The first payment
// must not be sent again.
func TestBoughtElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		state   string
		chain   func() x402.Finding
		buys    bool
		settles int
		runs    int
	}{
		"answered":                {state: "answered", buys: true, settles: 2, runs: 2},
		"owed":                    {state: "owed", buys: true, settles: 2, runs: 2},
		"in doubt, paid":          {state: "in doubt", chain: chainShowing(x402.Paid), buys: true, settles: 2, runs: 1},
		"in doubt, never paid":    {state: "in doubt", chain: chainShowing(x402.NeverPaid), buys: true, settles: 2, runs: 1},
		"in doubt, open":          {state: "in doubt", chain: chainShowing(x402.StillOpen), settles: 1},
		"in doubt, cannot tell":   {state: "in doubt", chain: chainShowing(x402.CannotTell), settles: 1},
		"in doubt, no node":       {state: "in doubt", settles: 1},
		"refused, but paid":       {state: "refused", chain: chainShowing(x402.Paid), buys: true, settles: 2, runs: 1},
		"refused, never paid":     {state: "refused", chain: chainShowing(x402.NeverPaid), buys: true, settles: 2, runs: 1},
		"refused, no node":        {state: "refused", settles: 1},
		"refused, and still open": {state: "refused", chain: chainShowing(x402.StillOpen), settles: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				bringTo(b, c.state)
				b.endpoint, b.chain = otherEndpoint, c.chain
				out := b.ask(b.sign(nil), "GET /a")
				if c.buys {
					b.expect("there", out, answered())
				} else {
					b.expect("there", out, uncertain())
				}
				b.expectCalls("in all", c.settles, c.runs)
			})
		})
	}
}

// TestDebtsOfTwoEndpoints plays a debt at one endpoint, whose purchase is then bought again at
// another endpoint. The debt must remain, and must be answered at the endpoint where it arose.
// After that, the second payment must still be answered at its endpoint.
func TestDebtsOfTwoEndpoints(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, b *harness) {
		debt := bringTo(b, "owed")
		b.endpoint = otherEndpoint
		bought := b.sign(nil)
		b.expect("bought there", b.ask(bought, "GET /a"), answered())
		b.endpoint = firstEndpoint
		b.expect("the debt here", b.ask(debt, "GET /a"), answered())
		b.endpoint = otherEndpoint
		b.expect("again there", b.ask(bought, "GET /a"), answered())
		b.expectCalls("in all", 2, 3)
	})
}

// TestDoubtAcrossAChangeOfPrice plays a purchase whose first payment is in doubt when a new
// signature comes. If the price is the same, the first payment must be sent again. If the
// price has changed, only the chain may decide. If the chain shows that the first payment was
// paid, that payment must be answered. If it shows that the first payment never will be paid,
// the new signature must buy. If the chain has not decided, or if there is no node, the
// outcome must be uncertain.
func TestDoubtAcrossAChangeOfPrice(t *testing.T) {
	for name, c := range map[string]struct {
		price   string
		chain   func() x402.Finding
		status  int
		charged string
		settles []string // the amounts that the facilitator was asked to settle
	}{
		"same price":          {price: "5000", chain: chainShowing(x402.StillOpen), status: 200, charged: "true", settles: []string{"5000", "5000"}},
		"changed, paid":       {price: "4000", chain: chainShowing(x402.Paid), status: 200, charged: "true", settles: []string{"5000"}},
		"changed, never paid": {price: "6000", chain: chainShowing(x402.NeverPaid), status: 200, charged: "true", settles: []string{"5000", "6000"}},
		"changed, open":       {price: "6000", chain: chainShowing(x402.StillOpen), status: 503, charged: "null", settles: []string{"5000"}},
		"changed, no node":    {price: "6000", status: 503, charged: "null", settles: []string{"5000"}},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				bringTo(b, "in doubt")
				b.offer, b.chain = offer(t, terms(), c.price, "Oslo"), c.chain
				code := fault.Code("")
				if c.status != 200 {
					code = fault.SettlementUncertain
				}
				b.expect("signed again", b.ask(b.sign(nil), "GET /a"), expected{status: c.status, code: code, charged: c.charged, retryable: c.status == 503, receipt: c.status == 200})
				var sent []string
				for _, r := range b.settleTerms {
					sent = append(sent, r.Amount)
				}
				if len(sent) != len(c.settles) || sent[len(sent)-1] != c.settles[len(sent)-1] {
					t.Errorf("the facilitator was sent %v, want %v", sent, c.settles)
				}
			})
		})
	}
}

// TestDebtAcrossAChangeOfPrice plays a change of price after a payment was made. The payment's
// answer was given or is still owed. The first signature and a new one must both get the
// answer that was paid for at the earlier price. Nothing more must be sent.
func TestDebtAcrossAChangeOfPrice(t *testing.T) {
	for name, price := range map[string]string{"up": "9000", "down": "10"} {
		for _, state := range []string{"owed", "answered"} {
			t.Run(name+", "+state, func(t *testing.T) {
				withHarness(t, nil, func(t *testing.T, b *harness) {
					former := bringTo(b, state)
					b.offer = offer(t, terms(), price, "Oslo")
					for what, header := range map[string]string{"signed again": b.sign(nil), "the former one": former} {
						b.expect(what, b.ask(header, "GET /a"), answered())
					}
					b.expectCalls("in all", 1, map[string]int{"owed": 2, "answered": 1}[state])
				})
			})
		}
	}
}
