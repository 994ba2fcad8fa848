package e2e

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestHostilePayments sends every payment header that is not in order: each is
// a 402 that names the fault (check holds it to the offer, code
// payment_required and the header PAYMENT-REQUIRED). The facilitator is never
// asked to settle, and nothing is ever written.
func TestHostilePayments(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "signs 200 payments under the race detector")
	l, c := newLab(t), newControls(t)
	d := c.serve(t, l, l.setup(), c.inMemory())
	writes := func() int { return c.store.Calls(ledgertest.Create) + c.store.Calls(ledgertest.Replace) }
	names := map[string]bool{}
	for _, s := range append(refusalCases(), hostileCases()...) {
		if s.needs.has(gateway) {
			continue // answered by the gateway, before our code
		}
		if names[s.name] {
			t.Errorf("two cases are called %q", s.name)
		}
		names[s.name] = true
		t.Run(s.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) { play(tb, p, l, d, s) })
		})
	}
	if all, _ := l.facilitator.Settles(); all != 0 {
		t.Errorf("the facilitator was asked to settle %d times", all)
	}
	if l.facilitator.Verifies() == 0 {
		t.Error("no foreign signature went to the facilitator's judgement")
	}
	if n := writes(); n != 0 {
		t.Errorf("the ledger has %d writes", n)
	}
	// The same books see a payment that is in order.
	play(t, &pace{}, l, d, scenario{name: "in order", steps: []step{pay(refusedPath, result(""))}})
	if all, _ := l.facilitator.Settles(); all != 1 || writes() != 3 {
		t.Errorf("a payment in order: %d settlements, %d writes", all, writes())
	}
	t.Logf("%d headers", len(names))
}
