package testbed

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Origins is a simulated internet for one test. If a client leaves a connection open, Origins
// reports an error at the end of the test.
type Origins struct {
	t    testing.TB
	cert tls.Certificate

	mu            sync.Mutex
	names         map[string]OriginName
	loopbackAddrs map[string]string // the loopback ip:port that stands for a public ip:port
	dialedAddrs   []string          // every public ip:port to which the guard has tried to connect, in order
	lookedUpNames []string          // the names that the guard has looked up, in order
	openConns     atomic.Int64
}

// OriginName is what a resolver returns for a name: addresses or an error.
type OriginName struct {
	Addrs []string
	Err   error
}

// NewOrigins returns an empty Origins.
func NewOrigins(t testing.TB) *Origins {
	t.Helper()
	cert := NewAuthority(t, pkix.Name{}).Leaf("elsewhere.test.com", func(c *x509.Certificate) {
		c.NotBefore = time.Unix(0, 0)
		c.NotAfter = time.Unix(1e9, 0) // in the past
	})
	w := &Origins{
		t:             t,
		cert:          cert,
		names:         map[string]OriginName{},
		loopbackAddrs: map[string]string{},
	}
	t.Cleanup(func() {
		if n := w.openConns.Load(); n != 0 {
			t.Errorf("%d connections were left open", n)
		}
	})
	return w
}

// Resolve sets what a name resolves to.
func (w *Origins) Resolve(name string, n OriginName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = n
}

// HTTP makes a name resolve to an address, and serves HTTPS at this address with a handler.
func (w *Origins) HTTP(name, addr string, h http.Handler) {
	w.t.Helper()
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go s.Serve(tls.NewListener(w.listen(name, addr), w.TLS()))
	w.t.Cleanup(func() { s.Close() })
}

// Serve makes a name resolve to an address. Each TLS connection to this address is passed to
// the given function, after the handshake. The connection is closed when the function returns
// or the test ends.
func (w *Origins) Serve(name, addr string, each func(*tls.Conn)) {
	w.t.Helper()
	w.Accept(name, addr, func(conn net.Conn) {
		secure := tls.Server(conn, w.TLS())
		if secure.Handshake() == nil {
			each(secure)
		}
	})
}

// Accept is like Serve, for plain TCP connections.
func (w *Origins) Accept(name, addr string, each func(net.Conn)) {
	w.t.Helper()
	l := w.listen(name, addr)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(w.t.Context(), func() { conn.Close() })()
				each(conn)
			})
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
}

// Answers returns a function for Serve. The function replies to each request on a connection
// with the next of the answers. After the last answer, it closes the connection.
func Answers(answers ...string) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		r := bufio.NewReader(conn)
		for _, a := range answers {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			io.WriteString(conn, a)
		}
	}
}

// Soon returns a context whose timeout is much longer than any answer takes.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Expiring returns a context, and a function that makes the deadline of this context pass.
func Expiring(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	return expiringContext{ctx}, cancel
}

type expiringContext struct{ context.Context }

func (e expiringContext) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// Value hides the inner context. Otherwise a context that is derived from this one would find
// the inner context, and would take its error from there.
func (expiringContext) Value(any) any { return nil }

// Code returns the fault code of an error, or "" for nil.
func Code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

// Each runs the cases of a table in parallel. Each case is a subtest with the case's name.
func Each[C any](t *testing.T, cases map[string]C, run func(t *testing.T, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// TLS returns the TLS configuration of the servers of w.
func (w *Origins) TLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{w.cert}, MinVersion: tls.VersionTLS10}
}

func (w *Origins) listen(name, addr string) net.Listener {
	w.t.Helper()
	l := Must(net.Listen("tcp", "127.0.0.1:0"))
	w.Resolve(name, OriginName{Addrs: []string{addr}})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loopbackAddrs[net.JoinHostPort(addr, "443")] = l.Addr().String()
	return l
}

// Dialer returns a real guard.Dialer that has only the names and the addresses of w. It behaves
// as on a machine with IPv6.
func (w *Origins) Dialer() *guard.Dialer {
	return &guard.Dialer{
		Resolver: w, Connect: w.dial,
		HasRoute: func(context.Context, netip.Addr) bool { return true },
	}
}

// Dials returns every public ip:port to which the guard has tried to connect, in order.
func (w *Origins) Dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialedAddrs)
}

// Asked returns the names that the guard has looked up, in order.
func (w *Origins) Asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lookedUpNames)
}

// Addresses implements guard.Resolver.
func (w *Origins) Addresses(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookedUpNames = append(w.lookedUpNames, name)
	n, ok := w.names[name]
	if !ok {
		return nil, lookup.Fault(lookup.NXDomain, nil)
	}
	var out []netip.Addr
	for _, a := range n.Addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, n.Err
}

func (w *Origins) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	to := w.loopbackAddrs[address]
	w.dialedAddrs = append(w.dialedAddrs, address)
	w.mu.Unlock()
	if to == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, fmt.Errorf("loopback: %w", err)
	}
	return CountOpen(conn, &w.openConns), nil
}

// CountOpen adds 1 to the counter open. It returns a connection that subtracts 1 when it is
// first closed.
func CountOpen(conn net.Conn, open *atomic.Int64) net.Conn {
	open.Add(1)
	return &countedConn{Conn: conn, open: open}
}

type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
