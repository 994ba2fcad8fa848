package origin

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// maxHead bounds what is read for one answer, interim answers included.
const maxHead = 64 << 10

var errHeadTooLong = errors.New("origin: head too long")

// line is one TLS connection to a peer, handshake done.
type line struct {
	conn *tls.Conn
	peer netip.Addr
	in   *meter
	buf  *bufio.Reader
	used bool // a request was put on it
	keep bool // after an answer: it can take another request
}

func newLine(conn *tls.Conn, peer netip.Addr) *line {
	in := &meter{from: conn}
	return &line{conn: conn, peer: peer, in: in, buf: bufio.NewReader(in)}
}

// close drops the connection without a TLS farewell, which could block on a
// peer that does not read.
func (l *line) close() { l.conn.NetConn().Close() }

// ask puts a request and reads the head of its answer. When ctx ends, the
// connection is closed, which ends any read or write at once.
func (l *line) ask(ctx context.Context, method, path, host, userAgent string) (Answer, error) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		l.close()
	})
	a, err := l.exchange(method, path, host, userAgent)
	if !stop() {
		<-closed
		if err == nil { // the answer came with the end of the time
			l.keep = false
			return a, nil
		}
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
	l.used, l.keep, l.in.left, l.in.got = true, false, maxHead, false
	request := method + " " + path + " HTTP/1.1\r\n" +
		"Host: " + host + "\r\n" +
		"User-Agent: " + userAgent + "\r\n" +
		"Accept: */*\r\n\r\n"
	// A peer that refuses may have said why before it closed, so a failed
	// write does not end the attempt.
	_, sendErr := io.WriteString(l.conn, request)
	status, header, version, err := l.head()
	if err != nil {
		return Answer{}, errors.Join(err, sendErr)
	}
	l.keep = sendErr == nil && l.buf.Buffered() == 0 && persists(version, status, header) && bodiless(method, status, header)
	return Answer{Method: method, Status: status, Peer: l.peer, Header: header}, nil
}

// head reads the head of the final answer. Interim answers are passed over; 101
// is final, though nobody asked for it.
func (l *line) head() (status int, header http.Header, minor int, err error) {
	text := textproto.NewReader(l.buf)
	for {
		first, err := text.ReadLine()
		if err != nil {
			return 0, nil, 0, fmt.Errorf("status line: %w", err)
		}
		status, minor, err := statusLine(first)
		if err != nil {
			return 0, nil, 0, err
		}
		fields, err := text.ReadMIMEHeader()
		if err != nil {
			return 0, nil, 0, unquoted(err)
		}
		if status < 100 || status > 599 {
			return 0, nil, 0, errStatus
		}
		if status >= 200 || status == http.StatusSwitchingProtocols {
			return status, http.Header(fields), minor, nil
		}
	}
}

// unquoted is the error of a header that cannot be read, without the line that
// textproto quotes: it may be a cookie's, and errors are logged.
func unquoted(err error) error {
	if errors.As(err, new(textproto.ProtocolError)) {
		return errHeader
	}
	return fmt.Errorf("header: %w", err)
}

var (
	errStatusLine = errors.New("malformed status line")
	errHeader     = errors.New("malformed header")
	errStatus     = errors.New("status outside 100 to 599")
)

// statusLine reads "HTTP/1.1 200 OK"; the reason may be missing (RFC 9112 §4).
// minor is 0 for HTTP/1.0 and 1 for everything later.
func statusLine(s string) (status, minor int, err error) {
	version, rest, _ := strings.Cut(s, " ")
	major, minor, ok := http.ParseHTTPVersion(version)
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if !ok || major < 1 || len(code) != 3 || strings.Trim(code, "0123456789") != "" {
		return 0, 0, errStatusLine
	}
	if major > 1 || minor > 1 {
		minor = 1
	}
	status, err = strconv.Atoi(code)
	return status, minor, err
}

// persists reports whether the peer keeps the connection open (RFC 9112 §9.3).
func persists(minor, status int, h http.Header) bool {
	return minor == 1 && status != http.StatusSwitchingProtocols &&
		!strings.Contains(strings.ToLower(strings.Join(h["Connection"], ",")), "close")
}

// bodiless reports whether the answer ends with its head (RFC 9112 §6.3).
func bodiless(method string, status int, h http.Header) bool {
	if method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		return true
	}
	length := h["Content-Length"]
	return len(length) == 1 && length[0] == "0" && len(h["Transfer-Encoding"]) == 0
}

// failed says in our own words how a request failed.
func (l *line) failed(method string, err error) *fault.Error {
	cause := fmt.Errorf("%s to %s: %w", method, l.peer, err)
	switch {
	case errors.Is(err, errHeadTooLong), l.in.left == 0: // the cut may look like a malformed line
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response headers are longer than 64 KiB.")
	case errors.Is(err, errStatus):
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response status is outside 100 to 599.")
	case isAlert(err) && !l.in.got:
		// TLS 1.3 servers refuse a client, for want of its certificate for
		// instance, when the client has finished.
		return handshakeFailed(l.peer, err)
	case errors.Is(err, errHeader), errors.Is(err, errStatusLine):
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response is not HTTP/1.1.")
	case !l.in.got:
		return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the connection ended without a response.")
	}
	return fault.Newf(fault.HTTPFailed, cause, "The HTTPS request failed: the response headers are incomplete.")
}

// meter reads from a connection until its allowance is used up.
type meter struct {
	from io.Reader
	left int
	got  bool // anything
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, errHeadTooLong
	}
	n, err := m.from.Read(p[:min(len(p), m.left)])
	m.left -= n
	m.got = m.got || n > 0
	return n, err
}
