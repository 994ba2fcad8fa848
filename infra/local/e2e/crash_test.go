package e2e

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestKill ends the local runner with kill -9 while the facilitator works, or
// between settlement and answer. Started again on the same ledger it answers
// the same signature, and money has moved once.
//
// It takes the half minute that a lease lasts.
func TestKill(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "kills processes, and waits for the end of a lease")
	for _, c := range []struct {
		name string
		at   func(*run) *gate
		// recorded: the settlement is in the ledger when the process dies. If
		// not, all that a second attempt learns is that the authorization is
		// used: one more call to /settle, no transaction.
		recorded bool
		calls    int
	}{
		{"during the settlement", atTheFacilitator, false, 2},
		{"during the lookup", atTheResolver, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) {
				l := newLab(tb)
				file := filepath.Join(tb.TempDir(), "ledger.db")
				r := &run{TB: tb, lab: l, client: p.client(), id: "killed"}
				defer r.client.CloseIdleConnections()
				r.wallet, r.payer = l.wallet(tb)
				killMidway(r, startLocal(tb, l, l.setup(), file), c.at, c.recorded)

				again := startLocal(tb, l, l.setup(), file)
				r.d = &deployment{base: again.URL, origin: again.URL}
				answered := result(r.fill(healthy().body))
				answered.blind = !c.recorded
				busy := untilAnswered(r, c.recorded, answered)
				if busy == 0 {
					tb.Error("the lease of the killed attempt was not respected")
				}
				r.check(r.send(r.path), answered.replayed())
				if err := l.books(r.payer, "5000", c.calls, 1); err != nil {
					tb.Error(err)
				}
				tb.Logf("%d times 409, then the answer", busy)
			})
		})
	}
}

// killMidway pays, and kills the process while it waits at a gate. It goes on
// when the process is gone and the gate is open.
func killMidway(r *run, p *testbed.Process, at func(*run) *gate, recorded bool) {
	r.Helper()
	r.d = &deployment{base: p.URL, origin: p.URL}
	r.sign(r.fill(lookup("{held}", "A")), nil, nil)
	g := at(r)
	ended := make(chan error, 1)
	go func() {
		_, err := r.d.send(r.Context(), r.client, http.MethodGet, r.path, http.Header{x402.HeaderSignature: {r.header}})
		ended <- err
	}()
	g.await(r, "the gate")
	// The receipt is written beside the lookup: a copy tells when it is there.
	for deadline := time.Now().Add(patience); recorded; {
		e := r.send(r.path)
		if e.header.Get(x402.HeaderResponse) != "" {
			r.check(e, fails(fault.PaymentInProgress).charge(moved))
			break
		}
		r.check(e, fails(fault.PaymentInProgress))
		if time.Now().After(deadline) {
			r.Fatal("the settlement was never written down")
		}
	}
	p.Kill()
	if err := <-ended; err == nil {
		r.Fatal("the request was answered by a process that was killed")
	}
	g.open()
	r.lab.dns.heal(r.name)
}

// untilAnswered sends the payment again as often as Retry-After allows, until
// it is answered as wanted. It returns how often it was told to wait.
func untilAnswered(r *run, recorded bool, answered want) (busy int) {
	r.Helper()
	waiting := fails(fault.PaymentInProgress)
	if recorded {
		waiting = waiting.charge(moved)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); busy++ {
		e := r.send(r.path)
		if e.status != http.StatusConflict {
			r.check(e, answered)
			return busy
		}
		r.check(e, waiting)
		r.pause((x402test.Reply{Header: e.header}).RetryAfter())
	}
	r.Fatal("no answer although the lease has run out")
	return 0
}
