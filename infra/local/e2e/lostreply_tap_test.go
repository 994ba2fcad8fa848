package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
)

// mishap is what happens to one attempt at a write.
type mishap int

const (
	unharmed  mishap = iota
	dropped          // the server has done it, and the connection closes
	late             // the server has done it, and the client gives up waiting
	reset            // the connection is reset before the server has it whole
	forgotten        // the client gives up waiting, and the server never sees it
)

// The writes of a paid request, as a tap names them.
const (
	writeOpen    = "open"    // the purchase
	writeClaim   = "claim"   // the record begins: settling
	writeFirst   = "first"   // the first lease that the operation ever has
	writePlace   = "place"   // a lease among others
	writeSettled = "settled" // the receipt
	writeRelease = "release" // the lease is given back
	writeRedeem  = "redeem"  // the answer
)

// tap stands between the SDK and the server. It lets one kind of write meet
// with mishaps: the first attempts at its first occurrence after it was armed,
// one mishap each.
type tap struct {
	tb     testing.TB
	target string

	mu       sync.Mutex
	kind     string
	mishaps  []mishap
	victim   string // SDK invocation that meets with them
	suffered int    // attempts that did
	seen     map[string]int
}

// newTap returns a tap and its address.
func newTap(tb testing.TB, db dynamotest.Server) (*tap, string) {
	tb.Helper()
	p := &tap{tb: tb, target: db.URL, seen: map[string]int{}}
	front := httptest.NewServer(p)
	tb.Cleanup(front.Close)
	return p, front.URL
}

// arm chooses the next victim.
func (p *tap) arm(kind string, mishaps ...mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind, p.mishaps, p.victim, p.suffered = kind, mishaps, "", 0
	p.seen = map[string]int{}
}

// harm is how many attempts met with a mishap, and how often each kind of
// write was sent, since the tap was armed.
func (p *tap) harm() (suffered int, seen map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suffered, maps.Clone(p.seen)
}

func (p *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	what := p.choose(kindOf(r, body), r.Header.Get("Amz-Sdk-Invocation-Id"))
	switch what {
	case reset:
		p.reset(w)
		return
	case forgotten:
		<-r.Context().Done()
		return
	case unharmed, dropped, late:
	}
	status, header, reply := p.forward(r, body)
	switch what {
	case dropped:
		panic(http.ErrAbortHandler)
	case late:
		<-r.Context().Done()
		return
	case unharmed, reset, forgotten:
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(reply) // the client may be gone
}

// choose decides what happens to an attempt. Attempts at one write have the
// same SDK invocation id.
func (p *tap) choose(kind, invocation string) mishap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == "" {
		return unharmed
	}
	p.seen[kind]++
	if p.victim == "" && kind == p.kind {
		p.victim = invocation
	}
	if invocation != p.victim || p.suffered >= len(p.mishaps) {
		return unharmed
	}
	p.suffered++
	return p.mishaps[p.suffered-1]
}

// reset ends a connection with RST.
func (p *tap) reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		p.tb.Errorf("tap: %v", err)
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is about to be closed
	}
	_ = c.Close()
}

func (p *tap) forward(r *http.Request, body []byte) (int, http.Header, []byte) {
	// The server finishes what it was sent, whether or not somebody listens.
	out, err := http.NewRequest(http.MethodPost, p.target, bytes.NewReader(body)) //nolint:noctx // deliberately
	if err != nil {
		p.tb.Errorf("tap: %v", err)
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	res, err := http.DefaultClient.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler) // the test is over
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return res.StatusCode, res.Header, reply
}

// kindOf names a write; empty for a read.
func kindOf(r *http.Request, body []byte) string {
	var q struct {
		Item             map[string]struct{ S string }
		UpdateExpression string
	}
	_ = json.Unmarshal(body, &q) // what is no write has no kind
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch {
	case op == "PutItem" && strings.HasPrefix(q.Item["pk"].S, "purchase|"):
		return writeOpen
	case op == "PutItem":
		return map[string]string{"settling": writeClaim, "settled": writeSettled, "redeemed": writeRedeem}[q.Item["state"].S]
	case strings.HasPrefix(q.UpdateExpression, "SET leases ="):
		return writeFirst
	case strings.HasPrefix(q.UpdateExpression, "SET leases."):
		return writePlace
	case strings.HasPrefix(q.UpdateExpression, "REMOVE "):
		return writeRelease
	}
	return ""
}
