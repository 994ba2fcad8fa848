package gameday

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// call is one request to DynamoDB or to the facilitator.
type call struct {
	operation string       // the path of a call to the facilitator, such as /settle; empty for a call to DynamoDB
	state     ledger.State // the state of the payment in a write to the table; empty for any other call
	payer     string       // the payer's address in lower case; empty if the call names none
}

// failure decides what happens to a call and how it is answered. carryOut lets the server
// carry out the call, and returns a function that passes the server's answer on to the client.
type failure func(r *testbed.Relayed, c call, carryOut func() (answer func()))

// proxy is a server that forwards calls to another server. While the door of the proxy is shut,
// the proxy cannot be reached.
type proxy struct {
	*door
	parseCall func(r *http.Request, body []byte) call
	next      http.Handler
	onSuccess func(call) // called when the server has answered with 200
	failure   atomic.Pointer[failure]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	testbed.Relay{To: p.next, Do: func(r *testbed.Relayed) {
		c := p.parseCall(r.Request, r.Sent)
		carryOut := func() (answer func()) {
			a := r.Answer()
			if a.Code == http.StatusOK {
				p.onSuccess(c)
			}
			return func() { r.Send(a, a.Body.Len()) }
		}
		if fail := p.failure.Load(); fail != nil {
			(*fail)(r, c, carryOut)
		} else {
			carryOut()()
		}
	}}.ServeHTTP(w, r)
}

// turnstile limits how many payments begin at the same time, because dozens at once would slow
// each other down. When a payment has been written to the table, the next payment may begin.
type turnstile struct {
	room  chan struct{}
	leave sync.Map // the functions that enter returned, by the payer's address
}

// enter waits until there is room for another payment. The caller calls the returned function
// when there is an answer.
func (t *turnstile) enter(payer string) (leave func()) {
	t.room <- struct{}{}
	leave = sync.OnceFunc(func() { <-t.room })
	t.leave.Store(payer, leave)
	return leave
}

// makeRoom makes room for another payment. It does nothing if the payer has not entered, or has
// already left.
func (t *turnstile) makeRoom(payer string) {
	if leave, ok := t.leave.LoadAndDelete(payer); ok {
		leave.(func())()
	}
}

// facilitator is the play-money facilitator behind a door.
type facilitator struct {
	proxy
	books          *testbed.Facilitator
	supportedCalls atomic.Int32 // number of calls to /supported
}

func newFacilitator(t testing.TB, addr string) *facilitator {
	f := &facilitator{books: testbed.NewFacilitator(t)}
	f.next = f.books
	f.onSuccess = func(call) {}
	f.parseCall = func(r *http.Request, body []byte) call {
		if r.URL.Path == "/supported" {
			f.supportedCalls.Add(1)
		}
		return call{operation: r.URL.Path, payer: testbed.CallPayer(body)}
	}
	f.door = serve(t, addr, f, nil)
	return f
}

// hidePayments returns a node that forwards calls to the handler next. While hidden is set, the
// node refuses the calls that look for payments.
func hidePayments(next http.Handler, hidden *atomic.Bool) http.Handler {
	return testbed.Relay{To: next, Do: func(r *testbed.Relayed) {
		if hidden.Load() && regexp.MustCompile(`"eth_(getLogs|call)"`).Match(r.Sent) {
			http.Error(r.ResponseWriter, "not in your plan", http.StatusForbidden)
			return
		}
		r.Pass()
	}}
}

// table is a DynamoDB-compatible server behind a door. The keys of redeemedPayers are the
// addresses of the payers whose answers are recorded in the table.
type table struct {
	proxy
	redeemedPayers sync.Map
}

// newTable returns a table that forwards calls to the server at target. After each call that
// succeeds, it calls onWrite with the payer of the payment that the call wrote. This payer is
// empty if the call wrote no payment.
func newTable(t testing.TB, addr, target string, onWrite func(payer string)) *table {
	b := &table{}
	b.next = testbed.ProxyTo(t, target)
	b.parseCall = func(r *http.Request, body []byte) (c call) {
		c.state, c.payer = cloud.Written(r, body)
		return c
	}
	b.onSuccess = func(c call) {
		if c.state == ledger.Redeemed {
			b.redeemedPayers.Store(c.payer, true)
		}
		onWrite(c.payer)
	}
	b.door = serve(t, addr, b, nil)
	return b
}

// throttleWrites returns a failure in which the table accepts the claim of a payment, but refuses
// the later writes. The refusals alternate between the two errors that DynamoDB uses for
// throttling.
func throttleWrites(*world) failure {
	var n atomic.Int64
	return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
		if c.state != ledger.Settled && c.state != ledger.Redeemed {
			carryOut()()
			return
		}
		name := "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
		if n.Add(1)%2 == 0 {
			name = "com.amazon.coral.availability#ThrottlingException"
		}
		body := fmt.Sprintf(`{"__type":%q,"message":"Rate of requests exceeds the allowed throughput."}`, name)
		header := r.ResponseWriter.Header()
		header.Set("Content-Type", "application/x-amz-json-1.0")
		header.Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(body))))
		r.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(r.ResponseWriter, body)
	}
}
