package e2e

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy forwards TCP connections. It can be cut, and it can spoil the connections
// that are open, as a peer does that restarts or a network that forgets.
type proxy struct {
	addr, to string

	mu      sync.Mutex
	down    bool
	strands map[*strand]bool // open
	dialed  int
}

// strand is one connection through a proxy.
type strand struct {
	near, far net.Conn

	mu   sync.Mutex
	lost bool // what is sent is swallowed
	late int  // bytes that were sent into it since
}

// newProxy forwards to the address of a URL until the test ends.
func newProxy(tb testing.TB, to string) *proxy {
	tb.Helper()
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{addr: listener.Addr().String(), to: u.Host, strands: map[*strand]bool{}}
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

// forward takes one connection from its beginning to its end.
func (p *proxy) forward(near net.Conn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", p.to, patience)
	if err != nil {
		return
	}
	defer far.Close()
	w := &strand{near: near, far: far}
	if !p.hold(w) {
		return
	}
	defer p.drop(w)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		if !w.isLost() {
			near.Close()
		}
	})
	_, _ = io.Copy(w, near)
	far.Close()
	near.Close()
	back.Wait()
}

func (p *proxy) hold(w *strand) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.strands[w] = true
		p.dialed++
	}
	return !p.down
}

func (p *proxy) drop(w *strand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.strands, w)
}

// cut ends every connection and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for w := range p.strands {
		w.close()
	}
}

func (p *proxy) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// open are the connections that are open.
func (p *proxy) open() []*strand {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*strand, 0, len(p.strands))
	for w := range p.strands {
		list = append(list, w)
	}
	return list
}

// dials is how many connections there have been.
func (p *proxy) dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialed
}

// Write is what the near end sends.
func (w *strand) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		w.late += len(b)
		return len(b), nil
	}
	return w.far.Write(b)
}

func (w *strand) isLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// close ends the near end politely, and reset with RST.
func (w *strand) close() { _ = w.near.Close() }

func (w *strand) reset() { abort(w.near) }

// abort closes a connection with RST.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is about to be closed
	}
	_ = c.Close()
}

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
