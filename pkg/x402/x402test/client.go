package x402test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Client sends requests and pays for them.
type Client struct {
	HTTP   *http.Client
	Wallet *Wallet
	Now    func() time.Time
}

// Reply is a complete response of the server.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// maxReply limits how many bytes of a response a client reads.
const maxReply = 8 << 20

// Get sends a GET request. If header is not empty, Get sends it as PAYMENT-SIGNATURE.
func (c *Client) Get(ctx context.Context, url, header string) (Reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Reply{}, err
	}
	r.Header.Set("Accept", "application/json")
	if header != "" {
		r.Header.Set(x402.HeaderSignature, header)
	}
	return c.send(r)
}

func (c *Client) send(r *http.Request) (Reply, error) {
	res, err := c.HTTP.Do(r)
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	return Reply{Status: res.StatusCode, Header: res.Header, Body: body}, err
}

// Required returns the offer that a reply with status 402 contains.
func (r Reply) Required() (x402.PaymentRequired, error) {
	var v x402.PaymentRequired
	return v, r.decode(x402.HeaderRequired, &v)
}

// Receipt returns the settlement in PAYMENT-RESPONSE.
func (r Reply) Receipt() (x402.SettleResponse, error) {
	var v x402.SettleResponse
	return v, r.decode(x402.HeaderResponse, &v)
}

// RetryAfter returns how long the server asks to wait, or 0 if it does not ask.
func (r Reply) RetryAfter() time.Duration {
	const most = 1 << 31 // in seconds; a longer wait is shortened to this one, because it might not fit into a Duration
	s, err := strconv.ParseInt(r.Header.Get("Retry-After"), 10, 64)
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(min(s, most)) * time.Second
}

func (r Reply) decode(name string, v any) error {
	h := r.Header.Get(name)
	if h == "" {
		return fmt.Errorf("answer %d has no %s header", r.Status, name)
	}
	raw, err := base64.StdEncoding.DecodeString(h)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Challenge sends a GET request without a payment, and returns the offer of the 402.
func (c *Client) Challenge(ctx context.Context, url string) (x402.PaymentRequired, error) {
	r, err := c.Get(ctx, url, "")
	if err != nil {
		return x402.PaymentRequired{}, err
	}
	if r.Status != http.StatusPaymentRequired {
		return x402.PaymentRequired{}, fmt.Errorf("expected 402 Payment Required, got %d: %s", r.Status, r.Body)
	}
	return r.Required()
}

// Sign asks a URL for its offer, and returns a PAYMENT-SIGNATURE header that pays the price in
// the offer.
func (c *Client) Sign(ctx context.Context, url string) (string, error) {
	required, err := c.Challenge(ctx, url)
	if err != nil {
		return "", err
	}
	return c.Wallet.Pay(required, c.Now())
}

// Buy pays for one request. It returns the reply and the PAYMENT-SIGNATURE that was sent.
func (c *Client) Buy(ctx context.Context, url string) (Reply, string, error) {
	header, err := c.Sign(ctx, url)
	if err != nil {
		return Reply{}, "", err
	}
	r, err := c.Get(ctx, url, header)
	return r, header, err
}
