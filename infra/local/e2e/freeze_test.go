package e2e

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// idleLimit is longer than any connection may idle (design §5).
const idleLimit = 5200 * time.Millisecond

// freezer is one warm dns function behind the gateway. What it keeps
// connections to is reached over proxies.
type freezer struct {
	lab               *lab
	d                 *deployment
	table, settlement *proxy
	frozen            chan lambdahost.Process
}

func newFreezer(tb testing.TB, rpc string) *freezer {
	db := testbed.StartDynamo(tb)
	f := &freezer{lab: newLab(tb), frozen: make(chan lambdahost.Process, 100)}
	f.table, f.settlement = newProxy(tb, db.URL), newProxy(tb, f.lab.url)
	s := f.lab.setup()
	s.facilitator, s.table, s.endpoint = "http://"+f.settlement.addr, db.Table(tb), "http://"+f.table.addr
	s.more["RPC_URL"] = rpc
	f.d = openFunctions(tb, f.lab, s, func(c *lambdahost.Config) {
		c.OnIdle = func(p lambdahost.Process) { f.frozen <- p }
	})
	return f
}

func (f *freezer) await(t testing.TB) {
	select {
	case <-f.frozen:
	case <-time.After(patience):
		t.Fatal("the function was not frozen")
	}
}

// signed is a payment that is signed and not sent. The function is frozen when
// it returns.
func (f *freezer) signed(t testing.TB, script ...x402test.Behaviour) *run {
	r := newRun(t, f.lab, f.d, newClient(), script...)
	r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)
	f.await(t)
	return r
}

// bought holds a payment to one lookup by the one process, which is frozen when it
// returns.
func (f *freezer) bought(t testing.TB, r *run) {
	is(t, "lookups", f.lab.dns.lookups(r.name), 1)
	f.await(t)
	is(t, "processes", f.d.host.Stats(dnsFunction).Spawned, 1)
}

// buy sends a payment: it is answered at once, by the same process.
func (f *freezer) buy(t testing.TB, r *run) {
	r.pays(r.answer())
	r.booked(catalog.DNS(), 1, 1)
	f.bought(t, r)
}

// freeze is what happens to the open connections while a function is frozen.
type freeze struct {
	name  string
	sleep time.Duration
	spoil func(*strand)
	// unnoticed: a connection that is dead and does not look it costs one
	// attempt's time.
	unnoticed bool
	renews    bool // a new connection is needed, of one that is kept
}

func freezes() []freeze {
	return []freeze{
		{name: "nothing happens", spoil: func(*strand) {}},
		{name: "peers close", spoil: (*strand).close, renews: true},
		{name: "peers reset", spoil: (*strand).reset, renews: true},
		{name: "peers vanish", spoil: (*strand).vanish, unnoticed: true},
		{name: "peers vanish during a long sleep", sleep: idleLimit, spoil: (*strand).vanish, renews: true},
	}
}

// through plays a freeze for the connections through a proxy. wake is the next
// request; connections that idled for too long are not used for it.
func (c freeze) through(t testing.TB, over *proxy, r *run, wake func()) {
	idle, before := over.open()
	if len(idle) == 0 {
		t.Error("no connection is kept")
	}
	for _, w := range idle {
		c.spoil(w)
	}
	if c.sleep > 0 {
		r.pause(c.sleep)
	}
	wake()
	bytes, used := swallowed(idle)
	switch {
	case c.unnoticed && used != 1:
		t.Errorf("%d of %d vanished connections were tried, want one", used, len(idle))
	case !c.unnoticed && used != 0:
		t.Errorf("%d bytes were sent into %d connections that had idled for too long", bytes, used)
	}
	if _, now := over.open(); c.renews && now == before {
		t.Error("no new connection")
	}
}

// each plays freezes, one after the other: the function is one.
func (f *freezer) each(t *testing.T, list []freeze, play func(testing.TB, freeze)) {
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) {
				for len(f.frozen) > 0 { // what a play that failed has left behind
					<-f.frozen
				}
				begun := time.Now()
				defer func() { p.took(time.Since(begun) - c.sleep) }()
				play(tb, c)
			})
		})
	}
}

// TestFreeze freezes a warm function, as Lambda does between invocations, and
// spoils its connections meanwhile. The next paid request is answered at once:
// none gets a 503 because its function has slept.
func TestFreeze(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	f := newFreezer(t, "none")
	f.each(t, freezes(), func(tb testing.TB, c freeze) {
		f.buy(tb, f.signed(tb)) // warm
		r := f.signed(tb)
		poll(tb, "the connection to the facilitator to end", func() bool {
			open, _ := f.settlement.open()
			return len(open) == 0
		})
		c.through(tb, f.table, r, func() { f.buy(tb, r) })
	})
}

// TestFreezeWithEvidence freezes a warm function that keeps a connection to its
// Ethereum node, and spoils the connection meanwhile. The next request needs
// the chain's word on a payment in doubt, and gets it at once.
func TestFreezeWithEvidence(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	node := testbed.StartChain(t)
	rpc := newProxy(t, node.URL)
	f := newFreezer(t, "http://"+rpc.addr)
	noticed := slices.DeleteFunc(freezes(), func(c freeze) bool { return c.unnoticed })
	f.each(t, noticed, func(tb testing.TB, c freeze) { f.proved(tb, c, node, rpc) })
}

// proved plays a freeze before a payment in doubt. The facilitator fails twice
// without doing anything: what happens, happens on the chain.
func (f *freezer) proved(t testing.TB, c freeze, node *testbed.Chain, rpc *proxy) {
	r := f.signed(t, x402test.FailBefore, x402test.FailBefore)
	node.Mint(t, r.wallet.Address(), dnsPrice(t))
	r.pays(fails(fault.SettlementUncertain))
	f.await(t)
	c.through(t, rpc, r, func() {
		hash := node.Transfer(t, signedBy(t, r.header)).Hash // by somebody else
		r.moved = func() string { return hash }
		r.pays(r.answer())
	})
	is(t, "settlements", f.lab.settles(r.payer), 2)
	is(t, "transfers in play money", len(f.lab.facilitator.Moved(r.payer)), 0)
	f.bought(t, r)
}

func signedBy(t testing.TB, header string) testbed.SignedTransfer {
	var p x402.Payload
	if err := decodeHeader(header, &p); err != nil {
		t.Fatal(err)
	}
	signature := must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
	return testbed.SignedTransfer{Authorization: p.Payload.Authorization, Signature: signature}
}
