package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// scenario is one line of the table: what one payer does, and what must follow.
type scenario struct {
	name  string
	harms bool   // the store, or configures nobody to settle: a fixed world does without the case
	slow  string // why a quick run leaves it out
	// own changes the configuration, and so asks for a separate deployment.
	own func(testing.TB, *setup)
	// settle is how the payer's settlements go, one after the other; then honestly.
	settle []x402test.Behaviour
	steps  []step
	// calls to /settle of the payer, who is charged once if there is one. Left out,
	// there is none in a case that ends uncharged, and one in one that ends charged.
	calls int
	// lookups of {name} at the resolver, when not 0.
	lookups int
}

// step is one thing that happens in a case. Its want is apart, so that the
// suite can tell which answers it covers.
type step struct {
	path string // asked for; {name} is the case's own lab name
	want *want
	do   func(*run, step)
	// inner are the steps of somebody else.
	inner []step
}

type run struct {
	testing.TB
	lab     *lab
	d       *deployment
	client  *http.Client
	wallet  *x402test.Wallet
	payer   string       // the wallet's account, lower case
	account x402.Address // that pays: the wallet's, or a contract
	name    string       // the case's own lab name; its mode is the scenario's
	id      string
	// moved is the hash of the transaction that paid, where it is not play money.
	moved func() string

	path    string // of the payment
	header  string // PAYMENT-SIGNATURE
	last    exchange
	first   exchange // the last answer that used a payment up
	answers int      // results that were not replays
	after   []func() // run when the steps are done
}

var caseIDs atomic.Int64

// newRun is a payer with a new wallet, whose settlements go as the script says.
func newRun(tb testing.TB, l *lab, d *deployment, client *http.Client, script ...x402test.Behaviour) *run {
	tb.Cleanup(client.CloseIdleConnections)
	r := &run{TB: tb, lab: l, d: d, client: client, id: fmt.Sprintf("case%d", caseIDs.Add(1))}
	r.wallet = l.wallet(script...)
	r.account, r.payer = r.wallet.Address(), r.wallet.Address().String()
	return r
}

func play(t testing.TB, p *pace, l *lab, d *deployment, s scenario) {
	r := newRun(t, l, d, pacedClient(p), s.settle...)
	var end want
	for _, st := range s.steps {
		r.step(st)
		if st.want != nil {
			end = *st.want
		}
	}
	r.finish()
	op, priced := opOf(r.path)
	if !priced {
		return
	}
	if s.calls == 0 && end.charged == moved {
		s.calls = 1
	}
	r.booked(op.Amount, s.calls, min(s.calls, 1))
	if s.lookups != 0 {
		is(t, "lookups of "+r.name, l.dns.lookups(r.name), s.lookups)
	}
}

// booked holds the facilitator to what it did for the payer: calls to /settle, and
// transfers of the right value to the right payee.
func (r *run) booked(amount string, calls, transfers int) {
	moved := r.lab.facilitator.Moved(r.payer)
	if len(moved) > transfers {
		r.Error(testbed.Grave(fmt.Sprintf("money was moved %d times, want %d", len(moved), transfers)))
	}
	is(r, "calls to /settle", r.lab.facilitator.Asked(r.payer), calls)
	is(r, "transfers", len(moved), transfers)
	for _, t := range moved {
		is(r, "value", t.Value, amount)
		is(r, "payee", strings.EqualFold(t.Payee, r.lab.terms.PayTo), true)
	}
}

func (r *run) step(s step) {
	s.path = r.fill(s.path)
	if s.want != nil {
		w := *s.want
		w.body = r.fill(w.body)
		s.want = &w
	}
	s.do(r, s)
}

func (r *run) finish() {
	for _, f := range r.after {
		f()
	}
	r.after = nil
}

// fill puts the case's own lab name into a path or a body: {mode} stands for a name of that mode.
func (r *run) fill(s string) string {
	for _, mode := range []string{modeHealthy, modeSilent, modeRefused, modeHeld} {
		if strings.Contains(s, "{"+mode+"}") {
			r.name = r.id + "." + mode + strings.TrimSuffix(labDomain, ".")
			s = strings.ReplaceAll(s, "{"+mode+"}", r.name)
		}
	}
	return strings.ReplaceAll(s, "{name}", r.name)
}

func (r *run) answer() want {
	if r.d.stranger {
		return result(`{"city":"Oslo","weather":"fair"}`)
	}
	return result(r.fill(healthy().body))
}

func opOf(path string) (catalog.Operation, bool) {
	path, _, _ = strings.Cut(path, "?")
	for _, op := range catalog.All() {
		if op.Path == path {
			return op, true
		}
	}
	return catalog.Operation{}, false
}

// check holds an answer to a want, and remembers it.
func (r *run) check(e exchange, w want) {
	r.judge(e, w)
	r.last = e
	if w.charged == moved && !w.retryable() && !w.replay {
		r.first = e
	}
	if w.kind == aResult && !w.replay {
		r.answers++
	}
}

func (r *run) ask(method, path string, h header) exchange {
	e, err := r.d.send(r.Context(), r.client, method, path, h)
	if err != nil {
		r.Fatalf("%s %.200s: %v", method, path, err)
	}
	return e
}

func (r *run) send(path string) exchange {
	return r.ask(http.MethodGet, path, paidBy(r.header))
}

// pays sends the payment for its own path, and holds the answer to w.
func (r *run) pays(w want) exchange {
	e := r.send(r.path)
	r.check(e, w)
	return e
}

// repeats sends the payment until enough says so of an answer, and waits as long as
// each asks for. It returns the last answer and those before.
func (r *run) repeats(wait func(time.Duration), enough func(exchange) bool) (last exchange, before []exchange) {
	for deadline := time.Now().Add(patience); ; {
		e := r.send(r.path)
		if enough(e) || time.Now().After(deadline) {
			return e, before
		}
		before = append(before, e)
		wait(e.RetryAfter())
	}
}

func (r *run) checks(all []exchange, w want) {
	for _, e := range all {
		r.check(e, w)
	}
}

// begin sends the payment along, and does not wait for the answer. What it returns waits.
func (r *run) begin(path string) (wait func() (exchange, error)) {
	d, signature, ended := r.d, r.header, make(chan struct{})
	var e exchange
	var err error
	go func() {
		defer close(ended)
		e, err = d.send(r.Context(), r.client, http.MethodGet, path, paidBy(signature))
	}()
	return func() (exchange, error) {
		<-ended
		return e, err
	}
}

// sign signs the offer of a path. edit may change it before it is signed, spoil what is signed.
func (r *run) sign(path string, edit func(*x402test.Draft), spoil func(string) string) {
	e := r.ask(http.MethodGet, path, nil)
	if r.moved == nil { // with two facilitators there is no duplicate window to offer
		r.check(e, unpaid())
	}
	required, err := e.Required()
	if err != nil {
		r.Fatal(err)
	}
	draft := must(r.wallet.Draft(required, time.Now()))
	if edit != nil {
		edit(&draft)
	}
	r.header = must(r.wallet.Seal(draft))
	if spoil != nil {
		r.header = spoil(r.header)
	}
	r.lab.secret(r.header)
	r.path = path
}

func (r *run) pause(d time.Duration) {
	if err := pause(r.Context(), d); err != nil {
		r.Fatal(err)
	}
}

func ask(method, path string, h header, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.check(r.ask(method, s.path, h), *s.want)
	}}
}

func pay(path string, w want) step { return payWith(path, nil, nil, w) }

// payWith is pay with a payment that is changed before or after it is signed.
func payWith(path string, edit func(*x402test.Draft), spoil func(string) string, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.sign(s.path, edit, spoil)
		r.check(r.send(s.path), *s.want)
	}}
}

func signed(path string) step {
	return step{path: path, do: func(r *run, s step) { r.sign(s.path, nil, nil) }}
}

func again(w want) step {
	return step{want: &w, do: func(r *run, s step) { r.pays(*s.want) }}
}

// elsewhere sends the same payment for another path. One that was not used belongs to
// that path from now on if it is answered.
func elsewhere(path string, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		if w.kind == aResult {
			r.path = s.path
		}
		r.check(r.send(s.path), *s.want)
	}}
}

// eventually sends the same payment until it is answered, as often as the
// answers allow: it heeds Retry-After. A refusal stands for a second.
func eventually(w want) step {
	return step{want: &w, do: func(r *run, s step) {
		e, _ := r.repeats(func(d time.Duration) { r.pause(max(d, 5*time.Millisecond)) }, func(e exchange) bool {
			return e.Status == w.of() || e.RetryAfter() == 0 && e.Status != http.StatusPaymentRequired
		})
		r.check(e, *s.want)
	}}
}

// inBackground pays for a path and holds the answer to w at the end of the case. The case goes on
// as soon as the payer's settlement, or the question about a held name, waits.
func inBackground(path string, w want, at func(*run) *gate) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.sign(s.path, nil, nil)
		g := at(r)
		wait := r.begin(s.path)
		g.await(r, "settle or to look up")
		r.after = append(r.after, func() {
			g.open()
			e, err := wait()
			if err != nil {
				r.Fatal(err)
			}
			r.check(e, *s.want)
		})
	}}
}

// atTheFacilitator is where a payer's settlement waits, atTheResolver where
// the question about the case's held name does.
func atTheFacilitator(r *run) *gate { return r.lab.settling.of(r.payer) }
func atTheResolver(r *run) *gate    { return r.lab.dns.gate(r.name) }

func happens(f func(*run)) step { return step{do: func(r *run, _ step) { f(r) }} }

// finish ends what runs in the background, now and not at the end; heal makes the
// case's lab name answer; cut and mend are about the ledger.
func finish() step { return happens((*run).finish) }
func heal() step   { return happens(func(r *run) { r.lab.dns.gate(r.name).open() }) }
func cut() step    { return happens(func(r *run) { r.d.cut() }) }
func mend() step   { return happens(func(r *run) { r.d.mend() }) }

func corrupt() step {
	return happens(func(r *run) {
		if err := r.d.plant(r.Context(), keyOf(r.lab, r.header)); err != nil {
			r.Fatal(err)
		}
	})
}

// another has somebody else go through other steps, in which a number of
// payments succeed.
func another(paid int, steps ...step) step {
	s := happens(func(r *run) {
		other := newRun(r.TB, r.lab, r.d, r.client)
		for _, st := range steps {
			other.step(st)
		}
		op, _ := opOf(other.path)
		other.booked(op.Amount, paid, paid)
	})
	s.inner = steps
	return s
}
