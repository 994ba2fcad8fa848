package testbed

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Ask makes a request without a body, and reads the reply. The headers are names and values in
// turn. The request accepts JSON, unless the headers have another Accept.
func Ask(ctx context.Context, c *http.Client, method, url string, headers ...string) (x402test.Reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return x402test.Reply{}, err
	}
	r.Header.Set("Accept", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		return x402test.Reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return x402test.Reply{Status: res.StatusCode, Header: res.Header, Body: body}, err
}

// Fault has the fields of an error response, or of the offer in a 402 response. Charged and
// Retryable are JSON values as text; they are empty for an offer.
type Fault struct{ Code, Message, Charged, Retryable string }

// FaultOf returns the fault in a reply. The fault is empty if the reply is a result, or is not an
// error of this service.
func FaultOf(r x402test.Reply) Fault {
	var body struct {
		Code  string
		Error json.RawMessage // a string in an offer, an object in an error
	}
	var inner struct {
		Code, Message      string
		Charged, Retryable json.RawMessage
	}
	if r.Status < http.StatusBadRequest || json.Unmarshal(r.Body, &body) != nil {
		return Fault{}
	}
	if json.Unmarshal(body.Error, &inner) == nil && inner.Code != "" {
		return Fault{inner.Code, inner.Message, string(inner.Charged), string(inner.Retryable)}
	}
	return Fault{Code: body.Code, Message: string(body.Error)}
}
