package e2e

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// line forwards connections and can spoil those that are open, as a peer does
// that restarts or a network that forgets. New connections are not concerned.
type line struct {
	addr, to string

	mu      sync.Mutex
	strands map[*strand]bool // open
	dialed  int
}

// strand is one connection through a line.
type strand struct {
	near, far net.Conn

	mu   sync.Mutex
	lost bool // what is sent is swallowed
	late int  // bytes that were sent into it since
}

func newLine(tb testing.TB, to string) *line {
	tb.Helper()
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &line{addr: listener.Addr().String(), to: u.Host, strands: map[*strand]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { l.carry(c) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		for _, w := range l.open() {
			w.end(false)
		}
		all.Wait()
	})
	return l
}

// carry takes one connection from its beginning to its end.
func (l *line) carry(near net.Conn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", l.to, patience)
	if err != nil {
		return
	}
	defer far.Close()
	w := &strand{near: near, far: far}
	l.mu.Lock()
	l.strands[w] = true
	l.dialed++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.strands, w)
	}()
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

// end closes the near end, politely or with RST.
func (w *strand) end(rudely bool) {
	if tcp, ok := w.near.(*net.TCPConn); ok && rudely {
		_ = tcp.SetLinger(0) // it is about to be closed
	}
	_ = w.near.Close()
}

// vanish cuts a connection in a way that its near end cannot see.
func (w *strand) vanish() {
	w.mu.Lock()
	w.lost = true
	w.mu.Unlock()
	_ = w.far.Close()
}

// open are the connections that are open.
func (l *line) open() []*strand {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*strand, 0, len(l.strands))
	for w := range l.strands {
		list = append(list, w)
	}
	return list
}

// dials is how many connections there have been.
func (l *line) dials() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialed
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

// idleLimit is longer than any connection may idle (design §5).
const idleLimit = 5200 * time.Millisecond
