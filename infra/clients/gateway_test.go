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

// step is what a gateway does with one request that has a payment.
type step func(*testbed.Relayed)

// gateway stands in front of a service, like API Gateway. Requests without a payment reach the
// service unchanged. Each request with a payment is handled by the next step of the plan. After
// the end of the plan, afterPlan handles the requests. If the service does not answer, the
// gateway closes the client's connection.
type gateway struct {
	url string

	mu        sync.Mutex
	afterPlan step // handles requests after the end of the plan; nil means pass
	plan      []step
	received  []paidRequest

	sendRest chan struct{} // gets a value when a step of sendInPieces may send the rest of a page
}

// paidRequest is a request with a payment.
type paidRequest struct {
	signature, key, uri string
	header              http.Header
	receivedAt          time.Time
}

// newGateway starts a gateway in front of the service at an origin. The service may start
// later.
func newGateway(t *testing.T, origin string, plan ...step) *gateway {
	g := &gateway{plan: plan, sendRest: make(chan struct{})}
	g.url = testbed.Serve(t, testbed.Relay{Do: g.decide, To: testbed.ProxyTo(t, origin)})
	return g
}

// setPlan sets a new plan, and forgets the requests received so far.
func (g *gateway) setPlan(plan ...step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plan, g.received = plan, nil
}

// paidRequests returns the requests with a payment, in order.
func (g *gateway) paidRequests() []paidRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.received)
}

func (g *gateway) decide(r *testbed.Relayed) {
	do := pass
	if place := r.Request.Header.Get("Stop-Within"); place != "" {
		do = g.sendInPieces(place)
	}
	if signature := paymentOf(r); signature != "" {
		g.mu.Lock()
		header := r.Request.Header
		g.received = append(g.received, paidRequest{signature: signature, key: header.Get(x402.HeaderKey), uri: r.URL.RequestURI(), header: header.Clone(), receivedAt: time.Now()})
		if len(g.plan) > 0 {
			do, g.plan = g.plan[0], g.plan[1:]
		} else if g.afterPlan != nil {
			do = g.afterPlan
		}
		g.mu.Unlock()
	}
	do(r)
}

// paymentOf returns the payment of a request, from its header or from _meta, or "" if the
// request has none.
func paymentOf(r *testbed.Relayed) string {
	var call struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	_ = json.Unmarshal(r.Sent, &call) // the service reports an invalid body
	return r.Request.Header.Get(x402.HeaderSignature) + string(call.Params.Meta[mcp.KeyPayment])
}

// pass lets the service answer. dropRequest drops the request. dropAnswer drops the answer,
// after the service has done its work. holdAnswer also drops the answer, but keeps the
// connection open until the client gives up.
var (
	pass        step = (*testbed.Relayed).Pass
	dropRequest step = (*testbed.Relayed).Drop
	dropAnswer       = loseAnswerThen(dropRequest)
	holdAnswer       = loseAnswerThen((*testbed.Relayed).Hold)
)

// sendInPieces returns a step that simulates a slow network. The step sends the page up to the
// end of the given text. It sends the rest after a request for /go-on.
func (g *gateway) sendInPieces(place string) step {
	return func(r *testbed.Relayed) {
		if r.URL.Path == "/go-on" {
			select {
			case g.sendRest <- struct{}{}:
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
		_, _ = io.WriteString(r.ResponseWriter, first+place) // fails if the client has hung up
		_ = http.NewResponseController(r.ResponseWriter).Flush()
		select {
		case <-g.sendRest:
			_, _ = io.WriteString(r.ResponseWriter, rest)
		case <-r.Context().Done():
		}
	}
}

// dropHalf drops the second half of the answer.
func dropHalf(r *testbed.Relayed) {
	answer := r.Answer()
	r.Send(answer, answer.Body.Len()/2)
}

// answerWith returns a step that answers the request itself. The service does not get the
// request.
func answerWith(status, retryAfter int, body string) step {
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
		_, _ = io.WriteString(r.ResponseWriter, body) // fails if the client has hung up
	}
}

// answerWithError returns a step that answers with an error in the service's format (design
// §3). The service does not get the request.
func answerWithError(status, retryAfter int, code, charged string, retryable bool) step {
	return answerWith(status, retryAfter, `{"error":{"code":"`+code+`","message":"It is so.","charged":`+charged+
		`,"retryable":`+strconv.FormatBool(retryable)+`},"request_id":"x","docs_url":"/docs"}`)
}

// loseAnswerThen returns a step that lets the service do its work, drops the answer, and
// leaves the reply to another step.
func loseAnswerThen(reply step) step {
	return func(r *testbed.Relayed) {
		r.Answer()
		reply(r)
	}
}

// keepReceiptThen is like loseAnswerThen, but the reply also has the header with the service's
// receipt.
func keepReceiptThen(reply step) step {
	return func(r *testbed.Relayed) {
		r.ResponseWriter.Header().Set(x402.HeaderResponse, r.Answer().Header().Get(x402.HeaderResponse))
		reply(r)
	}
}

// removeSignature removes the signature from the request, as an intermediary may do. The
// service then answers with its offer.
func removeSignature(r *testbed.Relayed) {
	r.Request.Header.Del(x402.HeaderSignature)
	r.Pass()
}

// changeAnswer returns a step that lets the service answer, and changes the answer as an
// attacker could.
func changeAnswer(header func(*x402.SettleResponse), body func([]byte) []byte) step {
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

// changeQuestion returns a step that changes the question. The service answers the changed
// question, and signs a receipt for it.
func changeQuestion(old, other string) step {
	return func(r *testbed.Relayed) {
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, other, 1)
		r.Pass()
	}
}
