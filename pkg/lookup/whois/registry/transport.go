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
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

const (
	maxInterim   = 5 // 1xx answers before the real one
	maxRedirects = 3
)

var (
	errBody      = errors.New("whois: the body is too long")
	errEncoding  = errors.New("whois: an unknown content encoding")
	errLocation  = errors.New("whois: a malformed location")
	errProtocol  = errors.New("whois: not a final HTTP response")
	errRedirect  = errors.New("whois: a redirect to where none may lead")
	errRedirects = fmt.Errorf("whois: more than %d redirects", maxRedirects)
)

// oneShot makes one HTTP/1.1 exchange over a connection of its own, in the
// calling goroutine. An http.Transport would leave goroutines and half-made
// connections behind when a call is given up, which Lambda then freezes.
//
// The body of a response has been read when it is returned, and only that of
// a success is: what stands beside an error status is not used.
type oneShot struct {
	dial    func(ctx context.Context, host string, port uint16) (net.Conn, error)
	roots   *x509.CertPool // nil means the system's
	maxBody int64
	inspect func(body []byte) error
}

var _ http.RoundTripper = oneShot{}

// guarded reaches public hosts only.
func guarded(c guard.Connector) func(context.Context, string, uint16) (net.Conn, error) {
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
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// RoundTrip implements http.RoundTripper. When the context has ended, the
// error wraps the context's.
func (o oneShot) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	resp, err := o.exchange(ctx, req)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return resp, err
}

func (o oneShot) exchange(ctx context.Context, req *http.Request) (*http.Response, error) {
	port, err := whois.Port(req.URL)
	if err != nil {
		return nil, err
	}
	conn, err := o.dial(ctx, req.URL.Hostname(), port)
	if err != nil {
		return nil, err
	}
	done := origin.Until(ctx, func() { conn.Close() })
	defer func() {
		if !done() {
			conn.Close()
		}
	}()
	stream := conn
	if req.URL.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{
			ServerName: strings.TrimSuffix(req.URL.Hostname(), "."),
			RootCAs:    o.roots,
			NextProtos: []string{"http/1.1"},
			MinVersion: tls.VersionTLS12,
		})
		// The end of ctx closes the connection, which ends the handshake; given
		// ctx itself, it would leave a goroutine behind for a moment.
		if err := secure.HandshakeContext(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("whois: TLS handshake: %w", err)
		}
		stream = secure
	}
	return o.talk(req, stream)
}

// talk sends the request and reads the response. Closing the response's own
// body would read on to its end; the connection is closed instead.
func (o oneShot) talk(req *http.Request, stream net.Conn) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.Close = true
	w := bufio.NewWriter(stream)
	if err := out.Write(w); err != nil {
		return nil, fmt.Errorf("whois: send: %w", err)
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("whois: send: %w", err)
	}
	r := origin.NewReader(stream)
	r.Allow(origin.MaxHead)
	head, err := r.Head(maxInterim)
	switch {
	case err != nil:
		return nil, fmt.Errorf("whois: receive: %w", err)
	case head.Status == http.StatusSwitchingProtocols:
		return nil, errProtocol
	}
	resp := &http.Response{
		Status: strconv.Itoa(head.Status), StatusCode: head.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: head.Header, Request: req,
	}
	if _, err := resp.Location(); resp.StatusCode/100 == 3 && err != nil && !errors.Is(err, http.ErrNoLocation) {
		return nil, errLocation // http.Client would quote it
	}
	var body []byte
	if resp.StatusCode < 300 {
		r.Allow(2 * o.maxBody) // chunked framing comes on top of the body
		if body, err = o.read(r, req.Method, head); err != nil {
			return nil, fmt.Errorf("whois: receive: %w", err)
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// read takes gzip from a server that sends it unasked.
func (o oneShot) read(r *origin.Reader, method string, head origin.Head) ([]byte, error) {
	body, err := r.Body(method, head)
	if err != nil {
		return nil, err
	}
	switch strings.ToLower(strings.TrimSpace(head.Header.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	default:
		return nil, errEncoding
	}
	b, err := io.ReadAll(io.LimitReader(body, o.maxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > o.maxBody {
		return nil, errBody
	}
	b = trimBOM(b)
	return b, o.inspect(b)
}

// follow is the redirect policy for RDAP servers. Where a redirect leads is
// resolved and checked like the first server; beyond that it never goes from
// https to http, carries no user, and asks for no port but those of the web
// and the one it came from.
func follow(next *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case next.URL.User != nil, next.URL.Scheme != "https" && (next.URL.Scheme != "http" || last.Scheme != "http"):
		return errRedirect
	}
	port, err := whois.Port(next.URL)
	if err != nil {
		return err
	}
	if from, err := whois.Port(last); err != nil || port != 80 && port != 443 && port != from {
		return errRedirect
	}
	return nil
}

// stay is the redirect policy for the bootstrap URL. The operator chose its
// host, which is not guarded: a redirect may lead to https on that host, at
// the port it came from or that of https, and nowhere else.
func stay(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case next.URL.Scheme != "https", next.URL.User != nil, !strings.EqualFold(next.URL.Hostname(), first.Hostname()):
		return errRedirect
	}
	port, err := whois.Port(next.URL)
	if err != nil {
		return err
	}
	if from, err := whois.Port(first); err != nil || port != 443 && port != from {
		return errRedirect
	}
	return nil
}

// fetch gets the body of a 200 from a URL of the operator's. The limit holds
// for every client, not only for our own.
func fetch(ctx context.Context, client *http.Client, u *url.URL, userAgent string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if userAgent != "" {
		req.Header.Set("User-Agent", userAgent)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("whois: HTTP status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, errBody
	}
	return body, nil
}
