package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// idleLimit is longer than any connection may idle (design §5).
const idleLimit = 5200 * time.Millisecond

// freezer is one warm dns function behind the gateway. What it has connections to
// is reached over a proxy; those to the facilitator it does not keep.
type freezer struct {
	lab                    *lab
	d                      *deployment
	node                   *testbed.Chain
	table, rpc, settlement *proxy
	frozen                 chan *testbed.Execution
}

func (f *freezer) await(t testing.TB) {
	select {
	case p := <-f.frozen:
		if runtime.GOOS != "linux" {
			return
		}
		testbed.Until(t, "the function stops", func() error {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
			if err == nil && !strings.Contains(string(status), ") T ") {
				err = fmt.Errorf("it is in the state %.60s", status)
			}
			return err
		})
	case <-time.After(patience):
		t.Fatal("the function was not frozen")
	}
}

// freeze is what happens to the open connections while a function is frozen.
type freeze struct {
	name  string
	sleep time.Duration
	spoil func(*strand)
	// unnoticed: a connection that is dead and does not look it costs one attempt's
	// time. The node has too little left for two.
	unnoticed bool
	renews    bool // a new connection is needed, of one that is kept
}

// TestFreeze freezes a warm function, as Lambda does between invocations, and spoils its
// connections meanwhile. The next request needs the table, and the chain's word on a payment in
// doubt. It is answered at once: none gets a 503 because its function has slept.
func TestFreeze(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	db := testbed.StartDynamo(t)
	f := &freezer{lab: newLab(t), frozen: make(chan *testbed.Execution, 100), node: testbed.StartChain(t)}
	f.table, f.rpc, f.settlement = newProxy(t, db.URL), newProxy(t, f.node.URL), newProxy(t, f.lab.url)
	s := f.lab.setup()
	s.facilitator, s.table, s.endpoint = "http://"+f.settlement.addr, db.Table(t), "http://"+f.table.addr
	s.more["RPC_URL"] = "http://" + f.rpc.addr
	f.d = openFunctions(t, f.lab, s, func(d *testbed.Deployment) {
		d.OnIdle = func(p *testbed.Execution) { f.frozen <- p }
	})
	for _, c := range []freeze{ // one after the other: the function is one
		{name: "nothing happens", spoil: func(*strand) {}},
		{name: "peers close", spoil: (*strand).close, renews: true},
		{name: "peers reset", spoil: (*strand).reset, renews: true},
		{name: "peers vanish", spoil: (*strand).vanish, unnoticed: true},
		{name: "peers vanish during a long sleep", sleep: idleLimit, spoil: (*strand).vanish, renews: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) {
				for len(f.frozen) > 0 { // what a play that failed has left behind
					<-f.frozen
				}
				begun := time.Now()
				defer func() { p.Took(time.Since(begun) - c.sleep) }()
				f.play(tb, c)
			})
		})
	}
}

// play brings a payment into doubt, and freezes the function: the facilitator has
// failed twice without doing anything, and what happens, happens on the chain.
func (f *freezer) play(t testing.TB, c freeze) {
	r := newRun(t, f.lab, f.d, newClient(), x402test.FailBefore, x402test.FailBefore)
	r.sign(r.lookUp(modeHealthy), nil, nil)
	f.await(t)
	f.node.Mint(t, r.wallet.Address(), dnsPrice())
	r.pays(fails(fault.SettlementUncertain))
	f.await(t)
	testbed.Until(t, "the connections to the facilitator end", func() (err error) {
		if open, _ := f.settlement.open(); len(open) > 0 {
			err = fmt.Errorf("%d are open", len(open))
		}
		return err
	})
	over := []*proxy{f.table, f.rpc}
	if c.unnoticed {
		over = over[:1]
	}
	c.through(t, over, r, func() {
		_, s := signedBy(r.header)
		hash := f.node.Transfer(t, s).Hash // by somebody else
		r.moved = func() string { return hash }
		r.pays(r.answer())
	})
	is(t, "settlements", f.lab.facilitator.Asked(r.payer), 2)
	is(t, "transfers in play money", len(f.lab.facilitator.Moved(r.payer)), 0)
	is(t, "lookups", f.lab.dns.lookups(r.name), 1)
	f.await(t)
	is(t, "processes", f.d.host.Started(dnsFunction), 1)
}

// through plays a freeze for the connections through proxies. wake is the next
// request; connections that idled for too long are not used for it.
func (c freeze) through(t testing.TB, over []*proxy, r *run, wake func()) {
	idle, before := map[*proxy][]*strand{}, map[*proxy]int{}
	for _, p := range over {
		if idle[p], before[p] = p.open(); len(idle[p]) == 0 {
			t.Error("no connection is kept")
		}
		for _, w := range idle[p] {
			c.spoil(w)
		}
	}
	r.pause(c.sleep)
	wake()
	for _, p := range over {
		if bytes, used := swallowed(idle[p]); used != map[bool]int{true: 1}[c.unnoticed] {
			t.Errorf("%d bytes were sent into %d of %d dead connections", bytes, used, len(idle[p]))
		}
		if _, now := p.open(); c.renews && now == before[p] {
			t.Error("no new connection")
		}
	}
}
