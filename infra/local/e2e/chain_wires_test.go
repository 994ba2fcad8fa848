package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// wireTo passes requests on to a server, and ends the connection where that gives no
// answer.
func wireTo(tb testing.TB, to string) http.Handler {
	tb.Helper()
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	wire := httputil.NewSingleHostReverseProxy(u)
	wire.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	return wire
}

// listen serves one end of a wire until the end of the test.
func listen(tb testing.TB, h http.Handler) (base string) {
	server := httptest.NewServer(h)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// relay is the service's way to the facilitator. It remembers what was said, can
// hold settlements back, and can lose their answers.
type relay struct {
	url         string
	facilitator http.Handler
	deaf        atomic.Bool          // answers to /settle are lost
	before      atomic.Pointer[gate] // where settlements wait before they are passed on; nil is nowhere
	judged      atomic.Int64         // calls to /verify

	mu      sync.Mutex
	settles [][]byte // bodies of the calls to /settle
	said    []string // what each came to: a reason, or "settled"
}

func newRelay(tb testing.TB, to string) *relay {
	tb.Helper()
	r := &relay{facilitator: wireTo(tb, to)}
	r.url = listen(tb, r)
	return r
}

// hold has settlements wait from now on, until the end of the test at the latest.
func (r *relay) hold(tb testing.TB) *gate {
	g := newGate()
	tb.Cleanup(g.open)
	r.before.Store(g)
	return g
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/settle" {
		if req.URL.Path == "/verify" {
			r.judged.Add(1)
		}
		r.facilitator.ServeHTTP(w, req)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.note(func() { r.settles = append(r.settles, body) })
	if g := r.before.Load(); g != nil {
		g.pass(req.Context().Done())
	}
	answer := httptest.NewRecorder()
	r.facilitator.ServeHTTP(answer, req)
	r.note(func() { r.said = append(r.said, verdictOf(answer.Body.Bytes())) })
	if r.deaf.Load() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the service may be gone
}

func (r *relay) note(what func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what()
}

func verdictOf(answer []byte) string {
	var v x402.SettleResponse
	switch err := json.Unmarshal(answer, &v); {
	case err != nil:
		return fmt.Sprintf("unreadable: %.100s", answer)
	case v.Success:
		return "settled"
	}
	return v.ErrorReason
}

// heard is what every settlement came to so far, in order.
func (r *relay) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// identical checks that every request to /settle was the same, byte for byte.
func (r *relay) identical(tb testing.TB) {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, body := range r.settles {
		if !bytes.Equal(body, r.settles[0]) {
			tb.Errorf("request %d to /settle differs from the first:\n%s\n%s", i+1, body, r.settles[0])
		}
	}
}

// killer is a facilitator's way to the node. It can end the facilitator with
// kill -9 at one of its calls.
type killer struct {
	url   string
	node  http.Handler
	armed atomic.Pointer[strike]
}

// strike ends a facilitator when left calls are made: before the node has the last
// one, or before the facilitator has its answer.
type strike struct {
	left  atomic.Int64
	after bool
	kill  func()
}

func newKiller(tb testing.TB, to string) *killer {
	tb.Helper()
	k := &killer{node: wireTo(tb, to)}
	k.url = listen(tb, k)
	return k
}

// arm has the nth call from now on end the facilitator.
func (k *killer) arm(n int, after bool, kill func()) *strike {
	s := &strike{after: after, kill: kill}
	s.left.Store(int64(n))
	k.armed.Store(s)
	return s
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := k.armed.Load()
	if s == nil || s.left.Add(-1) != 0 {
		k.node.ServeHTTP(w, r)
		return
	}
	if s.after {
		k.node.ServeHTTP(httptest.NewRecorder(), r)
	} else {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	s.kill()
	panic(http.ErrAbortHandler)
}
