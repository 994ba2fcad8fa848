// Package facilitator is the client for an x402 facilitator: /settle, /verify
// and /supported (x402 specification v2 §7).
//
// It guarantees that one Settle is one request, followed by one byte-identical
// request when the first was answered settlement_pending, and that every way
// in which a request can end has exactly one class: settled, refused, turned
// away, not sent or unknown. It calls an outcome "not sent" only on proof, and
// "refused" or "turned away" only for the exact codes and statuses that are
// known to be given before a broadcast (Reasons); every other outcome is unknown.
// That list is closed because a reason that is wrongly taken for a refusal turns
// away a payer who has paid: a reason that facilitators add later leaves a payment
// in doubt until the chain decides. What the operator has to deal with (401, 403,
// 429, a wrong URL) is never a refusal.
//
// It does not decide what a class means for a payment, and it does not ask the
// chain: package x402 does.
package facilitator

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// resendWait is how long a pending settlement is left alone before
	// it is asked about again. Base makes a block every two seconds, and a
	// facilitator waits for the receipt itself, so a short pause is enough.
	resendWait = time.Second
	// minResend is the least time worth a second request: a connection, a TLS
	// handshake and a receipt lookup at the facilitator.
	minResend = time.Second
	// ceiling ends a call whose caller set no deadline. It is above every
	// budget of the design (settle: 15 s) and below the gateway's 30 s.
	ceiling = 25 * time.Second

	// maxURL keeps the request line, percent-encoded, inside net/http's write
	// buffer: nothing of a request then leaves before httptrace has heard of it.
	maxURL           = 1024
	defaultUserAgent = "hostfacts"
)

// Config is what a Client needs. Only URL has no usable default.
type Config struct {
	// URL is the facilitator's base; /settle and so on are appended. Empty is
	// legal: the service starts, and every call is facilitator_misconfigured.
	URL string
	// Credentials prove who we are.
	Credentials Credentials
	// Now is the clock of the credentials; nil means time.Now.
	Now func() time.Time
	// UserAgent names the service to the facilitator's operator.
	UserAgent string
}

// Client talks to one facilitator. It is safe for concurrent use.
type Client struct {
	base      *url.URL // nil when no URL is configured
	creds     Credentials
	now       func() time.Time
	userAgent string
	sessions  tls.ClientSessionCache
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	// transport replaces that of each call in tests; nil otherwise.
	transport http.RoundTripper
}

var _ x402.Facilitator = (*Client)(nil)

// New checks the configuration and returns a client. It makes no connection.
func New(c Config) (*Client, error) {
	base, err := parseBase(c.URL)
	if err != nil {
		return nil, err
	}
	if len(c.UserAgent) > maxReason || !printable.ASCII(c.UserAgent) {
		return nil, fmt.Errorf("facilitator user agent is longer than %d bytes or not printable ASCII", maxReason)
	}
	f := &Client{
		base: base, creds: c.Credentials, now: c.Now, userAgent: cmp.Or(c.UserAgent, defaultUserAgent),
		sessions: tls.NewLRUClientSessionCache(4), dial: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
	if f.now == nil {
		f.now = time.Now
	}
	return f, nil
}

// Name is how records and logs name the facilitator: the host and path of its
// URL. It is empty without a URL.
func (c *Client) Name() string {
	if c.base == nil {
		return ""
	}
	return strings.ToLower(c.base.Host) + c.base.Path
}

// parseBase reads the base URL. The errors do not quote it, because a URL with
// a password in it is one of the mistakes that they report.
func parseBase(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > maxURL:
		return nil, fmt.Errorf("facilitator URL cannot be parsed, or is longer than %d bytes", maxURL)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("facilitator URL must begin with https:// or http://")
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("facilitator URL must have a host, and no user name, password, query or fragment")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, nil
}

// call sends a payment to a path, once for each time that the function that it returns is
// called. The body is encoded once, so that the resend of a pending settlement is the same
// bytes: that is what makes a facilitator look its transaction up instead of broadcasting
// a second one. Requirements are our own, not the client's echo of them.
func (c *Client) call(ctx context.Context, path string, p x402.Payload, r x402.Requirements) (func() reply, error) {
	body, err := json.Marshal(struct {
		X402Version  int               `json:"x402Version"`
		Payload      x402.Payload      `json:"paymentPayload"`
		Requirements x402.Requirements `json:"paymentRequirements"`
	}{x402.Version, p, r})
	if err != nil {
		return nil, fmt.Errorf("encode facilitator request: %w", err)
	}
	return func() reply { return c.exchange(ctx, http.MethodPost, path, body) }, nil
}

// Settle moves the money, or says how far it got. See x402.Facilitator.
func (c *Client) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	send, err := c.call(ctx, "/settle", p, r)
	if err != nil {
		return x402.Settlement{Class: x402.NotSent, Code: fault.PaymentUnavailable, Reason: "not_encodable", Cause: err}
	}
	want := expectation{network: r.Network, payer: p.Payload.Authorization.From}
	first, pending := classify(send(), want)
	if !pending || !pause(ctx) {
		return first
	}
	second, _ := classify(send(), want)
	return afterResend(first, second)
}

// afterResend joins the answers of a pending settlement and of its resend. The
// first request left doubt, and doubt is cleared by success only: a refusal of
// the second, "nonce already used" included, and a second request that never
// left say nothing about the transaction that is already on its way.
func afterResend(first, second x402.Settlement) x402.Settlement {
	if second.Class == x402.Moved {
		return second
	}
	first.Transaction = cmp.Or(first.Transaction, second.Transaction)
	if first.ExtensionResponses == nil {
		first.ExtensionResponses = second.ExtensionResponses
	}
	first.Cause = errors.Join(first.Cause, fmt.Errorf("resend: %s: %s", second.Class, second.Reason), second.Cause)
	return first
}

// pause waits before the resend. It returns false, at once, when the caller's
// deadline does not leave room for the pause and a request.
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

// Verify judges a signature that cannot be judged locally. See
// x402.Facilitator.
func (c *Client) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	send, err := c.call(ctx, "/verify", p, r)
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.PaymentUnavailable, err)}
	}
	return judge(send(), p.Payload.Authorization.From)
}

// Supported returns nil when the facilitator settles scheme exact of protocol
// version 2 on network, and a *fault.Error with a facilitator code otherwise.
func (c *Client) Supported(ctx context.Context, network string) error {
	return supports(c.exchange(ctx, http.MethodGet, "/supported", nil), network)
}
