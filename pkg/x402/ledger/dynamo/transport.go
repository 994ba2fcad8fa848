package dynamo

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxIdle lets a burst of concurrent calls keep its connections.
const maxIdle = 64

// HTTPClient returns the HTTP client below a client of the AWS SDK. It bounds each
// attempt in time, connecting included, and its reply to maxReply bytes. It keeps a
// connection for another call for idle, which net/http compares with the wall clock, so
// that the time counts that Lambda has the process frozen; 0 keeps none. It uses no
// proxy of the environment and follows no redirect, which the API never sends.
func HTTPClient(attempt time.Duration, maxReply int64, idle time.Duration) *http.Client {
	transport := &http.Transport{
		// No TCP keepalive: no connection idles long enough to need one.
		DialContext:         (&net.Dialer{Timeout: attempt, KeepAlive: -1}).DialContext,
		TLSHandshakeTimeout: attempt,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(4), // cheaper reconnects after a freeze
		},
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idle, DisableKeepAlives: idle == 0,
		DisableCompression: true,
	}
	return &http.Client{
		Transport:     attempts{next: transport, timeout: attempt, maxReply: maxReply},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

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

func (a attempts) RoundTrip(req *http.Request) (_ *http.Response, err error) {
	defer func() {
		if err != nil {
			a.next.CloseIdleConnections()
		}
	}()
	ctx, cancel := context.WithTimeout(req.Context(), a.timeout)
	defer cancel()
	res, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // nothing is left to lose
	body, err := io.ReadAll(io.LimitReader(res.Body, a.maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the reply: %w", err)
	case int64(len(body)) > a.maxReply:
		return nil, fmt.Errorf("a reply of more than %d bytes", a.maxReply)
	}
	out := *res
	out.Body = io.NopCloser(bytes.NewReader(body))
	return &out, nil
}
