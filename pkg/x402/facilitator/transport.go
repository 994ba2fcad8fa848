package facilitator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds an answer. A settlement is below 1 KiB, and the longest
	// /supported seen is a few KiB.
	maxBody = 64 << 10
	// maxHeader bounds the header of an answer, EXTENSION-RESPONSES included.
	maxHeader = 32 << 10

	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
)

// Private causes of an exchange that brought no answer. errCredentials says that the
// credentials could not be read or used.
var (
	errNoURL       = errors.New("no facilitator URL is configured")
	errTooLarge    = fmt.Errorf("facilitator answer is longer than %d bytes", maxBody)
	errCredentials = errors.New("facilitator credentials")
)

// reply is everything that one request to the facilitator has led to.
type reply struct {
	// err is why there is no complete answer.
	err error
	// sent says that a byte of the request may have left. False is a proof.
	sent bool
	// expired says that the call's time was up when err was seen.
	expired bool
	// authorized says that the request carried credentials.
	authorized bool
	status     int // 0 when not even the header of an answer came
	header     http.Header
	body       []byte
}

// exchange sends one request and reads its whole answer. It uses the transport
// directly: http.Client would follow a redirect with the payment in hand.
func (c *Client) exchange(ctx context.Context, method, path string, body []byte) reply {
	if c.base == nil {
		return reply{err: errNoURL}
	}
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	req, err := c.newRequest(ctx, method, path, body)
	if err == nil {
		// A transport may notice an ended context before or after it reports
		// to httptrace; seen here, it is a proof that nothing was sent.
		err = ctx.Err()
	}
	if err != nil {
		return reply{err: err, expired: ctx.Err() != nil}
	}
	out := reply{authorized: req.Header.Get("Authorization") != ""}
	// The hooks may run on the transport's own goroutines. The first header field counts
	// as written although it may still be in a buffer: every byte that can have left comes
	// after that report, and on an error net/http ends its writing goroutine before
	// RoundTrip returns, so that no report comes late.
	var reported, written atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { reported.Store(true) },
		WroteHeaderField: func(string, []string) { written.Store(true) },
	})
	transport := c.transport
	if transport == nil {
		transport = c.newTransport(ctx)
	}
	resp, err := transport.RoundTrip(req.WithContext(traced))
	if err != nil {
		// Silence from a transport that reports nothing proves nothing.
		out.err, out.sent, out.expired = err, written.Load() || !reported.Load(), ctx.Err() != nil
		return out
	}
	defer resp.Body.Close()
	out.sent, out.status, out.header = true, resp.StatusCode, resp.Header
	if out.status == http.StatusUnauthorized && c.creds.rejected != nil {
		c.creds.rejected()
	}
	// What was read of a body that is cut short or too long is dropped: half an answer
	// is not an answer.
	out.body, out.err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case out.err != nil:
		out.body, out.err = nil, fmt.Errorf("read facilitator answer: %w", out.err)
	case len(out.body) > maxBody:
		out.body, out.err = nil, errTooLarge
	}
	out.expired = out.err != nil && ctx.Err() != nil
	return out
}

// newRequest builds one request. GetBody stays nil: it is what net/http needs
// to send a request again on another connection, and a settle is sent once.
// For the same reason there is no Idempotency-Key, which net/http reads as a
// permission to repeat.
func (c *Client) newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	target := *c.base
	target.Path += path
	auth, err := c.creds.Authorization(ctx, Call{Method: method, Host: target.Host, Path: target.EscapedPath(), Now: c.now()})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCredentials, err)
	}
	req := (&http.Request{
		Method: method, URL: &target, Host: target.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Accept":     {"application/json"},
			"User-Agent": {c.userAgent},
			// Asked for by name, so that no transport decodes: the bound on
			// the body is then a bound on memory.
			"Accept-Encoding": {"identity"},
		},
	}).WithContext(ctx)
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
	}
	return req, nil
}

// newTransport returns the transport of one call: HTTP/1.1, no proxy from the environment,
// and one connection, which ends with the call. net/http detaches dials and handshakes from
// the request that asked for them; here they are bound to it again, because one that
// outlived its call would still be there when a frozen Lambda environment thaws.
//
// A kept connection could save a settle two round trips, a few milliseconds of a call that
// waits for a block of two seconds. Its price is doubt: a server closes idle connections
// too, a frozen environment learns of it late, and a settle written into a connection that
// is being closed ends as "unknown", which blocks the payer until the chain has answered.
// TLS sessions are resumed.
//
// HTTP/1.1 because nothing is multiplexed, and because net/http then sends a
// request at most once without further conditions.
func (c *Client) newTransport(ctx context.Context) *http.Transport {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			conn, err := c.dial(ctx, network, addr)
			if err == nil {
				context.AfterFunc(ctx, func() { conn.Close() })
			}
			return conn, err
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: c.sessions},
		TLSHandshakeTimeout:    tlsTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              only1,
	}
}
