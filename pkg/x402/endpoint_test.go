package x402_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// These are the names of two endpoints that sell the same thing. Most requests of these tests
// go to the first one.
const here, there = "GET https://a.example/a", "GET https://b.example/a"

// bring claims a payment at the endpoint named by the constant here, and leaves its record in
// the named state.
func bring(b *harness, state string) (header string) {
	b.t.Helper()
	b.at, b.window = here, duplicateWindow
	header = b.sign(nil)
	switch state {
	case "owed":
		b.work = looksUp(lookup.DNSTimeout, "")
	case "in doubt":
		b.settle = settles(x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, moved())
	case "refused":
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "insufficient_funds"}, moved())
	}
	b.ask(header, "GET /a")
	time.Sleep(2 * time.Second)
	return header
}

// TestOtherEndpoint checks that a payment is answered only at the endpoint where it was
// claimed. Another endpoint refuses the payment in any state: nothing runs, nothing is
// replayed or sent, and the payer learns whether the payment is charged.
func TestOtherEndpoint(t *testing.T) {
	for state, charged := range map[string]string{"answered": "true", "owed": "true", "in doubt": "null", "refused": "false"} {
		t.Run(state, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				header := bring(b, state)
				settles, runs := len(b.settles), int(b.runs.Load())
				b.at = there
				out := b.ask(header, "GET /a")
				b.expect("there", out, expected{status: 402, code: fault.PaymentRequired, charged: charged, receipt: charged == "true"})
				if out.Body != nil || out.Replayed {
					t.Errorf("there: %s", out.Body)
				}
				b.expectCalls("there", settles, runs)
				b.at = here
				b.expect("here", b.ask(header, "GET /a"), answered())
			})
		})
	}
}

// TestNoEndpointOnRecord checks that every endpoint answers a payment whose record comes from
// a release that did not record endpoints.
func TestNoEndpointOnRecord(t *testing.T) {
	within(t, nil, func(_ *testing.T, b *harness) {
		header := bring(b, "owed")
		b.rewrite(header, func(r *ledger.Payment) { r.Endpoint = "" })
		b.at = there
		b.expect("owed", b.ask(header, "GET /a"), answered())
		b.expectCalls("in all", 1, 2)
	})
}

// TestBoughtElsewhere checks that a new signature at another endpoint buys there, and replaces
// the payment at the first endpoint as the owner of the purchase. If the first payment is in
// doubt or was refused, the new signature buys only when the chain has decided about the first
// payment. The first payment is not sent again.
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
		"in doubt, paid":          {state: "in doubt", chain: shows(x402.Paid), buys: true, settles: 2, runs: 1},
		"in doubt, never paid":    {state: "in doubt", chain: shows(x402.NeverPaid), buys: true, settles: 2, runs: 1},
		"in doubt, open":          {state: "in doubt", chain: shows(x402.StillOpen), settles: 1},
		"in doubt, cannot tell":   {state: "in doubt", chain: shows(x402.CannotTell), settles: 1},
		"in doubt, no node":       {state: "in doubt", settles: 1},
		"refused, but paid":       {state: "refused", chain: shows(x402.Paid), buys: true, settles: 2, runs: 1},
		"refused, never paid":     {state: "refused", chain: shows(x402.NeverPaid), buys: true, settles: 2, runs: 1},
		"refused, no node":        {state: "refused", settles: 1},
		"refused, and still open": {state: "refused", chain: shows(x402.StillOpen), settles: 1},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(_ *testing.T, b *harness) {
				bring(b, c.state)
				b.at, b.chain = there, c.chain
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

// TestDebtsOfTwoEndpoints checks that a debt remains when its purchase is bought again at
// another endpoint. The debt is answered at the endpoint where it arose, and the second
// payment remains answered.
func TestDebtsOfTwoEndpoints(t *testing.T) {
	within(t, nil, func(_ *testing.T, b *harness) {
		debt := bring(b, "owed")
		b.at = there
		bought := b.sign(nil)
		b.expect("bought there", b.ask(bought, "GET /a"), answered())
		b.at = here
		b.expect("the debt here", b.ask(debt, "GET /a"), answered())
		b.at = there
		b.expect("again there", b.ask(bought, "GET /a"), answered())
		b.expectCalls("in all", 2, 3)
	})
}

// TestDoubtAcrossAChangeOfPrice checks a purchase whose owner is in doubt when a new signature
// comes. While the owner's terms are accepted, the owner is sent again. After a change of
// price, only the chain decides. If the owner was paid, it is answered. If the owner never
// will be paid, the new signature buys. Until the chain decides, the outcome is uncertain.
func TestDoubtAcrossAChangeOfPrice(t *testing.T) {
	for name, c := range map[string]struct {
		price   string
		chain   func() x402.Finding
		status  int
		charged string
		settles []string // the amounts that the facilitator was asked to settle
	}{
		"same price":          {price: "5000", chain: shows(x402.StillOpen), status: 200, charged: "true", settles: []string{"5000", "5000"}},
		"changed, paid":       {price: "4000", chain: shows(x402.Paid), status: 200, charged: "true", settles: []string{"5000"}},
		"changed, never paid": {price: "6000", chain: shows(x402.NeverPaid), status: 200, charged: "true", settles: []string{"5000", "6000"}},
		"changed, open":       {price: "6000", chain: shows(x402.StillOpen), status: 503, charged: "null", settles: []string{"5000"}},
		"changed, no node":    {price: "6000", status: 503, charged: "null", settles: []string{"5000"}},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				bring(b, "in doubt")
				b.offer, b.chain = offer(t, terms(), c.price, "Oslo"), c.chain
				code := fault.Code("")
				if c.status != 200 {
					code = fault.SettlementUncertain
				}
				b.expect("signed again", b.ask(b.sign(nil), "GET /a"), expected{status: c.status, code: code, charged: c.charged, retryable: c.status == 503, receipt: c.status == 200})
				var sent []string
				for _, r := range b.settles {
					sent = append(sent, r.Amount)
				}
				if len(sent) != len(c.settles) || sent[len(sent)-1] != c.settles[len(sent)-1] {
					t.Errorf("the facilitator was sent %v, want %v", sent, c.settles)
				}
			})
		})
	}
}

// TestDebtAcrossAChangeOfPrice checks that a new signature gets the answer that was paid for
// at an earlier price, both while the answer is owed and while it is replayed.
func TestDebtAcrossAChangeOfPrice(t *testing.T) {
	for name, price := range map[string]string{"up": "9000", "down": "10"} {
		for _, state := range []string{"owed", "answered"} {
			t.Run(name+", "+state, func(t *testing.T) {
				within(t, nil, func(t *testing.T, b *harness) {
					former := bring(b, state)
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
