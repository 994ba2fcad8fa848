package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// death is the moment at which the process of a payment is killed, what is true
// of the payment then, and so what must follow.
type death struct {
	at   string
	kind string // of the request at which it is killed; empty is the lookup
	how  mishap
	// anywhere: also where the store is not a server.
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
	l, db := newLab(t), testbed.StartDynamo(t)
	// Where the store is not a server, it cannot be told when it is written to, and the
	// handler of a shop cannot be held.
	dies := map[string]func(death) bool{
		"local":  func(c death) bool { return c.anywhere },
		"lambda": func(death) bool { return true },
		"shop":   func(c death) bool { return c.anywhere && c.kind != "" },
	}
	for world, open := range map[string]func(testing.TB, setup, *tap) *deployment{
		"local": func(tb testing.TB, s setup, _ *tap) *deployment { return openLocal(tb, l, s) },
		"shop":  func(tb testing.TB, s setup, _ *tap) *deployment { return openShop(tb, s, tb.TempDir()) },
		"lambda": func(tb testing.TB, s setup, at *tap) *deployment {
			s.table, s.endpoint = db.Table(tb), at.front(writeOf, testbed.ProxyTo(tb, db.URL))
			return openFunctions(tb, l, s, func(d *testbed.Deployment) { d.OnResponse = at.answered })
		},
	} {
		for _, c := range deaths() {
			if !dies[world](c) {
				continue
			}
			t.Run(world+": "+c.at, func(t *testing.T) {
				t.Parallel()
				fairly(t, func(tb testing.TB, p *pace) {
					at, s := newTap(tb), l.setup()
					s.facilitator = at.front(callOf, http.HandlerFunc(l.serveFacilitator))
					die(tb, p, l, at, open(tb, s, at), c)
				})
			})
		}
	}
}

// answered has the process of a function killed when it has given its answer to Lambda.
func (p *tap) answered(process *testbed.Execution) {
	if p.choose(sendAnswer) != unharmed {
		process.Kill()
		close(p.struck)
	}
}

func die(t testing.TB, p *pace, l *lab, at *tap, d *deployment, c death) {
	r := newRun(t, l, d, pacedClient(p))
	mode, sealed := modeHealthy, map[string]func(string) string{callVerify: contractWallet}[c.kind]
	if c.kind == "" {
		mode = modeHeld
	}
	path := r.lookUp(mode)
	if d.stranger {
		path = "/weather?city=Oslo"
	}
	r.sign(path, nil, sealed)
	r.killedAt(at, c)
	r.d = d.revive()

	busy, answered, calls := fails(fault.PaymentInProgress), r.answer(), 1
	if c.settled {
		busy = busy.afterPaying()
	}
	if answered.replay = c.answered; c.blind {
		answered.blind, calls = true, 2
	}
	e, waits := r.repeats(r.pause, func(e exchange) bool { return e.Status != http.StatusConflict })
	for _, e := range waits {
		r.check(e, busy)
	}
	if c.answered {
		r.first = e // what it repeats was never seen
	}
	r.check(e, answered)
	is(t, "the killed attempt had the lease", len(waits) > 0, c.leased)
	r.first = e
	r.pays(answered.replayed())
	r.booked(d.amount(), calls, 1)
	if n := l.dns.lookups(r.name); !d.stranger && (n < c.lookups[0] || n > c.lookups[1]) {
		t.Errorf("%d lookups of %s, want %d to %d", n, r.name, c.lookups[0], c.lookups[1])
	}
}

// killedAt sends the payment and returns when its process has been killed. That of a
// lookup is killed when the resolver has the question and the ledger the receipt, which
// a copy of the request tells.
func (r *run) killedAt(at *tap, c death) {
	at.kill = r.d.kill
	at.arm(c.kind, c.how)
	wait := r.begin(r.path)
	if c.kind == "" {
		r.lab.dns.gate(r.name).await(r, "look up")
		settled, before := r.repeats(func(time.Duration) { r.pause(5 * time.Millisecond) }, func(e exchange) bool {
			return e.Header.Get(x402.HeaderResponse) != ""
		})
		for _, e := range before {
			r.check(e, fails(fault.PaymentInProgress))
		}
		r.check(settled, fails(fault.PaymentInProgress).afterPaying())
		r.d.kill()
		r.lab.dns.gate(r.name).open()
	}
	e, err := wait()
	if c.kind != "" {
		if at.left() > 0 {
			r.Fatalf("nothing has happened %s, and the answer is %s, %v", c.at, e, err)
		}
		<-at.struck
	}
	switch dead := r.d.dead; {
	case (dead == nil) != (err != nil):
		r.Fatalf("the client of a process that was killed gets %s, %v", e, err)
	case dead != nil:
		r.check(e, *dead)
	}
}
