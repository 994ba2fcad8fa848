package ssl_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// cutConn lets a server's first n bytes through and then runs end in place of
// the server.
type cutConn struct {
	net.Conn
	left int
	end  func(net.Conn)
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrClosedPipe
	}
	n, err := c.Conn.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && err == nil {
		c.end(c.Conn)
		c.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

// cutFlight serves a handshake whose first flight ends after n bytes.
func cutFlight(t *testing.T, chain [][]byte, version uint16, n int, end func(net.Conn)) *connector {
	t.Helper()
	cfg := &tls.Config{MaxVersion: version, Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: ecKey()}}}
	return peer(t, func(c net.Conn) { serveTLS(&cutConn{c, n, end}, cfg) })
}

// endConn runs end in place of a TLS 1.2 server's reading of the client's
// second flight.
type endConn struct {
	net.Conn
	wrote, ended bool
	end          func(net.Conn)
}

func (c *endConn) Write(p []byte) (int, error) {
	c.wrote = true
	return c.Conn.Write(p)
}

func (c *endConn) Read(p []byte) (int, error) {
	if !c.wrote {
		return c.Conn.Read(p)
	}
	if !c.ended {
		c.ended = true
		// The client's second flight is taken first: closing on unread bytes
		// would be a reset.
		c.Conn.Read(make([]byte, 1<<16))
		c.end(c.Conn)
		c.Close()
	}
	return 0, io.EOF
}

// firstFlight serves the first flight of TLS 1.2 in full, and then end.
func firstFlight(t *testing.T, chain [][]byte, end func(net.Conn)) *connector {
	t.Helper()
	cfg := &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: ecKey()}}}
	return peer(t, func(c net.Conn) { serveTLS(&endConn{Conn: c, end: end}, cfg) })
}

// script writes bytes to whoever connects and stays until they leave.
func script(t *testing.T, out ...[]byte) *connector {
	t.Helper()
	return peer(t, func(c net.Conn) {
		c.Read(make([]byte, 1<<16))
		for _, b := range out {
			c.Write(b)
		}
		io.Copy(io.Discard, c)
	})
}

// TestNoLeaf: peers that answer and show no certificate.
func TestNoLeaf(t *testing.T) {
	hangUp := func(out string) *connector {
		return peer(t, func(c net.Conn) {
			c.Read(make([]byte, 1<<16))
			io.WriteString(c, out)
		})
	}
	const noTLS = "The host does not speak TLS on port 443."
	type row struct {
		peer    *connector
		message string
		dials   int32
	}
	origintest.Each(t, map[string]row{
		"HTTP":                {hangUp("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), noTLS, 1},
		"SSH":                 {script(t, []byte("SSH-2.0-OpenSSH_9.9\r\n")), noTLS, 1},
		"SMTP":                {script(t, []byte("220 mail.example.com ESMTP\r\n")), noTLS, 1},
		"close":               {hangUp(""), "The TLS handshake failed before the host sent a certificate.", 2},
		"reset":               {peer(t, func(c net.Conn) { c.Read(make([]byte, 1)); c.(*net.TCPConn).SetLinger(0) }), "The TLS handshake failed before the host sent a certificate.", 2},
		"alert":               {script(t, []byte{21, 3, 1, 0, 2, 2, 40}), "The host refused the TLS handshake with alert 40 before it sent a certificate.", 2},
		"alert for the name":  {script(t, []byte{21, 3, 1, 0, 2, 2, 112}), "The host refused the TLS handshake with alert 112 before it sent a certificate.", 1},
		"warnings":            {script(t, bytes.Repeat([]byte{21, 3, 1, 0, 2, 1, 112}, 50)), "The TLS handshake failed before the host sent a certificate.", 2},
		"record too long":     {script(t, []byte{22, 3, 3, 0xff, 0xff}), noTLS, 1},
		"empty records":       {script(t, bytes.Repeat([]byte{22, 3, 3, 0, 0}, 1000)), "The TLS handshake failed before the host sent a certificate.", 2},
		"no TLS certificate":  {tlsPeer(t, [][]byte{{0x30, 3, 1, 1, 0xff}}, ecKey(), nil), "The host sent a certificate that cannot be read.", 1},
		"message too large":   {script(t, []byte{22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff}), "The TLS handshake failed before the host sent a certificate.", 2},
		"nothing in common":   {tlsPeer(t, [][]byte{with(nil)}, ecKey(), atMost(tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)), "The host refused the TLS handshake with alert 40 before it sent a certificate.", 2},
		"empty list, TLS 1.2": {script(t, helloTLS12(), []byte{22, 3, 3, 0, 7, 11, 0, 0, 3, 0, 0, 0}), "The TLS handshake failed before the host sent a certificate.", 1},
	}, func(t *testing.T, c row) {
		_, err := lookup(t, c.peer)
		f := fault.From(err)
		if f.Code != fault.HandshakeFailed || f.Public() != c.message || c.peer.dials.Load() != c.dials {
			t.Errorf("%s %q after %d dials: %v", f.Code, f.Public(), c.peer.dials.Load(), err)
		}
	})
}

// helloTLS12 is the record of a ServerHello for TLS 1.2.
func helloTLS12() []byte {
	hello := append([]byte{3, 3}, make([]byte, 32)...)
	hello = append(hello, 0, 0xc0, 0x2b, 0)
	message := append([]byte{2, 0, 0, byte(len(hello))}, hello...)
	return append([]byte{22, 3, 3, 0, byte(len(message))}, message...)
}

// TestSlow: peers that do not get to a certificate in time.
func TestSlow(t *testing.T) {
	drip := func(b []byte) *connector {
		return peer(t, func(c net.Conn) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				if _, err := c.Write(b[i%len(b):][:1]); err != nil {
					return
				}
				<-tick.C
			}
		})
	}
	origintest.Each(t, map[string]*connector{
		"silence":             script(t),
		"half a record":       script(t, []byte{22, 3, 3}),
		"hello, then silence": script(t, helloTLS12()),
		"half a certificate":  cutFlight(t, [][]byte{with(nil)}, tls.VersionTLS12, 400, func(c net.Conn) { io.Copy(io.Discard, c) }),
		"drip":                drip(append([]byte{22, 3, 3, 0x40, 0}, make([]byte, 0x4000)...)),
	}, func(t *testing.T, p *connector) {
		// The time is meant to run out. A lookup that did not heed it would hang: its
		// peer never lets go.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if r, err := client(p).Lookup(ctx, query()); code(err) != fault.SSLTimeout {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestEndless: a peer that never stops sending ends by its bytes, not by the
// clock: at the largest message that crypto/tls takes, and in records so small
// that they are mostly headers at our own bound.
func TestEndless(t *testing.T) {
	t.Parallel()
	first := append(helloTLS12(), []byte{22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9}...)
	for name, record := range map[string][]byte{
		"large records": append([]byte{22, 3, 3, 0x40, 0}, make([]byte, 0x4000)...),
		"small records": bytes.Repeat([]byte{22, 3, 3, 0, 1, 0}, 1000),
	} {
		var sent atomic.Int64
		p := peer(t, func(c net.Conn) {
			c.Write(first)
			for {
				n, err := c.Write(record)
				if err != nil {
					return
				}
				sent.Add(int64(n))
			}
		})
		r, err := lookup(t, p)
		if code(err) != fault.HandshakeFailed || p.dials.Load() != 1 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		// What the sockets' own buffers hold comes on top.
		if n := sent.Load(); n > 32<<20 {
			t.Errorf("%s: took up to %d bytes", name, n)
		}
	}
}

// TestConnectorErrors goes through what a Connector may return.
func TestConnectorErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret")
	for _, c := range []struct {
		resolve, dial error
		want          fault.Code
	}{
		{fault.New(fault.NXDomain, secret), nil, fault.NXDomain},
		{fmt.Errorf("wrapped: %w", fault.New(fault.BlockedAddress, secret)), nil, fault.BlockedAddress},
		{fault.New(fault.ConnectFailed, secret), nil, fault.ConnectFailed},
		{fmt.Errorf("dns: %w", guard.ErrResolvers), nil, fault.SSLTimeout},
		{context.DeadlineExceeded, nil, fault.SSLTimeout},
		{fault.New(fault.DNSTimeout, secret), nil, fault.InternalError},
		{secret, nil, fault.InternalError},
		{nil, fault.New(fault.ConnectFailed, secret), fault.ConnectFailed},
		{nil, fault.New(fault.BlockedAddress, secret), fault.BlockedAddress},
		{nil, fmt.Errorf("v6: %w", guard.ErrNoRoute), fault.SSLTimeout},
		{nil, secret, fault.InternalError},
	} {
		_, err := lookup(t, &connector{t: t, resolveErr: c.resolve, dialErr: c.dial})
		if f := fault.From(err); f.Code != c.want || strings.Contains(f.Public(), "secret") {
			t.Errorf("%v, %v: %v, public %q", c.resolve, c.dial, err, f.Public())
		}
	}
}

// silentDialer never connects, and says so in one of the two ways allowed.
type silentDialer struct {
	*connector
	fault bool
}

func (s silentDialer) Dial(ctx context.Context, _ guard.Target, _ uint16) (c net.Conn, a netip.Addr, err error) {
	<-ctx.Done()
	if s.fault {
		return nil, a, fault.New(fault.ConnectFailed, ctx.Err())
	}
	return nil, a, ctx.Err()
}

// TestDialTimeout: a host that had its time is connect_failed; one that had
// too little of it, because ours was short or the caller left, is ssl_timeout.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	for _, f := range []bool{false, true} {
		d := silentDialer{&connector{t: t}, f}
		_, err := ssl.New(ssl.Config{Connector: d, Timeout: 2500 * time.Millisecond}).Lookup(t.Context(), query())
		if code(err) != fault.ConnectFailed {
			t.Errorf("fault %v: %v", f, err)
		}
		_, err = ssl.New(ssl.Config{Connector: d, Timeout: 100 * time.Millisecond}).Lookup(t.Context(), query())
		if code(err) != fault.SSLTimeout {
			t.Errorf("fault %v, short: %v", f, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = client(d).Lookup(ctx, query()); code(err) != fault.SSLTimeout {
			t.Errorf("fault %v, cancelled: %v", f, err)
		}
	}
}

// TestCancel ends a handshake at once.
func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := peer(t, func(c net.Conn) {
		cancel()
		io.Copy(io.Discard, c)
	})
	if _, err := client(p).Lookup(ctx, query()); code(err) != fault.SSLTimeout {
		t.Errorf("%v", err)
	}
}

func TestNewWithoutConnector(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	ssl.New(ssl.Config{})
}

// TestNoLeak counts goroutines around lookups that succeed, fail, fall back
// and time out. It is not parallel, so that nothing else runs.
func TestNoLeak(t *testing.T) {
	peers := []*connector{
		tlsPeer(t, [][]byte{with(nil)}, ecKey(), nil),
		tlsPeer(t, [][]byte{{1}}, ecKey(), nil),
		script(t), script(t, []byte{21, 3, 1, 0, 2, 2, 40}),
	}
	before := runtime.NumGoroutine()
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		client(peers[i%len(peers)]).Lookup(ctx, query()) // any outcome will do
		cancel()
	}
	end := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > before && time.Now().Before(end) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after\n%s", before, n, stacks[:runtime.Stack(stacks, true)])
	}
}
