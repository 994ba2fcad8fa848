package ssl

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

// refused are chains that crypto/x509 does not parse, or that crypto/tls does not go
// on with. The leaf is a result all the same.
func refused() map[string][][]byte {
	n := append([]byte{0, 0xff}, bytes.Repeat([]byte{0xff}, 9216/8-1)...)
	huge := tlv(0x03, []byte{0}, tlv(0x30, tlv(0x02, n), unhex("0203010001")))
	all := map[string][][]byte{
		"trailing data": {append(with(nil), 1, 2, 3)},
		"broken chain":  {with(nil), {1, 2, 3}},
	}
	for name, change := range map[string]func(*parts){
		"duplicate extension": func(p *parts) { p.rest = extensions(san(dnsName(domain)), san(dnsName("b.example"))) },
		"UTF-8 in a dNSName":  func(p *parts) { p.rest = extensions(san(dnsName("bücher.example"))) },
		"bad IP SAN":          func(p *parts) { p.rest = extensions(san(dnsName(domain), tlv(0x87, []byte{1, 2, 3}))) },
		"broken UTF-8":        func(p *parts) { p.subject = name(rdn(attr("2.5.4.3", utf8s("a\xff")))) },
		"fraction of seconds": func(p *parts) { p.validity = validity(generalized("20260101000000.5Z"), utc("270101000000Z")) },
		"inner is not outer":  func(p *parts) { p.outer = tlv(0x30, oid("1.2.840.10045.4.3.4")) },
		"version 4":           func(p *parts) { p.version = unhex("a003020103") },
		"padded serial":       func(p *parts) { p.serial = unhex("020300007f") },
		"unknown key":         func(p *parts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.3.4")), unhex("030100")) },
		"RSA of 9216 bits":    func(p *parts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.840.113549.1.1.1"), unhex("0500")), huge) },
	} {
		all[name] = [][]byte{with(change)}
	}
	return all
}

func TestRefusedByTheStandardLibrary(t *testing.T) {
	t.Parallel()
	retry := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} } // a HelloRetryRequest first
	for name, chain := range refused() {
		for version, change := range map[string]func(*tls.Config){"tlsv1.2": atMost(tls.VersionTLS12), "tlsv1.3": nil, "tlsv1.3 retry": retry} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				w := tlsPeer(t, chain, ecKey(), change)
				r, conn, err := inspect(t, w)
				sum := sha256.Sum256(bytes.TrimSuffix(chain[0], []byte{1, 2, 3}))
				if err != nil || r.FingerprintSHA256 != hex.EncodeToString(sum[:]) || text(r.TLSVersion) != version[:7] || text(r.Cipher) == "null" {
					t.Errorf("%+v, %s %s, %v", r, text(r.TLSVersion), text(r.Cipher), err)
				}
				if conn != nil || len(w.Dials()) != 1 {
					t.Errorf("connection %v after %q", conn, w.Dials())
				}
			})
		}
	}
}

// A negative serial needs the godebug line of go.mod to complete its
// handshake; without it the leaf is still a result, but without a connection.
func TestNegativeSerial(t *testing.T) {
	t.Parallel()
	der := with(func(p *parts) { p.serial = unhex("0202ff00") })
	r, conn, err := inspect(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil || r.Serial != "-0100" || conn == nil {
		t.Errorf("serial %q, %v, connection %v: is x509negativeserial=1 in go.mod?", r.Serial, err, conn != nil)
	}
}

// halting is a server's connection that runs end in place of the server: once the
// first bytes were written, or, when left is 0, once the first flight was.
type halting struct {
	net.Conn
	left         int
	wrote, ended bool
	end          func(net.Conn)
}

func (c *halting) halt() error {
	if !c.ended {
		c.ended = true
		c.end(c.Conn)
		c.Close()
	}
	return io.ErrClosedPipe
}

func (c *halting) Write(p []byte) (int, error) {
	c.wrote = true
	if c.left == 0 || c.ended {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && err == nil {
		err = c.halt()
	}
	return n, err
}

func (c *halting) Read(p []byte) (int, error) {
	if c.wrote && !c.ended {
		// The client's second flight is taken first: closing on unread bytes
		// would be a reset.
		c.Conn.Read(make([]byte, 1<<16))
		return 0, c.halt()
	}
	return c.Conn.Read(p)
}

// halts serves a handshake that halts within its first flight after n bytes, or
// after it.
func halts(t *testing.T, chain [][]byte, version uint16, n int, end func(net.Conn)) *testbed.Origins {
	t.Helper()
	cfg := &tls.Config{MaxVersion: version, Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: ecKey()}}}
	return peer(t, func(c net.Conn) { serveTLS(&halting{Conn: c, left: n, end: end}, cfg) })
}

// script writes bytes to whoever connects and stays until they leave.
func script(t *testing.T, out ...[]byte) *testbed.Origins {
	t.Helper()
	return peer(t, func(c net.Conn) {
		c.Read(make([]byte, 1<<16))
		c.Write(bytes.Join(out, nil))
		hang(c)
	})
}

func hang(c net.Conn) { io.Copy(io.Discard, c) }

func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

// TestFailsLater: the certificate came, and then the handshake failed.
func TestFailsLater(t *testing.T) {
	der := [][]byte{with(nil)}
	other := curveKey(elliptic.P256())
	demand := func(highest uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MaxVersion, c.ClientAuth = highest, tls.RequireAnyClientCert }
	}
	later := func(end func(net.Conn)) *testbed.Origins { return halts(t, der, tls.VersionTLS12, 0, end) }
	type row struct {
		world   *testbed.Origins
		version string
		conn    bool
	}
	testbed.Each(t, map[string]row{
		"client certificate, TLS 1.2": {tlsPeer(t, der, ecKey(), demand(tls.VersionTLS12)), "tlsv1.2", false},
		// Our side is done before the server says no.
		"client certificate, TLS 1.3": {tlsPeer(t, der, ecKey(), demand(tls.VersionTLS13)), "tlsv1.3", true},
		"key of another, TLS 1.2":     {tlsPeer(t, der, other, atMost(tls.VersionTLS12)), "tlsv1.2", false},
		"key of another, TLS 1.3":     {tlsPeer(t, der, other, nil), "tlsv1.3", false},
		"alert":                       {later(func(c net.Conn) { c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }), "tlsv1.2", false},
		"close":                       {later(func(net.Conn) {}), "tlsv1.2", false},
		"reset":                       {later(reset), "tlsv1.2", false},
		"garbage":                     {later(func(c net.Conn) { c.Write(bytes.Repeat([]byte{0xff}, 1<<16)) }), "tlsv1.2", false},
	}, func(t *testing.T, c row) {
		r, conn, err := inspect(t, c.world)
		if err != nil || r.Subject != "CN="+domain || text(r.TLSVersion) != c.version || text(r.Cipher) == "null" {
			t.Errorf("%+v, %v", r, err)
		}
		if (conn != nil) != c.conn || len(c.world.Dials()) != 1 {
			t.Errorf("connection %v after %q", conn, c.world.Dials())
		}
	})
}

// TestHangsLater: the certificate came, in part of its message or before the rest of
// the handshake, and then nothing. The result comes in time.
func TestHangsLater(t *testing.T) {
	leaf := with(nil)
	long := [][]byte{leaf, with(func(p *parts) { p.rest = tlv(0xa3, make([]byte, 60<<10)) })}
	testbed.Each(t, map[string]*testbed.Origins{
		"after the flight":        halts(t, [][]byte{leaf}, tls.VersionTLS12, 0, hang),
		"inside the message":      halts(t, long, tls.VersionTLS12, 20<<10, hang),
		"inside the message, 1.3": halts(t, long, tls.VersionTLS13, 20<<10, hang),
		"refused and then silent": halts(t, [][]byte{append(leaf, 0)}, tls.VersionTLS12, 0, hang),
	}, func(t *testing.T, w *testbed.Origins) {
		for limit := 500 * time.Millisecond; ; limit *= 2 { // a busy machine may stop for longer
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			r, err := client(w.Dialer()).Lookup(ctx, query())
			cancel()
			if err == nil && r.Subject == "CN="+domain && text(r.TLSVersion) != "null" {
				return
			}
			if limit > time.Minute {
				t.Fatalf("%+v, %v within %s", r, err, limit)
			}
		}
	})
}

// TestNoLeaf: peers that answer and show no certificate.
func TestNoLeaf(t *testing.T) {
	hangUp := func(out string) *testbed.Origins {
		return peer(t, func(c net.Conn) {
			c.Read(make([]byte, 1<<16))
			io.WriteString(c, out)
		})
	}
	const (
		noTLS  = "The host does not speak TLS on port 443."
		failed = "The TLS handshake failed before the host sent a certificate."
	)
	alert := func(n int) string {
		return fmt.Sprintf("The host refused the TLS handshake with alert %d before it sent a certificate.", n)
	}
	type row struct {
		world   *testbed.Origins
		message string
		dials   int
	}
	testbed.Each(t, map[string]row{
		"HTTP":               {hangUp("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), noTLS, 1},
		"close":              {hangUp(""), failed, 2},
		"reset":              {peer(t, func(c net.Conn) { c.Read(make([]byte, 1)); reset(c) }), failed, 2},
		"alert":              {script(t, []byte{21, 3, 1, 0, 2, 2, 40}), alert(40), 2},
		"alert for the name": {script(t, []byte{21, 3, 1, 0, 2, 2, 112}), alert(112), 1},
		"record too long":    {script(t, []byte{22, 3, 3, 0xff, 0xff}), noTLS, 1},
		"empty records":      {script(t, bytes.Repeat([]byte{22, 3, 3, 0, 0}, 1000)), failed, 2},
		"no TLS certificate": {tlsPeer(t, [][]byte{{0x30, 3, 1, 1, 0xff}}, ecKey(), nil), "The host sent a certificate that cannot be read.", 1},
		"message too large":  {script(t, []byte{22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff}), failed, 2},
		"nothing in common": {tlsPeer(t, [][]byte{with(nil)}, ecKey(), atMost(tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)),
			alert(40), 2},
		"empty list, TLS 1.2": {script(t, helloTLS12(), []byte{22, 3, 3, 0, 7, 11, 0, 0, 3, 0, 0, 0}), failed, 1},
	}, func(t *testing.T, c row) {
		_, err := lookup(t, c.world)
		if f := fault.From(err); f.Code != fault.HandshakeFailed || f.Public() != c.message || len(c.world.Dials()) != c.dials {
			t.Errorf("%s %q after %q: %v", f.Code, f.Public(), c.world.Dials(), err)
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

// TestSlow: peers that do not get to a certificate, in time or before the caller
// leaves. Their time is meant to run out; a lookup that did not heed it would hang,
// because its peer never lets go.
func TestSlow(t *testing.T) {
	drip := func(c net.Conn) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, err := c.Write([]byte{22, 3, 3, 0x40, 0}); err == nil; _, err = c.Write([]byte{0}) {
			<-tick.C
		}
	}
	testbed.Each(t, map[string]*testbed.Origins{
		"silence":             script(t),
		"half a record":       script(t, []byte{22, 3, 3}),
		"hello, then silence": script(t, helloTLS12()),
		"half a certificate":  halts(t, [][]byte{with(nil)}, tls.VersionTLS12, 400, hang),
		"drip":                peer(t, drip),
	}, func(t *testing.T, w *testbed.Origins) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		leaves, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		for _, ctx := range []context.Context{ctx, leaves} {
			if r, err := client(w.Dialer()).Lookup(ctx, query()); code(err) != fault.SSLTimeout {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// TestEndless: a peer that never stops sending ends by its bytes, not by the
// clock: at the largest message that crypto/tls takes, and in records so small
// that they are mostly headers at our own bound.
func TestEndless(t *testing.T) {
	first := append(helloTLS12(), []byte{22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9}...)
	testbed.Each(t, map[string][]byte{
		"large records": append([]byte{22, 3, 3, 0x40, 0}, make([]byte, 0x4000)...),
		"small records": bytes.Repeat([]byte{22, 3, 3, 0, 1, 0}, 1000),
	}, func(t *testing.T, record []byte) {
		var sent atomic.Int64
		w := peer(t, func(c net.Conn) {
			_, err := c.Write(first)
			for n := 0; err == nil; sent.Add(int64(n)) {
				n, err = c.Write(record)
			}
		})
		r, err := lookup(t, w)
		// What the sockets' own buffers hold comes on top.
		if code(err) != fault.HandshakeFailed || len(w.Dials()) != 1 || sent.Load() > 32<<20 {
			t.Errorf("%+v, %v after %q and %d bytes", r, err, w.Dials(), sent.Load())
		}
	})
	near, far := net.Pipe()
	go hang(far)
	rec := &recorder{Conn: near, read: make([]byte, maxBytes)}
	if _, err := rec.Read(make([]byte, 1)); !errors.Is(err, errTooMuch) {
		t.Errorf("after %d bytes: %v", maxBytes, err)
	}
	near.Close()
}

// connector fails. With silence it does so when its context ends.
type connector struct {
	resolve, dial error
	silence       bool
}

func (c connector) Resolve(context.Context, string) (guard.Target, error) {
	return guard.Target{}, c.resolve
}

func (c connector) Dial(ctx context.Context, _ guard.Target, _ uint16) (net.Conn, netip.Addr, error) {
	if c.silence {
		<-ctx.Done()
	}
	if c.dial == nil {
		return nil, netip.Addr{}, ctx.Err()
	}
	return nil, netip.Addr{}, c.dial
}

// TestConnectorErrors goes through what a Connector may return. A host that had its
// time is connect_failed; one that had too little of it, because ours was short or
// the caller left, is ssl_timeout.
func TestConnectorErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret")
	failed := fault.New(fault.ConnectFailed, secret)
	for _, c := range []struct {
		connector
		timeout time.Duration // 0 for a caller that has left
		want    fault.Code
	}{
		{connector{resolve: fault.New(fault.NXDomain, secret)}, time.Minute, fault.NXDomain},
		{connector{resolve: fmt.Errorf("wrapped: %w", fault.New(fault.BlockedAddress, secret))}, time.Minute, fault.BlockedAddress},
		{connector{resolve: failed}, time.Minute, fault.ConnectFailed},
		{connector{resolve: fmt.Errorf("dns: %w", guard.ErrResolvers)}, time.Minute, fault.SSLTimeout},
		{connector{resolve: context.DeadlineExceeded}, time.Minute, fault.SSLTimeout},
		{connector{resolve: fault.New(fault.DNSTimeout, secret)}, time.Minute, fault.InternalError},
		{connector{resolve: secret}, time.Minute, fault.InternalError},
		{connector{dial: failed}, time.Minute, fault.ConnectFailed},
		{connector{dial: fault.New(fault.BlockedAddress, secret)}, time.Minute, fault.BlockedAddress},
		{connector{dial: fmt.Errorf("v6: %w", guard.ErrNoRoute)}, time.Minute, fault.SSLTimeout},
		{connector{dial: secret}, time.Minute, fault.InternalError},
		{connector{silence: true}, 2500 * time.Millisecond, fault.ConnectFailed},
		{connector{silence: true, dial: failed}, 2500 * time.Millisecond, fault.ConnectFailed},
		{connector{silence: true}, 1500 * time.Millisecond, fault.SSLTimeout},
		{connector{silence: true, dial: failed}, 1500 * time.Millisecond, fault.SSLTimeout},
		{connector{silence: true}, 0, fault.SSLTimeout},
		{connector{silence: true, dial: failed}, 0, fault.SSLTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if c.timeout == 0 {
				leave()
			}
			_, err := New(Config{Connector: c, Timeout: c.timeout}).Lookup(ctx, query())
			if f := fault.From(err); f.Code != c.want || strings.Contains(f.Public(), "secret") {
				t.Errorf("%+v: %v, public %q, want %s", c, err, f.Public(), c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := client(connector{silence: true}).Lookup(ctx, query())
		if took := time.Since(begun); took != 4975*time.Millisecond { // half of what is left but for the margin
			t.Errorf("%v after %s", err, took)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("a client without a connector")
		}
	}()
	New(Config{})
}
