package registry

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

// transport makes HTTP/1.1 exchanges for JSON, each over its own connection and in the
// calling goroutine. An http.Transport would leave goroutines and half-made connections
// behind when a call is given up, which Lambda then freezes.
//
// The body of a response has been read when it is returned, and only that of
// a success is: what stands beside an error status is not used.
type transport struct {
	dial    dial
	roots   *x509.CertPool // nil means the system's
	maxBody int64
	limits  strictjson.Limits
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, u := req.Context(), req.URL
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		return nil, errRedirect
	}
	conn, err := t.dial(ctx, u.Hostname(), uint16(port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stream := conn
	if u.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{
			ServerName: strings.TrimSuffix(u.Hostname(), "."), RootCAs: t.roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
		})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("whois: TLS handshake: %w", err)
		}
		stream = secure
	}
	out := req.Clone(ctx)
	out.Close = true
	if err := out.Write(stream); err != nil {
		return nil, fmt.Errorf("whois: send: %w", err)
	}
	r := bufio.NewReader(io.LimitReader(stream, maxHeader+2*t.maxBody)) // chunks have a frame
	resp, err := http.ReadResponse(r, req)
	for err == nil && resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(r, req)
	}
	var body []byte
	switch {
	case err != nil:
	case resp.StatusCode/100 == 2:
		body, err = t.read(resp)
	case resp.StatusCode/100 == 3:
		if _, bad := resp.Location(); bad != nil && !errors.Is(bad, http.ErrNoLocation) {
			err = errors.New("a malformed location") // http.Client would quote it
		}
	}
	if err != nil {
		return nil, fmt.Errorf("whois: receive: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// read takes gzip from a server that sends it unasked, and drops a byte order mark,
// which RFC 8259 §8.1 lets a reader ignore.
func (t transport) read(resp *http.Response) (_ []byte, err error) {
	body := io.LimitReader(resp.Body, t.maxBody+1)
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		if body, err = gzip.NewReader(body); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(io.LimitReader(body, t.maxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > t.maxBody {
		return nil, errors.New("the body is too long")
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	return b, t.limits.Check(b)
}

// follow is the redirect policy for RDAP servers. Where a redirect leads is
// resolved and checked like the first server; beyond that it never goes from
// https to http, carries no user, and asks for no port but those of the web
// and the one it came from.
func follow(next *http.Request, via []*http.Request) error {
	to, last := next.URL, via[len(via)-1].URL
	ports := []string{"", "443", last.Port()}
	if to.Scheme == "http" {
		ports = append(ports, "80")
	}
	if len(via) > maxRedirects || to.User != nil || !slices.Contains(ports, to.Port()) ||
		to.Scheme != "https" && (to.Scheme != "http" || last.Scheme != "http") {
		return errRedirect
	}
	return nil
}

// stay is the redirect policy for the bootstrap URL. The operator chose its
// host, which is not guarded: a redirect may lead to https on that host, at
// the port it came from or that of https, and nowhere else.
func stay(next *http.Request, via []*http.Request) error {
	if next.URL.Scheme != "https" || !strings.EqualFold(next.URL.Hostname(), via[0].URL.Hostname()) {
		return errRedirect
	}
	return follow(next, via)
}
