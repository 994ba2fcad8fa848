package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// relay passes requests on to a facilitator, and remembers what was said. It
// can hold a settlement back and lose its answer.
type relay struct {
	url, to string
	client  *http.Client

	mu       sync.Mutex
	settles  [][]byte // bodies
	verdicts []string // what each came to: a reason, or "settled"
	verifies int
	deaf     bool  // answers to /settle are lost
	before   *gate // where a settlement waits before it is passed on
}

func newRelay(tb testing.TB, to string) *relay {
	r := &relay{to: to, client: &http.Client{Timeout: patience, Transport: &http.Transport{IdleConnTimeout: time.Second}}}
	server := httptest.NewServer(r)
	r.url = server.URL
	tb.Cleanup(func() {
		r.hold(nil)
		server.CloseClientConnections()
		server.Close()
		r.client.CloseIdleConnections()
	})
	return r
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.mu.Lock()
	g := r.before
	settle := req.URL.Path == "/settle"
	if settle {
		r.settles = append(r.settles, body)
	} else if req.URL.Path == "/verify" {
		r.verifies++
	}
	r.mu.Unlock()
	if settle && g != nil {
		g.pass(req.Context().Done())
	}
	status, answer := r.forward(req, body)
	r.mu.Lock()
	lost := settle && r.deaf
	if settle {
		r.verdicts = append(r.verdicts, verdictOf(answer))
	}
	r.mu.Unlock()
	if lost || status == 0 {
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the service may be gone
}

// forward returns status 0 when the facilitator gave no answer.
func (r *relay) forward(req *http.Request, body []byte) (int, []byte) {
	out, err := http.NewRequestWithContext(req.Context(), req.Method, r.to+req.URL.Path, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	out.Header.Set("Content-Type", req.Header.Get("Content-Type"))
	res, err := r.client.Do(out)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

func verdictOf(answer []byte) string {
	var v x402.SettleResponse
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Sprintf("unreadable: %.100s", answer)
	}
	if v.Success {
		return "settled"
	}
	return v.ErrorReason
}

// lose says whether the answers to /settle get lost from now on.
func (r *relay) lose(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = on
}

// hold has settlements wait at g from now on; nil lets them pass.
func (r *relay) hold(g *gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		r.before.open()
	}
	r.before = g
}

// said is what every settlement came to so far, in order.
func (r *relay) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.verdicts...)
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

func (r *relay) asked() (settles, verifies int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.settles), r.verifies
}
