package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
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

// answered has the process of a function killed when it has given its answer to Lambda.
func (p *tap) answered(process lambdahost.Process, request string, _ []byte) {
	if p.choose(sendAnswer, request) != unharmed {
		process.Kill()
		close(p.struck)
	}
}

func die(t testing.TB, p *pace, l *lab, at *tap, d *deployment, c death) {
	r := newRun(t, l, d, p.client())
	path, sealed := lookUp("{healthy}", "A"), map[string]func(string) string{callVerify: contractWallet}[c.kind]
	if c.kind == "" {
		path = lookUp("{held}", "A")
	}
	r.sign(r.fill(path), nil, sealed)
	r.killedAt(at, c)
	r.d = d.revive()

	busy, answered, calls := fails(fault.PaymentInProgress), r.answer(), 1
	if c.settled {
		busy = busy.charge(moved)
	}
	if answered.replay = c.answered; c.blind {
		answered.blind, calls = true, 2
	}
	e, waits := r.repeats(r.pause, func(e exchange) bool { return e.Status != http.StatusConflict })
	r.checks(waits, busy)
	if c.answered {
		r.first = e // what it repeats was never seen
	}
	r.check(e, answered)
	is(t, "the killed attempt had the lease", len(waits) > 0, c.leased)
	r.first = e
	r.pays(answered.replayed())
	r.booked(catalog.DNS(), calls, 1)
	if n := l.dns.lookups(r.name); n < c.lookups[0] || n > c.lookups[1] {
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
		r.checks(before, fails(fault.PaymentInProgress))
		r.check(settled, fails(fault.PaymentInProgress).charge(moved))
		r.d.kill()
		r.lab.dns.gate(r.name).open()
	}
	e, err := wait()
	if c.kind != "" {
		if suffered, _ := at.harm(); suffered == 0 {
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

// TestLostReply lets each write of a paid request go wrong in each way. The one client, who is
// alone, gets the answer; money moves once; nothing that was learnt is forgotten.
func TestLostReply(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	db, l := testbed.StartDynamo(t), newLab(t)
	for _, write := range []string{writeClaim, writeOpen, writeFirst, writePlace, writeSettled, writeRelease, writeRedeem} {
		for _, a := range accidents() {
			t.Run(write+": "+a.name, func(t *testing.T) {
				t.Parallel()
				fairly(t, func(tb testing.TB, p *pace) { a.play(tb, p, l, db, write) })
			})
		}
	}
}

// play plays one accident. Without a lasting one nobody is told to wait for
// the stored answer after he has got the first.
func (a accident) play(t testing.TB, pc *pace, l *lab, db testbed.Dynamo, write string) {
	p, table := newTap(t), db.Table(t)
	d := newControls(t).serve(t, l, l.setup(), onTable(testbed.Dynamo{URL: p.front(writeOf, proxyTo(db.URL))}, table))
	if write != writeFirst { // the operation has had a lease before
		r := newRun(t, l, d, pc.client())
		r.sign(lookUp("example.com", "A"), nil, nil)
		r.pays(result(""))
	}
	r := newRun(t, l, d, pc.client())
	r.sign(r.fill(lookUp("{healthy}", "A")), named, nil)
	p.arm(write, a.mishaps...)
	persistAlone(r, a)
	if suffered, seen := p.harm(); suffered != len(a.mishaps) {
		t.Errorf("%d attempts met with a mishap, want %d; seen %v", suffered, len(a.mishaps), seen)
	}
	// Whatever the store missed is made good when the client comes again.
	again, lookups := untilReplayed(r), 1
	if again > 0 {
		lookups = 2 // the first answer was served and never written down
	}
	is(t, "the stored answer had to be waited for", again > 0 && !a.lasting, false)
	is(t, "lookups", l.dns.lookups(r.name), lookups)
	r.booked(catalog.DNS(), 1, 1)
	store := dynamo.NewLedger(dynamo.Config{API: dynamo.NewClient(db.ClientConfig()), Table: table, Timeout: patience})
	record, err := store.Fetch(t.Context(), keyOf(l, r.header))
	if err != nil || record == nil {
		t.Fatalf("record: %v", err)
	}
	is(t, "state", record.State, ledger.Redeemed)
	if record.Receipt == nil || record.Receipt.Transaction != l.facilitator.Moved(r.payer)[0].Transaction {
		t.Errorf("receipt %+v", record.Receipt)
	}
}

// persistAlone sends the payment until it is answered, with the clock set forward
// instead of waiting.
func persistAlone(r *run, a accident) {
	e, told := r.repeats(r.d.skip, func(e exchange) bool { return e.Status == http.StatusOK })
	for _, before := range told {
		code := codeOf(before)
		if code != string(fault.LedgerUnavailable) && (code != string(fault.PaymentInProgress) || !a.lasting) ||
			!a.lasting && len(told) > 1 {
			r.Errorf("the client is told %s, one of %d answers", before, len(told))
		}
	}
	w := r.answer()
	if e.Header.Get(x402.HeaderReplayed) != "" {
		w, r.first = w.replayed(), e
	}
	r.check(e, w)
}

// untilReplayed asks again until the stored answer comes, and returns how often
// it was told that the payment is in progress.
func untilReplayed(r *run) (busy int) {
	e, before := r.repeats(r.d.skip, func(e exchange) bool { return e.Header.Get(x402.HeaderReplayed) != "" })
	for _, b := range before {
		if b.Status == http.StatusOK && busy > 0 {
			r.check(b, r.answer())
			continue
		}
		busy++
		r.check(b, fails(fault.PaymentInProgress).charge(moved))
	}
	r.check(e, r.answer().replayed())
	return busy
}
