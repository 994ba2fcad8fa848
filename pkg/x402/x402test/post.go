package x402test

import (
	"bytes"
	"context"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Post sends a POST request with a body. If header is not empty, Post sends it as
// PAYMENT-SIGNATURE. To get such a header, first send the request without one, and let the
// Wallet sign the offer in the reply.
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
