package e2e

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// death is when the process of a payment is killed, what is true then, and so what must follow.
type death struct {
	at   string
	kind string // of the request at which it is killed; empty is the lookup
	how  mishap
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
		{at: "while the facilitator judges a contract's signature", kind: callVerify, how: killedBefore, lookups: once},
		{at: "before the claim is written", kind: writeClaim, how: killedBefore, lookups: once},
		{at: "when the claim is written", kind: writeClaim, how: killedAfter, leased: true, lookups: once},
		{at: "before the facilitator moves the money", kind: callSettle, how: killedBefore, leased: true, lookups: once},
		{at: "when the facilitator has moved the money", kind: callSettle, how: killedAfter, leased: true, blind: true, lookups: once},
		{at: "before the settlement is written", kind: writeSettled, how: killedBefore, leased: true, blind: true, lookups: either},
		{at: "when the settlement is written", kind: writeSettled, how: killedAfter, leased: true, settled: true, lookups: either},
		// A question that is not answered is asked again.
		{at: "when the settlement is written, during the lookup", leased: true, settled: true, lookups: repeated},
		{at: "before the answer is written", kind: writeRedeem, how: killedBefore, leased: true, settled: true, lookups: twice},
		{at: "when the answer is written", kind: writeRedeem, how: killedAfter, answered: true, lookups: once},
		{at: "when it has answered and nobody has heard of it", kind: sendAnswer, how: killedAfter, answered: true, lookups: once},
	}
}

// TestKilledAtMoments ends the process of a paid request with kill -9 at every moment of its
// way. The same signature, sent again to another process as often as Retry-After says, gets
// the answer; the money has moved once. The functions are killed, because what they write to
// their table can be seen on its way: infra/clients kills the local runner, and the shop.
//
// It takes the half minute that a lease lasts.
func TestKilledAtMoments(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "kills processes, and waits for the end of a lease")
	l, db := newLab(t), testbed.StartDynamo(t)
	for _, c := range deaths() {
		t.Run(c.at, func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) {
				at, s := newTap(tb), l.setup()
				s.env["FACILITATOR_URL"] = at.front(callOf, l.facilitator)
				s.table, s.endpoint = db.Table(tb), at.front(writeOf, testbed.ProxyTo(tb, db.URL))
				c.play(newRun(tb, l, openFunctions(tb, l, s, func(d *testbed.Deployment) {
					d.OnResponse = func(process *testbed.Execution) {
						if at.choose(sendAnswer) != unharmed {
							process.Kill()
							close(at.struck)
						}
					}
				}), pacedClient(p)), at)
			})
		})
	}
}

func (c death) play(r *run, at *tap) {
	var resign func([]byte) []byte
	if c.kind == callVerify {
		resign = contractWallet
	}
	r.sign(lookUp(r.name, "A"), nil, resign)
	c.kill(r, at)

	busy, answered, calls := fails(fault.PaymentInProgress), r.answer(), 1
	if c.settled {
		busy = busy.afterPaying()
	}
	if answered.replay = c.answered; c.blind {
		answered.blind, calls = true, 2
	}
	e, waits := r.repeats(func(e exchange) bool { return e.Status != http.StatusConflict })
	for _, e := range waits {
		r.check(e, busy)
	}
	if c.answered {
		r.first = e // what it repeats was never seen
	}
	r.check(e, answered)
	is(r, "the killed attempt had the lease", len(waits) > 0, c.leased)
	r.first = e
	r.pays(answered.replayed())
	r.booked(calls, 1)
	if n := r.lab.dns.lookups(r.name); n < c.lookups[0] || n > c.lookups[1] {
		r.Errorf("%d lookups of %s, want %d to %d", n, r.name, c.lookups[0], c.lookups[1])
	}
}

// kill sends the payment and returns when its process has been killed. That of a lookup is
// killed when the resolver has the question and the ledger the receipt, which a copy of the
// request tells.
func (c death) kill(r *run, at *tap) {
	at.kill = func() { r.d.host.Kill(dnsFunction) }
	at.arm(c.kind, c.how)
	var looking <-chan struct{}
	var release func()
	if c.kind == "" {
		looking, release = r.lab.dns.hold(r, r.name)
	}
	ended := make(chan struct{})
	var e exchange
	var err error
	go func() {
		defer close(ended)
		e, err = r.try(http.MethodGet, r.path, x402.HeaderSignature, r.header)
	}()
	if c.kind == "" {
		select {
		case <-looking:
		case <-time.After(patience):
			r.Fatal("nothing is looked up")
		}
		settled, before := r.repeats(func(e exchange) bool { return e.Header.Get(x402.HeaderResponse) != "" })
		for _, e := range before {
			r.check(e, fails(fault.PaymentInProgress))
		}
		r.check(settled, fails(fault.PaymentInProgress).afterPaying())
		at.kill()
		release()
	}
	if <-ended; err != nil {
		r.Fatal(err)
	}
	if c.kind != "" {
		if at.left() > 0 {
			r.Fatalf("nothing has happened %s, and the answer is %s", c.at, e)
		}
		<-at.struck
	}
	r.check(e, want{gateway: true, status: http.StatusInternalServerError})
}

// TestFrozen: the table and the node close the connections of a function while it is frozen, as
// Lambda freezes it between two events. The next request, which needs both, is answered at
// once. What happens to connections that die without a word is in the tests of pkg/x402/ledger/dynamo.
func TestFrozen(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	l, db := newLab(t), testbed.StartDynamo(t)
	fairly(t, func(tb testing.TB, p *pace) {
		frozen := make(chan struct{}, 100)
		table := httptest.NewServer(testbed.ProxyTo(tb, db.URL))
		defer table.Close()
		node := httptest.NewServer(testbed.PlayNode{Moved: l.facilitator.Transfers, ChainID: testbed.BaseChainID, Now: time.Now, Safe: 2 * time.Second})
		defer node.Close()
		s := l.setup()
		s.table, s.endpoint, s.env["RPC_URL"] = db.Table(tb), table.URL, node.URL
		d := openFunctions(tb, l, s, func(d *testbed.Deployment) { d.OnIdle = func(*testbed.Execution) { frozen <- struct{}{} } })
		// The facilitator takes the money and fails, so that the chain is asked.
		r := newRun(tb, l, d, pacedClient(p), x402test.FailAfter, x402test.FailAfter)
		r.moved = func() string { // the last transfer, of a list without an order
			return slices.MaxFunc(l.facilitator.Moved(r.payer), func(a, b x402test.Transfer) int { return a.At.Compare(b.At) }).Transaction
		}
		for _, kind := range []string{"A", "AAAA"} {
			r.sign(lookUp(r.name, kind), nil, nil)
			<-frozen
			table.CloseClientConnections()
			node.CloseClientConnections()
			e := r.pays(want{status: http.StatusOK, charged: "true", receipt: true})
			mentions(r, "the answer", string(e.Body), `"type":"`+kind+`"`)
			<-frozen
		}
		r.booked(2, 2)
		is(r, "processes", d.host.Started(dnsFunction), 1)
	})
}

type mishap int

const (
	unharmed     mishap = iota
	dropped             // the server has done it, and the connection closes
	killedBefore        // the process of the service is killed, and the server never sees it
	killedAfter         // the server has done it, and the process is killed
)

// The requests of a paid request, as a tap names them.
const (
	callVerify   = "verify"   // the facilitator judges a signature
	callSettle   = "settle"   // the facilitator moves the money
	writeClaim   = "claim"    // the record begins: settling
	writeSettled = "settled"  // the receipt
	writeRedeem  = "redeemed" // the answer
	sendAnswer   = "answer"   // the function gives its answer to Lambda
	callNode     = "node"     // a facilitator asks its Ethereum node
)

// tap lets the next requests of one kind to a service's servers meet with mishaps, one each.
type tap struct {
	tb testing.TB

	mu      sync.Mutex
	kind    string
	mishaps []mishap
	kill    func()              // ends the process that sends, or has it ended
	struck  chan struct{}       // closed when it has ended
	replies map[string][][]byte // of the servers, by kind
}

func newTap(tb testing.TB) *tap {
	return &tap{tb: tb, replies: map[string][][]byte{}}
}

func (p *tap) arm(kind string, mishaps ...mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind, p.mishaps, p.struck = kind, mishaps, make(chan struct{})
}

// left is how many mishaps have not happened since the tap was armed.
func (p *tap) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mishaps)
}

// choose decides what happens to a request.
func (p *tap) choose(kind string) mishap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == "" || kind != p.kind || len(p.mishaps) == 0 {
		return unharmed
	}
	m := p.mishaps[0]
	p.mishaps = p.mishaps[1:]
	return m
}

// strike kills the process that has sent a request, which gets no answer.
func (p *tap) strike(r *testbed.Relayed) {
	p.kill()
	close(p.struck)
	r.Drop()
}

// front is the URL of a server behind the tap. What has no kind is never harmed.
func (p *tap) front(kindOf func(*http.Request, []byte) string, server http.Handler) string {
	return testbed.Serve(p.tb, testbed.Relay{To: server, Do: func(r *testbed.Relayed) {
		kind := kindOf(r.Request, r.Sent)
		what := p.choose(kind)
		if what == killedBefore {
			p.strike(r)
			return
		}
		answer := r.Answer()
		p.mu.Lock()
		p.replies[kind] = append(p.replies[kind], answer.Body.Bytes())
		p.mu.Unlock()
		switch what {
		case dropped:
			r.Drop()
		case killedAfter:
			p.strike(r)
		default:
			r.Send(answer, answer.Body.Len())
		}
	}})
}

// callOf names a call of a facilitator; empty for any other request to it.
func callOf(r *http.Request, _ []byte) string {
	if r.Method != http.MethodPost {
		return ""
	}
	return strings.TrimPrefix(r.URL.Path, "/")
}

// writeOf names a write of a payment's record; empty for anything else.
func writeOf(r *http.Request, body []byte) string {
	state, _ := testbed.Written(r, body)
	if state == ledger.Settling {
		return writeClaim
	}
	return string(state)
}
