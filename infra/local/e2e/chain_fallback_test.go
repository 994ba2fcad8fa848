package e2e

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// killer is a facilitator's way to the node. It can end the facilitator with
// kill -9 at one of its calls: before the node has it, or before the facilitator
// has the answer.
type killer struct {
	url  string
	node *httputil.ReverseProxy

	mu     sync.Mutex
	left   int // calls until the one at which it is killed; 0 is never
	after  bool
	kill   func()
	killed bool
}

func newKiller(tb testing.TB, to string) *killer {
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	k := &killer{node: httputil.NewSingleHostReverseProxy(u)}
	server := httptest.NewServer(k)
	k.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return k
}

// arm has the nth call from now on end the facilitator; 0 lets all pass.
func (k *killer) arm(n int, after bool, kill func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.after, k.kill, k.killed = n, after, kill, false
}

// struck says whether it has ended the facilitator since it was armed.
func (k *killer) struck() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// strikes counts a call. It returns what ends the facilitator if this is the call
// at which it ends, and whether that is after the node has answered.
func (k *killer) strikes() (kill func(), after bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == 0 {
		return nil, false
	}
	k.left--
	if k.killed = k.left == 0; k.killed {
		kill = k.kill
	}
	return kill, k.after
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kill, after := k.strikes()
	switch {
	case kill == nil:
		k.node.ServeHTTP(w, r)
		return
	case after:
		k.node.ServeHTTP(httptest.NewRecorder(), r)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
	}
	kill()
	panic(http.ErrAbortHandler)
}

func fallbackStories() []chainScenario {
	return []chainScenario{
		{"one of two facilitators is killed at every point of a settlement", chainOptions{direct: true, fallback: true}, playKilledEverywhere},
		{"one of two facilitators is down", chainOptions{direct: true, fallback: true}, playFallback},
	}
}

// playKilledEverywhere ends the first facilitator before and after each of the
// calls to the node that one settlement makes. Whatever it has done by then, the
// payer gets one answer, at once, for one transfer: what was broadcast is found on
// the chain, and what was not is settled by the second.
func playKilledEverywhere(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.mint(100 * dnsPrice(t))
	u, err := url.Parse(w.facilitator.URL)
	if err != nil {
		t.Fatal(err)
	}
	paid, points, senders := 0, 0, map[string]int{}
	pay := func() {
		p.sign(0)
		p.send(p.answer())
		paid++
		p.books(paid)
		p.lookups(paid)
		senders[w.sender(p.transfer())]++
		p.send(p.answer().replayed())
		p.books(paid)
	}
	for _, after := range []bool{false, true} {
		for point := 1; ; point++ {
			w.killer.arm(point, after, w.facilitator.Kill)
			pay()
			if !w.killer.struck() {
				break // the settlement makes fewer calls
			}
			points++
			w.killer.arm(0, false, nil)
			w.startFacilitator(u.Port())
			pay() // the first one is asked again, and its breaker stays closed
		}
	}
	// Every process of the first one has an account of its own.
	byFallback := slices.Max(slices.Collect(maps.Values(senders)))
	if points < 6 || byFallback < 3 || len(senders) < 3 {
		t.Errorf("killed at %d points, settled by %v", points, senders)
	}
	t.Logf("killed at %d points, %d payments, %d of them settled by the second", points, paid, byFallback)
}

// playFallback: while the first facilitator is down, every payment is settled by
// the second, also when the breaker of the first is open.
func playFallback(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.facilitator.Kill()
	for i := range 8 {
		p.sign(0)
		p.send(p.answer())
		p.books(i + 1)
	}
	p.lookups(8)
}

// sender is the account that sent a transaction.
func (w *chainWorld) sender(hash string) string {
	w.Helper()
	var tx struct{ From string }
	if err := json.Unmarshal(w.node.Call(w, "eth_getTransactionByHash", hash), &tx); err != nil {
		w.Fatal(err)
	}
	return tx.From
}
