// Package origin requests the head of a response, which is its status and headers, from public
// HTTPS origins, on port 443, over HTTP/1.1 (spec §4.5, §4.6). The headers and redirect lookups
// share it, and the certificate lookup uses its TLS handshake.
//
// It speaks HTTP itself, because net/http refuses heads that browsers accept, turns a Pragma
// into a Cache-Control, and does not say whether a dial, a handshake or a request failed. Errors
// are logged, and never contain what the server sent. Certificates are not verified, because the
// answer of an origin with an expired one is a result.
package origin

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Port is the only one that is connected to (spec §8).
const Port = 443

// Codes returns the codes of a request to a host, beside the time-out that Fault is given.
func Codes() []fault.Code {
	return append(guard.Codes(), lookup.HandshakeFailed, lookup.HTTPFailed)
}

// Client makes Hosts. It is safe for concurrent use, and holds no connection.
type Client struct {
	Connector guard.Connector
	UserAgent string // names the service and its URL, in printable ASCII
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

// Fault gives an error of this package or of a guard.Connector a code. An error that has a
// code keeps it. One that says nothing about the target gets the tool's time-out, and so do
// ErrSilence and guard.ErrUnresolvable, marked as the target's silence (fault.Error.Silence).
func Fault(ctx context.Context, err error, timeout fault.Code) error {
	switch {
	case errors.As(err, new(*fault.Error)):
		return err
	case errors.Is(err, ErrSilence):
		return lookup.Fault(timeout, err).Silence()
	case errors.Is(err, guard.ErrUnresolvable):
		return lookup.Faultf(timeout, err, guard.Unresolvable).Silence()
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(timeout, err, guard.Unresolved)
	case ctx.Err() != nil:
		return lookup.Faultf(timeout, err, "The time of the lookup was over before the host could answer.")
	}
	return err
}

// Host is one origin. It keeps its connection from one request to the next
// where the origin lets it. It is not safe for concurrent use; Close ends it.
type Host struct {
	client *Client
	target guard.Target
	conn   *tls.Conn // past its handshake; nil while there is none
	used   bool      // conn may be dead: it was made elsewhere, or carried a request
	peer   netip.Addr
	limit  *io.LimitedReader // what may still be read from conn
	in     *bufio.Reader     // reads from limit
}

// Host returns the origin at a target. conn is nil, or a connection to a peer of it that is
// past the TLS handshake, and is the Host's from here on.
func (c *Client) Host(t guard.Target, conn *tls.Conn, peer netip.Addr) *Host {
	limit := &io.LimitedReader{R: conn}
	return &Host{
		client: c,
		target: t,
		conn:   conn,
		used:   true,
		peer:   peer,
		limit:  limit,
		in:     bufio.NewReader(limit),
	}
}

// Close drops the connection without TLS's close_notify, which could block on a peer.
func (h *Host) Close() {
	if h.conn != nil {
		h.conn.NetConn().Close()
		h.conn = nil
	}
}

// exchange sends a request and reads the head of its answer. When ctx ends, the
// connection is closed, which ends any read or write at once. It drops a connection
// that cannot take another request.
func (h *Host) exchange(ctx context.Context, method, path string) (Answer, error) {
	conn := h.conn
	h.used = true
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	h.limit.N = maxHead
	// A peer that refuses may have said why before it closed, so a failed write does
	// not end the attempt.
	_, sendErr := io.WriteString(conn, method+" "+path+" HTTP/1.1\r\n"+
		"Host: "+h.target.Name+"\r\n"+
		"User-Agent: "+h.client.UserAgent+"\r\n"+
		"Accept: */*\r\n\r\n")
	a, err := readHead(h.in)
	a.Method = method
	a.Peer = h.peer
	stop()
	if err != nil || sendErr != nil || h.in.Buffered() > 0 || !a.persists() {
		h.Close()
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, fmt.Errorf("%w while %s waited for %s: %w", Late(ctx), method, h.peer, err)
	}
	return a, h.failed(fmt.Errorf("%s to %s: %w", method, h.peer, errors.Join(err, sendErr)))
}

// failed returns the fault of a request, with how it failed in words.
func (h *Host) failed(err error) error {
	nothing := h.limit.N == maxHead
	why := "the response headers are incomplete"
	switch {
	case h.limit.N == 0: // the cut may look like a malformed line
		why = "the response headers are longer than 300 KiB"
	case errors.Is(err, errStatus):
		why = "the response status is below 100"
	case isAlert(err) && nothing:
		// TLS 1.3 servers refuse a client, for want of its certificate for
		// instance, when the client has finished.
		return handshakeFailed(err)
	case errors.Is(err, errStatusLine):
		why = "the response is not HTTP/1.1"
	case nothing:
		why = "the connection ended without a response"
	}
	return lookup.Faultf(lookup.HTTPFailed, err, "The HTTPS request failed: %s.", why)
}
