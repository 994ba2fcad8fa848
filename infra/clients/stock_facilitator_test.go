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

// failureMode is what the facilitator does with the first settlements of a payer, after the money
// has moved. The names are those of github.com/x402-foundation/x402 issue 3208, and of the
// battery aurumflux20/hostile-facilitator; three of our own repeat a refusal that is none, or
// contradict it. A repeat is then answered as by one that asks only the chain: nonce already
// used. In the modes with recognises it is answered with the settlement that it had.
type failureMode struct {
	name       string
	means      string
	recognises bool
	// plays is how many settlements of a payer go that way, or everyTime.
	plays int
	play  func(*testbed.Relayed, settleAnswer)
	// settles says that the answer, though played with, is that it has settled.
	settles bool
	// node is what the service can ask about the chain; nil if it has none.
	node func(*testbed.Facilitator) http.Handler
	// unanswered says that nobody can know that the money has moved, so that no
	// answer comes.
	unanswered bool
}

// everyTime is how often a facilitator fails that never answers otherwise.
const everyTime = math.MaxInt

// refuse is the word of a facilitator that looks at the balance after its own transfer. A
// server that believes it challenges its client once more.
func refuse(c *testbed.Relayed, a settleAnswer) {
	a.ErrorReason, a.Success, a.Transaction = "invalid_exact_evm_insufficient_balance", false, ""
	a.give(c, http.StatusPaymentRequired)
}

// slowAnswer is just within what a settlement may take.
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
		{name: "accept_then_timeout", means: "settles, never answers", plays: 1, play: func(c *testbed.Relayed, _ settleAnswer) { c.Hold() }},
		{name: "5xx_after_settle", means: "settles, answers 502", plays: 1, play: instead(http.StatusBadGateway, "<html>Bad Gateway</html>")},
		{name: "double_402", means: "settles, refuses the payment", plays: 1, recognises: true, play: refuse},
		// The second word, nonce used, says that the first was not true.
		{name: "contradicts", means: "settles, refuses; a second refusal contradicts the first", plays: 1, play: refuse},
		{name: "refuses", means: "refuses every time, settled once, with a node", plays: everyTime, node: liveNode, play: refuse},
		{name: "refuses_unseen", means: "the same without a node; no answer comes", plays: everyTime, unanswered: true, play: refuse},
		{
			name: "slow_answer", means: "settles, answers after 12 s", plays: 1, settles: true,
			play: func(c *testbed.Relayed, a settleAnswer) {
				select {
				case <-time.After(slowAnswer):
					honest(c, a)
				case <-c.Context().Done():
				}
			},
		},
		{
			// The settlement is in doubt, and what could say how it ended fails too: the
			// chain's node always, the facilitator at the first resend.
			name: "reconcile_unavailable", means: "settles, answers 504 twice, no chain to ask", plays: 2, recognises: true,
			node: deadNode, play: instead(http.StatusGatewayTimeout, ""),
		},
		{
			// The facilitator declares that a repeat is safe, and keeps its word. It
			// is the mode in which a server must not be too careful: the answer has
			// to come.
			name: "declared_safe", means: "settles, declares repeats safe", plays: 1, settles: true, recognises: true,
			play: func(c *testbed.Relayed, a settleAnswer) {
				a.Idempotent = true
				honest(c, a)
			},
		},
		{name: "clean", means: "settles, answers", plays: 1, settles: true, play: honest},
	}
}

// liveNode knows the chain that a facilitator's money moves on.
func liveNode(f *testbed.Facilitator) http.Handler {
	return testbed.PlayNode{Moved: f.Transfers, ChainID: testbed.BaseChainID, Now: time.Now, Safe: 2 * time.Second}
}

// settleAnswer is the answer of an honest facilitator.
type settleAnswer struct {
	x402.SettleResponse
	Idempotent bool `json:"idempotent,omitempty"`
}

func (a settleAnswer) give(c *testbed.Relayed, status int) {
	says(status, 0, string(testbed.Must(json.Marshal(a))))(c)
}

// settle has the books settle, and answers as the mode says.
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
		c.Hold() // the service is about to be killed
	case plays:
		t.mode.play(c, a)
	default:
		a.give(c, http.StatusOK)
	}
}

// settled notes a call to /settle. It returns the answer, whether the mode spoils it, and whether
// the service lives to hear it.
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
	// Where every word is a refusal, the second has the chain asked.
	if t.moment == duringLookup && (!plays || t.mode.settles || t.mode.plays == everyTime && b.plays > 1) {
		t.reach(b)
	}
	return honest, plays, true
}
