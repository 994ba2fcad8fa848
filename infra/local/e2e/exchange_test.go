package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// exchange is one request and its answer, read whole.
type exchange struct {
	method, path string
	status       int
	header       http.Header
	body         []byte
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %.200s: %d %.1000s", e.method, e.path, e.status, e.body)
}

// codeOf is the error code of an answer, empty for none.
func codeOf(e exchange) string {
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal(e.body, &body) // a result has no error
	return body.Error.Code
}

// paidBy is the header of a paid request.
func paidBy(signature string) http.Header {
	return http.Header{x402.HeaderSignature: {signature}}
}

// rest waits as long as an answer asks for.
func rest(ctx context.Context, e exchange) error { return pause(ctx, e.retryAfter()) }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryAfter is how long an answer asks its client to wait; 0 for one that does not.
func (e exchange) retryAfter() time.Duration { return x402test.Reply{Header: e.header}.RetryAfter() }

// offer is what a 402 asks for.
func (e exchange) offer(tb testing.TB) x402.PaymentRequired {
	tb.Helper()
	required, err := x402test.Reply{Status: e.status, Header: e.header, Body: e.body}.Required()
	if err != nil {
		tb.Fatal(err)
	}
	return required
}

// header is a request header in short.
type header map[string]string

// newClient follows no redirect and decodes nothing: answers are seen as sent.
func newClient() *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 5 * time.Second, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send makes one request. Accept is application/json unless h says otherwise.
// Where the store is a server with production's time-outs, a machine that is
// busy with something else can make it look unavailable; send then does what
// the answer asks a client to do. A claim whose reply was too late stands all
// the same, and then the next answer is 409 until its lease is over.
func (d *deployment) send(ctx context.Context, c *http.Client, method, path string, h http.Header) (exchange, error) {
	begun, slow := time.Now(), 0
	for {
		e, err := d.sendOnce(ctx, c, method, path, h)
		if err != nil || d.slow == nil {
			return e, err
		}
		switch {
		case d.slow(e) && slow < 2:
			slow++
		case e.status == http.StatusConflict && slow > 0 && time.Since(begun) < patience:
		default:
			return e, nil
		}
		if err := rest(ctx, e); err != nil {
			return e, err
		}
	}
}

func (d *deployment) sendOnce(ctx context.Context, c *http.Client, method, path string, h http.Header) (exchange, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
	if err != nil {
		return exchange{}, err
	}
	req.Header.Set("Accept", "application/json")
	for name, values := range h {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	res, err := c.Do(req)
	if err != nil {
		return exchange{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return exchange{method: method, path: path, status: res.StatusCode, header: res.Header, body: body}, err
}

// get is send for one header value and a test that cannot go on without an
// answer.
func (d *deployment) get(tb testing.TB, c *http.Client, path, signature string) exchange {
	tb.Helper()
	h := http.Header{}
	if signature != "" {
		h = paidBy(signature)
	}
	e, err := d.send(tb.Context(), c, http.MethodGet, path, h)
	if err != nil {
		tb.Fatalf("GET %.200s: %v", path, err)
	}
	return e
}
