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
// The certificate is read by this package, because crypto/x509 refuses many that are in
// use. crypto/tls refuses the handshake when crypto/x509 refuses any certificate of the
// chain, so what the server sent is recorded, and the leaf is taken from the recording: in
// plain text up to TLS 1.2, decrypted with the handshake's own secret in TLS 1.3. The
// hello that offers all that there is, DHE, CCM, Camellia and old curves among it, is made
// by hand: it gets the leaf of a TLS 1.2 server, and no connection.
//
// It does not build or verify chains, check revocation, resume sessions or
// send application data. crypto/tls takes no Certificate message above 256 KiB; of a larger
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
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// Config is what a Client needs.
type Config struct {
	// Connector resolves and reaches hosts.
	Connector guard.Connector
	// Now is the time by which a certificate is judged. Default time.Now.
	Now func() time.Time
}

// Client inspects hosts. It is safe for concurrent use.
type Client struct{ cfg Config }

// New returns a Client.
func New(cfg Config) *Client {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Client{cfg}
}

// Lookup answers a query within the time of ctx. Its errors are blocked_address,
// nxdomain, connect_failed, handshake_failed and ssl_timeout; anything else is a bug.
// It leaves no connection behind.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	target, err := c.cfg.Connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.SSLTimeout)
	}
	r, conn, err := c.Inspect(ctx, q, target)
	if conn != nil {
		conn.Close()
	}
	return r, err
}

// Inspect is Lookup for a target that was resolved before. It also hands on
// the connection of a completed handshake, which the caller closes: no
// application data has passed and no deadline is set. conn is nil beside an error, and
// beside a result whose handshake failed after the certificate came.
func (c *Client) Inspect(ctx context.Context, q Query, target guard.Target) (Result, *tls.Conn, error) {
	var f flight
	var done *tls.Conn
	// Some servers choke on TLS 1.3, and some keys are too short for its signatures.
	hello := func(highest uint16) origin.Hello {
		return func(conn net.Conn) (again bool, err error) {
			f, done, again, err = handshake(ctx, conn, q.Domain, highest)
			return again, err
		}
	}
	peer, err := origin.Greet(ctx, c.cfg.Connector, target, hello(tls.VersionTLS13), hello(tls.VersionTLS12), func(conn net.Conn) (again bool, err error) {
		f, err = greet(ctx, conn, q.Domain)
		return false, err
	})
	if err != nil {
		return Result{}, nil, origin.Fault(ctx, err, lookup.SSLTimeout)
	}
	r, err := f.result(q, peer, c.cfg.Now())
	if err != nil {
		if done != nil {
			done.Close()
		}
		return Result{}, nil, lookup.Faultf(lookup.HandshakeFailed, err, "The host sent a certificate that cannot be read.")
	}
	return r, done, nil
}

// recorder keeps what is read from a connection, which its user bounds, and the lines
// that crypto/tls writes for a KeyLogWriter.
type recorder struct {
	net.Conn
	read bytes.Buffer
	keys strings.Builder
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read.Write(p[:n])
	return n, err
}

// secret is what a TLS 1.3 server's certificate is encrypted under; nil if there is none.
func (r *recorder) secret() []byte {
	_, keys, _ := strings.Cut(r.keys.String(), "SERVER_HANDSHAKE_TRAFFIC_SECRET ")
	line, _, _ := strings.Cut(keys, "\n")
	_, digits, _ := strings.Cut(line, " ")
	secret, _ := hex.DecodeString(digits)
	return secret
}

// alertUnrecognizedName is an alert after which no other hello helps.
const alertUnrecognizedName = 112

// handshake runs one handshake with at most the given version, and closes conn
// unless it returns it as a tls.Conn. Without an error there is a leaf; without a
// tls.Conn as well, it is that of a handshake that failed later. again says that
// another hello may show more.
func handshake(ctx context.Context, conn net.Conn, domain string, highest uint16) (f flight, done *tls.Conn, again bool, err error) {
	rec := &recorder{Conn: conn}
	cfg := origin.TLSConfig(domain, highest)
	cfg.KeyLogWriter = &rec.keys
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		f = flight{leaf: cs.PeerCertificates[0].Raw, version: cs.Version, suite: cs.CipherSuite}
		return nil
	}
	client := tls.Client(rec, cfg)
	err = client.HandshakeContext(ctx)
	if err == nil {
		return f, client, false, nil
	}
	conn.Close()
	if f.leaf == nil {
		f = readFlight(&rec.read, rec.secret())
	}
	if f.leaf != nil {
		return f, nil, false, nil
	}
	if ctx.Err() != nil {
		return f, nil, false, fmt.Errorf("%w: %w", origin.Late(ctx), err)
	}
	again = highest == tls.VersionTLS13 && f.alert != alertUnrecognizedName && (!f.hello || f.version == tls.VersionTLS13)
	switch {
	case f.alert >= 0:
		err = lookup.Faultf(lookup.HandshakeFailed, err, "The host refused the TLS handshake with alert %d before it sent a certificate.", f.alert)
	case !f.hello && errors.As(err, new(tls.RecordHeaderError)):
		again, err = false, lookup.Faultf(lookup.HandshakeFailed, err, "The host does not speak TLS on port 443.")
	default:
		err = lookup.Faultf(lookup.HandshakeFailed, err, "The TLS handshake failed before the host sent a certificate.")
	}
	return f, nil, again, err
}
