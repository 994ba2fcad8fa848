package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// failureMode is what the facilitator does with the first settlement of a payer,
// after the money has moved. The names are those of the seven modes of
// github.com/x402-foundation/x402 issue 3208, and of the battery
// aurumflux20/hostile-facilitator, which plays them to clients. Here they are
// played to the server, whose clients sign anew on every call.
//
// Three of our own repeat a refusal that is none, or contradict it.
//
// After that the authorization is used, and a repeat of it is answered as
// facilitators do that ask nobody but the chain: nonce already used. In the
// modes with recognises it is answered with the settlement that it had.
type failureMode struct {
	name       string
	means      string
	recognises bool
	// plays is how many settlements of a payer go that way, or everyTime.
	plays int
	play  func(http.ResponseWriter, *http.Request, settleAnswer)
	// settles says that the answer, though played with, is that it has settled.
	settles bool
	// node is what the service can ask about the chain. Most modes give it none.
	node chainNode
	// unanswered says that nobody can know that the money has moved, so that no
	// answer comes.
	unanswered bool
}

// everyTime is how often a facilitator fails that never answers otherwise.
const everyTime = math.MaxInt

// chainNode is a node of the chain, if there is one.
type chainNode int

const (
	noNode   chainNode = iota
	deadNode           // it answers every question with 503
	liveNode           // it knows what has moved
)

// refuse is the word of a facilitator that looks at the balance after its own
// transfer: it refuses with a reason that is about the payer and known to be given
// before any broadcast. A server that believes it challenges its client once more.
func refuse(w http.ResponseWriter, _ *http.Request, a settleAnswer) {
	a.ErrorReason, a.Success, a.Transaction = "invalid_exact_evm_insufficient_balance", false, ""
	a.write(w, http.StatusPaymentRequired)
}

// slowAnswer is just within the 15 seconds that a settlement may take.
const slowAnswer = 12 * time.Second

func failureModes() []failureMode {
	return []failureMode{
		{
			name: "accept_then_timeout", means: "settles, never answers", plays: 1,
			play: func(_ http.ResponseWriter, r *http.Request, _ settleAnswer) { <-r.Context().Done() },
		},
		{
			name: "5xx_after_settle", means: "settles, answers 502", plays: 1,
			play: func(w http.ResponseWriter, _ *http.Request, _ settleAnswer) {
				http.Error(w, "<html>Bad Gateway</html>", http.StatusBadGateway)
			},
		},
		{
			name: "double_402", means: "settles, refuses the payment", plays: 1, recognises: true, play: refuse,
		},
		{
			// The second word, nonce used, says that the first was not true.
			name: "contradicts", means: "settles, refuses; a second refusal contradicts the first", plays: 1, play: refuse,
		},
		{
			name: "refuses", means: "refuses every time, settled once, with a node", plays: everyTime, node: liveNode, play: refuse,
		},
		{
			name: "refuses_unseen", means: "the same without a node; no answer comes", plays: everyTime, unanswered: true, play: refuse,
		},
		{
			// The answer comes just before the service would give up, and long after
			// some clients have.
			name: "slow_answer", means: "settles, answers after 12 s", plays: 1, settles: true,
			play: func(w http.ResponseWriter, r *http.Request, a settleAnswer) {
				after := time.NewTimer(slowAnswer)
				defer after.Stop()
				select {
				case <-after.C:
					a.write(w, http.StatusOK)
				case <-r.Context().Done():
				}
			},
		},
		{
			// The settlement is in doubt, and whoever could say how it ended fails
			// too: the chain's node always, the facilitator at the first resend.
			name: "reconcile_unavailable", means: "settles, answers 504 twice, no chain to ask", plays: 2, recognises: true,
			node: deadNode,
			play: func(w http.ResponseWriter, _ *http.Request, _ settleAnswer) { w.WriteHeader(http.StatusGatewayTimeout) },
		},
		{
			// The facilitator declares that a repeat is safe, and keeps its word. It
			// is the mode in which a server must not be too careful: the answer has
			// to come.
			name: "declared_safe", means: "settles, declares repeats safe", plays: 1, settles: true, recognises: true,
			play: func(w http.ResponseWriter, _ *http.Request, a settleAnswer) {
				a.Idempotent = true
				a.write(w, http.StatusOK)
			},
		},
		{
			name: "clean", means: "settles, answers", plays: 1, settles: true,
			play: func(w http.ResponseWriter, _ *http.Request, a settleAnswer) { a.write(w, http.StatusOK) },
		},
	}
}

// settleAnswer is the answer of an honest facilitator.
type settleAnswer struct {
	x402.SettleResponse
	Idempotent bool `json:"idempotent,omitempty"`
}

func (a settleAnswer) write(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the service may be gone
}

// payment is what a payer has sent, as far as the suite has to know it.
type payment struct{ payer, nonce string }

func (p *payment) UnmarshalJSON(b []byte) error {
	var q struct {
		Payload struct{ Authorization x402.Authorization }
	}
	err := json.Unmarshal(b, &q)
	p.payer, p.nonce = strings.ToLower(q.Payload.Authorization.From), q.Payload.Authorization.Nonce
	return err
}

// serveFacilitator settles in the books, and answers as the mode says.
func (t *trial) serveFacilitator(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/settle" {
		t.books.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var asked struct{ PaymentPayload payment }
	if err != nil || json.Unmarshal(body, &asked) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p := asked.PaymentPayload
	honest := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	t.books.ServeHTTP(honest, r)
	var a settleAnswer
	if err := json.Unmarshal(honest.Body.Bytes(), &a); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a, plays, alive := t.settled(p, a)
	switch {
	case !alive:
		<-r.Context().Done() // the service is about to be killed
	case plays:
		t.mode.play(w, r, a)
	default:
		a.write(w, http.StatusOK)
	}
}

// settled notes a call to /settle and how an honest facilitator answers it. It
// returns the answer of this one, and whether the mode spoils it. alive is false
// when the service is to be killed before it hears anything.
func (t *trial) settled(p payment, honest settleAnswer) (a settleAnswer, plays, alive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buyers[p.payer]
	if b == nil {
		return honest, false, true
	}
	b.sent[p.nonce] = true
	if honest.Success {
		b.settlements[p.nonce] = honest
	}
	if earlier, known := b.settlements[p.nonce]; known && t.mode.recognises {
		honest = earlier
	}
	if t.moment == beforeVerdict && !t.revived {
		b.note("settle %.10s: the money moves, and the service does not hear of it", p.nonce)
		t.reached(b)
		return honest, false, false
	}
	b.plays++
	plays = b.plays <= t.mode.plays
	b.note("settle %.10s: success %t %s, spoilt %t", p.nonce, honest.Success, honest.ErrorReason, plays)
	// Where every word is a refusal, the second has the chain asked.
	if t.moment == duringLookup && (!plays || t.mode.settles || t.mode.plays == everyTime && b.plays > 1) {
		t.reached(b)
	}
	return honest, plays, true
}
