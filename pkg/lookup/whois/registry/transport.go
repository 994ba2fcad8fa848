package registry

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// dialFunc is a function that connects to a port of a host.
type dialFunc func(ctx context.Context, host string, port uint16) (net.Conn, error)

// dialGuarded returns a dialFunc that connects only to public hosts.
func dialGuarded(c guard.Connector) dialFunc {
	return func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		name, err := guard.Domain(host, guard.Hostname) // guard.Domain refuses IP addresses, localhost and the like
		if err != nil {
			return nil, err
		}
		target, err := c.Resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		conn, _, err := c.Dial(ctx, target, port)
		return conn, err
	}
}

// dialTrusted returns a dialFunc for the host of the bootstrap URL, which the operator chose.
// The dialFunc first tries to connect with a dialFunc of dialGuarded. If that fails, it
// connects with the function direct. This is necessary if the host is an IP address, or
// belongs to the operator's own network.
func dialTrusted(c guard.Connector, direct func(ctx context.Context, network, address string) (net.Conn, error)) dialFunc {
	guarded := dialGuarded(c)
	return func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		conn, err := guarded(ctx, host, port)
		if err == nil {
			return conn, nil
		}
		conn, directErr := direct(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if directErr != nil {
			return nil, errors.Join(err, directErr)
		}
		return conn, nil
	}
}

// transport is an http.RoundTripper that fetches JSON over HTTP/1.1. It makes each exchange
// over a new connection, in the goroutine of the caller. An http.Transport would leave
// goroutines behind when a call is cancelled, and Lambda would freeze these goroutines.
// transport reads the body of a response only if the status is 2xx.
type transport struct {
	dial    dialFunc
	roots   *x509.CertPool // the root certificates with which servers are verified; nil means those of the system
	maxBody int64
	limits  untrusted.Limits
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := t.connect(ctx, req.URL)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stream := conn
	if req.URL.Scheme == "https" {
		stream, err = t.handshake(ctx, conn, req.URL)
		if err != nil {
			return nil, fmt.Errorf("whois: TLS handshake: %w", err)
		}
	}
	out := req.Clone(ctx)
	out.Close = true
	if err := out.Write(stream); err != nil {
		return nil, fmt.Errorf("whois: send: %w", err)
	}
	resp, err := t.receive(stream, req)
	if err != nil {
		return nil, fmt.Errorf("whois: receive: %w", err)
	}
	return resp, nil
}

// handshake makes the TLS handshake with the host of a URL over conn.
func (t transport) handshake(ctx context.Context, conn net.Conn, u *url.URL) (net.Conn, error) {
	secure := tls.Client(conn, &tls.Config{
		ServerName: strings.TrimSuffix(u.Hostname(), "."),
		RootCAs:    t.roots,
		NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS12,
	})
	return secure, secure.HandshakeContext(ctx)
}

func (t transport) connect(ctx context.Context, u *url.URL) (net.Conn, error) {
	number := u.Port()
	switch {
	case number != "":
	case u.Scheme == "https":
		number = "443"
	case u.Scheme == "http":
		number = "80"
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, errRedirect
	}
	return t.dial(ctx, u.Hostname(), uint16(port))
}

// receive reads the final response to a request. It skips interim responses (RFC 9110 §15.2).
func (t transport) receive(stream io.Reader, req *http.Request) (*http.Response, error) {
	r := bufio.NewReader(io.LimitReader(stream, maxHeader+2*t.maxBody)) // the limit has twice maxBody, because a chunked body is longer than its content
	resp, err := http.ReadResponse(r, req)
	for err == nil && isInterim(resp.StatusCode) {
		resp, err = http.ReadResponse(r, req)
	}
	if err != nil {
		return nil, err
	}
	var body []byte
	switch resp.StatusCode / 100 {
	case 2:
		body, err = t.readBody(resp)
	case 3:
		if _, bad := resp.Location(); bad != nil && !errors.Is(bad, http.ErrNoLocation) {
			err = errors.New("a malformed location") // without this error, http.Client would return one that quotes the location
		}
	}
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func isInterim(status int) bool {
	return status/100 == 1 && status != http.StatusSwitchingProtocols
}

// readBody returns the body of a response. Some servers send gzip although the request does
// not accept it, so readBody decodes gzip. It drops a byte order mark, as RFC 8259 §8.1
// allows.
func (t transport) readBody(resp *http.Response) ([]byte, error) {
	body := io.LimitReader(resp.Body, t.maxBody+1)
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		plain, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = plain
	}
	b, err := io.ReadAll(io.LimitReader(body, t.maxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > t.maxBody {
		return nil, errors.New("the body is too long")
	}
	b = escapeControls(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")))
	return b, t.limits.Check(b)
}

// escapeControls escapes the control characters within the strings of a JSON document. RFC
// 8259 §7 requires that, but some registries send tabs and line breaks in remarks unescaped.
// escapeControls returns correct JSON unchanged.
func escapeControls(doc []byte) []byte {
	var out []byte
	quoted := false
	copied := 0
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted && c < ' ':
			out = fmt.Appendf(append(out, doc[copied:i]...), `\u%04x`, c)
			copied = i + 1
		}
	}
	if copied == 0 {
		return doc
	}
	return append(out, doc[copied:]...)
}

// checkRedirect is the redirect policy for RDAP servers. It need not check the host, because
// the client connects only with a dialFunc of dialGuarded. It refuses a redirect from https to
// http, and a redirect to a URL with a user. The port must be 443, or 80 for an http URL, or
// the same as the port of the redirecting URL.
func checkRedirect(next *http.Request, via []*http.Request) error {
	target := next.URL
	last := via[len(via)-1].URL
	ports := []string{"", "443", last.Port()}
	if target.Scheme == "http" {
		ports = append(ports, "80")
	}
	staysHTTP := target.Scheme == "http" && last.Scheme == "http"
	switch {
	case len(via) > maxRedirects,
		target.User != nil,
		!slices.Contains(ports, target.Port()),
		target.Scheme != "https" && !staysHTTP:
		return errRedirect
	}
	return nil
}

// checkSameHost is the redirect policy for the bootstrap URL. It allows redirects only to
// https on the same host. The operator chose that host, so the host may be private. A redirect
// must not lead to another host, because that could be private as well.
func checkSameHost(next *http.Request, via []*http.Request) error {
	if next.URL.Scheme != "https" || !strings.EqualFold(next.URL.Hostname(), via[0].URL.Hostname()) {
		return errRedirect
	}
	return checkRedirect(next, via)
}
