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

// dial connects to a port of a host.
type dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

// guarded reaches public hosts only.
func guarded(c guard.Connector) dial {
	return func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		name, err := guard.Domain(host, guard.Hostname) // an address, localhost, ...
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

// trusted reaches what the operator configured: as every other host is reached, and where that
// cannot be, because it is an address, or a name or a host of the operator's own network, as
// this machine would.
func trusted(c guard.Connector, direct func(ctx context.Context, network, address string) (net.Conn, error)) dial {
	public := guarded(c)
	return func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		conn, err := public(ctx, host, port)
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

// transport makes HTTP/1.1 exchanges for JSON, each over its own connection and in the calling
// goroutine. An http.Transport would leave goroutines behind when a call is given up, which
// Lambda then freezes. It reads the body of a success, and no other.
type transport struct {
	dial    dial
	roots   *x509.CertPool // nil means the system's
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
		stream, err = t.secure(ctx, conn, req.URL)
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

// secure makes the TLS handshake with the host of a URL.
func (t transport) secure(ctx context.Context, conn net.Conn, u *url.URL) (net.Conn, error) {
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

// receive reads the response to a request. Interim responses before it (RFC 9110 §15.2) do not
// count.
func (t transport) receive(stream io.Reader, req *http.Request) (*http.Response, error) {
	r := bufio.NewReader(io.LimitReader(stream, maxHeader+2*t.maxBody)) // chunks have a frame
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
			err = errors.New("a malformed location") // http.Client would quote it
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

// readBody takes gzip from a server that sends it although it was not accepted, and drops a
// byte order mark, which RFC 8259 §8.1 lets a reader ignore.
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
	b = escaped(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")))
	return b, t.limits.Check(b)
}

// escaped is JSON with the control characters in its strings as RFC 8259 §7 wants them: some
// registries send tabs and line breaks in remarks as they are. What is correct comes back as it
// is.
func escaped(doc []byte) []byte {
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

// follow is the redirect policy for RDAP servers, which are all guarded: never from https to
// http, no user, and no port but those of the web and the one it came from.
func follow(next *http.Request, via []*http.Request) error {
	to := next.URL
	last := via[len(via)-1].URL
	ports := []string{"", "443", last.Port()}
	if to.Scheme == "http" {
		ports = append(ports, "80")
	}
	staysPlain := to.Scheme == "http" && last.Scheme == "http"
	switch {
	case len(via) > maxRedirects,
		to.User != nil,
		!slices.Contains(ports, to.Port()),
		to.Scheme != "https" && !staysPlain:
		return errRedirect
	}
	return nil
}

// stay is the redirect policy for the bootstrap URL, whose host the operator chose and which is
// not guarded: to https on that host, and nowhere else.
func stay(next *http.Request, via []*http.Request) error {
	if next.URL.Scheme != "https" || !strings.EqualFold(next.URL.Hostname(), via[0].URL.Hostname()) {
		return errRedirect
	}
	return follow(next, via)
}
