// Package facilitator is the client for an x402 facilitator: /settle, /verify and /supported
// (x402 specification v2 §7).
//
// Settle sends one request. If the answer says settlement_pending, Settle sends one more
// request, which has the same bytes. Every request ends in exactly one class: settled,
// refused, turned away, not sent or unknown. A request is "not sent" only if it is proved that
// nothing was sent. It is "refused" or "turned away" only for the exact reasons and statuses
// that facilitators are known to give before a broadcast. Every other request is unknown, and
// leaves the payment in doubt until the chain decides. The list of reasons is closed. If a
// reason were wrongly taken for a refusal, a payer who has paid would be turned away.
//
// Package x402 decides what a class means for a payment, and asks the chain.
package facilitator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// resendWait is the pause before the facilitator is asked again about a pending
	// settlement. A short pause is enough, because Base makes a block every two seconds, and
	// the facilitator itself waits for the receipt.
	resendWait = time.Second
	// minResend is the time that the caller must have left for a second request after the
	// pause. That request needs a connection, a TLS handshake and a receipt lookup at the
	// facilitator.
	minResend = time.Second
	// ceiling is the longest time for one request, even if the caller set no deadline. It is
	// longer than every time budget of the Gate (settle: 15 s), and shorter than API Gateway's
	// time limit of 30 s.
	ceiling = 25 * time.Second
	// connectTimeout bounds the dial and, separately, the TLS handshake after the dial.
	connectTimeout = 5 * time.Second

	// maxBody limits the body of an answer. An answer to /settle is below 1 KiB, and the
	// longest answer to /supported seen so far is a few KiB. maxHeader limits the header of an
	// answer, including EXTENSION-RESPONSES.
	maxBody   = 64 << 10
	maxHeader = 32 << 10
	// maxURL is the maximum length of the facilitator's URL. It is low enough that the
	// percent-encoded request line fits into net/http's write buffer. Therefore no byte of a
	// request leaves before httptrace has reported the first header field.
	maxURL           = 1024
	defaultUserAgent = "hostfacts"
)

// Config holds the settings of a Client. Every field except URL has a default.
type Config struct {
	// URL is the facilitator's base URL, to which /settle, /verify and /supported are
	// appended. If URL is empty, the service can start, but every call fails with
	// facilitator_misconfigured.
	URL string
	// Credentials prove to the facilitator who the seller is.
	Credentials Credentials
	// Now is the clock of the credentials; nil means time.Now.
	Now func() time.Time
	// UserAgent tells the facilitator's operator which service this is.
	UserAgent string
}

// Client talks to one facilitator. It is safe for concurrent use.
type Client struct {
	config   Config
	base     *url.URL // nil if no URL is configured
	sessions tls.ClientSessionCache
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	// transport returns the transport for one call. It is newTransport except in tests.
	transport func(ctx context.Context) http.RoundTripper
}

var _ x402.Facilitator = (*Client)(nil)

// New checks the configuration and returns a client. It makes no connection.
func New(c Config) (*Client, error) {
	base, err := parseBase(c.URL)
	if err != nil {
		return nil, err
	}
	if len(c.UserAgent) > maxReason || !untrusted.ASCII(c.UserAgent) {
		return nil, fmt.Errorf("facilitator user agent is longer than %d bytes or not printable ASCII", maxReason)
	}
	c.UserAgent = cmp.Or(c.UserAgent, defaultUserAgent)
	if c.Now == nil {
		c.Now = time.Now
	}
	dialer := &net.Dialer{Timeout: connectTimeout}
	f := &Client{
		config:   c,
		base:     base,
		sessions: tls.NewLRUClientSessionCache(4),
		dial:     dialer.DialContext,
	}
	f.transport = func(ctx context.Context) http.RoundTripper { return f.newTransport(ctx) }
	return f, nil
}

// Name returns the name of the facilitator for records and logs: the host and path of its URL.
// The name is empty if there is no URL.
func (c *Client) Name() string {
	if c.base == nil {
		return ""
	}
	return strings.ToLower(c.base.Host) + c.base.Path
}

// parseBase parses the base URL. Its errors do not quote the URL: a URL with a password is
// refused, and the password must not be in the error.
func parseBase(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || len(raw) > maxURL || !isBase(u) {
		return nil, fmt.Errorf("facilitator URL is not an http or https URL of at most %d bytes, "+
			"without a user name, password, query and fragment", maxURL)
	}
	return &url.URL{
		Scheme: u.Scheme,
		Host:   u.Host,
		Path:   strings.TrimRight(u.Path, "/"),
	}, nil
}

// isBase reports whether a URL has an http or https scheme, a host, perhaps a path, and
// nothing else.
func isBase(u *url.URL) bool {
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return false
	}
	hasQuery := u.RawQuery != "" || u.ForceQuery
	return u.User == nil && !hasQuery && u.Fragment == ""
}

// encodeRequest returns the body of a request about a payment. r must be the seller's own
// requirements, not the copy in the payment.
func encodeRequest(p x402.Payload, r x402.Requirements) ([]byte, error) {
	return json.Marshal(struct {
		X402Version  int               `json:"x402Version"`
		Payload      x402.Payload      `json:"paymentPayload"`
		Requirements x402.Requirements `json:"paymentRequirements"`
	}{x402.Version, p, r})
}

// Settle moves the money, or says how far the attempt got. See x402.Facilitator.
//
// After a pending settlement, the second request has the same bytes. Therefore the facilitator
// looks up the transaction of the first request, and does not broadcast another one. The first
// request left doubt, and only a success of the second request clears this doubt. A refusal of
// the second request, even "nonce already used", says nothing about the transaction that is
// already on its way. If the second request could not be sent, the doubt also remains.
func (c *Client) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	body, err := encodeRequest(p, r)
	if err != nil {
		return x402.Settlement{
			Class:  x402.NotSent,
			Code:   fault.PaymentUnavailable,
			Reason: "not_encodable",
			Cause:  err,
		}
	}
	from := p.Payload.Authorization.From
	first, pending := classify(c.exchange(ctx, "/settle", body), r.Network, from)
	if !pending || !pause(ctx) {
		return first
	}
	second, _ := classify(c.exchange(ctx, "/settle", body), r.Network, from)
	if second.Class == x402.Moved {
		return second
	}
	first.Transaction = cmp.Or(first.Transaction, second.Transaction)
	if len(first.ExtensionResponses) == 0 {
		first.ExtensionResponses = second.ExtensionResponses
	}
	resent := fmt.Errorf("resend: %s: %s", second.Class, second.Reason)
	first.Cause = errors.Join(first.Cause, resent, second.Cause)
	return first
}

// pause waits before the second request, and reports whether it did. It returns false at once
// if the caller's deadline does not leave enough time for the pause and a request.
func pause(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < resendWait+minResend {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(resendWait):
		return true
	}
}

// Verify asks the facilitator about a signature that cannot be verified locally. See
// x402.Facilitator.
func (c *Client) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	body, err := encodeRequest(p, r)
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.PaymentUnavailable, err)}
	}
	return classifyVerification(c.exchange(ctx, "/verify", body), p.Payload.Authorization.From)
}

// Supported returns nil if the facilitator settles the scheme exact of protocol version 2 on
// network. Otherwise it returns a *fault.Error with a facilitator code.
func (c *Client) Supported(ctx context.Context, network string) error {
	return checkSupported(c.exchange(ctx, "/supported", nil), network)
}

// These errors say why a request was not sent. errCredentials means that the credentials could
// not be read or used.
var (
	errNoURL       = errors.New("no facilitator URL is configured")
	errCredentials = errors.New("facilitator credentials")
)

// reply is the result of one request to the facilitator.
type reply struct {
	err            error // why there is no complete answer; nil if there is one
	sent           bool  // a byte of the request may have left; false proves that none did
	timedOut       bool  // err is not nil, and the time for the request was up
	hasCredentials bool  // the request carried credentials
	status         int   // HTTP status; 0 if no header of an answer came
	header         http.Header
	body           []byte
}

// exchange sends one request and reads its whole answer. The request is a GET if body is nil,
// and otherwise a POST. exchange uses the transport directly, because http.Client would follow
// a redirect and send the payment there.
func (c *Client) exchange(ctx context.Context, path string, body []byte) (out reply) {
	if c.base == nil {
		return reply{err: errNoURL}
	}
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	defer func() { out.timedOut = out.err != nil && ctx.Err() != nil }()
	req, err := c.newRequest(ctx, path, body)
	if err == nil {
		// If the context has already ended, no request is made. So it is certain that nothing
		// was sent. If the transport failed instead, this might not be certain.
		err = ctx.Err()
	}
	if err != nil {
		return reply{err: err}
	}
	out.hasCredentials = req.Header.Get("Authorization") != ""
	// The hooks may run on goroutines of the transport, so these variables are atomic.
	// connSought means that the transport has looked for a connection. headerWritten means
	// that it has written a header field. No byte of the request leaves before the hook
	// WroteHeaderField has run. The request counts as sent from then on, although the header
	// field may still be in a buffer. If RoundTrip returns an error, net/http has already
	// ended its writing goroutine, so this hook does not run later.
	var connSought, headerWritten atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { connSought.Store(true) },
		WroteHeaderField: func(string, []string) { headerWritten.Store(true) },
	})
	resp, err := c.transport(ctx).RoundTrip(req.WithContext(traced))
	if err != nil {
		// If the transport has called no hook at all, the request may have been sent.
		out.err = err
		out.sent = headerWritten.Load() || !connSought.Load()
		return out
	}
	defer resp.Body.Close()
	out.sent = true
	out.status = resp.StatusCode
	out.header = resp.Header
	if out.status == http.StatusUnauthorized && c.config.Credentials.rejected != nil {
		c.config.Credentials.rejected()
	}
	answer, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxBody))
	if err != nil {
		out.err = fmt.Errorf("read facilitator answer: %w", err)
		return out
	}
	out.body = answer
	return out
}

// newRequest builds one request. net/http must never send the request a second time, because a
// settle must be sent once. Therefore GetBody is nil: net/http needs GetBody to send a request
// again on another connection. For the same reason there is no Idempotency-Key header, which
// would let net/http repeat a request.
func (c *Client) newRequest(ctx context.Context, path string, body []byte) (*http.Request, error) {
	target := *c.base
	target.Path += path
	req := (&http.Request{
		Method:     http.MethodGet,
		URL:        &target,
		Host:       target.Host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			"Accept":     {"application/json"},
			"User-Agent": {c.config.UserAgent},
			// This header is set so that no transport asks for a compressed body and
			// decompresses it. maxBody then bounds the memory.
			"Accept-Encoding": {"identity"},
		},
	}).WithContext(ctx)
	if body != nil {
		req.Method = http.MethodPost
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	auth, err := c.config.Credentials.Authorization(req, c.config.Now())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCredentials, err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	return req, nil
}

// newTransport returns the transport for one call. It uses HTTP/1.1, because net/http then
// sends a request at most once. It uses no proxy from the environment, and only one
// connection, which ends with the call. By default, net/http lets a dial or a handshake
// continue after the request that needed it has ended. Here dials and handshakes end with the
// call, because otherwise they would still be there when a frozen Lambda environment thaws.
//
// Keeping connections open could save two round trips per settle. These are a few milliseconds
// of a call that waits two seconds for a block. But an open connection could leave a payment
// in doubt. Servers close idle connections, and a frozen environment learns of this late. A
// settle that is written into a closing connection ends as "unknown", which blocks the payer
// until the chain has answered. Resumed TLS sessions make new connections cheaper.
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
		TLSHandshakeTimeout:    connectTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              only1,
	}
}
