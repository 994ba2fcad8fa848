package e2e

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func outageStories() []chainScenario {
	return []chainScenario{
		{"the service cannot see the chain, and the payer comes back", chainOptions{}, playBlind},
		{"the service cannot see the chain, and it is reconciled", chainOptions{}, playReconciled},
		{"the node dies", chainOptions{}, playNodeDies},
	}
}

// blind brings a payment into doubt that has moved: the facilitator's answer
// is lost, and the node cannot be asked.
func (w *chainWorld) blind() *payer {
	w.Helper()
	p := w.payer()
	p.sign(0)
	w.rpc.cut()
	w.relay.lose(true)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	w.relay.lose(false)
	p.books(1)
	return p
}

// playBlind: "already used" alone is neither a proof nor a refusal.
func playBlind(t testing.TB, w *chainWorld) {
	p := w.blind()
	p.wait(p.send(fails(fault.SettlementUncertain)))
	said(t, w, saysSettled, saysUsed)
	p.lookups(0)
	w.rpc.mend()
	p.send(p.answer())
	said(t, w, saysSettled, saysUsed, saysUsed)
	p.books(1)
	p.send(p.answer().replayed())
	p.lookups(1)
}

// playReconciled: make reconcile finds the payment while the service is
// stopped, and when it runs again the payer gets his answer without another
// settlement.
func playReconciled(t testing.TB, w *chainWorld) {
	p := w.blind()
	w.service.End(t)
	report := func(lines ...string) {
		t.Helper()
		out := w.reconcile()
		for _, l := range lines {
			if !strings.Contains(out, l+"\n") {
				t.Errorf("reconcile does not say %q:\n%s", l, out)
			}
		}
	}
	report("in doubt  1 of 1 listed", "          1 no evidence", "owed      0, refunds due: 0 (make owed lists them)")
	w.rpc.mend()
	report("in doubt  1 of 1 listed", "          1 found paid", "owed      1, refunds due: 0 (make owed lists them)")
	report("in doubt  0 of 0 listed", "owed      1, refunds due: 0 (make owed lists them)")
	w.startService(w.relay.url)
	p.send(p.answer())
	said(t, w, saysSettled)
	p.books(1)
	p.send(p.answer().replayed())
	p.lookups(1)
	w.balanced("1 answer sold for $0.005, $0.005 received in 1 payment; no differences")
}

// playNodeDies: nobody can say any more, so nobody says it. The payment stays
// in doubt and is never refused.
func playNodeDies(t testing.TB, w *chainWorld) {
	late := w.payer()
	late.sign(0)
	p := w.blind()
	w.node.Kill()
	for range 2 {
		p.wait(p.send(fails(fault.SettlementUncertain)))
	}
	w.rpc.mend() // and nobody behind it
	p.send(fails(fault.SettlementUncertain))
	p.lookups(0)
	// The reference facilitator finds fault with every signature when it cannot
	// read the chain. In doubt that decides nothing; before, it is a refusal.
	said(t, w, saysSettled, saysSignature, saysSignature, saysSignature)
	late.send(declined(saysSignature))
	late.lookups(0)
}
