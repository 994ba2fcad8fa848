package gameday

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// call is one request to DynamoDB or to the facilitator.
type call struct {
	operation string       // such as PutItem or /settle
	state     ledger.State // of the payment that a PutItem writes, else empty
	payer     string       // in lower case, else empty
}

// failure is what happens to a call. It is carried out when the failure forwards it, and
// answered as that went, unless the failure says that it has dealt with the answer.
type failure func(w http.ResponseWriter, r *http.Request, c call, forward func()) (answer bool)

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
		c, answer := p.read(r.Request, r.Sent), httptest.NewRecorder()
		forward := func() {
			if answer = r.Answer(); answer.Code == http.StatusOK {
				p.served(c)
			}
		}
		if breaks := p.breaks.Load(); breaks == nil {
			forward()
		} else if !(*breaks)(w, r.Request, c, forward) {
			return
		}
		r.Send(answer, answer.Body.Len())
	}}.ServeHTTP(w, r)
}

// turnstile lets some payments begin at a time. Each of them starts a process
// and asks the table, and dozens at once would keep each other waiting. A
// payment that has been written to the table makes room for the next one.
type turnstile struct {
	room  chan struct{}
	leave sync.Map // func() by payer
}

// enter waits for room. The caller leaves when there is an answer, if nothing
// has been written before.
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
}

func newFacilitator(t testing.TB, addr string) *facilitator {
	t.Helper()
	f := &facilitator{books: testbed.NewFacilitator(t, nil)}
	f.next, f.served = f.books, func(call) {}
	f.read = func(r *http.Request, body []byte) call {
		return call{operation: r.URL.Path, payer: testbed.CallPayer(body)}
	}
	f.door = serve(t, addr, f, nil)
	return f
}

// answersAfter moves the money at once and answers when the time is up; never for 0.
func answersAfter(late time.Duration) failure {
	return func(w http.ResponseWriter, r *http.Request, c call, forward func()) bool {
		forward()
		var due <-chan time.Time
		if late > 0 {
			due = time.After(late)
		}
		select {
		case <-r.Context().Done():
			return false
		case <-due:
			return true
		}
	}
}

// hangs moves nothing and does not answer.
func hangs(_ http.ResponseWriter, r *http.Request, _ call, _ func()) bool {
	<-r.Context().Done()
	return false
}

// refuses says of every payment what a facilitator says whose token is paused.
func refuses(w http.ResponseWriter, _ *http.Request, _ call, _ func()) bool {
	_, _ = io.WriteString(w, `{"success":false,"errorReason":"invalid_exact_evm_transaction_simulation_failed","transaction":"","network":"eip155:8453"}`)
	return false
}

// untelling is a node that tells nothing of payments while it says so, and that it is
// there.
func untelling(next http.Handler, untold *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // next sees what is missing
		if untold.Load() && regexp.MustCompile(`"eth_(getLogs|call)"`).Match(body) {
			http.Error(w, "not in your plan", http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// table is a DynamoDB-compatible server behind a door. It knows whose answers it has.
type table struct {
	proxy
	redeemed sync.Map
}

func newTable(t testing.TB, addr, target string, passed func(payer string)) *table {
	t.Helper()
	b := &table{}
	b.next, b.read = testbed.ProxyTo(t, target), callOf
	b.served = func(c call) {
		if c.state == ledger.Redeemed {
			b.redeemed.Store(c.payer, true)
		}
		passed(c.payer)
	}
	b.door = serve(t, addr, b, nil)
	return b
}

// throttles turns away what is chosen, as DynamoDB does with what is above a table's
// capacity, with each of its two ways to say so.
func throttles(chosen func(call) bool) failure {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request, c call, forward func()) bool {
		if !chosen(c) {
			forward()
			return true
		}
		name, message := "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
			"The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API."
		if n.Add(1)%2 == 0 {
			name, message = "com.amazon.coral.availability#ThrottlingException", "Rate of requests exceeds the allowed throughput."
		}
		body := fmt.Sprintf(`{"__type":%q,"message":%q}`, name, message)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(body))))
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, body)
		return false
	}
}

func callOf(r *http.Request, body []byte) call {
	var q struct {
		Item map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &q) // only a write has an item
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	c := call{operation: operation}
	if key := strings.Split(q.Item[dynamo.AttrKey].S, "|"); operation == "PutItem" && len(key) == 4 {
		c.state, c.payer = ledger.State(q.Item[dynamo.AttrState].S), key[2]
	}
	return c
}
