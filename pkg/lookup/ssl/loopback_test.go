package ssl_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

const domain = "www.example.com"

// now is the middle of the validity that certificates of these tests have.
func now() time.Time { return time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC) }

// connector reaches one loopback address, whatever the name is.
type connector struct {
	t                   testing.TB
	addr                string
	resolveErr, dialErr error
	dials               atomic.Int32
}

var _ guard.Connector = (*connector)(nil)

func (c *connector) Resolve(_ context.Context, name string) (guard.Target, error) {
	if c.resolveErr != nil {
		return guard.Target{}, c.resolveErr
	}
	return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, nil
}

func (c *connector) Dial(ctx context.Context, target guard.Target, port uint16) (net.Conn, netip.Addr, error) {
	c.dials.Add(1)
	if target.Name != domain || port != 443 {
		c.t.Errorf("dialled %s port %d", target.Name, port)
	}
	if c.dialErr != nil {
		return nil, netip.Addr{}, c.dialErr
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, netip.Addr{}, fault.New(fault.ConnectFailed, err)
	}
	return conn, netip.MustParseAddr("::ffff:127.0.0.1"), nil
}

// peer serves connections on loopback until the test ends.
func peer(t testing.TB, serve func(net.Conn)) *connector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	open := map[net.Conn]bool{}
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			running.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	return &connector{t: t, addr: l.Addr().String()}
}

// tlsPeer serves handshakes and keeps each connection until the client leaves.
// change may be nil.
func tlsPeer(t testing.TB, chain [][]byte, key crypto.PrivateKey, change func(*tls.Config)) *connector {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}}
	if change != nil {
		change(cfg)
	}
	return peer(t, func(c net.Conn) { serveTLS(c, cfg) })
}

func serveTLS(c net.Conn, cfg *tls.Config) {
	s := tls.Server(c, cfg)
	if s.Handshake() == nil {
		s.Read(make([]byte, 1))
	}
}

// atMost fixes the version of a server.
func atMost(version uint16, suites ...uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, version, suites
	}
}

func client(c guard.Connector) *ssl.Client { return ssl.New(ssl.Config{Connector: c, Now: now}) }

func query() ssl.Query { return ssl.Query{Domain: domain} }

// lookup asks with a deadline that only a hang reaches.
func lookup(t *testing.T, c *connector) (ssl.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return client(c).Lookup(ctx, query())
}

// brief asks with a deadline that is meant to be reached. A lookup that did not
// heed it would hang: its peer never lets go.
func brief(t *testing.T, c *connector) (ssl.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return client(c).Lookup(ctx, query())
}
