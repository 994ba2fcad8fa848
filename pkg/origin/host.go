package origin

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

// Host is one origin. It keeps its connection from one request to the next
// where the origin lets it. It is not safe for concurrent use; Close ends it.
type Host struct {
	client *Client
	target guard.Target
	conn   *tls.Conn // past its handshake; nil while there is none
	peer   netip.Addr
	limit  *io.LimitedReader // what may still be read from conn
	in     *bufio.Reader     // reads from limit
}

// Host returns the origin at a target. conn is nil, or a connection to a peer of it that is
// past the TLS handshake, and is the Host's from here on.
func (c *Client) Host(t guard.Target, conn *tls.Conn, peer netip.Addr) *Host {
	limit := &io.LimitedReader{R: conn}
	return &Host{client: c, target: t, conn: conn, peer: peer, limit: limit, in: bufio.NewReader(limit)}
}

// Close drops the connection, if there is one, without a TLS farewell, which could
// block on a peer that does not read.
func (h *Host) Close() {
	if h.conn != nil {
		h.conn.NetConn().Close()
		h.conn = nil
	}
}

// Fetch requests an absolute path and query, printable ASCII, with HEAD, and
// with GET if the status is 405 or 501 (spec §3.2). Its errors are those that Fault
// knows; its faults are blocked_address, connect_failed, handshake_failed and
// http_failed.
func (h *Host) Fetch(ctx context.Context, path string) (Answer, error) {
	if !strings.HasPrefix(path, "/") || !printable.ASCII(path) || strings.Contains(path, " ") {
		return Answer{}, errors.New("origin: not a path to ask for")
	}
	a, err := h.ask(ctx, http.MethodHead, path)
	if err == nil && (a.Status == http.StatusMethodNotAllowed || a.Status == http.StatusNotImplemented) {
		a, err = h.ask(ctx, http.MethodGet, path)
	}
	return a, err
}

// ask makes one request. A connection that was used before may be dead or out
// of step (some servers send a body after HEAD), so its failure is settled on
// a new one.
func (h *Host) ask(ctx context.Context, method, path string) (Answer, error) {
	if h.conn != nil {
		if a, err := h.exchange(ctx, method, path); err == nil || ctx.Err() != nil {
			return a, err
		}
	}
	if err := h.connect(ctx); err != nil {
		return Answer{}, err
	}
	return h.exchange(ctx, method, path)
}

// connect dials and completes the TLS handshake, the second time without TLS 1.3,
// which some servers choke on.
func (h *Host) connect(ctx context.Context) error {
	var conn *tls.Conn
	hello := func(highest uint16) Hello {
		return func(raw net.Conn) (again bool, err error) {
			conn = tls.Client(raw, TLSConfig(h.target.Name, highest))
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
			state := conn.ConnectionState()
			early := state.Version == 0 || state.Version == tls.VersionTLS13 && len(state.PeerCertificates) == 0
			return early && !errors.As(err, new(tls.RecordHeaderError)), handshakeFailed(err)
		}
	}
	peer, err := Greet(ctx, h.client.Connector, h.target, hello(tls.VersionTLS13), hello(tls.VersionTLS12))
	if err == nil {
		*h = *h.client.Host(h.target, conn, peer)
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

// exchange sends a request and reads the head of its answer. When ctx ends, the
// connection is closed, which ends any read or write at once. It drops a connection
// that cannot take another request.
func (h *Host) exchange(ctx context.Context, method, path string) (Answer, error) {
	conn := h.conn
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	h.limit.N = maxHead
	// A peer that refuses may have said why before it closed, so a failed write does
	// not end the attempt.
	_, sendErr := io.WriteString(conn, method+" "+path+" HTTP/1.1\r\n"+
		"Host: "+h.target.Name+"\r\n"+
		"User-Agent: "+h.client.UserAgent+"\r\n"+
		"Accept: */*\r\n\r\n")
	a, err := readHead(h.in)
	a.Method, a.Peer = method, h.peer
	if stop(); err != nil || sendErr != nil || h.in.Buffered() > 0 || !a.persists() {
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

// failed says in our own words how a request failed.
func (h *Host) failed(err error) error {
	nothing := h.limit.N == maxHead
	why := "the response headers are incomplete"
	switch {
	case h.limit.N == 0: // the cut may look like a malformed line
		why = "the response headers are longer than 64 KiB"
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
