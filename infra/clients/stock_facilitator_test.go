package clients

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// failureMode says how the facilitator fails for the first settlements of a payer, after the
// money has moved. Most names are from github.com/x402-foundation/x402 issue 3208 and from the
// test battery aurumflux20/hostile-facilitator. Three modes are from this repository. In these
// three, the facilitator repeats a false refusal, or contradicts an earlier refusal.
//
// If the service repeats a settlement, the facilitator answers "nonce already used". If
// remembersSettlements is set, the facilitator instead answers with the result of the first
// settlement.
type failureMode struct {
	name                 string
	description          string
	remembersSettlements bool
	// failures is how many settlements of each payer fail, beginning with the first, or
	// everyTime.
	failures int
	play     func(*testbed.Relayed, settleAnswer)
	// reportsSettled reports whether the facilitator's answer in this mode still says that the
	// payment is settled.
	reportsSettled bool
	// node returns the chain node that the service can query; nil means that the service has
	// none.
	node func(*testbed.Facilitator) http.Handler
	// unanswered reports whether the service cannot find out that the money has moved. If so,
	// the client must get no answer.
	unanswered bool
}

// everyTime is a value of failureMode.failures: every settlement of a payer fails.
const everyTime = math.MaxInt

// refuse answers like a facilitator that checks the payer's balance after the transfer, and
// finds the balance too low. A seller that believes this answer sends its client another
// offer.
func refuse(c *testbed.Relayed, a settleAnswer) {
	a.ErrorReason, a.Success, a.Transaction = "invalid_exact_evm_insufficient_balance", false, ""
	a.sendTo(c, http.StatusPaymentRequired)
}

// slowAnswer is a delay a little shorter than the service's timeout for a settlement.
const slowAnswer = 12 * time.Second

func failureModes() []failureMode {
	instead := func(status int, body string) func(*testbed.Relayed, settleAnswer) {
		return func(c *testbed.Relayed, _ settleAnswer) { answerWith(status, 0, body)(c) }
	}
	honest := func(c *testbed.Relayed, a settleAnswer) { a.sendTo(c, http.StatusOK) }
	deadNode := func(*testbed.Facilitator) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	}
	return []failureMode{
		{name: "accept_then_timeout", description: "settles, but never answers", failures: 1, play: func(c *testbed.Relayed, _ settleAnswer) { c.Hold() }},
		{name: "5xx_after_settle", description: "settles, but answers 502", failures: 1, play: instead(http.StatusBadGateway, "<html>Bad Gateway</html>")},
		{name: "double_402", description: "settles, but refuses the payment", failures: 1, remembersSettlements: true, play: refuse},
		// The second refusal is "nonce used", which shows that the first refusal was false.
		{name: "contradicts", description: "settles, but refuses; its second refusal contradicts the first", failures: 1, play: refuse},
		{name: "refuses", description: "settles once, but refuses every time; the seller has a node", failures: everyTime, node: liveNode, play: refuse},
		{name: "refuses_unseen", description: "the same, but the seller has no node; no answer comes", failures: everyTime, unanswered: true, play: refuse},
		{
			name: "slow_answer", description: "settles, but answers only after 12 s", failures: 1, reportsSettled: true,
			play: func(c *testbed.Relayed, a settleAnswer) {
				select {
				case <-time.After(slowAnswer):
					honest(c, a)
				case <-c.Context().Done():
				}
			},
		},
		{
			// The service cannot learn the result of the settlement: the chain node never
			// answers, and the facilitator fails at the first repeat as well.
			name: "reconcile_unavailable", description: "settles, but answers 504 twice; the node is down", failures: 2, remembersSettlements: true,
			node: deadNode, play: instead(http.StatusGatewayTimeout, ""),
		},
		{
			// The facilitator truthfully declares that repeats are safe. A seller that does not
			// dare to repeat the settlement would fail here: its client would get no answer.
			name: "declared_safe", description: "settles, and declares that repeats are safe", failures: 1, reportsSettled: true, remembersSettlements: true,
			play: func(c *testbed.Relayed, a settleAnswer) {
				a.Idempotent = true
				honest(c, a)
			},
		},
		{name: "clean", description: "settles, and answers", failures: 1, reportsSettled: true, play: honest},
	}
}

// liveNode returns a node of the chain on which the facilitator f moves money.
func liveNode(f *testbed.Facilitator) http.Handler {
	return testbed.PlayNode{Moved: f.Transfers, ChainID: testbed.BaseChainID, Now: time.Now, Safe: 2 * time.Second}
}

// settleAnswer is the body of a facilitator's answer to a settlement.
type settleAnswer struct {
	x402.SettleResponse
	Idempotent bool `json:"idempotent,omitempty"`
}

func (a settleAnswer) sendTo(c *testbed.Relayed, status int) {
	answerWith(status, 0, string(testbed.Must(json.Marshal(a))))(c)
}

// answerSettle lets the facilitator settle, and then answers as the trial's mode says.
func (t *trial) answerSettle(c *testbed.Relayed) {
	if c.URL.Path != "/settle" {
		c.Pass()
		return
	}
	var asked struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	var a settleAnswer
	testbed.Check(json.Unmarshal(c.Sent, &asked))
	testbed.Check(json.Unmarshal(c.Answer().Body.Bytes(), &a))
	a, spoilt, serviceRuns := t.recordSettlement(asked.PaymentPayload.Payload.Authorization, a)
	switch {
	case !serviceRuns:
		c.Hold() // the service will be killed now
	case spoilt:
		t.mode.play(c, a)
	default:
		a.sendTo(c, http.StatusOK)
	}
}

// recordSettlement records a call to /settle. It returns the answer that an honest facilitator
// gives, whether the mode spoils this answer, and whether the service is still running to
// receive it.
func (t *trial) recordSettlement(asked x402.Authorization, honest settleAnswer) (a settleAnswer, spoilt, serviceRuns bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, nonce := t.buyers[strings.ToLower(asked.From)], asked.Nonce
	if b == nil {
		return honest, false, true
	}
	if honest.Success {
		b.settlements[nonce] = honest
	}
	if earlier, known := b.settlements[nonce]; known && t.mode.remembersSettlements {
		honest = earlier
	}
	if t.moment == beforeVerdict && !t.wasRestarted {
		b.note("settle %.10s: the money moves, and the service does not hear of it", nonce)
		t.markReached(b)
		return honest, false, false
	}
	b.settleCalls++
	spoilt = b.settleCalls <= t.mode.failures
	b.note("settle %.10s: success %t %s, spoilt %t", nonce, honest.Success, honest.ErrorReason, spoilt)
	// If the answer is not spoilt, or still says that the payment is settled, the service now
	// goes on to the lookup. If the service gets only refusals, it asks the chain after the
	// second one, and then goes on to the lookup.
	if t.moment == duringLookup && (!spoilt || t.mode.reportsSettled || t.mode.failures == everyTime && b.settleCalls > 1) {
		t.markReached(b)
	}
	return honest, spoilt, true
}
