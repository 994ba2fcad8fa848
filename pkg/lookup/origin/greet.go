package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Offer selects the contents of a ClientHello: the TLS versions, key exchanges and protocols
// that the client offers to the server.
type Offer int

const (
	// Modern offers hybrid post-quantum key exchange, and http/1.1 by ALPN, as current browsers
	// do. Some servers require one of the two. Browsers also offer HTTP/2, but Modern does not,
	// because this package does not speak HTTP/2.
	Modern Offer = iota
	// Plain offers TLS 1.3 without ALPN, in a single packet. Some old servers never answer a
	// hello of two packets, and some refuse a hello with ALPN.
	Plain
	// Old is Plain without TLS 1.3, for servers that fail on TLS 1.3.
	Old
	// Browser is Modern with HTTP/2, for servers that speak only HTTP/2. Its connection can
	// only be used to read the certificate.
	Browser
)

// Offers returns the offers for a host to which requests will be sent. The offers are made in
// this order until the host accepts one.
func Offers() []Offer { return []Offer{Modern, Plain, Old} }

// Protocols that ALPN offers.
const (
	http11 = "http/1.1"
	http2  = "h2"
)

// TLSConfig returns the configuration for connecting to the origin with the given name. It
// accepts any certificate, TLS 1.0 and later, and every cipher suite of crypto/tls. It never
// resumes a session. The rest depends on the offer o.
func TLSConfig(name string, o Offer) *tls.Config {
	var suites []uint16
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		suites = append(suites, s.ID)
	}
	cfg := &tls.Config{
		ServerName:         name,
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS10,
		MaxVersion:         tls.VersionTLS13,
		CipherSuites:       suites,
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	}
	if o == Old {
		cfg.MaxVersion = tls.VersionTLS12
	}
	if o == Modern || o == Browser {
		cfg.CurvePreferences = append(cfg.CurvePreferences, tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024)
		cfg.NextProtos = []string{http11}
	}
	if o == Browser {
		cfg.NextProtos = []string{http2, http11}
	}
	return cfg
}

// Hello attempts a handshake over conn, and closes conn unless the handshake succeeds. After a
// failure, its first result reports whether another Hello may succeed.
type Hello func(conn net.Conn) (again bool, err error)

// Greet tries the hellos in turn, each over a new connection, until one succeeds. It returns
// the peer of that connection. All later connections go to the address that accepted the first
// connection. Greet ends after the first attempt if no connection can be made, or if the hello
// reports that no other hello can succeed. If all hellos fail, Greet returns the error of the
// first. The message of this error then says that the hellos may not have offered enough.
func Greet(ctx context.Context, c guard.Connector, t guard.Target, hellos ...Hello) (netip.Addr, error) {
	var first error
	for i, hello := range hellos {
		canRetry := false
		conn, peer, err := c.Dial(ctx, t, Port)
		if err == nil {
			t.Addrs = []netip.Addr{peer}
			canRetry, err = hello(conn)
		}
		switch {
		case err == nil, i == 0 && !canRetry:
			return peer, err
		case i == 0:
			first = err
		case ctx.Err() != nil:
			return peer, fmt.Errorf("%w in a second handshake: %s", Late(ctx), err.Error())
		}
	}
	f := fault.From(first)
	return netip.Addr{}, f.Info().Newf(first, "%s What was offered to the host may have been too narrow.", f.Public())
}

// connect dials and completes the TLS handshake.
func (h *Host) connect(ctx context.Context) error {
	var conn *tls.Conn
	var hellos []Hello
	for _, o := range Offers() {
		hellos = append(hellos, func(raw net.Conn) (canRetry bool, err error) {
			conn = tls.Client(raw, TLSConfig(h.target.Name, o))
			err = conn.HandshakeContext(ctx)
			if err == nil {
				return false, nil
			}
			raw.Close()
			if ctx.Err() != nil {
				return false, fmt.Errorf("%w in the TLS handshake: %w", Late(ctx), err)
			}
			// Another hello may succeed if the host had not yet sent its certificate and did
			// not answer in plain text.
			noCertificate := len(conn.ConnectionState().PeerCertificates) == 0
			return noCertificate && !errors.As(err, new(tls.RecordHeaderError)), handshakeFailed(err)
		})
	}
	peer, err := Greet(ctx, h.client.Connector, h.target, hellos...)
	if err == nil {
		*h = *h.client.Host(h.target, conn, peer)
		h.mayBeDead = false
	}
	return err
}

func handshakeFailed(err error) error {
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return lookup.Faultf(lookup.HandshakeFailed, err, "The TLS handshake failed: the host does not speak TLS on port 443.")
	case isAlert(err):
		return lookup.Faultf(lookup.HandshakeFailed, err, "The TLS handshake failed: the host refused it.")
	}
	return lookup.Fault(lookup.HandshakeFailed, err)
}

// isAlert reports whether an error is a TLS alert from the peer. Such an error has no exported
// type.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}
