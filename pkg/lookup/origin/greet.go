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

// Offer is what a ClientHello offers.
type Offer int

const (
	// Modern is what current browsers offer but HTTP/2, which is not spoken here: hybrid
	// post-quantum key exchange, and http/1.1 by ALPN. There are servers that want either.
	Modern Offer = iota
	// Plain is TLS 1.3 in one packet and without ALPN: some old servers never answer two
	// packets, and some refuse a hello for its ALPN.
	Plain
	// Old is Plain without TLS 1.3, which some servers choke on.
	Old
	// Browser is Modern with HTTP/2, for servers that speak nothing else. What it connects
	// is good for the certificate alone.
	Browser
)

// Offers returns the offers for a host that requests are sent to, in the order in which they are
// made until it takes one.
func Offers() []Offer { return []Offer{Modern, Plain, Old} }

// Protocols of ALPN.
const (
	http11 = "http/1.1"
	http2  = "h2"
)

// TLSConfig is how origins are greeted: any certificate, TLS 1.0 and later, every cipher
// suite that the library has, no resumption, and the rest as the offer says.
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

// Hello is an attempt at a handshake over a connection, which it closes unless it
// succeeds. again says after a failure that another kind of hello may help.
type Hello func(conn net.Conn) (again bool, err error)

// Greet connects to a target for each hello in turn, until one succeeds, and returns
// the peer that took it. All go to the address that took the first connection. When all of
// them fail, the failure of the first stands.
func Greet(ctx context.Context, c guard.Connector, t guard.Target, hellos ...Hello) (netip.Addr, error) {
	var first error
	for i, hello := range hellos {
		again := false
		conn, peer, err := c.Dial(ctx, t, Port)
		if err == nil {
			t.Addrs = []netip.Addr{peer}
			again, err = hello(conn)
		}
		switch {
		case err == nil, i == 0 && !again:
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
		hellos = append(hellos, func(raw net.Conn) (again bool, err error) {
			conn = tls.Client(raw, TLSConfig(h.target.Name, o))
			err = conn.HandshakeContext(ctx)
			if err == nil {
				return false, nil
			}
			raw.Close()
			if ctx.Err() != nil {
				return false, fmt.Errorf("%w in the TLS handshake: %w", Late(ctx), err)
			}
			// Another hello may help where the host did not get to its certificate, and
			// would not in plain text.
			early := len(conn.ConnectionState().PeerCertificates) == 0
			return early && !errors.As(err, new(tls.RecordHeaderError)), handshakeFailed(err)
		})
	}
	peer, err := Greet(ctx, h.client.Connector, h.target, hellos...)
	if err == nil {
		*h = *h.client.Host(h.target, conn, peer)
		h.used = false
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

// isAlert recognises the alert of a peer, which has no exported type.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}
