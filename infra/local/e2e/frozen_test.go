package e2e

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestFrozen: the table and the node close the connections of a function while it is frozen, as
// Lambda freezes it between two events. The next request, which needs both, is answered at
// once. What happens to connections that die without a word is in the tests of pkg/x402/ledger/dynamo.
func TestFrozen(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	l, db := newLab(t), testbed.StartDynamo(t)
	fairly(t, func(tb testing.TB, p *testbed.Pace) {
		frozen := make(chan struct{}, 100)
		table := httptest.NewServer(testbed.ProxyTo(tb, db.URL))
		defer table.Close()
		node := httptest.NewServer(testbed.PlayNode{Moved: l.facilitator.Transfers, ChainID: testbed.BaseChainID, Now: time.Now, Safe: 2 * time.Second})
		defer node.Close()
		s := l.setup()
		s.table, s.endpoint, s.env["RPC_URL"] = db.Table(tb), table.URL, node.URL
		d := openFunctions(tb, l, s, func(d *testbed.Deployment) { d.OnIdle = func(*testbed.Execution) { frozen <- struct{}{} } })
		// The facilitator takes the money and fails, so that the chain is asked.
		r := newRun(tb, l, d, p, x402test.FailAfter, x402test.FailAfter)
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
