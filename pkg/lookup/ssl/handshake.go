package ssl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"os"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

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
	f := readFlight(rec.read, rec.secret)
	if f.leaf != nil {
		return seen{leaf: f.leaf, version: f.version, suite: f.suite}, nil, false, nil
	}
	if ctx.Err() != nil || isTimeout(herr) {
		return s, nil, false, fault.New(fault.SSLTimeout, herr)
	}
	again = highest == tls.VersionTLS13 && f.alert != alertUnrecognizedName && (!f.hello || f.version == tls.VersionTLS13)
	if _, ok := errors.AsType[tls.RecordHeaderError](herr); ok && !f.hello && f.alert < 0 {
		return s, nil, false, fault.Newf(fault.HandshakeFailed, herr, "The host does not speak TLS on port 443.")
	}
	if f.alert >= 0 {
		return s, nil, again, fault.Newf(fault.HandshakeFailed, herr, "The host refused the TLS handshake with alert %d before it sent a certificate.", f.alert)
	}
	return s, nil, again, fault.Newf(fault.HandshakeFailed, herr, "The TLS handshake failed before the host sent a certificate.")
}

// config offers everything that crypto/tls has, because the leaf is wanted
// whatever protects it. The post-quantum groups are left out: their hello
// outgrows a packet, and some old servers never answer it. No ALPN is offered:
// a server that has no protocol in common with it would refuse the handshake.
func config(domain string, highest uint16, rec *recorder, s *seen) *tls.Config {
	return &tls.Config{
		ServerName:             domain,
		InsecureSkipVerify:     true,
		MinVersion:             tls.VersionTLS10,
		MaxVersion:             highest,
		CipherSuites:           allSuites(),
		CurvePreferences:       []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		SessionTicketsDisabled: true,
		KeyLogWriter:           keyLog{rec},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errNotACertificate
			}
			*s = seen{leaf: cs.PeerCertificates[0].Raw, version: cs.Version, suite: cs.CipherSuite}
			return nil
		},
	}
}

// allSuites are the cipher suites that crypto/tls knows, insecure ones
// included.
func allSuites() []uint16 {
	var ids []uint16
	for _, s := range tls.CipherSuites() {
		ids = append(ids, s.ID)
	}
	for _, s := range tls.InsecureCipherSuites() {
		ids = append(ids, s.ID)
	}
	return ids
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || ok && ne.Timeout()
}
