package facilitator

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	payer    = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
	other    = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	origin   = "https://facilitator.example"
	network  = "eip155:8453"
	hash     = "0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"
	hash2    = "0x78f688b424be9b66be748dbf787483c6d879efc76a910bf8efa4ef8baa903c8b"
	settled  = `{"success":true,"transaction":"` + hash + `","network":"` + network + `","payer":"` + payer + `"}`
	pendingA = `{"success":false,"errorReason":"settlement_pending","transaction":"` + hash + `","network":"` + network + `","payer":"` + payer + `"}`
)

func testPayload() x402.Payload {
	return x402.Payload{
		X402Version: 2,
		Accepted:    json.RawMessage(`{"scheme":"exact","network":"eip155:8453","extra":{"name":"USD Coin","more":[1,2]}}`),
		Payload: x402.ExactPayload{
			Signature:     "0xa719",
			Authorization: x402.Authorization{From: payer, To: other, Value: "1000", ValidAfter: "0", ValidBefore: "1795213526", Nonce: "0x56"},
		},
	}
}

func testRequirements() x402.Requirements {
	return x402.Terms{Network: network, Asset: "0x5f", PayTo: other, Name: "USD Coin", Version: "2"}.Requirements("1000")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// equal compares what there is with what there must be.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// over is a client of the origin with a transport made of a function.
func over(t testing.TB, transport func(*http.Request) (*http.Response, error)) *Client {
	f := must(New(Config{URL: origin}))
	f.transport = func(context.Context) http.RoundTripper { return roundTrip(transport) }
	return f
}

// settle is a call that is expected to end by itself.
func settle(t *testing.T, f *Client) x402.Settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return f.Settle(ctx, testPayload(), testRequirements())
}

// serve is the origin of a facilitator of one test.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// patience is far more than a call over loopback takes on any machine.
const patience = 2 * time.Minute

// raw is a handler that writes an answer as it stands, and ends the connection once then
// has returned.
func raw(text string, then func(c net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		// No peer of a failed test may hang the suite.
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, text)
		then(c)
	}
}

// untilGone blocks until the other side has closed the connection.
func untilGone(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// hooks calls the httptrace hooks that a real transport would.
func hooks(r *http.Request, wrote bool) {
	t := httptrace.ContextClientTrace(r.Context())
	t.GetConn("peer:443")
	if wrote {
		t.WroteHeaderField("Host", []string{"peer"})
	}
}
