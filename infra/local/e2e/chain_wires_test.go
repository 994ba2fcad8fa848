package e2e

import (
	"encoding/json"
	"fmt"
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

// relay is the service's way to the facilitator. It remembers what was said, and can
// lose the answers to settlements.
type relay struct {
	url         string
	facilitator http.Handler
	deaf        atomic.Bool  // answers to /settle are lost
	judged      atomic.Int64 // calls to /verify

	mu   sync.Mutex
	said []string // what each settlement came to: a reason, or "settled"
}

func newRelay(tb testing.TB, to string) *relay {
	tb.Helper()
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	wire := httputil.NewSingleHostReverseProxy(u)
	// Where the facilitator gives no answer, the connection ends.
	wire.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	r := &relay{facilitator: wire}
	server := httptest.NewServer(r)
	r.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/settle" {
		if req.URL.Path == "/verify" {
			r.judged.Add(1)
		}
		r.facilitator.ServeHTTP(w, req)
		return
	}
	answer := httptest.NewRecorder()
	r.facilitator.ServeHTTP(answer, req)
	r.mu.Lock()
	r.said = append(r.said, verdictOf(answer.Body.Bytes()))
	r.mu.Unlock()
	if r.deaf.Load() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the service may be gone
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
