package whois

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

const (
	maxHeader    = 64 << 10
	maxRedirects = 3
)

var errRedirect = fmt.Errorf("whois: a redirect to where none may lead, or more than %d", maxRedirects)

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

// unguarded reaches what the operator configured.
func unguarded(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// fetcher gets JSON over HTTP/1.1, each exchange over its own connection and in the
// calling goroutine. An http.Client would leave goroutines and half-made connections
// behind when a call is given up, which Lambda then freezes, and its errors would quote
// the URL, and with it the name that is asked about, which is not to be logged.
type fetcher struct {
	dial    dial
	may     func(from, to *url.URL) bool // where redirects lead
	roots   *x509.CertPool               // nil means the system's
	agent   string
	maxBody int64
	limits  strictjson.Limits
}

// get follows redirects, and reads the body of a success only: what stands beside an
// error status is not used.
func (f fetcher) get(ctx context.Context, from string) (status int, body []byte, err error) {
	u, err := url.Parse(from)
	if err != nil {
		return 0, nil, err
	}
	for range 1 + maxRedirects {
		resp, body, err := f.exchange(ctx, u)
		if err != nil {
			return 0, nil, err
		}
		if !slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode) || resp.Header.Get("Location") == "" {
			return resp.StatusCode, body, nil
		}
		next, err := resp.Location()
		if err != nil || !f.may(u, next) {
			return 0, nil, errRedirect
		}
		u = next
	}
	return 0, nil, errRedirect
}

// exchange makes one request and reads the answer.
func (f fetcher) exchange(ctx context.Context, u *url.URL) (*http.Response, []byte, error) {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		return nil, nil, errRedirect
	}
	conn, err := f.dial(ctx, u.Hostname(), uint16(port))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stream := conn
	if u.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{
			ServerName: strings.TrimSuffix(u.Hostname(), "."), RootCAs: f.roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
		})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, nil, fmt.Errorf("whois: TLS handshake: %w", err)
		}
		stream = secure
	}
	req := &http.Request{Method: http.MethodGet, URL: u, Close: true, Header: http.Header{
		"Accept": {"application/rdap+json, application/json"}, "User-Agent": {f.agent},
	}}
	if err := req.Write(stream); err != nil {
		return nil, nil, fmt.Errorf("whois: send: %w", err)
	}
	r := bufio.NewReader(io.LimitReader(stream, maxHeader+2*f.maxBody)) // chunks have a frame
	resp, err := http.ReadResponse(r, req)
	for err == nil && resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(r, req)
	}
	var body []byte
	if err == nil && resp.StatusCode/100 == 2 {
		body, err = f.read(resp)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("whois: receive: %w", err)
	}
	return resp, body, nil
}

// read takes gzip from a server that sends it unasked, and drops a byte order mark,
// which RFC 8259 §8.1 lets a reader ignore.
func (f fetcher) read(resp *http.Response) (_ []byte, err error) {
	body := io.LimitReader(resp.Body, f.maxBody+1)
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		if body, err = gzip.NewReader(body); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(io.LimitReader(body, f.maxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > f.maxBody {
		return nil, errors.New("the body is too long")
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	return b, f.limits.Check(b)
}

// follow is the redirect policy for RDAP servers. Where a redirect leads is
// resolved and checked like the first server; beyond that it never goes from
// https to http, carries no user, and asks for no port but those of the web
// and the one it came from.
func follow(from, to *url.URL) bool {
	ports := []string{"", "443", from.Port()}
	if to.Scheme == "http" {
		ports = append(ports, "80")
	}
	return to.User == nil && slices.Contains(ports, to.Port()) &&
		(to.Scheme == "https" || to.Scheme == "http" && from.Scheme == "http")
}

// stay is the redirect policy for the bootstrap URL. The operator chose its
// host, which is not guarded: a redirect may lead to https on that host, at
// the port it came from or that of https, and nowhere else.
func stay(from, to *url.URL) bool {
	return to.Scheme == "https" && strings.EqualFold(to.Hostname(), from.Hostname()) && follow(from, to)
}
