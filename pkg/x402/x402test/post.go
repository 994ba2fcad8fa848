package x402test

import (
	"bytes"
	"context"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Post sends a POST request with a body. A header that is not empty is sent as
// PAYMENT-SIGNATURE. To get one, send the request without a header first, and let the Wallet
// sign the offer in the reply.
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
