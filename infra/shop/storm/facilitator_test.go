package storm_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// behaviours returns what the facilitator may do with a settlement during a storm. One of the
// entries is chosen at random, so a behaviour that is listed several times is more frequent.
func behaviours() []x402test.Behaviour {
	return []x402test.Behaviour{
		x402test.Honest, x402test.Honest, x402test.Honest,
		x402test.SlowAfter, x402test.SlowBefore, x402test.MoveLater,
		x402test.FailAfter, x402test.DropAfter, x402test.RefuseAfter, x402test.Unconfirmed, x402test.HoldAfter,
		x402test.Refuse, x402test.FailBefore, x402test.TooMany,
	}
}

// bank is a faulty facilitator of play money, and a node of the chain on which the facilitator
// settles. The node lags behind the chain and is sometimes down. Each process of the shop
// sends its requests to the facilitator under another path, which shows who sent them: process
// 0 uses /shop/0, and process 1 uses /shop/1.
type bank struct {
	money *x402test.Facilitator

	mu              sync.Mutex
	rng             *mathrand.Rand
	isCalm          bool
	clockOffset     time.Duration // how far the clock of the chain is ahead of the machine's clock
	behaviourCounts map[x402test.Behaviour]int
	arrivals        map[string]arrival // the first arrival of each payment, by its key
}

// arrival says when a payment first arrived at the bank, and which process of the shop sent it.
type arrival struct {
	time time.Time
	shop int
}

// How far the node lags behind the chain, and how old a block must be for the node to call it
// safe.
const (
	nodeLag  = 8 * time.Second
	nodeSafe = 4 * time.Second
)

func newBank(seed uint64) (*bank, error) {
	terms := x402.USDC()
	terms.PayTo = payTo
	b := &bank{
		rng: mathrand.New(mathrand.NewPCG(seed, 1)), behaviourCounts: map[x402test.Behaviour]int{}, arrivals: map[string]arrival{},
	}
	var err error
	b.money, err = x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now, Behave: b.behave, Slow: b.slowStep})
	return b, err
}

// endFaults ends the faults and waits for pending settlements.
func (b *bank) endFaults() {
	b.mu.Lock()
	b.isCalm = true
	b.mu.Unlock()
	for b.money.Pending() > 0 {
		time.Sleep(50 * time.Millisecond)
	}
}

// setClockOffset sets how far the clock of the chain is ahead of the machine's clock.
func (b *bank) setClockOffset(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clockOffset = d
}

// behave returns what the facilitator does with the next settlement: a random behaviour, or
// Honest once the storm is over.
func (b *bank) behave(int, string) x402test.Behaviour {
	b.mu.Lock()
	defer b.mu.Unlock()
	how := x402test.Honest
	if !b.isCalm {
		how = behaviours()[b.rng.IntN(len(behaviours()))]
	}
	b.behaviourCounts[how]++
	return how
}

// slowStep returns a random duration for the slow step of a settlement. The shop waits 15 s
// for a settlement. A settlement with SlowBefore takes 13 to 17 s, so the shop does not always
// wait long enough.
func (b *bank) slowStep(how x402test.Behaviour) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	pause := time.Duration(b.rng.Int64N(int64(4 * time.Second)))
	switch how {
	case x402test.SlowBefore:
		return 13*time.Second + pause
	case x402test.MoveLater:
		return time.Second + 4*pause
	}
	return pause
}

// recordArrival records when a payment first arrived, and which process of the shop sent it.
func (b *bank) recordArrival(key string, shop int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.arrivals[key]; !again {
		b.arrivals[key] = arrival{time: time.Now(), shop: shop}
	}
}

// arrivalOf returns the time at which a payment first arrived, and the process of the shop
// that sent it.
func (b *bank) arrivalOf(key string) arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.arrivals[key]
}

// countsByBehaviour returns how often the facilitator has behaved in each way.
func (b *bank) countsByBehaviour() map[x402test.Behaviour]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.behaviourCounts)
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

// settle passes a settlement on to the facilitator of play money.
func (b *bank) settle(w http.ResponseWriter, r *http.Request, shop int) {
	var q struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.recordArrival(keyOf(q.PaymentPayload.Payload.Authorization), shop)
	toBooks := r.Clone(r.Context())
	toBooks.URL.Path = "/settle"
	toBooks.Body = io.NopCloser(bytes.NewReader(body))
	b.money.ServeHTTP(w, toBooks)
}

// keyOf returns the key of an authorization. The ledger and the records of the play money use
// the same key.
func keyOf(a x402.Authorization) string {
	usdc := x402.USDC()
	return ledger.Key(usdc.Network, strings.ToLower(usdc.Asset), strings.ToLower(a.From), strings.ToLower(a.Nonce))
}

// node answers as a node of the chain does.
func (b *bank) node(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	calm, ahead := b.isCalm, b.clockOffset
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
