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
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// defaultResendWait is how long a pending settlement is left alone before
	// it is asked about again. Base makes a block every two seconds, and a
	// facilitator waits for the receipt itself, so a short pause is enough.
	defaultResendWait = time.Second
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
	// Credentials prove who we are; nil means none.
	Credentials Credentials
	// Transport replaces the client's own. It must not repeat a POST that has
	// no GetBody, must not follow redirects, and must report to httptrace: a
	// failure of a transport that reports nothing is classed as unknown.
	Transport http.RoundTripper
	// Now is the clock of the credentials; nil means time.Now.
	Now func() time.Time
	// Random is the source of the credentials' nonces; nil means crypto/rand.
	Random io.Reader
	// Logger takes the few things that no result can carry; nil means none.
	Logger *slog.Logger
	// UserAgent names the service to the facilitator's operator.
	UserAgent string
	// ResendWait is the pause before the one resend of a pending settlement;
	// 0 means one second, less than 0 means none.
	ResendWait time.Duration
}

// Client talks to one facilitator. It is safe for concurrent use.
type Client struct {
	base       *url.URL // nil when no URL is configured
	creds      Credentials
	transport  http.RoundTripper
	now        func() time.Time
	random     io.Reader
	log        *slog.Logger
	userAgent  string
	resendWait time.Duration
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
		base: base, creds: c.Credentials, transport: c.Transport, now: c.Now, random: c.Random, log: c.Logger,
		userAgent: cmp.Or(c.UserAgent, defaultUserAgent), resendWait: cmp.Or(c.ResendWait, defaultResendWait),
	}
	if f.creds == nil {
		f.creds = None()
	}
	if f.transport == nil {
		f.transport = newTransport(nil)
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.random == nil {
		f.random = rand.Reader
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
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

// request is the body of /verify and /settle. Requirements are our own, not
// the client's echo of them.
type request struct {
	X402Version  int               `json:"x402Version"`
	Payload      x402.Payload      `json:"paymentPayload"`
	Requirements x402.Requirements `json:"paymentRequirements"`
}

func encode(p x402.Payload, r x402.Requirements) ([]byte, error) {
	b, err := json.Marshal(request{X402Version: x402.Version, Payload: p, Requirements: r})
	if err != nil {
		return nil, fmt.Errorf("encode facilitator request: %w", err)
	}
	return b, nil
}

// Settle moves the money, or says how far it got. See x402.Facilitator.
//
// The body is encoded once, so that the resend of a pending settlement is the
// same bytes: that is what makes a facilitator look its transaction up instead
// of broadcasting a second one.
func (c *Client) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	body, err := encode(p, r)
	if err != nil {
		return x402.Settlement{Class: x402.NotSent, Code: fault.PaymentUnavailable, Reason: "not_encodable", Cause: err}
	}
	want := expectation{network: r.Network, payer: p.Payload.Authorization.From}
	first, pending := classify(c.exchange(ctx, http.MethodPost, "/settle", body), want)
	if !pending || !c.pause(ctx) {
		return first
	}
	second, _ := classify(c.exchange(ctx, http.MethodPost, "/settle", body), want)
	c.log.InfoContext(ctx, "pending settlement was asked about again",
		"class", second.Class.String(), "reason", second.Reason, "transaction", second.Transaction)
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
	out := first
	if out.Transaction == "" {
		out.Transaction = second.Transaction
	}
	if out.ExtensionResponses == nil {
		out.ExtensionResponses = second.ExtensionResponses
	}
	out.Cause = errors.Join(first.Cause, fmt.Errorf("resend: %s: %s: %w", second.Class, second.Reason, orNone(second.Cause)))
	return out
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no cause")
	}
	return err
}

// pause waits before the resend. It returns false, at once, when the caller's
// deadline does not leave room for the pause and a request.
func (c *Client) pause(ctx context.Context) bool {
	wait := max(c.resendWait, 0)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait+minResend {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Verify judges a signature that cannot be judged locally. See
// x402.Facilitator.
func (c *Client) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	body, err := encode(p, r)
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.PaymentUnavailable, err)}
	}
	want := expectation{network: r.Network, payer: p.Payload.Authorization.From}
	return judge(c.exchange(ctx, http.MethodPost, "/verify", body), want)
}

// Supported returns nil when the facilitator settles scheme exact of protocol
// version 2 on network, and a *fault.Error with a facilitator code otherwise.
func (c *Client) Supported(ctx context.Context, network string) error {
	if f := supports(c.exchange(ctx, http.MethodGet, "/supported", nil), network); f != nil {
		return f
	}
	return nil
}
