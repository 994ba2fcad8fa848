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
// If the service repeats a settlement, the facilitator answers "nonce already used", like a
// facilitator that asks only the chain. If the field recognises is set, the facilitator instead
// answers with the result of the first settlement.
type failureMode struct {
	name       string
	means      string
	recognises bool
	// plays is how many settlements of each payer fail, beginning with the first, or
	// everyTime.
	plays int
	play  func(*testbed.Relayed, settleAnswer)
	// settles reports whether the facilitator's answer in this mode still says that the
	// payment is settled.
	settles bool
	// node returns the chain node that the service can query; nil means that the service has
	// none.
	node func(*testbed.Facilitator) http.Handler
	// unanswered reports whether the service cannot find out that the money has moved. If so,
	// the client must get no answer.
	unanswered bool
}

// everyTime means that every settlement of a payer fails.
const everyTime = math.MaxInt

// refuse answers like a facilitator that checks the payer's balance after its transfer, and
// finds the balance too low. A seller that believes this answer sends its client another
// offer.
func refuse(c *testbed.Relayed, a settleAnswer) {
	a.ErrorReason, a.Success, a.Transaction = "invalid_exact_evm_insufficient_balance", false, ""
	a.give(c, http.StatusPaymentRequired)
}

// slowAnswer is a delay a little shorter than the service's timeout for a settlement.
const slowAnswer = 12 * time.Second

func failureModes() []failureMode {
	instead := func(status int, body string) func(*testbed.Relayed, settleAnswer) {
		return func(c *testbed.Relayed, _ settleAnswer) { says(status, 0, body)(c) }
	}
	honest := func(c *testbed.Relayed, a settleAnswer) { a.give(c, http.StatusOK) }
	deadNode := func(*testbed.Facilitator) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	}
	return []failureMode{
		{name: "accept_then_timeout", means: "settles, but never answers", plays: 1, play: func(c *testbed.Relayed, _ settleAnswer) { c.Hold() }},
		{name: "5xx_after_settle", means: "settles, but answers 502", plays: 1, play: instead(http.StatusBadGateway, "<html>Bad Gateway</html>")},
		{name: "double_402", means: "settles, but refuses the payment", plays: 1, recognises: true, play: refuse},
		// The second refusal is "nonce used", which shows that the first refusal was false.
		{name: "contradicts", means: "settles, but refuses; its second refusal contradicts the first", plays: 1, play: refuse},
		{name: "refuses", means: "settles once, but refuses every time; the seller has a node", plays: everyTime, node: liveNode, play: refuse},
		{name: "refuses_unseen", means: "the same, but the seller has no node; no answer comes", plays: everyTime, unanswered: true, play: refuse},
		{
			name: "slow_answer", means: "settles, but answers only after 12 s", plays: 1, settles: true,
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
			name: "reconcile_unavailable", means: "settles, but answers 504 twice; the node is down", plays: 2, recognises: true,
			node: deadNode, play: instead(http.StatusGatewayTimeout, ""),
		},
		{
			// The facilitator truthfully declares that repeats are safe. A seller that does not
			// dare to repeat the settlement would fail here: its client would get no answer.
			name: "declared_safe", means: "settles, and declares that repeats are safe", plays: 1, settles: true, recognises: true,
			play: func(c *testbed.Relayed, a settleAnswer) {
				a.Idempotent = true
				honest(c, a)
			},
		},
		{name: "clean", means: "settles, and answers", plays: 1, settles: true, play: honest},
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

func (a settleAnswer) give(c *testbed.Relayed, status int) {
	says(status, 0, string(testbed.Must(json.Marshal(a))))(c)
}

// settle lets the facilitator settle, and then answers as the trial's mode says.
func (t *trial) settle(c *testbed.Relayed) {
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
	a, plays, alive := t.settled(asked.PaymentPayload.Payload.Authorization, a)
	switch {
	case !alive:
		c.Hold() // the service will be killed now
	case plays:
		t.mode.play(c, a)
	default:
		a.give(c, http.StatusOK)
	}
}

// settled records a call to /settle. It returns the answer that an honest facilitator gives,
// whether the mode spoils this answer, and whether the service is still running to receive it.
func (t *trial) settled(asked x402.Authorization, honest settleAnswer) (a settleAnswer, plays, alive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, nonce := t.buyers[strings.ToLower(asked.From)], asked.Nonce
	if b == nil {
		return honest, false, true
	}
	if honest.Success {
		b.settlements[nonce] = honest
	}
	if earlier, known := b.settlements[nonce]; known && t.mode.recognises {
		honest = earlier
	}
	if t.moment == beforeVerdict && !t.revived {
		b.note("settle %.10s: the money moves, and the service does not hear of it", nonce)
		t.reach(b)
		return honest, false, false
	}
	b.plays++
	plays = b.plays <= t.mode.plays
	b.note("settle %.10s: success %t %s, spoilt %t", nonce, honest.Success, honest.ErrorReason, plays)
	// If the answer is not spoilt, or still says that the payment is settled, the service now
	// goes on to the lookup. If the service gets only refusals, it asks the chain after the
	// second one, and then goes on to the lookup.
	if t.moment == duringLookup && (!plays || t.mode.settles || t.mode.plays == everyTime && b.plays > 1) {
		t.reach(b)
	}
	return honest, plays, true
}
