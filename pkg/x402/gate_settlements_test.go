package x402_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestSettlements checks the answer, the record and PAYMENT-RESPONSE for every reply of the
// facilitator and, if the chain is asked, for every finding. Each case sends one or two
// requests with the same signature. TestConclusions checks what follows from each class of
// reply. This test checks how the replies are classified, when the chain is asked, and which
// question the chain gets.
//
// A facilitator checks the window before the nonce. So it says that the window is over even if
// a third party submitted the payment in time. A PAYMENT-RESPONSE that reports a failure tells
// the payer to sign again. Therefore a refusal after the end of the window has such a
// PAYMENT-RESPONSE only if the chain proves that nothing was paid.
func TestSettlements(t *testing.T) {
	t.Parallel()
	away := errors.New("the node is away")
	paid, never := &x402.Finding{Fate: x402.Paid, Transaction: tx}, &x402.Finding{Fate: x402.NeverPaid, Reason: "cancelled"}
	open, unseen := &x402.Finding{Fate: x402.StillOpen}, &x402.Finding{Cause: away}
	expired := x402.Settlement{Class: x402.Refused, Reason: "valid_before", Expired: true}
	named := x402.Settlement{Class: x402.Unknown, Reason: "timeout", Transaction: tx}
	noKey := x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}
	unpaid := func(state ledger.State, s ...x402.Settlement) settlementRow {
		return settlementRow{replies: s, status: 402, charged: "false", state: state}
	}
	atDoor := func(code fault.Code, s ...x402.Settlement) settlementRow {
		return settlementRow{replies: s, status: 503, code: code, charged: "false", state: ledger.Refused}
	}
	answered := func(s ...x402.Settlement) settlementRow {
		return settlementRow{replies: s, status: 200, charged: "true", state: ledger.Redeemed}
	}
	unsure := func(state ledger.State, s ...x402.Settlement) settlementRow {
		return settlementRow{replies: s, status: 503, charged: "null", state: state}
	}
	withFinding := func(r settlementRow, f *x402.Finding) settlementRow { r.chain, r.questions = f, 1; return r }
	delayed := func(r settlementRow, d time.Duration) settlementRow { r.settleDelay = d; return r }
	afterWindow := func(r settlementRow) settlementRow { r.wait, r.noResponse = 10*time.Minute, r.chain != never; return r }
	for name, c := range map[string]settlementRow{
		"refused":                 unpaid(ledger.Refused, declined()),
		"refused, then moved":     answered(declined(), moved()),
		"used":                    unpaid(ledger.Refused, usedNonce()),
		"unavailable":             atDoor(fault.FacilitatorUnavailable, unreached()),
		"unavailable, then moved": answered(unreached(), moved()),
		"unauthorized":            atDoor(fault.FacilitatorUnauthorized, noKey),
		"turned away":             atDoor(fault.FacilitatorUnauthorized, turnedAway()),
		"turned away, then moved": answered(turnedAway(), moved()),
		"unknown":                 unsure(ledger.Uncertain, lostReply()),
		"unknown, then moved":     answered(lostReply(), moved()),
		"forgotten class":         unsure(ledger.Uncertain, x402.Settlement{}),
		"unknown, then used":      answered(named, usedNonce()), // paid in the transaction that the first reply named

		"refused, with time left":      delayed(withFinding(unpaid(ledger.Refused, declined()), never), 2*time.Second-1),
		"refused at the end":           delayed(withFinding(unpaid(ledger.Refused, declined()), never), 2*time.Second),
		"unknown, never":               withFinding(unpaid(ledger.Refused, lostReply()), never),
		"used, never":                  withFinding(unpaid(ledger.Refused, usedNonce()), never),
		"expired by its clock, never":  withFinding(unpaid(ledger.Refused, expired), never),
		"named, and nobody can tell":   withFinding(unsure(ledger.Uncertain, named), unseen),
		"used, and nobody can tell":    withFinding(unsure(ledger.Uncertain, usedNonce()), unseen),
		"not sent, then unknown, open": withFinding(unsure(ledger.Uncertain, noKey, lostReply()), open),

		"refused twice":              unpaid(ledger.Refused, declined(), declined()),
		"refused, then used":         answered(declined(), usedNonce()),
		"refused twice, paid":        withFinding(answered(declined(), declined()), paid),
		"refused, used, paid":        withFinding(answered(declined(), usedNonce()), paid),
		"refused twice, never":       withFinding(unpaid(ledger.Refused, declined(), declined()), never),
		"refused, used, never":       withFinding(unpaid(ledger.Refused, declined(), usedNonce()), never),
		"refused twice, open":        withFinding(unpaid(ledger.Refused, declined(), declined()), open),
		"refused, used, open":        withFinding(unsure(ledger.Uncertain, declined(), usedNonce()), open),
		"refused twice, cannot tell": withFinding(unsure(ledger.Refused, declined(), declined()), unseen),
		"refused, used, cannot tell": withFinding(unsure(ledger.Uncertain, declined(), usedNonce()), unseen),

		"refused, over, paid":        afterWindow(withFinding(answered(declined(), expired), paid)),
		"refused, over, never":       afterWindow(withFinding(unpaid(ledger.Refused, declined(), expired), never)),
		"refused, over, open":        afterWindow(withFinding(unpaid(ledger.Refused, declined(), expired), open)),
		"refused, over, cannot tell": afterWindow(withFinding(unpaid(ledger.Refused, declined(), expired), unseen)),
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, b *harness) {
				h, out := b.askRow(c)
				if c.settleDelay > 0 && c.settleDelay < 2*time.Second {
					c.questions = 0
				}
				b.expect("the last request", out, c.outcome())
				b.checkRecord(c, b.storedPayment(h), out)
				b.checkResponse(c, out)
				b.checkQuestions(c, out)
			})
		})
	}
}

// settlementRow holds the facilitator's reply to each request with one payment, the chain's
// finding, and the expected outcome of the last request.
type settlementRow struct {
	replies     []x402.Settlement
	chain       *x402.Finding // nil means that there is no node
	settleDelay time.Duration // how long each reply takes; if it is set, the authorization is valid for 8 s
	wait        time.Duration // pause before the second request; 0 means one second
	status      int
	code        fault.Code // empty means the usual code for the status
	charged     string
	state       ledger.State
	questions   int
	noResponse  bool // whether the 402 has no PAYMENT-RESPONSE that reports a failure
}

func (c settlementRow) firstReply() x402.Settlement { return c.replies[0] }

func (c settlementRow) lastReply() x402.Settlement { return c.replies[len(c.replies)-1] }

// chainFinds reports whether the row has a node, and that node finds the fate v.
func (c settlementRow) chainFinds(v x402.Fate) bool { return c.chain != nil && c.chain.Fate == v }

// outcome returns the expected outcome of the last request.
func (c settlementRow) outcome() expected {
	code := c.code
	switch {
	case code == "" && c.status == 402:
		code = fault.PaymentRequired
	case code == "" && c.status == 503:
		code = fault.SettlementUncertain
	}
	return expected{status: c.status, code: code, charged: c.charged, retryable: c.status == 503, receipt: c.status == 200}
}

// askRow sends a payment as often as the row has replies.
func (b *harness) askRow(c settlementRow) (header string, out x402.Outcome) {
	if c.chain != nil {
		b.chain = func() x402.Finding { return *c.chain }
	}
	b.settle = func(_ context.Context, n int) x402.Settlement { time.Sleep(c.settleDelay); return c.replies[n-1] }
	header = b.sign(func(d *x402test.Draft) {
		if c.settleDelay > 0 {
			d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 8)
		}
	})
	for range c.replies {
		out = b.ask(header, "GET /a")
		time.Sleep(cmp.Or(c.wait, time.Second))
	}
	return header, out
}

func (b *harness) checkRecord(c settlementRow, r ledger.Payment, out x402.Outcome) {
	b.t.Helper()
	disproved := c.chainFinds(x402.NeverPaid) && c.questions > 0 && c.wait == 0
	usedAsPaid := c.lastReply().NonceUsed && c.status == 200 && c.chain == nil
	if r.State != c.state || r.Disproved != disproved || out.Trace.UsedAsPaid != usedAsPaid {
		b.t.Errorf("%s, disproved %v, used as paid %v", r.State, r.Disproved, out.Trace.UsedAsPaid)
	}
}

// checkResponse checks PAYMENT-RESPONSE, and the class of the last reply.
func (b *harness) checkResponse(c settlementRow, out x402.Outcome) {
	b.t.Helper()
	if failed := out.Receipt != nil && !out.Receipt.Success; failed != (c.status == 402 && !c.noResponse) {
		b.t.Errorf("PAYMENT-RESPONSE %+v", out.Receipt)
	}
	blind := out.Trace.UsedAsPaid && c.firstReply().Transaction == "" // no reply has named the transaction
	if c.status == 200 && (out.Receipt.Transaction == tx) == blind || c.wait == 0 && out.Trace.Class != c.lastReply().Class.String() {
		b.t.Errorf("receipt %+v, class %s", out.Receipt, out.Trace.Class)
	}
}

// checkQuestions checks how often the chain was asked, and the questions that it was asked.
func (b *harness) checkQuestions(c settlementRow, out x402.Outcome) {
	b.t.Helper()
	if len(b.questions) < c.questions || c.wait == 0 && len(b.questions) > c.questions {
		b.t.Fatalf("the chain was asked %d times", len(b.questions))
	}
	for _, q := range b.questions {
		sent := c.lastReply().Class == x402.Unknown || len(c.replies) > 1
		if q.Sent != sent || q.Transaction != cmp.Or(c.lastReply().Transaction, c.firstReply().Transaction) {
			b.t.Errorf("asked %+v", q)
		}
	}
	if c.chain != nil && c.chain.Cause != nil && c.wait == 0 && !errors.Is(out.Trace.Cause, c.chain.Cause) {
		b.t.Errorf("cause %v", out.Trace.Cause)
	}
}
