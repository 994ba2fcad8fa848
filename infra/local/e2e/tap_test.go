package e2e

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

type mishap int

const (
	unharmed     mishap = iota
	dropped             // the server has done it, and the connection closes
	killedBefore        // the process of the service is killed, and the server never sees it
	killedAfter         // the server has done it, and the process is killed
)

// The requests of a paid request, as a tap names them.
const (
	callVerify   = "verify"   // the facilitator judges a signature
	callSettle   = "settle"   // the facilitator moves the money
	writeClaim   = "claim"    // the record begins: settling
	writeSettled = "settled"  // the receipt
	writeRedeem  = "redeemed" // the answer
	sendAnswer   = "answer"   // the function gives its answer to Lambda
	callNode     = "node"     // a facilitator asks its Ethereum node
)

// tap stands between a service and its servers. It lets the next requests of one kind
// meet with mishaps, one each.
type tap struct {
	tb testing.TB

	mu      sync.Mutex
	kind    string
	mishaps []mishap
	kill    func()              // ends the process that sends, or has it ended
	struck  chan struct{}       // closed when it has ended
	replies map[string][][]byte // of the servers, by kind
}

func newTap(tb testing.TB) *tap {
	return &tap{tb: tb, replies: map[string][][]byte{}}
}

func (p *tap) arm(kind string, mishaps ...mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind, p.mishaps, p.struck = kind, mishaps, make(chan struct{})
}

// left is how many mishaps have not happened since the tap was armed.
func (p *tap) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mishaps)
}

// choose decides what happens to a request.
func (p *tap) choose(kind string) mishap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == "" || kind != p.kind || len(p.mishaps) == 0 {
		return unharmed
	}
	m := p.mishaps[0]
	p.mishaps = p.mishaps[1:]
	return m
}

// strike kills the process that has sent a request, which gets no answer.
func (p *tap) strike(r *testbed.Relayed) {
	p.kill()
	close(p.struck)
	r.Drop()
}

// front is the URL of a server that a service reaches through the tap. kindOf
// names a request, and is empty for one that is never harmed.
func (p *tap) front(kindOf func(*http.Request, []byte) string, server http.Handler) string {
	return testbed.Serve(p.tb, testbed.Relay{To: server, Do: func(r *testbed.Relayed) {
		kind := kindOf(r.Request, r.Sent)
		what := p.choose(kind)
		if what == killedBefore {
			p.strike(r)
			return
		}
		answer := r.Answer()
		p.mu.Lock()
		p.replies[kind] = append(p.replies[kind], answer.Body.Bytes())
		p.mu.Unlock()
		switch what {
		case dropped:
			r.Drop()
		case killedAfter:
			p.strike(r)
		default:
			r.Send(answer, answer.Body.Len())
		}
	}})
}

// callOf names a call of a facilitator; empty for any other request to it.
func callOf(r *http.Request, _ []byte) string {
	if r.Method != http.MethodPost {
		return ""
	}
	return strings.TrimPrefix(r.URL.Path, "/")
}

// writeOf names a write of a payment's record; empty for anything else.
func writeOf(r *http.Request, body []byte) string {
	var q struct {
		Item map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &q) // only a write has a kind
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") || strings.HasPrefix(q.Item[dynamo.AttrKey].S, "purchase|") {
		return ""
	}
	if state := q.Item[dynamo.AttrState].S; state != string(ledger.Settling) {
		return state
	}
	return writeClaim
}

// proxy forwards TCP connections. It can spoil those that are open, as a peer does that
// restarts or a network that forgets.
type proxy struct {
	addr, to string

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
		open, _ := p.open()
		for _, w := range open {
			w.close()
		}
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
func (w *strand) reset() { testbed.Reset(w.near) }

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
