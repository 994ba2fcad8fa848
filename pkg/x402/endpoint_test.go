package x402_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Where these tests sell the same thing.
const here, there = "GET https://a.example/a", "GET https://b.example/a"

// bring leaves a payment that was claimed here, whose record stands as it is named.
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

// A payment is answered where it was claimed. Anywhere else it does not fit, whatever it has
// come to: nothing runs, nothing is replayed or sent, and the payer is told whether it is
// charged.
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

// A record of a release before there were endpoints is answered at each.
func TestNoEndpointOnRecord(t *testing.T) {
	within(t, nil, func(_ *testing.T, b *harness) {
		header := bring(b, "owed")
		b.rewrite(header, func(r *ledger.Payment) { r.Endpoint = "" })
		b.at = there
		b.expect("owed", b.ask(header, "GET /a"), answered())
		b.expectCalls("in all", 1, 2)
	})
}

// A new signature at another endpoint buys there: what was paid here is over for it. A doubt
// about what was sent here is settled first, by the chain and by nothing that is sent.
func TestBoughtElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		state   string
		chain   func() x402.Finding
		buys    bool
		settles int
		runs    int
	}{
		"answered":                {"answered", nil, true, 2, 2},
		"owed":                    {"owed", nil, true, 2, 2},
		"in doubt, paid":          {"in doubt", shows(x402.Paid), true, 2, 1},
		"in doubt, never paid":    {"in doubt", shows(x402.NeverPaid), true, 2, 1},
		"in doubt, open":          {"in doubt", shows(x402.StillOpen), false, 1, 0},
		"in doubt, cannot tell":   {"in doubt", shows(x402.CannotTell), false, 1, 0},
		"in doubt, no node":       {"in doubt", nil, false, 1, 0},
		"refused, but paid":       {"refused", shows(x402.Paid), true, 2, 1},
		"refused, never paid":     {"refused", shows(x402.NeverPaid), true, 2, 1},
		"refused, no node":        {"refused", nil, false, 1, 0},
		"refused, and still open": {"refused", shows(x402.StillOpen), false, 1, 0},
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

// A debt stays one when its purchase was bought at another endpoint: it is answered where it
// was made, and the other one stays answered as well.
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

// The payment of an owner in doubt is sent again by a new signature while its terms are
// accepted. After a change of price the chain alone decides: paid is answered, never paid is
// bought anew, and until then it is not known.
func TestDoubtAcrossAChangeOfPrice(t *testing.T) {
	for name, c := range map[string]struct {
		price   string
		chain   func() x402.Finding
		status  int
		charged string
		settles []string // the amounts that the facilitator was sent
	}{
		"same price":          {"5000", shows(x402.StillOpen), 200, "true", []string{"5000", "5000"}},
		"changed, paid":       {"4000", shows(x402.Paid), 200, "true", []string{"5000"}},
		"changed, never paid": {"6000", shows(x402.NeverPaid), 200, "true", []string{"5000", "6000"}},
		"changed, open":       {"6000", shows(x402.StillOpen), 503, "null", []string{"5000"}},
		"changed, no node":    {"6000", nil, 503, "null", []string{"5000"}},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				bring(b, "in doubt")
				b.offer, b.chain = offer(t, terms(), c.price, "Oslo"), c.chain
				code := fault.Code("")
				if c.status != 200 {
					code = fault.SettlementUncertain
				}
				b.expect("signed anew", b.ask(b.sign(nil), "GET /a"), expected{status: c.status, code: code, charged: c.charged, retryable: c.status == 503, receipt: c.status == 200})
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

// What was paid at a price that has changed since is answered to a new signature as well,
// while it is owed and while its answer stands.
func TestDebtAcrossAChangeOfPrice(t *testing.T) {
	for name, price := range map[string]string{"up": "9000", "down": "10"} {
		for _, state := range []string{"owed", "answered"} {
			t.Run(name+", "+state, func(t *testing.T) {
				within(t, nil, func(t *testing.T, b *harness) {
					former := bring(b, state)
					b.offer = offer(t, terms(), price, "Oslo")
					for what, header := range map[string]string{"signed anew": b.sign(nil), "the former one": former} {
						b.expect(what, b.ask(header, "GET /a"), answered())
					}
					b.expectCalls("in all", 1, map[string]int{"owed": 2, "answered": 1}[state])
				})
			})
		}
	}
}
