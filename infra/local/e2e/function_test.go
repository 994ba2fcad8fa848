package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// TestFunctionDiesWithItsAnswer ends a function after it has answered and
// before anybody has heard of it: the gateway answers 500, and the same
// signature gets the answer from the ledger.
func TestFunctionDiesWithItsAnswer(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	db := dynamotest.Start(t)
	fairly(t, func(tb testing.TB, p *pace) { dieWithAnswer(tb, p, db) })
}

func dieWithAnswer(t testing.TB, p *pace, db dynamotest.Server) {
	t.Helper()
	l := newLab(t)
	var armed atomic.Bool
	config := lambdaConfig(t, l.setup(), db.Table(t), db.URL)
	config.OnResponse = func(process lambdahost.Process, _ string, _ []byte) {
		if armed.CompareAndSwap(true, false) {
			process.Kill()
		}
	}
	host, err := lambdahost.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	server := httptest.NewServer(host)
	t.Cleanup(server.Close)

	r := &run{TB: t, lab: l, client: p.client(), id: fmt.Sprint("dies", caseIDs.Add(1)), d: &deployment{base: server.URL, origin: "https://" + gatewayDomain}}
	defer r.client.CloseIdleConnections()
	r.wallet, r.payer = l.wallet(t)
	r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)
	armed.Store(true)
	r.check(r.send(r.path), want{kind: fromGateway, status: http.StatusInternalServerError})

	// What a replay repeats was never seen, so its parts are compared.
	e := r.send(r.path)
	r.first = e
	r.check(e, result(r.fill(healthy().body)).replayed())
	if err := l.books(r.payer, "5000", 1, 1); err != nil {
		t.Error(err)
	}
	is(t, "lookups", l.dns.lookups(r.name), 1)
}
