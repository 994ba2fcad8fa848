package clients

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

const (
	// callsUntilItLeaves is the number of calls after which a client gives up for the time
	// being.
	callsUntilItLeaves = 3
	// narrowWindow is a duplicate window, in seconds, that is over before a client comes back.
	narrowWindow = "1"
	// patientClient is a client's timeout in seconds, for trials in which no answer is lost.
	// With a shorter timeout, a client could give up on a busy machine, and would then buy
	// again after a narrow window.
	patientClient = 120
)

// outage is a service and its buyers. The service's goods fail until the test repairs them.
type outage struct {
	world    world
	addr     string
	service  service
	isMended atomic.Bool
	buyers   []returningBuyer
}

// returningBuyer is a client that gives up, and comes back later.
type returningBuyer struct {
	client stockClient
	order  purchase
	payer  string
}

// TestClientsComeBack checks a client that gives up while the service still owes the answer.
// Then the service is killed and starts again, and its lookups work again. After the window,
// another process of the client sends a new signature. That process must get the answer. The
// two payments must be charged once, because the window begins only with an answer. The same
// must hold for the shop. charged.md has a row for this test.
func TestClientsComeBack(t *testing.T) {
	t.Parallel()
	outages := []*outage{newOutage(t, serviceGoods(t)), newOutage(t, shopGoods())}
	beforeReturn := playReturning(t, outages, func(p *purchase) { p.Calls = callsUntilItLeaves })
	for _, o := range outages {
		for _, b := range o.buyers {
			told, moved := beforeReturn[b.order.ID].Told, o.world.books.Moved(b.payer)
			if len(told) != callsUntilItLeaves || slices.Contains(told, 200) || len(moved) != 1 {
				t.Errorf("%s at %s: the loop was told %v, and paid %d times before it left", b.client.title, o.world.goods.name, told, len(moved))
			}
		}
		o.service.kill()
		o.isMended.Store(true)
		o.service = o.world.startAt(t, o.addr)
	}
	afterReturn := playReturning(t, outages, func(p *purchase) { p.Once = true })
	for _, o := range outages {
		for _, b := range o.buyers {
			r := afterReturn[b.order.ID]
			for _, fault := range r.check(o.world.goods.answer) {
				t.Errorf("%s at %s: %s: the client was told %v", b.client.title, o.world.goods.name, fault, r.Told)
			}
			if moved := o.world.books.Moved(b.payer); len(moved) != 1 || moved[0].Value != o.world.goods.amount {
				t.Errorf("%s at %s paid %d times, and is told %v", b.client.title, o.world.goods.name, len(moved), r.Told)
			}
		}
	}
	checkRow(t, "the loop ends while the answer is owed; the client comes back after the duplicate window, and signs again", len(stockClients()))
}

// newOutage starts a service that sells the given goods and cannot deliver them until isMended
// is set. It makes a buyer for each client.
func newOutage(t *testing.T, sold goods) *outage {
	o := &outage{addr: testbed.FreeAddr(t)}
	goodsFail := func() bool { return !o.isMended.Load() }
	o.world = newWorld(t, resolverOf(t, exampleZone(t), func(w dns.ResponseWriter, q *dns.Msg) bool { return goodsFail() && refuseQuery(w, q) }))
	o.world.goods = sold
	o.world.env["STATION"] = testbed.Serve(t, weatherStation(goodsFail))
	o.world.env["DUPLICATE_WINDOW_SECONDS"] = narrowWindow
	o.service = o.world.startAt(t, o.addr)
	for _, c := range stockClients() {
		order, payer := orderOf(t, o.service.url, sold, c.keyed)
		order.Timeout = patientClient
		o.buyers = append(o.buyers, returningBuyer{c, order, payer})
	}
	return o
}

// playReturning starts the program of every client. It changes a copy of each buyer's order
// with the function change, and lets the program of the buyer's client carry out the copy. It
// returns the results by the ID of the order.
func playReturning(t *testing.T, outages []*outage, change func(*purchase)) map[string]loopResult {
	t.Helper()
	programs := startAll(t)
	for _, o := range outages {
		for i, b := range o.buyers {
			change(&b.order)
			programs[i].orders = append(programs[i].orders, b.order)
		}
	}
	return playLoops(t, programs)
}
