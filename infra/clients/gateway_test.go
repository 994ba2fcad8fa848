package clients

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// step is what a gateway does with one request that carries a payment.
type step func(*testbed.Relayed)

// gateway stands in front of a service, as API Gateway does. Requests without a
// payment pass; those with one take the next step of the plan, and pass when it is at
// its end. A service that does not answer is a lost connection.
type gateway struct {
	url string

	mu    sync.Mutex
	every step // where there is no plan; nil passes
	plan  []step
	seen  []paidRequest

	goesOn chan struct{} // sends the second piece of a page
}

// paidRequest is one that carries a payment.
type paidRequest struct {
	signature, key, uri string
	header              http.Header
	at                  time.Time
}

// newGateway starts one before the service at origin, which may start later.
func newGateway(t *testing.T, origin string, plan ...step) *gateway {
	g := &gateway{plan: plan, goesOn: make(chan struct{})}
	g.url = testbed.Serve(t, testbed.Relay{Do: g.decide, To: testbed.ProxyTo(t, origin)})
	return g
}

// play sets the plan and forgets what was seen.
func (g *gateway) play(plan ...step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plan, g.seen = plan, nil
}

// paid are the requests that paid, in their order.
func (g *gateway) paid() []paidRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

func (g *gateway) decide(r *testbed.Relayed) {
	do := pass
	if place := r.Request.Header.Get("Stop-Within"); place != "" {
		do = g.inPieces(place)
	}
	if signature := paymentOf(r); signature != "" {
		g.mu.Lock()
		header := r.Request.Header
		g.seen = append(g.seen, paidRequest{signature: signature, key: header.Get(x402.HeaderKey), uri: r.URL.RequestURI(), header: header.Clone(), at: time.Now()})
		if len(g.plan) > 0 {
			do, g.plan = g.plan[0], g.plan[1:]
		} else if g.every != nil {
			do = g.every
		}
		g.mu.Unlock()
	}
	do(r)
}

// paymentOf is the payment that a request carries, in its header or in _meta.
func paymentOf(r *testbed.Relayed) string {
	var call struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	_ = json.Unmarshal(r.Sent, &call) // the service judges it
	return r.Request.Header.Get(x402.HeaderSignature) + string(call.Params.Meta[mcp.KeyPayment])
}

// pass lets the service answer, cutBefore loses the request, and cutAfter the answer: the
// service has done its work. swallowed holds the connection until the client gives up.
var (
	pass      step = (*testbed.Relayed).Pass
	cutBefore step = (*testbed.Relayed).Drop
	cutAfter       = lostThen(cutBefore)
	swallowed      = lostThen((*testbed.Relayed).Hold)
)

// inPieces sends a page up to the end of place, and the rest after a request for /go-on, as
// a slow network does.
func (g *gateway) inPieces(place string) step {
	return func(r *testbed.Relayed) {
		if r.URL.Path == "/go-on" {
			select {
			case g.goesOn <- struct{}{}:
			case <-r.Context().Done():
			}
			return
		}
		r.Request.Header.Del("Accept-Encoding")
		answer := r.Answer()
		first, rest, found := strings.Cut(answer.Body.String(), place)
		if !found {
			r.Send(answer, answer.Body.Len())
			return
		}
		maps.Copy(r.ResponseWriter.Header(), answer.Header())
		_, _ = io.WriteString(r.ResponseWriter, first+place) // the client may be gone
		_ = http.NewResponseController(r.ResponseWriter).Flush()
		select {
		case <-g.goesOn:
			_, _ = io.WriteString(r.ResponseWriter, rest)
		case <-r.Context().Done():
		}
	}
}

// cutWithin loses the second half of the answer.
func cutWithin(r *testbed.Relayed) {
	answer := r.Answer()
	r.Send(answer, answer.Body.Len()/2)
}

// says answers in place of the service.
func says(status, retryAfter int, body string) step {
	return func(r *testbed.Relayed) {
		kind := "application/json"
		if !strings.HasPrefix(body, "{") {
			kind = "text/html"
		}
		r.ResponseWriter.Header().Set("Content-Type", kind)
		if retryAfter > 0 {
			r.ResponseWriter.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		r.WriteHeader(status)
		_, _ = io.WriteString(r.ResponseWriter, body) // the client may be gone
	}
}

// fails answers an error of ours (design §3) in place of the service.
func fails(status, retryAfter int, code, charged string, retryable bool) step {
	return says(status, retryAfter, `{"error":{"code":"`+code+`","message":"It is so.","charged":`+charged+
		`,"retryable":`+strconv.FormatBool(retryable)+`},"request_id":"x","docs_url":"/docs"}`)
}

// lostThen lets the service do its work, and does something else with its answer.
func lostThen(then step) step {
	return func(r *testbed.Relayed) {
		r.Answer()
		then(r)
	}
}

// settledThen is lostThen for an answer that carries the service's own receipt.
func settledThen(then step) step {
	return func(r *testbed.Relayed) {
		r.ResponseWriter.Header().Set(x402.HeaderResponse, r.Answer().Header().Get(x402.HeaderResponse))
		then(r)
	}
}

// stripped takes the signature away, as an intermediary may: the service answers its offer.
func stripped(r *testbed.Relayed) {
	r.Request.Header.Del(x402.HeaderSignature)
	r.Pass()
}

// changing lets the service answer and changes what it has said, as a stranger could.
func changing(header func(*x402.SettleResponse), body func([]byte) []byte) step {
	return func(r *testbed.Relayed) {
		answer := r.Answer()
		if body != nil {
			changed := body(answer.Body.Bytes())
			answer.Body.Reset()
			answer.Body.Write(changed)
		}
		if header != nil {
			changeReceipt(answer.Header(), header)
		}
		r.Send(answer, answer.Body.Len())
	}
}

// asking pays for another question: the service answers that one, and signs for it.
func asking(old, other string) step {
	return func(r *testbed.Relayed) {
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, other, 1)
		r.Pass()
	}
}
