package e2e

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// writes is a store that remembers what was written.
type writes struct {
	*ledgertest.Memory
	mu   sync.Mutex
	keys []string
}

func (w *writes) note(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
}

func (w *writes) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	w.note(r.Key)
	return w.Memory.Create(ctx, r)
}

func (w *writes) Replace(ctx context.Context, r ledger.Record) error {
	w.note(r.Key)
	return w.Memory.Replace(ctx, r)
}

// TestHostilePayments sends every payment header that is not in order: each is
// a 402 that names the fault (check holds it to the offer, code
// payment_required and the header PAYMENT-REQUIRED). The facilitator is never
// asked to settle, and nothing is ever written.
func TestHostilePayments(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "signs 200 payments under the race detector")
	l := newLab(t)
	server := httptest.NewUnstartedServer(nil)
	controls := newControls(t)
	store := &writes{Memory: controls.memory}
	server.Config.Handler = whole(t, wire(t, l.setup(), "http://"+server.Listener.Addr().String(), controls, store))
	server.Config.MaxHeaderBytes = 256 << 10 // as the local runner
	server.Start()
	t.Cleanup(func() {
		server.Close()
		l.checkLog(t, controls.log.String())
	})
	d := &deployment{base: server.URL, origin: server.URL}
	names := map[string]bool{}
	for _, s := range append(refusalCases(), hostileCases()...) {
		if s.needs.has(gateway) {
			continue // answered by the gateway, before our code
		}
		if names[s.name] {
			t.Errorf("two cases are called %q", s.name)
		}
		names[s.name] = true
		t.Run(s.name, func(t *testing.T) { play(t, &pace{}, l, d, s) })
	}
	if all, _ := l.facilitator.Settles(); all != 0 {
		t.Errorf("the facilitator was asked to settle %d times", all)
	}
	if l.facilitator.Verifies() == 0 {
		t.Error("no foreign signature went to the facilitator's judgement")
	}
	if len(store.keys) != 0 {
		t.Errorf("the ledger has %d writes: %.5q", len(store.keys), store.keys)
	}
	// The same books see a payment that is in order.
	play(t, &pace{}, l, d, scenario{name: "in order", steps: []step{pay(refusedPath, result(""))}})
	if all, _ := l.facilitator.Settles(); all != 1 || len(store.keys) != 3 {
		t.Errorf("a payment in order: %d settlements, writes %q", all, store.keys)
	}
	t.Logf("%d headers", len(names))
}
