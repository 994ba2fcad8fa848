package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
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
	l, db := newLab(t), testbed.StartDynamo(t)
	for world, open := range map[string]func(testing.TB, setup, *tap) *deployment{
		"local": func(tb testing.TB, s setup, _ *tap) *deployment { return openLocal(tb, l, s) },
		"lambda": func(tb testing.TB, s setup, at *tap) *deployment {
			s.table, s.endpoint = db.Table(tb), at.front(writeOf, proxyTo(db.URL))
			return openFunctions(tb, l, s, func(c *lambdahost.Config) { c.OnResponse = at.answered })
		},
	} {
		for _, c := range deaths() {
			if world == "local" && !c.anywhere {
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

// answered has the process of a function killed when it has given its answer to
// Lambda.
func (p *tap) answered(process lambdahost.Process, request string, _ []byte) {
	if p.choose(sendAnswer, request) != unharmed {
		process.Kill()
		close(p.struck)
	}
}

func die(t testing.TB, p *pace, l *lab, at *tap, d *deployment, c death) {
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

	answered := r.answer()
	answered.blind, answered.replay = c.blind, c.answered
	waits := r.awaitAnswer(c, answered)
	is(t, "the killed attempt had the lease", waits > 0, c.leased)
	r.first = r.last
	r.pays(answered.replayed())
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
	at.kill = r.d.kill
	if c.kind != "" {
		at.arm(c.kind, c.how)
	}
	wait := r.begin(r.path)
	if c.kind == "" {
		r.killDuringLookup()
	}
	e, err := wait()
	if c.kind != "" {
		if suffered, _ := at.harm(); suffered == 0 {
			r.Fatalf("nothing has happened %s, and the answer is %s, %v", c.at, e, err)
		}
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

// accident is a way in which one write can go wrong.
type accident struct {
	name    string
	mishaps []mishap
	// lasting: the write's fate stays unknown for as long as a call of the
	// store may take, so that whoever began it cannot finish it.
	lasting bool
}

func accidents() []accident {
	return []accident{
		{"reply dropped", []mishap{dropped}, false},
		{"reply late", []mishap{late}, false},
		{"request reset", []mishap{reset}, false},
		{"request forgotten", []mishap{forgotten}, false},
		{"reply dropped twice", []mishap{dropped, dropped}, false},
		{"request reset twice", []mishap{reset, reset}, true},
		{"reply late twice", []mishap{late, late}, true},
		{"reset, then dropped", []mishap{reset, dropped}, false},
		{"dropped, then reset", []mishap{dropped, reset}, false},
	}
}

// TestLostReply lets each write of a paid request go wrong in each way. The one
// client, who is alone, gets the answer; money moves once; nothing that was
// learnt is forgotten.
func TestLostReply(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	db := testbed.StartDynamo(t)
	l := newLab(t)
	for _, write := range []string{writeClaim, writeOpen, writeFirst, writePlace, writeSettled, writeRelease, writeRedeem} {
		for _, a := range accidents() {
			t.Run(write+": "+a.name, func(t *testing.T) {
				t.Parallel()
				fairly(t, func(tb testing.TB, p *pace) {
					at, table := newTap(tb), db.Table(tb)
					d := newControls(tb).serve(tb, l, l.setup(), onTable(testbed.Dynamo{URL: at.front(writeOf, proxyTo(db.URL))}, table))
					r := loseReply(tb, p, l, d, at, write, a)
					record, err := tableStore(db, table).Fetch(tb.Context(), keyOf(tb, l, r.header))
					if err != nil || record == nil {
						tb.Fatalf("record: %v", err)
					}
					is(tb, "state", record.State, ledger.Redeemed)
					if record.Receipt == nil || record.Receipt.Transaction != l.facilitator.Moved(r.payer)[0].Transaction {
						tb.Errorf("receipt %+v", record.Receipt)
					}
				})
			})
		}
	}
}

// loseReply plays one accident. Without a lasting one nobody is told to wait for
// the stored answer after he has got the first.
func loseReply(t testing.TB, pc *pace, l *lab, d *deployment, p *tap, write string, a accident) *run {
	if write != writeFirst { // the operation has had a lease before
		r := newRun(t, l, d, pc.client())
		r.sign(lookup("example.com", "A"), nil, nil)
		r.pays(result(""))
	}
	r := newRun(t, l, d, pc.client())
	r.sign(r.fill(lookup("{healthy}", "A")), named, nil)
	p.arm(write, a.mishaps...)
	persistAlone(r, a)
	if suffered, seen := p.harm(); suffered != len(a.mishaps) {
		t.Errorf("%d attempts met with a mishap, want %d; seen %v", suffered, len(a.mishaps), seen)
	}
	// Whatever the store missed is made good when the client comes again.
	again := untilReplayed(r)
	if again > 0 && !a.lasting {
		t.Errorf("the stored answer had to be waited for %d times", again)
	}
	r.booked(catalog.DNS(), 1, 1)
	lookups := 1
	if again > 0 {
		lookups = 2 // the first answer was served and never written down
	}
	is(t, "lookups", l.dns.lookups(r.name), lookups)
	return r
}

// persistAlone sends the payment until it is answered, with the clock set forward
// instead of waiting.
func persistAlone(r *run, a accident) {
	var told []string
	for range 20 {
		e := r.send(r.path)
		if e.status == http.StatusOK {
			w := r.answer()
			if e.header.Get(x402.HeaderReplayed) != "" {
				w, r.first = w.replayed(), e
			}
			r.check(e, w)
			return
		}
		code := codeOf(e)
		told = append(told, code)
		if code != string(fault.LedgerUnavailable) && (code != string(fault.PaymentInProgress) || !a.lasting) {
			r.Errorf("the client is told %s", e)
		}
		if !a.lasting && len(told) > 1 {
			r.Errorf("the client was told to come back %v", told)
		}
		r.d.skip(e.retryAfter())
	}
	r.Fatalf("no answer: %v", told)
}

// untilReplayed asks again until the stored answer comes, and returns how often
// it was told that the payment is in progress.
func untilReplayed(r *run) (busy int) {
	for range 20 {
		e := r.send(r.path)
		switch {
		case e.header.Get(x402.HeaderReplayed) != "":
			r.check(e, r.answer().replayed())
			return busy
		case e.status == http.StatusOK && busy > 0:
			r.check(e, r.answer())
		case e.status == http.StatusConflict:
			busy++
			r.check(e, fails(fault.PaymentInProgress).charge(moved))
			r.d.skip(e.retryAfter())
		default:
			r.Fatalf("an answered payment gets %s", e)
		}
	}
	r.Fatal("the answer is not stored")
	return 0
}
