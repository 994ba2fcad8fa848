package x402test

import (
	"bytes"
	"context"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Post sends one request with a body, with a PAYMENT-SIGNATURE when header is not empty. Sign
// it with the Wallet by the offer of the answer to one without.
func (c *Client) Post(ctx context.Context, url, contentType string, body []byte, header string) (Reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	r.Header.Set("Content-Type", contentType)
	if header != "" {
		r.Header.Set(x402.HeaderSignature, header)
	}
	return c.send(r)
}
