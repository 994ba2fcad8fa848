package e2e

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// death is what is true of a payment whose process was killed at a moment, and
// so what must come of it.
type death struct {
	at moment
	// leased: the killed attempt had the lease, so that the payer is told to
	// wait until it has run out.
	leased bool
	// settled: the ledger knows that the money has moved.
	settled bool
	// answered: the ledger has the answer.
	answered bool
	calls    int // to /settle that reached the facilitator, in all
	// lookups in all, at least and at most: the write and the lookup run side by
	// side, so the first lookup may not have begun when its process was killed.
	lookups [2]int
}

// blind: the money moved and the ledger does not know. All that another
// settlement brings is that the authorization is used, without a hash.
func (d death) blind() bool { return d.calls > 1 }

func deaths() []death {
	return []death{
		{at: atVerify, calls: 1, lookups: [2]int{1, 1}},
		{at: atClaim, calls: 1, lookups: [2]int{1, 1}},
		{at: atClaimLost, leased: true, calls: 1, lookups: [2]int{1, 1}},
		{at: atSettle, leased: true, calls: 1, lookups: [2]int{1, 1}},
		{at: atSettleLost, leased: true, calls: 2, lookups: [2]int{1, 1}},
		{at: atSettled, leased: true, calls: 2, lookups: [2]int{1, 2}},
		{at: atSettledLost, leased: true, settled: true, calls: 1, lookups: [2]int{1, 2}},
		// A question that is not answered is asked again.
		{at: atLookup, leased: true, settled: true, calls: 1, lookups: [2]int{2, 9}},
		{at: atRedeem, leased: true, settled: true, calls: 1, lookups: [2]int{2, 2}},
		{at: atRedeemLost, answered: true, calls: 1, lookups: [2]int{1, 1}},
	}
}

// TestKilledAtMoments ends the process of a paid request with kill -9 at every
// moment of its way. The same signature, sent again as often as Retry-After
// says, gets the answer; the money has moved once.
//
// It takes the half minute that a lease lasts.
func TestKilledAtMoments(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "kills processes, and waits for the end of a lease")
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		killAt(t, mortalRunner, atVerify, atSettle, atSettleLost, atLookup)
	})
	t.Run("lambda", func(t *testing.T) {
		t.Parallel()
		testbed.Functions(t)
		killAt(t, mortalFunctions(dynamotest.Start(t)),
			atVerify, atClaim, atClaimLost, atSettle, atSettleLost, atSettled, atSettledLost, atLookup, atRedeem, atRedeemLost)
	})
}

func killAt(t *testing.T, open func(testing.TB, *lab, *ambush) mortal, moments ...moment) {
	t.Helper()
	of := map[moment]death{}
	for _, d := range deaths() {
		of[d.at] = d
	}
	l := newLab(t)
	for _, at := range moments {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) {
				a := newAmbush()
				die(tb, p, l, a, open(tb, l, a), of[at])
			})
		})
	}
}

// die plays one death and what comes after it.
func die(t testing.TB, p *pace, l *lab, a *ambush, m mortal, d death) {
	t.Helper()
	r := &run{TB: t, lab: l, d: m.d, client: p.client(), id: fmt.Sprintf("killed%d", caseIDs.Add(1))}
	defer r.client.CloseIdleConnections()
	r.wallet, r.payer = l.wallet(t)
	mode := "{" + modeHealthy + "}"
	if d.at == atLookup {
		mode = "{" + modeHeld + "}"
	}
	r.sign(r.fill(lookup(mode, "A")), nil, nil)
	if d.at == atVerify {
		r.signByContract()
	}
	r.killedAt(a, m, d)
	r.d = m.revive()

	begun := time.Now()
	answered := result(r.fill(healthy().body))
	answered.blind, answered.replay = d.blind(), d.answered
	waits := r.persist(d, answered)
	if leased := waits > 0; leased != d.leased {
		t.Errorf("told to wait %d times; the killed attempt had the lease: %t", waits, d.leased)
	}
	t.Logf("answered after %.1f s and %d times 409", time.Since(begun).Seconds(), waits)
	answered.replay = true
	r.first = r.last
	r.check(r.send(r.path), answered)
	if err := l.books(r.payer, "5000", d.calls, 1); err != nil {
		t.Error(err)
	}
	if n := l.dns.lookups(r.name); n < d.lookups[0] || n > d.lookups[1] {
		t.Errorf("%d lookups of %s, want %d to %d", n, r.name, d.lookups[0], d.lookups[1])
	}
}

// signByContract replaces the signature by one that only a contract's code
// could judge.
func (r *run) signByContract() {
	r.Helper()
	e := r.d.get(r, r.client, r.path, "")
	required, err := x402test.Reply{Status: e.status, Header: e.header, Body: e.body}.Required()
	if err != nil {
		r.Fatal(err)
	}
	draft, err := r.wallet.Draft(required, time.Now())
	if err != nil {
		r.Fatal(err)
	}
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString([]byte(contractSignature+strings.Repeat(".", 65)))
	if r.header, err = x402.EncodeHeader(draft.Payload); err != nil {
		r.Fatal(err)
	}
	r.lab.secret(r.header)
}

// killedAt sends the payment and returns when its process has been killed.
func (r *run) killedAt(a *ambush, m mortal, d death) {
	r.Helper()
	type reply struct {
		exchange
		err error
	}
	got := make(chan reply, 1)
	if d.at != atLookup {
		a.lay(d.at, m.kill)
	}
	go func() {
		e, err := r.d.send(r.Context(), r.client, http.MethodGet, r.path, http.Header{x402.HeaderSignature: {r.header}})
		got <- reply{e, err}
	}()
	if d.at == atLookup {
		r.killDuringLookup(m)
	} else {
		select {
		case <-a.sprung:
		case <-time.After(patience):
			r.Fatalf("nothing has happened %s", d.at)
		}
	}
	e := <-got
	switch {
	case m.dead == nil && e.err == nil:
		r.Fatalf("a process that was killed has answered: %s", e)
	case m.dead != nil && e.err != nil:
		r.Fatal(e.err)
	case m.dead != nil:
		r.check(e.exchange, *m.dead)
	}
}

// killDuringLookup kills when the resolver has the question and the ledger the
// receipt, which a copy of the request tells.
func (r *run) killDuringLookup(m mortal) {
	r.Helper()
	r.lab.dns.gate(r.name).await(r, "look up")
	busy := fails(fault.PaymentInProgress)
	for deadline := time.Now().Add(patience); ; {
		e := r.send(r.path)
		if e.header.Get(x402.HeaderResponse) != "" {
			r.check(e, busy.charge(moved))
			break
		}
		r.check(e, busy)
		if time.Now().After(deadline) {
			r.Fatal("the settlement was never written down")
		}
	}
	m.kill()
	r.lab.dns.heal(r.name)
}

// persist sends the payment as often as it is told to, until there is an
// answer, and holds that to w. It returns how often it was told to wait.
func (r *run) persist(d death, w want) (waits int) {
	r.Helper()
	busy := fails(fault.PaymentInProgress)
	if d.settled {
		busy = busy.charge(moved)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); waits++ {
		e := r.send(r.path)
		if e.status != http.StatusConflict {
			if w.replay {
				r.first = e // what it repeats was never seen
			}
			r.check(e, w)
			return waits
		}
		r.check(e, busy)
		r.pause(x402test.Reply{Header: e.header}.RetryAfter())
	}
	r.Fatal("no answer although the lease has run out")
	return 0
}
