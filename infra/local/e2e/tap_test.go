package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
)

// mishap is what happens to one attempt at a request.
type mishap int

const (
	unharmed     mishap = iota
	dropped             // the server has done it, and the connection closes
	late                // the server has done it, and the client gives up waiting
	reset               // the connection is reset before the server has it whole
	forgotten           // the client gives up waiting, and the server never sees it
	killedBefore        // its process is killed, and the server never sees it
	killedAfter         // the server has done it, and its process is killed
)

// The requests of a paid request, as a tap names them.
const (
	callVerify   = "verify"  // the facilitator judges a signature
	callSettle   = "settle"  // the facilitator moves the money
	writeOpen    = "open"    // the purchase
	writeClaim   = "claim"   // the record begins: settling
	writeFirst   = "first"   // the first lease that the operation ever has
	writePlace   = "place"   // a lease among others
	writeSettled = "settled" // the receipt
	writeRelease = "release" // the lease is given back
	writeRedeem  = "redeem"  // the answer
	sendAnswer   = "answer"  // the function gives its answer to Lambda
	callNode     = "node"    // a facilitator asks its Ethereum node
)

// tap stands between a service and its servers. It lets one kind of request meet
// with mishaps: the first attempts at its first occurrence after it was armed, one
// mishap each.
type tap struct {
	tb testing.TB

	mu       sync.Mutex
	kind     string
	mishaps  []mishap
	kill     func()        // ends the process that sends, or has it ended
	struck   chan struct{} // closed when it has ended
	chosen   bool
	victim   string // SDK invocation that meets with the mishaps
	suffered int    // attempts that did
	seen     map[string]int
}

func newTap(tb testing.TB) *tap { return &tap{tb: tb, seen: map[string]int{}} }

// arm chooses the next victim.
func (p *tap) arm(kind string, mishaps ...mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind, p.mishaps, p.chosen, p.suffered = kind, mishaps, false, 0
	p.struck, p.seen = make(chan struct{}), map[string]int{}
}

// harm is how many attempts met with a mishap, and how often each kind of
// request was sent, since the tap was armed.
func (p *tap) harm() (suffered int, seen map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suffered, maps.Clone(p.seen)
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
	if !p.chosen && kind == p.kind {
		p.chosen, p.victim = true, invocation
	}
	if kind != p.kind || invocation != p.victim || p.suffered >= len(p.mishaps) {
		return unharmed
	}
	p.suffered++
	return p.mishaps[p.suffered-1]
}

// strike kills the process that has sent a request, which gets no answer.
func (p *tap) strike() {
	p.kill()
	close(p.struck)
	panic(http.ErrAbortHandler) // closes the connection
}

// forward carries a request out, and is its answer.
type forward func(r *http.Request, body []byte) (status int, header http.Header, reply []byte)

// front is the URL of a server that a service reaches through the tap. kindOf
// names a request, and is empty for one that is never harmed.
func (p *tap) front(kindOf func(*http.Request, []byte) string, carry forward) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		case killedBefore:
			p.strike()
		case unharmed, dropped, late, killedAfter:
		}
		status, header, reply := carry(r, body)
		switch what {
		case dropped:
			panic(http.ErrAbortHandler)
		case late:
			<-r.Context().Done()
			return
		case killedAfter:
			p.strike()
		case unharmed, reset, forgotten, killedBefore:
		}
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = w.Write(reply) // the client may be gone
	}))
	p.tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// reset ends a connection with RST.
func (p *tap) reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		p.tb.Errorf("tap: %v", err)
		return
	}
	abort(c)
}

// facilitator is the URL of the lab's facilitator behind the tap.
func (p *tap) facilitator(l *lab) string {
	kindOf := func(r *http.Request, _ []byte) string {
		if r.Method != http.MethodPost {
			return ""
		}
		return strings.TrimPrefix(r.URL.Path, "/")
	}
	return p.front(kindOf, func(r *http.Request, body []byte) (int, http.Header, []byte) {
		answer := httptest.NewRecorder()
		r.Body = io.NopCloser(bytes.NewReader(body))
		l.serveFacilitator(answer, r)
		return answer.Code, answer.Header(), answer.Body.Bytes()
	})
}

// table is the URL of a DynamoDB server behind the tap.
func (p *tap) table(db dynamotest.Server) string { return p.front(writeOf, p.carryTo(db.URL)) }

// server is the URL of a server behind the tap, all requests to which are of one kind.
func (p *tap) server(kind, to string) string {
	return p.front(func(*http.Request, []byte) string { return kind }, p.carryTo(to))
}

// carryTo brings requests to a server. It finishes what it was sent, whether or not
// somebody listens.
func (p *tap) carryTo(to string) forward {
	return func(r *http.Request, body []byte) (int, http.Header, []byte) {
		out, err := http.NewRequest(http.MethodPost, to, bytes.NewReader(body)) //nolint:noctx // deliberately
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
}

// writeOf names a write; empty for a read.
func writeOf(r *http.Request, body []byte) string {
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
