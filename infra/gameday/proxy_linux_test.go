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
	operation string       // of the facilitator, such as /settle
	state     ledger.State // of the payment that is written, else empty
	payer     string       // in lower case, else empty
}

// failure is what happens to a call, and what is answered. carryOut has the server do it, and
// returns what passes on how that went.
type failure func(r *testbed.Relayed, c call, carryOut func() (answer func()))

// proxy is a server behind a door in front of another one.
type proxy struct {
	*door
	read   func(r *http.Request, body []byte) call
	next   http.Handler
	served func(call) // when it was carried out well
	breaks atomic.Pointer[failure]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	testbed.Relay{To: p.next, Do: func(r *testbed.Relayed) {
		c := p.read(r.Request, r.Sent)
		carryOut := func() (answer func()) {
			a := r.Answer()
			if a.Code == http.StatusOK {
				p.served(c)
			}
			return func() { r.Send(a, a.Body.Len()) }
		}
		if breaks := p.breaks.Load(); breaks != nil {
			(*breaks)(r, c, carryOut)
		} else {
			carryOut()()
		}
	}}.ServeHTTP(w, r)
}

// turnstile lets some payments begin at a time: dozens at once would keep each other waiting. One
// that has been written to the table makes room for the next.
type turnstile struct {
	room  chan struct{}
	leave sync.Map // func() by payer
}

// enter waits for room. The caller leaves when there is an answer.
func (t *turnstile) enter(payer string) (leave func()) {
	t.room <- struct{}{}
	leave = sync.OnceFunc(func() { <-t.room })
	t.leave.Store(payer, leave)
	return leave
}

// passed makes room if the payer has come in.
func (t *turnstile) passed(payer string) {
	if leave, ok := t.leave.LoadAndDelete(payer); ok {
		leave.(func())()
	}
}

// facilitator is the one of play money behind a door.
type facilitator struct {
	proxy
	books *testbed.Facilitator
	asked atomic.Int32 // how often what it supports was asked for
}

func newFacilitator(t testing.TB, addr string) *facilitator {
	f := &facilitator{books: testbed.NewFacilitator(t)}
	f.next = f.books
	f.served = func(call) {}
	f.read = func(r *http.Request, body []byte) call {
		if r.URL.Path == "/supported" {
			f.asked.Add(1)
		}
		return call{operation: r.URL.Path, payer: testbed.CallPayer(body)}
	}
	f.door = serve(t, addr, f, nil)
	return f
}

// untelling is a node that is there, and tells nothing of payments while it says so.
func untelling(next http.Handler, untold *atomic.Bool) http.Handler {
	return testbed.Relay{To: next, Do: func(r *testbed.Relayed) {
		if untold.Load() && regexp.MustCompile(`"eth_(getLogs|call)"`).Match(r.Sent) {
			http.Error(r.ResponseWriter, "not in your plan", http.StatusForbidden)
			return
		}
		r.Pass()
	}}
}

// table is a DynamoDB-compatible server behind a door. It knows whose answers it has.
type table struct {
	proxy
	redeemed sync.Map
}

func newTable(t testing.TB, addr, target string, passed func(payer string)) *table {
	b := &table{}
	b.next = testbed.ProxyTo(t, target)
	b.read = func(r *http.Request, body []byte) (c call) {
		c.state, c.payer = cloud.Written(r, body)
		return c
	}
	b.served = func(c call) {
		if c.state == ledger.Redeemed {
			b.redeemed.Store(c.payer, true)
		}
		passed(c.payer)
	}
	b.door = serve(t, addr, b, nil)
	return b
}

// throttling turns away what is written of a payment after its claim, in DynamoDB's two ways.
func throttling(*world) failure {
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
