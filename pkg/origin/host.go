package origin

import (
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
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Host is one origin. It keeps its connection from one request to the next
// where the origin lets it. It is not safe for concurrent use; Close ends it.
type Host struct {
	client *Client
	target guard.Target
	line   *line
}

// Answer is the head of an origin's answer.
type Answer struct {
	Method string // HEAD, or GET if the origin takes no HEAD
	Status int    // 100 to 999
	Peer   netip.Addr
	Header http.Header // as in Head
}

// Host returns the origin at a target, not connected yet.
func (c *Client) Host(t guard.Target) *Host { return &Host{client: c, target: t} }

// HostOn returns the origin at a target, connected to a peer of it already and
// past the TLS handshake. The connection is the Host's from here on.
func (c *Client) HostOn(t guard.Target, conn *tls.Conn, peer netip.Addr) *Host {
	h := c.Host(t)
	h.line = newLine(conn, peer)
	h.line.used = true // it may have idled: its failure is not the origin's yet
	return h
}

// Close drops the connection, if there is one.
func (h *Host) Close() {
	if h.line != nil {
		h.line.close()
		h.line = nil
	}
}

// Fetch requests an absolute path and query, printable ASCII, with HEAD, and
// with GET if the status is 405 or 501 (spec §3.2). Its errors are the faults
// blocked_address, connect_failed, handshake_failed and http_failed, or wrap
// ErrTimeout or guard.ErrNoRoute.
func (h *Host) Fetch(ctx context.Context, path string) (Answer, error) {
	if path == "" || path[0] != '/' || !printable.ASCII(path) || strings.Contains(path, " ") {
		return Answer{}, errors.New("origin: no path to ask for")
	}
	a, err := h.ask(ctx, http.MethodHead, path)
	if err == nil && (a.Status == http.StatusMethodNotAllowed || a.Status == http.StatusNotImplemented) {
		a, err = h.ask(ctx, http.MethodGet, path)
	}
	return a, err
}

// ask puts one request. A connection that was used before may be dead or out
// of step (some servers send a body after HEAD), so its failure is settled on
// a new one.
func (h *Host) ask(ctx context.Context, method, path string) (Answer, error) {
	if h.line != nil && h.line.used {
		a, err := h.askOn(ctx, method, path)
		if err == nil || errors.Is(err, ErrTimeout) {
			return a, err
		}
	}
	if h.line == nil {
		if err := h.connect(ctx); err != nil {
			return Answer{}, err
		}
	}
	return h.askOn(ctx, method, path)
}

func (h *Host) askOn(ctx context.Context, method, path string) (Answer, error) {
	a, err := h.line.ask(ctx, method, path, h.target.Name, h.client.userAgent)
	if err != nil || !h.line.keep {
		h.Close()
	}
	return a, err
}

// connect dials and completes the TLS handshake, the second time without TLS 1.3,
// which some servers choke on.
func (h *Host) connect(ctx context.Context) error {
	again, err := h.handshake(ctx, tls.VersionTLS13)
	if !again {
		return err
	}
	if _, second := h.handshake(ctx, tls.VersionTLS12); second == nil || ctx.Err() != nil {
		return second
	}
	return Narrow(err) // the first verdict stands
}

// handshake makes one connection. again says that another hello may help: the host
// did not get to its certificate, and would not in plain text.
func (h *Host) handshake(ctx context.Context, highest uint16) (again bool, err error) {
	conn, peer, err := h.client.connector.Dial(ctx, h.target, port)
	if err != nil {
		return false, ended(ctx, err)
	}
	cfg := TLSConfig(h.target.Name)
	cfg.MaxVersion = highest
	secure := tls.Client(conn, cfg)
	err = secure.HandshakeContext(ctx)
	if err == nil {
		h.line = newLine(secure, peer)
		return false, nil
	}
	conn.Close()
	if ctx.Err() != nil {
		return false, fmt.Errorf("%w in the TLS handshake with %s: %w", Late(ctx), peer, err)
	}
	state := secure.ConnectionState()
	early := state.Version == 0 || state.Version == tls.VersionTLS13 && len(state.PeerCertificates) == 0
	return early && !errors.As(err, new(tls.RecordHeaderError)), handshakeFailed(peer, err)
}

// Narrow adds to the message of an error that another offer in the handshake than any
// of ours may have helped.
func Narrow(err error) error {
	f := fault.From(err)
	return f.Info().Newf(err, "%s What was offered to the host may have been too narrow.", f.Public())
}

func handshakeFailed(peer netip.Addr, err error) *fault.Error {
	cause := fmt.Errorf("handshake with %s: %w", peer, err)
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return lookup.Faultf(lookup.HandshakeFailed, cause, "The TLS handshake failed: the host does not speak TLS on port 443.")
	case isAlert(err):
		return lookup.Faultf(lookup.HandshakeFailed, cause, "The TLS handshake failed: the host refused it.")
	}
	return lookup.Fault(lookup.HandshakeFailed, cause)
}

// isAlert recognises the alert of a peer, which has no exported type.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// line is one TLS connection to a peer, handshake done.
type line struct {
	conn *tls.Conn
	peer netip.Addr
	in   *Reader
	used bool // a request was put on it
	keep bool // after an answer: it can take another request
}

func newLine(conn *tls.Conn, peer netip.Addr) *line {
	return &line{conn: conn, peer: peer, in: NewReader(conn)}
}

// close drops the connection without a TLS farewell, which could block on a
// peer that does not read.
func (l *line) close() { l.conn.NetConn().Close() }

// ask puts a request and reads the head of its answer. When ctx ends, the
// connection is closed, which ends any read or write at once.
func (l *line) ask(ctx context.Context, method, path, host, userAgent string) (Answer, error) {
	done := Until(ctx, l.close)
	a, err := l.exchange(method, path, host, userAgent)
	if done() && err == nil { // the answer came with the end of the time
		l.keep = false
		return a, nil
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("%w while %s waited for %s: %w", Late(ctx), method, l.peer, err)
	}
	return Answer{}, l.failed(method, err)
}

func (l *line) exchange(method, path, host, userAgent string) (Answer, error) {
	l.used, l.keep = true, false
	l.in.Allow(MaxHead)
	request := method + " " + path + " HTTP/1.1\r\n" +
		"Host: " + host + "\r\n" +
		"User-Agent: " + userAgent + "\r\n" +
		"Accept: */*\r\n\r\n"
	// A peer that refuses may have said why before it closed, so a failed
	// write does not end the attempt.
	_, sendErr := io.WriteString(l.conn, request)
	head, err := l.in.Head(0)
	if err != nil {
		return Answer{}, errors.Join(err, sendErr)
	}
	l.keep = sendErr == nil && l.in.Buffered() == 0 && head.Persists() && head.Bodiless(method)
	return Answer{Method: method, Status: head.Status, Peer: l.peer, Header: head.Header}, nil
}

// failed says in our own words how a request failed.
func (l *line) failed(method string, err error) *fault.Error {
	cause := fmt.Errorf("%s to %s: %w", method, l.peer, err)
	switch {
	case errors.Is(err, ErrLong), l.in.Spent(): // the cut may look like a malformed line
		return lookup.Faultf(lookup.HTTPFailed, cause, "The HTTPS request failed: the response headers are longer than 64 KiB.")
	case errors.Is(err, ErrStatus):
		return lookup.Faultf(lookup.HTTPFailed, cause, "The HTTPS request failed: the response status is below 100.")
	case isAlert(err) && !l.in.Got():
		// TLS 1.3 servers refuse a client, for want of its certificate for
		// instance, when the client has finished.
		return handshakeFailed(l.peer, err)
	case errors.Is(err, ErrStatusLine):
		return lookup.Faultf(lookup.HTTPFailed, cause, "The HTTPS request failed: the response is not HTTP/1.1.")
	case !l.in.Got():
		return lookup.Faultf(lookup.HTTPFailed, cause, "The HTTPS request failed: the connection ended without a response.")
	}
	return lookup.Faultf(lookup.HTTPFailed, cause, "The HTTPS request failed: the response headers are incomplete.")
}
