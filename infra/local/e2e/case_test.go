package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// scenario is one line of the table: what one payer does, and what comes of it.
type scenario struct {
	name  string
	needs capability // of the world; a case that no world can run fails the suite
	slow  string     // why a quick run leaves it out
	// own changes the configuration, and so asks for a deployment of its own.
	own func(testing.TB, *lab, *setup)
	// settle is how the payer's settlements go, one after the other; then
	// honestly.
	settle []x402test.Behaviour
	steps  []step
	// Of the payment that was signed last: calls to /settle and transfers in
	// the facilitator's books. Left out, they are 0 and 0 for a case that ends
	// uncharged, 1 and 1 for one that ends charged.
	calls, transfers int
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

// run is a case being played.
type run struct {
	testing.TB
	lab    *lab
	d      *deployment
	client *http.Client
	wallet *x402test.Wallet
	payer  string // the wallet's account, lower case
	name   string // the case's own lab name; its mode is the scenario's
	id     string

	path   string // of the payment
	header string // PAYMENT-SIGNATURE
	last   exchange
	first  exchange // the answer that used the payment up
	after  []func() // run when the steps are done
}

var caseIDs atomic.Int64

// newRun is somebody with a wallet of his own, whose settlements go as the script
// says.
func newRun(tb testing.TB, l *lab, d *deployment, client *http.Client, script ...x402test.Behaviour) *run {
	tb.Helper()
	tb.Cleanup(client.CloseIdleConnections)
	r := &run{TB: tb, lab: l, d: d, client: client, id: fmt.Sprintf("case%d", caseIDs.Add(1))}
	r.wallet, r.payer = l.wallet(tb, script...)
	return r
}

// play runs a case against a deployment.
func play(t testing.TB, p *pace, l *lab, d *deployment, s scenario) {
	t.Helper()
	r := newRun(t, l, d, p.client(), s.settle...)
	var end want
	for _, st := range s.steps {
		r.step(st)
		if st.want != nil {
			end = *st.want
		}
	}
	for _, f := range r.after {
		f()
	}
	op, priced := opOf(r.path)
	if !priced {
		return
	}
	calls, transfers := s.calls, s.transfers
	if calls == 0 && transfers == 0 && end.charged == moved {
		calls, transfers = 1, 1
	}
	r.booked(op, calls, transfers)
	if s.lookups != 0 {
		is(t, "lookups of "+r.name, l.dns.lookups(r.name), s.lookups)
	}
}

// booked holds the facilitator's books to calls and transfers of the payer.
func (r *run) booked(op catalog.Operation, calls, moved int) {
	r.Helper()
	if err := r.lab.books(r.payer, op.Amount, calls, moved); err != nil {
		r.Error(err)
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

// fill puts the case's own lab name into a path or a body: {mode} stands for a
// name of that mode.
func (r *run) fill(s string) string {
	for _, mode := range []string{modeHealthy, modeSilent, modeRefused, modeHeld} {
		if strings.Contains(s, "{"+mode+"}") {
			r.name = r.id + "." + mode + strings.TrimSuffix(labDomain, ".")
			s = strings.ReplaceAll(s, "{"+mode+"}", r.name)
		}
	}
	return strings.ReplaceAll(s, "{name}", r.name)
}

// opOf is the operation of a path.
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
	r.Helper()
	s := subject{origin: r.d.origin, terms: r.lab.terms, before: r.first}
	s.op, _ = opOf(e.path)
	s.payer = r.wallet.Address().Checksum()
	if list := r.lab.facilitator.Moved(r.payer); len(list) > 0 {
		s.hash = list[0].Transaction
	}
	check(r, e, w, s)
	r.last = e
	if w.charged == moved && !w.retryable() && !w.replay {
		r.first = e
	}
}

// send sends the payment along.
func (r *run) send(path string) exchange {
	r.Helper()
	e, err := r.d.send(r.Context(), r.client, http.MethodGet, path, paidBy(r.header))
	if err != nil {
		r.Fatalf("GET %.200s: %v", path, err)
	}
	return e
}

// sending is a request that is under way.
type sending struct {
	ended chan struct{}
	e     exchange
	err   error
}

// begin sends the payment along, and does not wait for the answer.
func (r *run) begin(path string) *sending {
	d, signature, s := r.d, r.header, &sending{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.e, s.err = d.send(r.Context(), r.client, http.MethodGet, path, paidBy(signature))
	}()
	return s
}

// wait returns when the request is answered.
func (s *sending) wait() (exchange, error) {
	<-s.ended
	return s.e, s.err
}

// sign signs the offer of a path. edit may change it before it is signed,
// spoil what is signed.
func (r *run) sign(path string, edit func(*x402test.Draft), spoil func(string) string) {
	r.Helper()
	e := r.d.get(r, r.client, path, "")
	r.check(e, unpaid())
	draft, err := r.wallet.Draft(e.offer(r), time.Now())
	if err != nil {
		r.Fatal(err)
	}
	if edit != nil {
		edit(&draft)
	}
	if r.header, err = r.wallet.Seal(draft); err != nil {
		r.Fatal(err)
	}
	if spoil != nil {
		r.header = spoil(r.header)
	}
	r.lab.secret(r.header)
	r.path, r.first = path, exchange{}
}

// ask asks for a path without paying, with request headers if any.
func ask(method, path string, h header, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		head := http.Header{}
		for name, value := range h {
			head.Set(name, value)
		}
		e, err := r.d.send(r.Context(), r.client, method, s.path, head)
		if err != nil {
			r.Fatal(err)
		}
		r.check(e, *s.want)
	}}
}

// pay signs the offer of a path and sends the request again with it.
func pay(path string, w want) step { return payWith(path, nil, nil, w) }

// payWith is pay with a payment that is changed before or after it is signed.
func payWith(path string, edit func(*x402test.Draft), spoil func(string) string, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.sign(s.path, edit, spoil)
		r.check(r.send(s.path), *s.want)
	}}
}

// anew is another payment for a path, which the answer of an earlier one may
// answer.
func anew(path string, edit func(*x402test.Draft), w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		first := r.first
		r.sign(s.path, edit, nil)
		r.first = first
		r.check(r.send(s.path), *s.want)
	}}
}

// signed signs the offer of a path and sends nothing yet.
func signed(path string) step {
	return step{path: path, do: func(r *run, s step) { r.sign(s.path, nil, nil) }}
}

// afterSpacing sends a refused payment again until the facilitator is asked once
// more: a refusal stands for a second.
func afterSpacing(w want) step {
	return step{want: &w, do: func(r *run, s step) {
		var e exchange
		poll(r, "a refusal to be over", func() bool {
			e = r.send(r.path)
			return e.status != http.StatusPaymentRequired
		})
		r.check(e, *s.want)
	}}
}

// again sends the same payment for the same path.
func again(w want) step {
	return step{want: &w, do: func(r *run, s step) { r.check(r.send(r.path), *s.want) }}
}

// elsewhere sends the same payment for another path.
func elsewhere(path string, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) { r.check(r.send(s.path), *s.want) }}
}

// corrected is elsewhere for a payment that was not used: it belongs to that
// path from now on.
func corrected(path string, w want) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.path = s.path
		r.check(r.send(s.path), *s.want)
	}}
}

// eventually sends the same payment until it is answered, as often as the
// answers allow: it heeds Retry-After.
func eventually(w want) step {
	return step{want: &w, do: func(r *run, s step) {
		for deadline := time.Now().Add(patience); ; {
			e := r.send(r.path)
			wait := e.retryAfter()
			if e.status == s.want.of() || wait == 0 || time.Now().After(deadline) {
				r.check(e, *s.want)
				return
			}
			r.pause(wait)
		}
	}}
}

// pause waits as long as an answer asked for.
func (r *run) pause(d time.Duration) {
	if err := pause(r.Context(), d); err != nil {
		r.Fatal(err)
	}
}

// inBackground pays for a path and holds the answer to w at the end of the
// case. The case goes on as soon as the payer's settlement, or the question
// about a held name, waits.
func inBackground(path string, w want, at func(*run) *gate) step {
	return step{path: path, want: &w, do: func(r *run, s step) {
		r.sign(s.path, nil, nil)
		g := at(r)
		sent := r.begin(s.path)
		g.await(r, "settle or to look up")
		r.after = append(r.after, func() {
			g.open()
			e, err := sent.wait()
			if err != nil {
				r.Fatal(err)
			}
			r.check(e, *s.want)
		})
	}}
}

// atTheFacilitator is where a payer's settlement waits, atTheResolver where
// the question about the case's held name does.
func atTheFacilitator(r *run) *gate { return r.lab.hold(r.payer) }
func atTheResolver(r *run) *gate    { return r.lab.dns.gate(r.name) }

// finish ends what runs in the background, now and not at the end.
func finish() step {
	return step{do: func(r *run, _ step) {
		for _, f := range r.after {
			f()
		}
		r.after = nil
	}}
}

// happens is a step that asks for nothing.
func happens(f func(*run)) step { return step{do: func(r *run, _ step) { f(r) }} }

// another has somebody else go through steps of his own, of which a number of
// payments come to something.
func another(paid int, steps ...step) step {
	s := happens(func(r *run) {
		other := newRun(r.TB, r.lab, r.d, r.client)
		for _, st := range steps {
			other.step(st)
		}
		op, _ := opOf(other.path)
		other.booked(op, paid, paid)
	})
	s.inner = steps
	return s
}

// heal makes the case's lab name answer.
func heal() step { return happens(func(r *run) { r.lab.dns.heal(r.name) }) }

func cut() step  { return happens(func(r *run) { r.d.cut() }) }
func mend() step { return happens(func(r *run) { r.d.mend() }) }

// corrupt plants a record that cannot be one under the payment's key.
func corrupt() step {
	return happens(func(r *run) {
		if err := r.d.plant(r.Context(), keyOf(r, r.lab, r.header)); err != nil {
			r.Fatal(err)
		}
	})
}
