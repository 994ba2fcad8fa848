package storm_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// deed is how a settlement goes.
type deed string

const (
	honest      deed = "settles"
	late        deed = "settles, answers some seconds later"
	edge        deed = "settles about when the shop stops waiting"
	failAfter   deed = "settles, answers 500"
	dropAfter   deed = "settles, drops the connection"
	refuseAfter deed = "settles, refuses"
	pending     deed = "settles, says that it is pending"
	silent      deed = "settles, never answers"
	after       deed = "answers 504, settles some seconds later"
	refuse      deed = "refuses"
	failBefore  deed = "answers 500"
	tooMany     deed = "answers 429"
)

func deeds() []deed {
	return []deed{honest, honest, honest, late, edge, failAfter, dropAfter, refuseAfter, pending, silent, after, refuse, failBefore, tooMany}
}

// bank is a facilitator of play money with faults, and the node of the chain that it settles
// on, which is behind and sometimes down. /shop/1 is the facilitator that the second process
// of the shop asks.
type bank struct {
	money *x402test.Facilitator

	mu    sync.Mutex
	rng   *mathrand.Rand
	calm  bool
	ahead time.Duration // how far the clock of the chain is
	going int           // settlements that may still move money
	done  map[deed]int
	sent  map[string]send // by the key of a payment, the first time that it came
}

// send is when a payment was sent, and by which process.
type send struct {
	at   time.Time
	shop int
}

// How far behind the node is, and how old a block is that it calls safe.
const (
	nodeLag  = 8 * time.Second
	nodeSafe = 4 * time.Second
)

func newBank(seed uint64) (*bank, error) {
	terms := x402.USDC()
	terms.PayTo = payTo
	money, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now})
	return &bank{
		money: money, rng: mathrand.New(mathrand.NewPCG(seed, 1)),
		done: map[deed]int{}, sent: map[string]send{},
	}, err
}

// quieten ends the faults, and waits for the settlements that go on.
func (b *bank) quieten() {
	b.mu.Lock()
	b.calm = true
	b.mu.Unlock()
	for b.settling(0) > 0 {
		time.Sleep(50 * time.Millisecond)
	}
}

// later sets the clock of the chain ahead.
func (b *bank) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead = d
}

// settling adds to the settlements that go on, and returns how many there are.
func (b *bank) settling(more int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.going += more
	return b.going
}

// draw says what happens to a settlement, and how long something takes that takes up to d.
func (b *bank) draw(key string, shop int, d time.Duration) (deed, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.sent[key]; !again {
		b.sent[key] = send{at: time.Now(), shop: shop}
	}
	how := honest
	if !b.calm {
		how = deeds()[b.rng.IntN(len(deeds()))]
	}
	b.done[how]++
	return how, time.Duration(b.rng.Int64N(int64(d)))
}

// firstSent is when a payment came first.
func (b *bank) firstSent(key string) send {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[key]
}

// counts are how often which deed was done.
func (b *bank) counts() map[deed]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.done)
}

// ServeHTTP implements http.Handler.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/node" {
		b.node(w, r)
		return
	}
	rest, _ := strings.CutPrefix(r.URL.Path, "/shop/")
	number, path, _ := strings.Cut(rest, "/")
	shop, err := strconv.Atoi(number)
	if err != nil || path != "settle" {
		http.NotFound(w, r)
		return
	}
	b.settle(w, r, shop)
}

// settle does what is drawn.
func (b *bank) settle(w http.ResponseWriter, r *http.Request, shop int) {
	b.settling(1)
	defer b.settling(-1)
	var q struct {
		PaymentPayload      x402.Payload      `json:"paymentPayload"`
		PaymentRequirements x402.Requirements `json:"paymentRequirements"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	move := func() *httptest.ResponseRecorder {
		moved := httptest.NewRecorder()
		b.money.ServeHTTP(moved, httptest.NewRequest(http.MethodPost, "/settle", bytes.NewReader(body)))
		return moved
	}
	failed := func(reason, transaction string) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(x402.SettleResponse{ // the shop may be gone
			ErrorReason: reason, Transaction: transaction,
			Network: q.PaymentRequirements.Network, Payer: q.PaymentPayload.Payload.Authorization.From,
		})
	}
	const insufficient = "invalid_exact_evm_insufficient_balance"
	how, pause := b.draw(keyOf(q.PaymentPayload.Payload.Authorization), shop, 4*time.Second)
	switch how {
	case honest:
		pass(w, move())
	case late:
		moved := move()
		time.Sleep(pause)
		pass(w, moved)
	case edge: // a settlement has 15 s
		time.Sleep(13*time.Second + pause)
		pass(w, move())
	case failAfter:
		move()
		w.WriteHeader(http.StatusInternalServerError)
	case dropAfter:
		move()
		panic(http.ErrAbortHandler)
	case refuseAfter:
		move()
		failed(insufficient, "")
	case pending:
		moved := move()
		var settled x402.SettleResponse
		_ = json.Unmarshal(moved.Body.Bytes(), &settled) // of a repeat it has no transaction
		failed("settlement_pending", settled.Transaction)
	case silent:
		move()
		select {
		case <-r.Context().Done():
		case <-time.After(25 * time.Second):
		}
	case after:
		b.settling(1)
		go func() {
			defer b.settling(-1)
			time.Sleep(time.Second + 4*pause)
			move()
		}()
		w.WriteHeader(http.StatusGatewayTimeout)
	case refuse:
		failed(insufficient, "")
	case failBefore:
		w.WriteHeader(http.StatusInternalServerError)
	case tooMany:
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// pass answers as another handler did.
func pass(w http.ResponseWriter, moved *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), moved.Header())
	w.WriteHeader(moved.Code)
	_, _ = w.Write(moved.Body.Bytes()) // the shop may be gone
}

// keyOf is the key of an authorization in the ledger and in the books of the play money.
func keyOf(a x402.Authorization) string {
	usdc := x402.USDC()
	return ledger.Key(usdc.Network, strings.ToLower(usdc.Asset), strings.ToLower(a.From), strings.ToLower(a.Nonce))
}

// node answers as a node of the chain.
func (b *bank) node(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	calm, ahead := b.calm, b.ahead
	down := !calm && b.rng.IntN(5) == 0
	b.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	lag, safe := nodeLag, nodeSafe
	if calm {
		lag, safe = 0, 0
	}
	now := func() time.Time { return time.Now().Add(ahead - lag) }
	moved := func() []x402test.Transfer {
		seen := []x402test.Transfer{}
		for _, t := range b.money.Transfers() {
			if !t.At.After(now()) {
				seen = append(seen, t)
			}
		}
		return seen
	}
	testbed.PlayNode{Moved: moved, ChainID: testbed.BaseChainID, Now: now, Safe: safe}.ServeHTTP(w, r)
}
