package dynamo

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxIdle lets a burst of concurrent calls keep its connections.
const maxIdle = 64

// HTTPConfig says how to call.
type HTTPConfig struct {
	// AttemptTimeout bounds one attempt, connecting included. Required.
	AttemptTimeout time.Duration
	// MaxReply bounds a reply in bytes. Required.
	MaxReply int64
	// IdleTimeout is how long a connection is kept for another call; 0 keeps
	// none. net/http compares it with the wall clock before it reuses a
	// connection, so the time counts that Lambda has the process frozen.
	IdleTimeout time.Duration
	// Dial connects; a net.Dialer when nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewHTTPClient returns the HTTP client below a client of the AWS SDK: this package's,
// and that of Secrets Manager. It bounds each attempt in time and its reply in size,
// reads no proxy from the environment and follows no redirect, which the API never
// sends.
func NewHTTPClient(c HTTPConfig) *http.Client {
	dial := c.Dial
	if dial == nil {
		// No TCP keepalive: no connection idles long enough to need one.
		dial = (&net.Dialer{Timeout: c.AttemptTimeout, KeepAlive: -1}).DialContext
	}
	transport := &http.Transport{
		Proxy:               nil, // deliberately not ProxyFromEnvironment
		DialContext:         dial,
		TLSHandshakeTimeout: c.AttemptTimeout,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(4), // cheaper reconnects after a freeze
		},
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     c.IdleTimeout,
		DisableKeepAlives:   c.IdleTimeout == 0,
		DisableCompression:  true,
	}
	return &http.Client{
		Transport:     attempts{next: transport, timeout: c.AttemptTimeout, maxReply: c.MaxReply},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

var errAttempt = errors.New("the attempt took too long")

// attempts bounds each attempt. It reads the whole reply, so that one cut short
// is a failed attempt, which the SDK repeats, and so that the connection is
// free again when the call returns.
//
// A failed attempt takes all idle connections with it. Those that idled through
// a freeze of less than the idle time may have died together, and the last
// attempt must not wait for another of them.
type attempts struct {
	next     *http.Transport
	timeout  time.Duration
	maxReply int64
}

func (a attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.once(req)
	if err != nil {
		a.next.CloseIdleConnections()
	}
	return res, err
}

func (a attempts) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), a.timeout, errAttempt)
	defer cancel()
	res, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // nothing is left to lose
	body, err := io.ReadAll(io.LimitReader(res.Body, a.maxReply+1))
	if err != nil {
		return nil, fmt.Errorf("read the reply: %w", err)
	}
	if int64(len(body)) > a.maxReply {
		return nil, fmt.Errorf("a reply of more than %d bytes", a.maxReply)
	}
	out := *res
	out.Body = io.NopCloser(bytes.NewReader(body))
	return &out, nil
}
