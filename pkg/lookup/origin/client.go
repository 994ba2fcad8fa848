// Package origin requests the status and headers of a response from public HTTPS origins, on
// port 443, over HTTP/1.1 (spec §4.5, §4.6). Status and headers together are called the head.
// The headers and redirect lookups use this package, and the certificate lookup uses its TLS
// handshake.
//
// The package implements HTTP itself, because net/http refuses heads that browsers accept,
// turns a Pragma into a Cache-Control, and does not tell whether a dial, a handshake or a
// request failed. Errors never contain text from the server, because they are logged.
// Certificates are not verified, because even the answer of an origin with an expired
// certificate is a result.
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

// Port is the only port that the package connects to (spec §8).
const Port = 443

// Codes returns the codes of the errors that a request can return. It does not include the
// time-out code, which each lookup passes to Fault.
func Codes() []fault.Code {
	return append(guard.Codes(), lookup.HandshakeFailed, lookup.HTTPFailed)
}

// Client makes a Host for each origin. It is safe for concurrent use and holds no connection.
type Client struct {
	Connector guard.Connector
	UserAgent string // names the service and its URL, in printable ASCII
}

// ErrSilence means that a host accepted a connection, but did not complete its handshake or
// its answer before the caller's deadline.
var ErrSilence = errors.New("origin: the host is silent")

// Late returns the error for a connected host that has not completed its answer when ctx ends.
// The error is ErrSilence if the deadline has passed, and the error of ctx if the caller
// cancelled it.
func Late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrSilence
	}
	return ctx.Err()
}

// Fault gives a code to an error of this package or of a guard.Connector:
//
//   - An error that already has a code keeps it.
//   - ErrSilence and guard.ErrUnresolvable get the time-out code, and are marked as the
//     target's silence (fault.Error.Silence).
//   - guard.ErrResolvers gets the time-out code without that mark, because it says nothing
//     about the target. The same goes for any other error if ctx has ended.
//   - All other errors are returned unchanged.
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

// Host is one origin. It keeps its connection for the next request if the origin allows that.
// A Host is not safe for concurrent use. Its user must call Close at the end.
type Host struct {
	client    *Client
	target    guard.Target
	conn      *tls.Conn // the TLS handshake is complete; nil if there is no connection
	mayBeDead bool      // conn may be dead, because the caller made it or it has carried a request
	peer      netip.Addr
	limit     *io.LimitedReader // limits the number of bytes that are read from conn
	reader    *bufio.Reader     // reads from conn, through limit
}

// Host returns the origin at a target. If conn is not nil, it must be a connection to peer on
// which the TLS handshake is complete. The Host then owns conn.
func (c *Client) Host(t guard.Target, conn *tls.Conn, peer netip.Addr) *Host {
	limit := &io.LimitedReader{R: conn}
	return &Host{
		client:    c,
		target:    t,
		conn:      conn,
		mayBeDead: true,
		peer:      peer,
		limit:     limit,
		reader:    bufio.NewReader(limit),
	}
}

// Close drops the connection. It does not send the close_notify of TLS, because sending could
// block.
func (h *Host) Close() {
	if h.conn != nil {
		h.conn.NetConn().Close()
		h.conn = nil
	}
}

// exchange sends a request and reads the head of the answer. When ctx ends, it closes the
// connection, which ends any read or write at once. It also closes a connection that cannot
// carry another request.
func (h *Host) exchange(ctx context.Context, method, path string) (Answer, error) {
	conn := h.conn
	h.mayBeDead = true
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	h.limit.N = maxHead
	// A server may answer and close the connection before it has read the whole request. So
	// the answer is read even if the write has failed.
	_, sendErr := io.WriteString(conn, method+" "+path+" HTTP/1.1\r\n"+
		"Host: "+h.target.Name+"\r\n"+
		"User-Agent: "+h.client.UserAgent+"\r\n"+
		"Accept: */*\r\n\r\n")
	a, err := readHead(h.reader)
	a.Method = method
	a.Peer = h.peer
	stop()
	if err != nil || sendErr != nil || h.reader.Buffered() > 0 || !a.allowsNextRequest() {
		h.Close()
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, fmt.Errorf("%w while %s waited for %s: %w", Late(ctx), method, h.peer, err)
	}
	return a, h.requestFault(fmt.Errorf("%s to %s: %w", method, h.peer, errors.Join(err, sendErr)))
}

// requestFault returns http_failed or handshake_failed for a failed request, with a message
// that tells what went wrong.
func (h *Host) requestFault(err error) error {
	isUnread := h.limit.N == maxHead
	problem := "the response headers are incomplete"
	switch {
	case h.limit.N == 0: // must be the first case, because a head that was cut off at the limit may look like a malformed line
		problem = "the response headers are longer than 300 KiB"
	case errors.Is(err, errStatus):
		problem = "the response status is below 100"
	case isAlert(err) && isUnread:
		// In TLS 1.3 a server may refuse the client after the client has completed its
		// handshake, for example because the client has no certificate.
		return handshakeFailed(err)
	case errors.Is(err, errStatusLine):
		problem = "the response is not HTTP/1.1"
	case isUnread:
		problem = "the connection ended without a response"
	}
	return lookup.Faultf(lookup.HTTPFailed, err, "The HTTPS request failed: %s.", problem)
}
