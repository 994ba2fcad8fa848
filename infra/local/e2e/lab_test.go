package e2e

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// gate holds whoever comes by until it is opened.
type gate struct {
	once, came      sync.Once
	opened, arrived chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{}), arrived: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// shut says whether nobody gets through yet.
func (g *gate) shut() bool {
	select {
	case <-g.opened:
		return false
	default:
		return true
	}
}

// pass waits until the gate is open, or the caller gives up. A nil done never
// gives up.
func (g *gate) pass(done <-chan struct{}) {
	g.came.Do(func() { close(g.arrived) })
	select {
	case <-g.opened:
	case <-done:
	}
}

// await waits until somebody stands at the gate.
func (g *gate) await(tb testing.TB, what string) {
	tb.Helper()
	select {
	case <-g.arrived:
	case <-time.After(patience):
		tb.Fatalf("nobody came to %s", what)
	}
}

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// poll waits until something is so.
func poll(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// lab is the outside world of a deployment: the facilitator and the resolver.
type lab struct {
	terms       x402.Terms
	facilitator *testbed.Facilitator
	url         string // of the facilitator
	dns         *resolver

	mu      sync.Mutex
	scripts map[string][]x402test.Behaviour // payer -> how the settlements go
	calls   map[string]int                  // payer -> settlements begun
	gates   map[string]*gate                // payer -> where its settlements wait
	told    int                             // calls of anybody
	secrets x402test.Secrets                // payments that were sent
}

func newLab(tb testing.TB) *lab {
	tb.Helper()
	l := &lab{
		terms: testbed.Terms(tb), dns: newResolver(tb),
		scripts: map[string][]x402test.Behaviour{}, calls: map[string]int{},
		gates: map[string]*gate{},
	}
	l.facilitator = testbed.NewFacilitator(tb, x402test.FacilitatorConfig{Behave: l.behave, Contract: isContractSignature})
	server := httptest.NewServer(http.HandlerFunc(l.serveFacilitator))
	l.url = server.URL
	tb.Cleanup(func() {
		l.mu.Lock()
		for _, g := range l.gates {
			g.open()
		}
		l.mu.Unlock()
		server.CloseClientConnections()
		server.Close()
	})
	return l
}

// isContractSignature is what the play-money chain takes for the signature of
// a contract wallet.
func isContractSignature(_ x402.Address, signature []byte) bool {
	return bytes.HasPrefix(signature, []byte(contractSignature))
}

const contractSignature = "signed by a contract"

// behave decides how a settlement goes: by the payer's script, then honestly.
func (l *lab) behave(_ int, key string) x402test.Behaviour {
	payer := testbed.KeyPayer(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.calls[payer]
	l.calls[payer]++
	if script := l.scripts[payer]; n < len(script) {
		return script[n]
	}
	return x402test.Honest
}

// serveFacilitator lets settlements wait at their payer's gate before the
// facilitator hears of them.
func (l *lab) serveFacilitator(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		payer := testbed.CallPayer(body)
		l.mu.Lock()
		l.told++
		g := l.gates[payer]
		l.mu.Unlock()
		if g != nil && r.URL.Path == "/settle" {
			g.pass(r.Context().Done())
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	l.facilitator.ServeHTTP(w, r)
}

// wallet makes a payer whose settlements go as the script says.
func (l *lab) wallet(tb testing.TB, script ...x402test.Behaviour) (*x402test.Wallet, string) {
	tb.Helper()
	w, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	payer := w.Address().String()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scripts[payer] = script
	return w, payer
}

// hold makes a payer's settlements wait.
func (l *lab) hold(payer string) *gate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gates[payer] = newGate()
	return l.gates[payer]
}

// settles is how often /settle was asked for a payer.
func (l *lab) settles(payer string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[payer]
}

// asked is how many calls and questions of anybody came.
func (l *lab) asked() int {
	l.dns.mu.Lock()
	n := len(l.dns.asked)
	l.dns.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return n + l.told
}

// secret remembers a signature: no log may show it.
func (l *lab) secret(header string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets.Add(header)
}

// checkLog holds the log of a whole world to what no log may show.
func (l *lab) checkLog(tb testing.TB, log string) {
	tb.Helper()
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "goroutine "} {
		if at := strings.Index(log, bad); at >= 0 {
			tb.Error(grave(fmt.Sprintf("the log says %q: ... %.2000s", bad, log[max(at-500, 0):])))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if shown := l.secrets.Shown(log); shown != "" {
		tb.Error(grave("the log shows a part of a payment: " + shown))
	}
}

// books checks what the facilitator did for a payer: calls to /settle, and
// transfers of the right value to the right payee.
func (l *lab) books(payer, amount string, settles, transfers int) error {
	moved := l.facilitator.Moved(payer)
	if len(moved) > transfers {
		return grave(fmt.Sprintf("money was moved %d times, want %d", len(moved), transfers))
	}
	if n := l.settles(payer); n != settles || len(moved) != transfers {
		return fmt.Errorf("the facilitator was asked to settle %d times and moved money %d times, want %d and %d", n, len(moved), settles, transfers)
	}
	for _, t := range moved {
		if t.Value != amount || !strings.EqualFold(t.Payee, l.terms.PayTo) {
			return fmt.Errorf("%s was paid to %s, the price is %s", t.Value, t.Payee, amount)
		}
	}
	return nil
}

// keyOf is the ledger's key of a payment.
func keyOf(tb testing.TB, l *lab, header string) string {
	tb.Helper()
	p, err := x402.DecodePayment(header)
	if err != nil {
		tb.Fatal(err)
	}
	return ledger.Key(l.terms.Network, strings.ToLower(l.terms.Asset), p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
}
