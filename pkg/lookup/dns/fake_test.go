package dns_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

const (
	first  = "1.1.1.1:53"
	second = "8.8.8.8:53"
	third  = "9.9.9.10:53"

	ms = time.Millisecond
)

// script is what one fake resolver does with the nth datagram (from 0) that
// it gets: after a time it sends a reply, or nothing if reply is nil.
type script func(n int, query []byte) (after time.Duration, reply []byte)

func after(d time.Duration, changes ...change) script {
	return func(_ int, q []byte) (time.Duration, []byte) { return d, reply(q, changes...) }
}

func ok(d time.Duration) script { return after(d, answer(good)) }

func mute(int, []byte) (time.Duration, []byte) { return 0, nil }

// stream is a script over TCP: what it hears and says there has its length
// before it.
func stream(s script) script {
	return func(n int, frame []byte) (time.Duration, []byte) {
		after, b := s(n, frame[2:])
		if b == nil {
			return 0, nil
		}
		return after, framed(b)
	}
}

// fakeNet connects the client to scripts over pipes, inside a synctest bubble.
// A resolver without a script refuses the connection. Scripts and dials over
// TCP have "tcp " before the address.
type fakeNet struct {
	t       *testing.T
	scripts map[string]script
	begin   time.Time
	wrap    func(network, address string, c net.Conn) net.Conn // nil leaves connections as they are

	near  atomic.Int64 // connections that the client has not closed
	mu    sync.Mutex
	dials []string // "1.1.1.1:53 at 200ms", "tcp 1.1.1.1:53 at 2s"
	far   int      // connections that the resolvers have not seen closed
}

func newFakeNet(t *testing.T, scripts map[string]script) *fakeNet {
	return &fakeNet{t: t, scripts: scripts, begin: time.Now()}
}

func (f *fakeNet) client(resolvers ...string) *dns.Client {
	return dns.New(dns.Config{Resolvers: resolvers, Dial: f.dial})
}

func (f *fakeNet) dial(_ context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := address
	if network == "tcp" {
		key = "tcp " + address
	}
	f.dials = append(f.dials, fmt.Sprintf("%s at %v", key, time.Since(f.begin)))
	s, ok := f.scripts[key]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	near, far := net.Pipe()
	f.far++
	go f.serve(far, s)
	conn := origintest.Count(near, &f.near)
	if f.wrap != nil {
		conn = f.wrap(network, address, conn)
	}
	return conn, nil
}

func (f *fakeNet) serve(conn net.Conn, s script) {
	defer func() {
		conn.Close()
		f.mu.Lock()
		f.far--
		f.mu.Unlock()
	}()
	queries := make(chan []byte)
	go func() {
		defer close(queries)
		for {
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					f.t.Errorf("fake resolver: %v", err)
				}
				return
			}
			queries <- buf[:n]
		}
	}()
	var ready <-chan time.Time
	var answer []byte
	for n := 0; ; {
		select {
		case q, ok := <-queries:
			if !ok {
				return
			}
			if after, b := s(n, q); b != nil && ready == nil {
				ready, answer = time.After(after), b
			}
			n++
		case <-ready:
			ready = nil
			conn.Write(answer) // fails when the client has lost interest
		}
	}
}

// at holds the time since the beginning.
func (f *fakeNet) at(want time.Duration) {
	f.t.Helper()
	if at := time.Since(f.begin); at != want {
		f.t.Errorf("it was over after %v, want %v", at, want)
	}
}

// check compares the dials, if any are given. The client must have closed its
// connections by now, and the resolvers must see it.
func (f *fakeNet) check(dials ...string) {
	f.t.Helper()
	if n := f.near.Load(); n != 0 {
		f.t.Errorf("%d connections were open when the lookup returned", n)
	}
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if dials != nil && !slices.Equal(f.dials, dials) {
		f.t.Errorf("dialled %q, want %q", f.dials, dials)
	}
	if f.far != 0 {
		f.t.Errorf("%d connections were left open", f.far)
	}
}

// reluctantly is a wrap for connections that take a second to close, though
// nobody can read from them any more. It counts those that are open.
func reluctantly(open *atomic.Int64) func(string, string, net.Conn) net.Conn {
	return func(_, _ string, c net.Conn) net.Conn {
		open.Add(1)
		return &reluctant{Conn: c, open: open}
	}
}

type reluctant struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *reluctant) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		time.Sleep(time.Second) // in the bubble
		c.open.Add(-1)
	})
	return err
}
