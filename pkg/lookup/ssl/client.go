// Package ssl is the SSL Inspector: the leaf certificate that a public host
// presents on port 443 (spec §2.2, §4.3).
//
// The leaf is the product. Nothing about it is verified but that it can be
// read, and a handshake that fails after the certificate came is still a
// result:
//
//	handshake completed                        the result, with the connection
//	failed, hung or timed out, leaf was seen   the result
//	peer answered, but sent no leaf            once more with at most TLS 1.2, and
//	                                           once with a hello that offers all that
//	                                           there is, if that can help; then
//	                                           handshake_failed
//	no TLS, or no certificate that reads       handshake_failed
//	silence, or bytes too slow                 ssl_timeout, marked as the host's silence
//
// The certificate is read by this package and not by crypto/x509, which
// refuses many that are in use. crypto/tls refuses the handshake when
// crypto/x509 refuses any certificate of the chain, so what the server sent is
// recorded during the handshake, and the leaf is taken from the recording when
// crypto/tls does not hand it out: in plain text up to TLS 1.2, decrypted with
// the handshake's own secret in TLS 1.3. No second connection is made for that.
// The hello that offers all that there is, DHE, CCM, Camellia and old curves among
// it, is of our own making: it gets the leaf of a TLS 1.2 server, which needs no key
// exchange, and no connection.
//
// It does not build or verify chains, check revocation, resume sessions or
// send application data. It connects to nothing but the addresses of a
// guard.Target. crypto/tls takes no Certificate message above 256 KiB; of a larger
// one in TLS 1.3 only a leaf in its first record, so of at most 16 KiB, is seen.
package ssl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// minDial is the least time in which a host that does not answer a dial has
// been given its chance. With less, our own budget is to blame.
const minDial = time.Second

// Config is what a Client needs.
type Config struct {
	// Connector resolves and reaches hosts.
	Connector guard.Connector
	// Now is the time by which a certificate is judged. Default time.Now.
	Now func() time.Time
	// Timeout bounds a lookup whose context has no deadline. Default 8 s.
	Timeout time.Duration
	// Margin is the time before the context's deadline at which the verdict is
	// reached, at most a tenth of what is left. Default 50 ms.
	Margin time.Duration
}

// Client inspects hosts. It is safe for concurrent use, and nothing of it runs
// between calls.
type Client struct {
	connector       guard.Connector
	now             func() time.Time
	timeout, margin time.Duration
}

// New returns a Client. It panics without a Connector.
func New(cfg Config) *Client {
	if cfg.Connector == nil {
		panic("ssl: no connector")
	}
	c := &Client{connector: cfg.Connector, now: cfg.Now, timeout: cfg.Timeout, margin: cfg.Margin}
	if c.now == nil {
		c.now = time.Now
	}
	if c.timeout <= 0 {
		c.timeout = 8 * time.Second
	}
	if c.margin <= 0 {
		c.margin = 50 * time.Millisecond
	}
	return c
}

// Lookup answers a query. Its errors are blocked_address, nxdomain,
// connect_failed, handshake_failed and ssl_timeout, and invalid_domain for a
// query that ParseQuery did not make; anything else is a bug. It ends before
// the deadline of ctx, at once when ctx is cancelled, and leaves no goroutine
// or socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	ctx, cancel := c.budget(ctx)
	defer cancel()
	target, err := c.connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, classify(ctx, err)
	}
	r, conn, err := c.inspect(ctx, q, target)
	if conn != nil {
		_ = conn.Close() // nothing is lost with it
	}
	return r, err
}

// Inspect is Lookup for a target that was resolved before. It also hands on
// the connection of a completed handshake, which the caller closes: no
// application data has passed, no ALPN was negotiated, no deadline is set, and
// the peer's certificate was not verified. conn is nil beside an error, and
// beside a result whose handshake failed after the certificate came.
func (c *Client) Inspect(ctx context.Context, q Query, target guard.Target) (r Result, conn *tls.Conn, err error) {
	ctx, cancel := c.budget(ctx)
	defer cancel()
	return c.inspect(ctx, q, target)
}

func (c *Client) inspect(ctx context.Context, q Query, target guard.Target) (Result, *tls.Conn, error) {
	conn, peer, err := c.dial(ctx, target)
	if err != nil {
		return Result{}, nil, err
	}
	s, done, again, err := handshake(ctx, conn, q.Domain, tls.VersionTLS13)
	if again {
		var p netip.Addr
		s, done, p = c.again(ctx, q.Domain, target)
		switch {
		case s.leaf != nil:
			peer, err = p, nil
		case ctx.Err() != nil:
			return Result{}, nil, origin.Fault(fmt.Errorf("%w, greeted anew after: %w", origin.Late(ctx), err), lookup.SSLTimeout)
		default:
			err = origin.Narrow(err) // the first verdict stands
		}
	}
	if err != nil {
		return Result{}, nil, err
	}
	r, err := s.result(q, peer, c.now())
	if err != nil {
		if done != nil {
			_ = done.Close()
		}
		return Result{}, nil, lookup.Faultf(lookup.HandshakeFailed, err, "The host sent a certificate that cannot be read.")
	}
	return r, done, nil
}

// again greets a host that has shown no certificate to a TLS 1.3 hello: some servers
// choke on one, and some keys are too short for its signatures. The second greeting
// is for those that take nothing that crypto/tls offers. The leaf is nil if neither
// helps.
func (c *Client) again(ctx context.Context, domain string, target guard.Target) (s seen, done *tls.Conn, peer netip.Addr) {
	for _, hello := range []func(net.Conn){
		func(conn net.Conn) { s, done, _, _ = handshake(ctx, conn, domain, tls.VersionTLS12) },
		func(conn net.Conn) { s = greet(ctx, conn, domain) },
	} {
		conn, p, err := c.dial(ctx, target)
		if err != nil {
			break
		}
		if hello(conn); s.leaf != nil {
			return s, done, p
		}
	}
	return seen{}, nil, netip.Addr{}
}

// dial gives connecting half of the time that is left, so that a handshake
// after it has a chance.
func (c *Client) dial(ctx context.Context, target guard.Target) (net.Conn, netip.Addr, error) {
	end, _ := ctx.Deadline() // budget sets one
	share := time.Until(end) / 2
	dctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	conn, peer, err := c.connector.Dial(dctx, target, Port)
	if err == nil {
		return conn, peer, nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	// A Connector may also return the bare error of the context that we gave it.
	silent := dctx.Err() != nil && (ok && f.Code == lookup.ConnectFailed || !ok && isTimeout(err) && !errors.Is(err, guard.ErrNoRoute))
	switch {
	case silent && (share < minDial || errors.Is(ctx.Err(), context.Canceled)):
		return nil, netip.Addr{}, early(err)
	case silent && !ok:
		return nil, netip.Addr{}, lookup.Fault(lookup.ConnectFailed, err)
	}
	return nil, netip.Addr{}, classify(ctx, err)
}

// classify turns a Connector's error into one of this tool's. What says
// nothing about the target is ssl_timeout, which leaves the answer owed.
func classify(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		switch f.Code {
		case lookup.InvalidDomain, lookup.NXDomain, lookup.BlockedAddress, lookup.ConnectFailed:
			return err
		default:
			return fault.New(fault.InternalError, err)
		}
	}
	switch {
	case errors.Is(err, guard.ErrNoRoute), errors.Is(err, guard.ErrResolvers):
		return origin.Fault(err, lookup.SSLTimeout)
	case ctx.Err() != nil || isTimeout(err):
		return early(err)
	}
	return fmt.Errorf("ssl: connector: %w", err)
}

// early is the error of a lookup whose time was over before the host was connected to.
func early(err error) error {
	return origin.Fault(fmt.Errorf("%w: %w", origin.ErrTimeout, err), lookup.SSLTimeout)
}

// budget ends a margin before ctx does, so that a verdict can still be
// returned in time.
func (c *Client) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, c.timeout)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(c.margin, left/10))
}

// maxBytes bounds what is read from a peer during one handshake. The largest
// Certificate message that crypto/tls takes is 256 KiB; a chain of that size
// in records of no more than its own overhead still fits.
const maxBytes = 512 << 10

// errTooMuch ends a handshake that reads on and on.
var errTooMuch = errors.New("ssl: the peer sent more than a handshake needs")

// alertUnrecognizedName is an alert after which no other hello helps.
const alertUnrecognizedName = 112

// recorder keeps what is read from a connection and the secret that decrypts
// it, until it is stopped. A handshake uses it from one goroutine only.
type recorder struct {
	net.Conn
	read, secret []byte
	stopped      bool
}

// Read fails once more was read than a handshake needs.
func (r *recorder) Read(p []byte) (int, error) {
	if r.stopped {
		return r.Conn.Read(p)
	}
	if len(r.read) >= maxBytes {
		return 0, errTooMuch
	}
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

// keyLog takes the lines that crypto/tls writes for a KeyLogWriter and keeps
// the one secret that a server's certificate is encrypted under.
type keyLog struct{ r *recorder }

func (k keyLog) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if !k.r.stopped && len(f) == 3 && string(f[0]) == "SERVER_HANDSHAKE_TRAFFIC_SECRET" {
		k.r.secret, _ = hex.AppendDecode(nil, f[2]) // of crypto/tls's own making
	}
	return len(line), nil
}

// stop forgets the recording; the connection goes on without it.
func (r *recorder) stop() { r.read, r.secret, r.stopped = nil, nil, true }

// seen is what a handshake showed; leaf is nil when no certificate came.
type seen struct {
	leaf           []byte
	version, suite uint16
}

// handshake runs one handshake with at most the given version, and closes conn
// unless it returns it as a tls.Conn. A tls.Conn comes with a leaf. A leaf
// without a tls.Conn is that of a handshake that failed later. Without a leaf
// the error is handshake_failed or ssl_timeout; again says that another
// handshake may show more.
func handshake(ctx context.Context, conn net.Conn, domain string, highest uint16) (s seen, done *tls.Conn, again bool, err error) {
	rec := &recorder{Conn: conn}
	client := tls.Client(rec, config(domain, highest, rec, &s))
	herr := client.HandshakeContext(ctx)
	if herr == nil && s.leaf != nil {
		rec.stop()
		return s, client, false, nil
	}
	conn.Close()
	if s.leaf != nil {
		return s, nil, false, nil
	}
	f := readFlight(bytes.NewReader(rec.read), rec.secret)
	if f.leaf != nil {
		return seen{leaf: f.leaf, version: f.version, suite: f.suite}, nil, false, nil
	}
	if ctx.Err() != nil {
		return s, nil, false, origin.Fault(fmt.Errorf("%w: %w", origin.Late(ctx), herr), lookup.SSLTimeout)
	}
	again = highest == tls.VersionTLS13 && f.alert != alertUnrecognizedName && (!f.hello || f.version == tls.VersionTLS13)
	if _, ok := errors.AsType[tls.RecordHeaderError](herr); ok && !f.hello && f.alert < 0 {
		return s, nil, false, lookup.Faultf(lookup.HandshakeFailed, herr, "The host does not speak TLS on port 443.")
	}
	if f.alert >= 0 {
		return s, nil, again, lookup.Faultf(lookup.HandshakeFailed, herr, "The host refused the TLS handshake with alert %d before it sent a certificate.", f.alert)
	}
	return s, nil, again, lookup.Faultf(lookup.HandshakeFailed, herr, "The TLS handshake failed before the host sent a certificate.")
}

// config is how every origin is greeted, and notes what is seen.
func config(domain string, highest uint16, rec *recorder, s *seen) *tls.Config {
	cfg := origin.TLSConfig(domain)
	cfg.MaxVersion, cfg.KeyLogWriter = highest, keyLog{rec}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errNotACertificate
		}
		*s = seen{leaf: cs.PeerCertificates[0].Raw, version: cs.Version, suite: cs.CipherSuite}
		return nil
	}
	return cfg
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || ok && ne.Timeout()
}
