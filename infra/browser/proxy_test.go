package browser

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// step is what the proxy does with one request that carries a signature.
type step func(p *proxy, w http.ResponseWriter, r *http.Request)

// proxy stands between the browser and the service. Requests without a
// signature pass; those with one take the next step of the plan, and pass when
// it is at its end.
type proxy struct {
	url     string
	forward *httputil.ReverseProxy

	mu   sync.Mutex
	plan []step
	seen []string // signatures, in order
	sent []http.Header
	urls []string
	got  []http.Header // what the service answered to them
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{}
	server := httptest.NewUnstartedServer(p)
	// Every request has a connection of its own: the browser sends a request
	// again by itself when a connection that it used before is cut.
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// to names the service.
func (p *proxy) to(t *testing.T, origin string) {
	t.Helper()
	u, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	p.forward = &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0), // a browser that gave up is part of a scenario
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Header.Get(x402.HeaderSignature) != "" {
				p.mu.Lock()
				p.got = append(p.got, r.Header.Clone())
				p.mu.Unlock()
			}
			return nil
		},
	}
}

// play sets the plan and forgets what was seen.
func (p *proxy) play(steps ...step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.seen, p.sent, p.urls, p.got = steps, nil, nil, nil, nil
}

// payments are the signatures that were seen, in order, and the headers that
// the service answered them with.
func (p *proxy) payments() (signatures, urls []string, sent, got []http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen, p.urls, p.sent, p.got
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	signature := r.Header.Get(x402.HeaderSignature)
	if signature == "" {
		p.forward.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	p.seen = append(p.seen, signature)
	p.urls = append(p.urls, r.URL.RequestURI())
	p.sent = append(p.sent, r.Header.Clone())
	do := pass
	if len(p.plan) > 0 {
		do, p.plan = p.plan[0], p.plan[1:]
	}
	p.mu.Unlock()
	do(p, w, r)
}

// pass lets the service answer.
func pass(p *proxy, w http.ResponseWriter, r *http.Request) { p.forward.ServeHTTP(w, r) }

// says answers in place of the service.
func says(status, retryAfter int, body string) step {
	return func(_ *proxy, w http.ResponseWriter, _ *http.Request) {
		kind := "application/json"
		if !strings.HasPrefix(body, "{") {
			kind = "text/html"
		}
		w.Header().Set("Content-Type", kind)
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the browser may be gone
	}
}

// fails answers an error of ours (design §3) in place of the service.
func fails(status, retryAfter int, code, message, charged string, retryable bool) step {
	return says(status, retryAfter, `{"error":{"code":"`+code+`","message":"`+message+`","charged":`+charged+
		`,"retryable":`+strconv.FormatBool(retryable)+`},"request_id":"x","docs_url":"/docs"}`)
}

// cutBefore loses the request.
func cutBefore(_ *proxy, w http.ResponseWriter, _ *http.Request) { drop(w) }

// cutAfter loses the answer: the service has done its work.
func cutAfter(p *proxy, w http.ResponseWriter, r *http.Request) {
	p.forward.ServeHTTP(httptest.NewRecorder(), r)
	drop(w)
}

// cutWithin loses the second half of the answer.
func cutWithin(p *proxy, w http.ResponseWriter, r *http.Request) {
	whole := httptest.NewRecorder()
	p.forward.ServeHTTP(whole, r)
	for name, values := range whole.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	drop(w)
}

// settledThen lets the service do its work and answers an error that says so,
// with the service's own receipt.
func settledThen(answer step) step {
	return func(p *proxy, w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		p.forward.ServeHTTP(whole, r)
		w.Header().Set(x402.HeaderResponse, whole.Header().Get(x402.HeaderResponse))
		answer(p, w, r)
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
