// Package origin asks public HTTPS origins for the head of an answer: status
// and headers, on port 443, over HTTP/1.1 (spec §4.5, §4.6). The headers and
// redirect lookups share it, and the certificate lookup greets hosts with it.
//
// It speaks HTTP itself, because net/http refuses heads that browsers take, makes a
// Cache-Control out of a Pragma, and does not tell whether a dial, a handshake or a
// request failed. Errors are logged, and never contain what the server sent. Certificates
// are not verified: an origin with an expired one must be seen to answer.
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
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

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
// silence (fault.Error.Silence), for ErrSilence and guard.ErrUnresolvable.
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

// Close drops the connection without TLS's close_notify, which could block on a peer.
func (h *Host) Close() {
	if h.conn != nil {
		h.conn.NetConn().Close()
		h.conn = nil
	}
}

// Fetch requests an absolute path and query, printable ASCII without spaces, with HEAD, and
// with GET if the status is 405 or 501 (spec §3.2). Its errors are those that Fault knows.
func (h *Host) Fetch(ctx context.Context, path string) (Answer, error) {
	a, err := h.ask(ctx, http.MethodHead, path)
	if err == nil && (a.Status == http.StatusMethodNotAllowed || a.Status == http.StatusNotImplemented) {
		return h.ask(ctx, http.MethodGet, path)
	}
	return a, err
}

// ask makes one request. A connection that was used before may be dead or out of step (some
// servers send a body after HEAD), so its failure is settled on a new one.
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

// maxHead bounds what is read for one head, in bytes, interim answers included.
const maxHead = 64 << 10

var errStatus, errStatusLine = errors.New("status below 100"), errors.New("malformed status line")

// Answer is the head of an origin's answer.
type Answer struct {
	Method string // HEAD, or GET if the origin takes no HEAD
	Status int    // 101, or 200 to 999
	Peer   netip.Addr
	// Header has the fields in their order under each name. Lines that are not a field
	// are left out, and values have no control bytes but tabs; their bytes need not be
	// UTF-8.
	Header http.Header

	minor int // 0 for HTTP/1.0 and 1 for everything later
}

// readHead reads the head of the final answer and passes over interim ones. 101 is
// final, though nobody asked for it.
func readHead(from *bufio.Reader) (a Answer, err error) {
	text := textproto.NewReader(from)
	for a.Status < 200 && a.Status != http.StatusSwitchingProtocols {
		first, err := text.ReadLine()
		if err != nil {
			return a, fmt.Errorf("status line: %w", err)
		}
		if a.Status, a.minor, err = statusLine(first); err != nil {
			return a, err
		}
		if a.Header, err = readFields(text); err != nil {
			return a, fmt.Errorf("header: %w", err)
		}
	}
	return a, nil
}

// readFields reads the lines up to the empty one. As browsers do, it passes over those
// that are not a field, together with those that continue them, and takes a first line
// that begins with white space.
func readFields(text *textproto.Reader) (http.Header, error) {
	fields := http.Header{}
	for {
		start, _ := text.R.Peek(1)
		line, err := text.ReadContinuedLine()
		if err != nil || line == "" && !strings.ContainsAny(string(start), " \t") {
			return fields, err
		}
		if name, value, ok := field(line); ok {
			fields[name] = append(fields[name], value)
		}
	}
}

// field reads a line of a header. White space before the colon is not a part of the
// name (RFC 9112 §5.1), and control bytes are not part of the value.
func field(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", "", false
	}
	kept := slices.DeleteFunc([]byte(value), func(b byte) bool { return b < ' ' && b != '\t' || b == 0x7f })
	return textproto.CanonicalMIMEHeaderKey(name), strings.Trim(string(kept), " \t"), true
}

// statusLine reads "HTTP/1.1 200 OK" (RFC 9112 §4). As with curl, the reason may be
// missing or stick to the status, and the version may be in lower case or that of
// another protocol than is spoken.
func statusLine(s string) (status, minor int, err error) {
	version, rest, _ := strings.Cut(strings.ToUpper(s), " ")
	if version == "HTTP/2" {
		version = "HTTP/1.1"
	}
	major, minor, ok := http.ParseHTTPVersion(version)
	rest = strings.TrimLeft(rest, " ")
	if !ok || major < 1 || len(rest)-len(strings.TrimLeft(rest, "0123456789")) != len("200") {
		return 0, 0, errStatusLine
	}
	if status, _ = strconv.Atoi(rest[:3]); status < 100 { // three digits
		return 0, 0, errStatus
	}
	if major > 1 {
		minor = 1
	}
	return status, min(minor, 1), nil
}

// persists reports whether the server keeps the connection open (RFC 9112 §9.3) after an
// answer that ends with its head (§6.3).
func (a Answer) persists() bool {
	if a.minor == 0 || a.Status == http.StatusSwitchingProtocols ||
		strings.Contains(strings.ToLower(strings.Join(a.Header["Connection"], ",")), "close") {
		return false
	}
	return a.Method == http.MethodHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified ||
		slices.Equal(a.Header["Content-Length"], []string{"0"}) && len(a.Header["Transfer-Encoding"]) == 0
}

// Text is a header value as JSON can hold it. One that is not UTF-8 is read as
// ISO 8859-1, which header values were once meant to be, so that no byte is lost.
func Text(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	out := make([]rune, len(value))
	for i := range len(value) {
		out[i] = rune(value[i])
	}
	return string(out)
}
