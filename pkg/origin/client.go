// Package origin asks public HTTPS origins for the head of an answer: status
// and headers, on port 443, over HTTP/1.1 (spec §4.5, §4.6). The headers and
// redirect lookups share it, and the certificate lookup greets hosts with it.
//
// It speaks HTTP itself, because net/http refuses heads that browsers take, makes a
// Cache-Control out of a Pragma, and does not tell whether a dial, a handshake or a
// request failed. HEAD and GET share a connection; nothing is followed, retried on
// another host or read beyond the head. Errors never contain what the server sent,
// because they are logged. Certificates are not verified: an origin with an expired one
// must be seen to answer.
package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Port is the only one that is connected to (spec §8).
const Port = 443

// Codes are those of a request to a host, beside the time-out that Fault is given.
func Codes() []fault.Code {
	return append(guard.Codes(), lookup.HandshakeFailed, lookup.HTTPFailed)
}

// Client asks origins. It is safe for concurrent use, and holds no connection.
type Client struct {
	Connector guard.Connector
	UserAgent string // names the service and its URL, in printable ASCII
}

// TLSConfig is how origins are greeted: any certificate, TLS 1.0 up to the given
// version, every cipher suite that the library has, no resumption and no ALPN, for which
// a server could refuse the handshake. The key shares that do not fit into one packet are
// left out, because some old servers never answer two.
func TLSConfig(name string, highest uint16) *tls.Config {
	var suites []uint16
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		suites = append(suites, s.ID)
	}
	return &tls.Config{
		ServerName:         name,
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS10,
		MaxVersion:         highest,
		CipherSuites:       suites,
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	}
}

// Hello is an attempt at a handshake over a connection, which it closes unless it
// succeeds. again says after a failure that another kind of hello may help.
type Hello func(conn net.Conn) (again bool, err error)

// Greet connects to a target for each hello in turn, until one succeeds, and returns
// the peer that took it. When all of them fail, the failure of the first stands.
func Greet(ctx context.Context, c guard.Connector, t guard.Target, hellos ...Hello) (netip.Addr, error) {
	var verdict error
	for i, hello := range hellos {
		again := false
		conn, peer, err := c.Dial(ctx, t, Port)
		if err == nil {
			again, err = hello(conn)
		}
		switch {
		case err == nil, i == 0 && !again:
			return peer, err
		case i == 0:
			verdict = err
		case ctx.Err() != nil:
			return peer, fmt.Errorf("%w when it was greeted again: %s", Late(ctx), err.Error())
		}
	}
	f := fault.From(verdict)
	return netip.Addr{}, f.Info().Newf(verdict, "%s What was offered to the host may have been too narrow.", f.Public())
}

// ErrSilence says that a host had accepted a connection and had all of the caller's
// time for its handshake and its answer.
var ErrSilence = errors.New("origin: the host is silent")

// Late is the error of a connected host whose answer is not complete when ctx ends:
// ErrSilence, unless the caller left.
func Late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrSilence
	}
	return ctx.Err()
}

// Fault gives an error of this package or of a guard.Connector its code: its own, or
// the tool's time-out for one that says nothing about the target and, marked as its
// silence (fault.Error.Silence), for ErrSilence.
func Fault(ctx context.Context, err error, timeout fault.Code) error {
	switch {
	case errors.As(err, new(*fault.Error)):
		return err
	case errors.Is(err, ErrSilence):
		return lookup.Fault(timeout, err).Silence()
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(timeout, err, guard.Unresolved)
	case errors.Is(err, guard.ErrNoRoute):
		return lookup.Faultf(timeout, err, "The host has IPv6 addresses only, and this deployment has no IPv6 route.")
	case ctx.Err() != nil:
		return lookup.Faultf(timeout, err, "The time of the lookup was over before the host could answer.")
	}
	return err
}
