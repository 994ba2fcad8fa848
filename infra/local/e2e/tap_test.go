package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

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

// tap stands between a service and its servers. It lets one kind of request meet with mishaps:
// the first attempts at its first occurrence after it was armed, one mishap each.
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
	replies  map[string][][]byte // of the servers, by kind
}

func newTap(tb testing.TB) *tap {
	return &tap{tb: tb, seen: map[string]int{}, replies: map[string][][]byte{}}
}

func (p *tap) arm(kind string, mishaps ...mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind, p.mishaps, p.chosen, p.suffered, p.struck = kind, mishaps, false, 0, make(chan struct{})
}

// harm is how many attempts met with a mishap since the tap was armed, and how often
// each kind of request was ever sent.
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

// front is the URL of a server that a service reaches through the tap. kindOf
// names a request, and is empty for one that is never harmed.
func (p *tap) front(kindOf func(*http.Request, []byte) string, server http.Handler) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		kind := kindOf(r, body)
		what := p.choose(kind, r.Header.Get("Amz-Sdk-Invocation-Id"))
		switch what {
		case reset:
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				abort(c)
			}
			return
		case forgotten:
			<-r.Context().Done()
			return
		case killedBefore:
			p.strike()
		}
		// The server finishes what it was sent, whether or not somebody listens.
		sent, answer := r.Clone(context.WithoutCancel(r.Context())), httptest.NewRecorder()
		sent.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(answer, sent)
		p.mu.Lock()
		p.replies[kind] = append(p.replies[kind], answer.Body.Bytes())
		p.mu.Unlock()
		switch what {
		case dropped:
			panic(http.ErrAbortHandler)
		case late:
			<-r.Context().Done()
			return
		case killedAfter:
			p.strike()
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
	}))
	p.tb.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// proxyTo carries requests to a URL. Where that gives no answer, the connection ends.
func proxyTo(to string) http.Handler {
	h := httputil.NewSingleHostReverseProxy(must(url.Parse(to)))
	h.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	return h
}

// callOf names a call of a facilitator; empty for any other request to it.
func callOf(r *http.Request, _ []byte) string {
	if r.Method != http.MethodPost {
		return ""
	}
	return strings.TrimPrefix(r.URL.Path, "/")
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

// proxy forwards TCP connections. It can be cut, and it can spoil the connections
// that are open, as a peer does that restarts or a network that forgets.
type proxy struct {
	addr, to string

	down atomic.Bool

	mu      sync.Mutex
	strands map[*strand]bool // open
	dialed  int
}

type strand struct {
	near, far net.Conn

	mu   sync.Mutex
	lost bool // what is sent is swallowed
	late int  // bytes that were sent into it since
}

func newProxy(tb testing.TB, to string) *proxy {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	p := &proxy{addr: listener.Addr().String(), to: must(url.Parse(to)).Host, strands: map[*strand]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.forward(c) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		all.Wait()
	})
	return p
}

func (p *proxy) forward(near net.Conn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", p.to, patience)
	if err != nil {
		return
	}
	defer far.Close()
	w := &strand{near: near, far: far}
	p.mu.Lock()
	if p.down.Load() {
		p.mu.Unlock()
		return
	}
	p.strands[w] = true
	p.dialed++
	p.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lost {
			near.Close()
		}
	})
	_, _ = io.Copy(w, near)
	far.Close()
	near.Close()
	back.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.strands, w)
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down.Store(true)
	for w := range p.strands {
		w.close()
	}
}

func (p *proxy) mend() { p.down.Store(false) }

// open are the connections that are open, and dials is how many there have been.
func (p *proxy) open() (strands []*strand, dials int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.strands)), p.dialed
}

func (w *strand) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		w.late += len(b)
		return len(b), nil
	}
	return w.far.Write(b)
}

// close ends the near end politely, and reset with RST.
func (w *strand) close() { _ = w.near.Close() }
func (w *strand) reset() { abort(w.near) }

// abort closes a connection over TCP with RST.
func abort(c net.Conn) { _ = errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) }

// vanish cuts a connection in a way that its near end cannot see.
func (w *strand) vanish() {
	w.mu.Lock()
	w.lost = true
	w.mu.Unlock()
	_ = w.far.Close()
}

// swallowed is how much was sent into connections after they had vanished, and
// into how many of them.
func swallowed(strands []*strand) (bytes, used int) {
	for _, w := range strands {
		w.mu.Lock()
		if w.late > 0 {
			bytes, used = bytes+w.late, used+1
		}
		w.mu.Unlock()
	}
	return bytes, used
}
