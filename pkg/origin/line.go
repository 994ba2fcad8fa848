package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/exchange"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// line is one TLS connection to a peer, handshake done.
type line struct {
	conn *tls.Conn
	peer netip.Addr
	in   *exchange.Reader
	used bool // a request was put on it
	keep bool // after an answer: it can take another request
}

func newLine(conn *tls.Conn, peer netip.Addr) *line {
	return &line{conn: conn, peer: peer, in: exchange.NewReader(conn)}
}

// close drops the connection without a TLS farewell, which could block on a
// peer that does not read.
func (l *line) close() { l.conn.NetConn().Close() }

// ask puts a request and reads the head of its answer. When ctx ends, the
// connection is closed, which ends any read or write at once.
func (l *line) ask(ctx context.Context, method, path, host, userAgent string) (Answer, error) {
	done := exchange.Until(ctx, l.close)
	a, err := l.exchange(method, path, host, userAgent)
	if done() && err == nil { // the answer came with the end of the time
		l.keep = false
		return a, nil
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("%w while %s waited for %s: %w", ErrTimeout, method, l.peer, err)
	}
	return Answer{}, l.failed(method, err)
}

func (l *line) exchange(method, path, host, userAgent string) (Answer, error) {
	l.used, l.keep = true, false
	l.in.Allow(exchange.MaxHead)
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
	case errors.Is(err, exchange.ErrLong), l.in.Spent(): // the cut may look like a malformed line
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response headers are longer than 64 KiB.")
	case errors.Is(err, exchange.ErrStatus):
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response status is outside 100 to 599.")
	case isAlert(err) && !l.in.Got():
		// TLS 1.3 servers refuse a client, for want of its certificate for
		// instance, when the client has finished.
		return handshakeFailed(l.peer, err)
	case errors.Is(err, exchange.ErrHeader), errors.Is(err, exchange.ErrStatusLine):
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response is not HTTP/1.1.")
	case !l.in.Got():
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the connection ended without a response.")
	}
	return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response headers are incomplete.")
}
