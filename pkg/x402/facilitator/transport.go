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

// Private causes of an exchange that brought no answer.
var (
	errNoURL    = errors.New("no facilitator URL is configured")
	errTooLarge = fmt.Errorf("facilitator answer is longer than %d bytes", maxBody)
)

// credentialsError says that the credentials could not be read or used, so
// that nothing was sent.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "facilitator credentials: " + e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

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
	trace := new(wire)
	resp, err := c.transport.RoundTrip(req.WithContext(trace.watch(ctx)))
	if err != nil {
		out.err, out.sent, out.expired = err, trace.maybeSent(), ctx.Err() != nil
		return out
	}
	defer resp.Body.Close()
	out.sent, out.status, out.header = true, resp.StatusCode, resp.Header
	if out.status == http.StatusUnauthorized {
		c.creds.Rejected()
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
	auth, err := c.creds.Authorization(ctx, Call{
		Method: method, Host: target.Host, Path: target.EscapedPath(), Now: c.now(), Random: c.random,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &credentialsError{err}
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

// wire watches how far a request gets. The hooks may run on the transport's
// own goroutines.
type wire struct {
	reported atomic.Bool // the transport reports to httptrace at all
	written  atomic.Bool // the first header field was put into the write buffer
}

// watch returns a context that reports to w. The first header field counts as
// written although it may still be in a buffer: every byte that can have left
// comes after that report, and on an error net/http ends its writing goroutine
// before RoundTrip returns, so that no report comes late.
func (w *wire) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, callKey{}, ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { w.reported.Store(true) },
		WroteHeaderField: func(string, []string) { w.written.Store(true) },
		WroteHeaders:     func() { w.written.Store(true) },
		WroteRequest:     func(httptrace.WroteRequestInfo) { w.written.Store(true) },
	})
}

// maybeSent is false only when the transport looked for a connection and wrote
// nothing to one. Silence from a transport that reports nothing proves nothing.
func (w *wire) maybeSent() bool { return w.written.Load() || !w.reported.Load() }

// dialFunc is the shape of net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newTransport returns the client's own transport: HTTP/1.1, no proxy from the
// environment, and a new connection for every call. Nil arguments mean a plain
// dialer and the system's roots.
//
// A kept connection could save a settle two round trips, but only inside the
// few seconds for which it may idle, while its price is doubt: a server closes
// idle connections too (Node after exactly 5 s), a Lambda environment is
// frozen between requests and learns of it late, and a settle written into a
// connection that is being closed ends as "unknown", which blocks the payer
// until the chain has answered. Measured on loopback (both ends on the same two
// cores), a settle takes 0.45 ms over a new connection that resumes its TLS
// session, 1.1 ms over one that does not, and 0.02 ms over a kept one. Across a
// network a new one adds two round trips, a few milliseconds inside a region, to
// a settle that waits for a block of two seconds.
//
// HTTP/1.1 because nothing is multiplexed, and because net/http then sends a
// request at most once without further conditions.
func newTransport(dial dialFunc) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext:            perCall(dial),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(4)},
		TLSHandshakeTimeout:    tlsTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              only1,
	}
}

// callKey is the context key of the call that a connection is made for.
type callKey struct{}

// perCall ties a connection to the call that asked for it. net/http detaches
// dials from their request, so that a later request can use them; here none
// can, and a dial or a TLS handshake that outlived its call would still be
// there when a frozen Lambda environment thaws.
func perCall(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		call, ok := ctx.Value(callKey{}).(context.Context)
		if !ok {
			return dial(ctx, network, addr)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(call, cancel)
		defer stop()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(call, func() { conn.Close() })
		return conn, nil
	}
}
