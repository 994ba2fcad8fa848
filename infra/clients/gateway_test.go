package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// step is what a gateway does with one request that carries a payment.
type step func(g *gateway, w http.ResponseWriter, r *http.Request)

// gateway stands in front of a service, as API Gateway does. Requests without a
// payment pass; those with one take the next step of the plan, and pass when it is at
// its end. A service that does not answer is a lost connection.
type gateway struct {
	url string

	mu      sync.Mutex
	forward *httputil.ReverseProxy
	every   step // where there is no plan; nil passes
	plan    []step
	seen    []paidRequest
	got     []http.Header // what the service answered to them
}

// paidRequest is one that carries a payment.
type paidRequest struct {
	signature, key, uri string
	header              http.Header
	at                  time.Time
}

// newGateway starts one before the service at origin, which to may name later.
func newGateway(t *testing.T, origin string, plan ...step) *gateway {
	t.Helper()
	g := &gateway{plan: plan}
	server := httptest.NewUnstartedServer(g)
	// Every request has a connection of its own: a browser sends a request again by
	// itself when a connection that it used before is cut.
	server.Config.SetKeepAlivesEnabled(false)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.url = server.URL
	g.to(t, origin)
	return g
}

// to names the service.
func (g *gateway) to(t *testing.T, origin string) {
	t.Helper()
	u, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	g.forward = &httputil.ReverseProxy{
		Transport:    &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Header.Get(x402.HeaderSignature) != "" {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.got = append(g.got, r.Header.Clone())
			}
			return nil
		},
	}
}

// play sets the plan and forgets what was seen.
func (g *gateway) play(plan ...step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plan, g.seen, g.got = plan, nil, nil
}

// paid are the requests that paid, in their order.
func (g *gateway) paid() []paidRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// late says that the second payment came later than a time after the first.
func (g *gateway) late(d time.Duration) bool {
	paid := g.paid()
	return len(paid) > 1 && paid[1].at.Sub(paid[0].at) >= d
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do := pass
	if signature := paymentOf(r); signature != "" {
		g.mu.Lock()
		g.seen = append(g.seen, paidRequest{signature, r.Header.Get(x402.HeaderKey), r.URL.RequestURI(), r.Header.Clone(), time.Now()})
		if len(g.plan) > 0 {
			do, g.plan = g.plan[0], g.plan[1:]
		} else if g.every != nil {
			do = g.every
		}
		g.mu.Unlock()
	}
	do(g, w, r)
}

// paymentOf is the payment that a request carries, in its header or as a member of
// _meta; empty without one.
func paymentOf(r *http.Request) string {
	if r.Method != http.MethodPost {
		return r.Header.Get(x402.HeaderSignature)
	}
	body, _ := io.ReadAll(r.Body) // the service judges it
	r.Body = io.NopCloser(bytes.NewReader(body))
	var call struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	_ = json.Unmarshal(body, &call)
	return string(call.Params.Meta[mcp.KeyPayment])
}

// pass lets the service answer.
func pass(g *gateway, w http.ResponseWriter, r *http.Request) { g.forward.ServeHTTP(w, r) }

// whole is the service's answer, which finishes what it has begun when its client is
// gone.
func (g *gateway) whole(r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	g.forward.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	return answer
}

// send gives an answer whose body was replaced, of which only a part arrives if sent is
// shorter.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder, body, sent []byte) {
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(sent) // the client may be gone
	if len(sent) < len(body) {
		_ = http.NewResponseController(w).Flush()
		drop(w)
	}
}

// says answers in place of the service.
func says(status, retryAfter int, body string) step {
	return func(_ *gateway, w http.ResponseWriter, _ *http.Request) {
		kind := "application/json"
		if !strings.HasPrefix(body, "{") {
			kind = "text/html"
		}
		w.Header().Set("Content-Type", kind)
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}

// fails answers an error of ours (design §3) in place of the service.
func fails(status, retryAfter int, code, charged string, retryable bool) step {
	return says(status, retryAfter, `{"error":{"code":"`+code+`","message":"It is so.","charged":`+charged+
		`,"retryable":`+strconv.FormatBool(retryable)+`},"request_id":"x","docs_url":"/docs"}`)
}

// cutBefore loses the request.
func cutBefore(_ *gateway, w http.ResponseWriter, _ *http.Request) { drop(w) }

// cutAfter loses the answer: the service has done its work.
func cutAfter(g *gateway, w http.ResponseWriter, r *http.Request) { lostThen(cutBefore)(g, w, r) }

// cutWithin loses the second half of the answer.
func cutWithin(g *gateway, w http.ResponseWriter, r *http.Request) {
	answer := g.whole(r)
	send(w, answer, answer.Body.Bytes(), answer.Body.Bytes()[:answer.Body.Len()/2])
}

// lostThen lets the service do its work, and does something else than to pass its
// answer on.
func lostThen(then step) step {
	return func(g *gateway, w http.ResponseWriter, r *http.Request) {
		g.whole(r)
		then(g, w, r)
	}
}

// settledThen is lostThen for an answer that carries the service's own receipt.
func settledThen(then step) step {
	return func(g *gateway, w http.ResponseWriter, r *http.Request) {
		w.Header().Set(x402.HeaderResponse, g.whole(r).Header().Get(x402.HeaderResponse))
		then(g, w, r)
	}
}

// stripped loses the signature on the way, as an intermediary does that takes the header
// away: the service answers its offer.
func stripped(g *gateway, w http.ResponseWriter, r *http.Request) {
	r.Header.Del(x402.HeaderSignature)
	pass(g, w, r)
}

// silent gives no answer while the client waits for one. It closes held when it has the
// request.
func silent(held chan<- struct{}) step {
	return func(_ *gateway, _ http.ResponseWriter, r *http.Request) {
		close(held)
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
	}
}

// swallowed lets the service answer, keeps the answer to itself, and holds the
// connection until the client gives up.
func swallowed(g *gateway, _ http.ResponseWriter, r *http.Request) {
	g.whole(r)
	<-r.Context().Done()
}

// changing lets the service answer and changes what it has said, as a stranger in
// between could.
func changing(t *testing.T, header func(*x402.SettleResponse), body func([]byte) []byte) step {
	return func(g *gateway, w http.ResponseWriter, r *http.Request) {
		answer := g.whole(r)
		b := answer.Body.Bytes()
		if body != nil {
			b = body(b)
		}
		if header != nil {
			changeReceipt(t, answer.Header(), header)
		}
		send(w, answer, b, b)
	}
}

// asking pays with the client's signature for another question: the service answers that
// one, and signs for it.
func asking(old, other string) step {
	return func(g *gateway, w http.ResponseWriter, r *http.Request) {
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, other, 1)
		pass(g, w, r)
	}
}

// drop closes the connection of a request.
func drop(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset, as from a network that failed
	}
	_ = connection.Close()
}
