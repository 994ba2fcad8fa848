package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// death is the moment at which the process of a payment is killed, what is true
// of the payment then, and so what must come of it.
type death struct {
	at   string
	kind string // of the request at which it is killed; empty is the lookup
	how  mishap
	// anywhere: also where the store is no server.
	anywhere bool
	// leased: the killed attempt had the lease, so that the payer is told to
	// wait until it has run out.
	leased bool
	// settled: the ledger knows that the money has moved.
	settled bool
	// answered: the ledger has the answer.
	answered bool
	// blind: the money moved and the ledger does not know. All that another
	// call to /settle brings is that the authorization is used, without a hash.
	blind bool
	// lookups in all, at least and at most: the write and the lookup run side by
	// side, so the first lookup may not have begun when its process was killed.
	lookups [2]int
}

func deaths() []death {
	once, twice, either, repeated := [2]int{1, 1}, [2]int{2, 2}, [2]int{1, 2}, [2]int{2, 9}
	return []death{
		{at: "while the facilitator judges a contract's signature", kind: callVerify, how: killedBefore, anywhere: true, lookups: once},
		{at: "before the claim is written", kind: writeClaim, how: killedBefore, lookups: once},
		{at: "when the claim is written", kind: writeClaim, how: killedAfter, leased: true, lookups: once},
		{at: "before the facilitator moves the money", kind: callSettle, how: killedBefore, anywhere: true, leased: true, lookups: once},
		{
			at: "when the facilitator has moved the money", kind: callSettle, how: killedAfter, anywhere: true,
			leased: true, blind: true, lookups: once,
		},
		{at: "before the settlement is written", kind: writeSettled, how: killedBefore, leased: true, blind: true, lookups: either},
		{at: "when the settlement is written", kind: writeSettled, how: killedAfter, leased: true, settled: true, lookups: either},
		// A question that is not answered is asked again.
		{at: "when the settlement is written, during the lookup", anywhere: true, leased: true, settled: true, lookups: repeated},
		{at: "before the answer is written", kind: writeRedeem, how: killedBefore, leased: true, settled: true, lookups: twice},
		{at: "when the answer is written", kind: writeRedeem, how: killedAfter, answered: true, lookups: once},
		{at: "when it has answered and nobody has heard of it", kind: sendAnswer, how: killedAfter, answered: true, lookups: once},
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
		everywhere := slices.DeleteFunc(deaths(), func(c death) bool { return !c.anywhere })
		killAt(t, everywhere, func(tb testing.TB, l *lab, s setup, _ *tap) *deployment { return openLocal(tb, l, s) })
	})
	t.Run("lambda", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.Start(t)
		killAt(t, deaths(), func(tb testing.TB, l *lab, s setup, at *tap) *deployment {
			s.table, s.endpoint = db.Table(tb), at.table(db)
			return openFunctions(tb, l, s, func(c *lambdahost.Config) { c.OnResponse = at.answered })
		})
	})
}

// killAt plays deaths of services that are opened behind a tap.
func killAt(t *testing.T, list []death, open func(testing.TB, *lab, setup, *tap) *deployment) {
	t.Helper()
	l := newLab(t)
	for _, c := range list {
		t.Run(c.at, func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) {
				at, s := newTap(tb), l.setup()
				s.facilitator = at.facilitator(l)
				die(tb, p, l, at, open(tb, l, s, at), c)
			})
		})
	}
}

// answered has the process of a function killed when it has given its answer to
// Lambda.
func (p *tap) answered(process lambdahost.Process, request string, _ []byte) {
	if p.choose(sendAnswer, request) != unharmed {
		process.Kill()
		close(p.struck)
	}
}

// die plays one death and what comes after it.
func die(t testing.TB, p *pace, l *lab, at *tap, d *deployment, c death) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", d.log())
		}
	})
	r := newRun(t, l, d, p.client())
	mode := "{" + modeHealthy + "}"
	if c.kind == "" {
		mode = "{" + modeHeld + "}"
	}
	var sealed func(string) string
	if c.kind == callVerify {
		sealed = contractWallet
	}
	r.sign(r.fill(lookup(mode, "A")), nil, sealed)
	r.killedAt(at, c)
	r.d = d.revive()

	begun := time.Now()
	answered := result(r.fill(healthy().body))
	answered.blind, answered.replay = c.blind, c.answered
	waits := r.awaitAnswer(c, answered)
	if leased := waits > 0; leased != c.leased {
		t.Errorf("told to wait %d times; the killed attempt had the lease: %t", waits, c.leased)
	}
	t.Logf("answered after %.1f s and %d times 409", time.Since(begun).Seconds(), waits)
	answered.replay = true
	r.first = r.last
	r.check(r.send(r.path), answered)
	calls := 1
	if c.blind {
		calls = 2
	}
	r.booked(catalog.DNS(), calls, 1)
	if n := l.dns.lookups(r.name); n < c.lookups[0] || n > c.lookups[1] {
		t.Errorf("%d lookups of %s, want %d to %d", n, r.name, c.lookups[0], c.lookups[1])
	}
}

// killedAt sends the payment and returns when its process has been killed.
func (r *run) killedAt(at *tap, c death) {
	r.Helper()
	at.kill = r.d.kill
	if c.kind != "" {
		at.arm(c.kind, c.how)
	}
	sent := r.begin(r.path)
	if c.kind == "" {
		r.killDuringLookup()
	}
	e, err := sent.wait()
	if suffered, _ := at.harm(); c.kind != "" && suffered == 0 {
		r.Fatalf("nothing has happened %s, and the answer is %s, %v", c.at, e, err)
	}
	if c.kind != "" {
		<-at.struck
	}
	switch dead := r.d.dead; {
	case dead == nil && err == nil:
		r.Fatalf("a process that was killed has answered: %s", e)
	case dead != nil && err != nil:
		r.Fatal(err)
	case dead != nil:
		r.check(e, *dead)
	}
}

// killDuringLookup kills when the resolver has the question and the ledger the
// receipt, which a copy of the request tells.
func (r *run) killDuringLookup() {
	r.Helper()
	r.lab.dns.gate(r.name).await(r, "look up")
	busy := fails(fault.PaymentInProgress)
	poll(r, "the settlement to be written down", func() bool {
		e := r.send(r.path)
		if e.header.Get(x402.HeaderResponse) == "" {
			r.check(e, busy)
			return false
		}
		r.check(e, busy.charge(moved))
		return true
	})
	r.d.kill()
	r.lab.dns.heal(r.name)
}

// awaitAnswer sends the payment as often as it is told to, until there is an
// answer, and holds that to w. It returns how often it was told to wait.
func (r *run) awaitAnswer(c death, w want) (waits int) {
	r.Helper()
	busy := fails(fault.PaymentInProgress)
	if c.settled {
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
		r.pause(e.retryAfter())
	}
	r.Fatal("no answer although the lease has run out")
	return 0
}
