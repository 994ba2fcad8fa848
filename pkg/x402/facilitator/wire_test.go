package facilitator

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func http200(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestSettleAgainstBadPeers runs the real transport against servers whose answer is bad or
// unusual. Each answer must lead to the expected class and reason, and the request must be
// sent only once.
func TestSettleAgainstBadPeers(t *testing.T) {
	t.Parallel()
	var zipped strings.Builder
	zip := gzip.NewWriter(&zipped)
	if _, err := zip.Write([]byte(settled)); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, row := range []struct {
		name, text, endless string // endless is written again and again until the client has closed the connection
		class               x402.Class
		reason              string // for "timeout", the client's time ends after the server has written the given text
	}{
		{name: "close after reading", class: x402.Unknown, reason: "connection_lost"},
		{name: "short of its length", text: ok + "Content-Length: 4000\r\n\r\n" + settled, class: x402.Unknown, reason: "connection_lost"},
		{name: "no answer", class: x402.Unknown, reason: "timeout"},
		{name: "half an answer, then nothing", text: http200(settled)[:90], class: x402.Unknown, reason: "timeout"},
		{name: "endless body", text: ok + "\r\n{\"x\":\"", endless: strings.Repeat("a", 4096), class: x402.Unknown, reason: "answer_too_large"},
		{name: "endless header", text: ok, endless: "X: " + strings.Repeat("y", 1000) + "\r\n", class: x402.Unknown, reason: "connection_lost"},
		{name: "huge header", text: ok + "X: " + strings.Repeat("y", 2*maxHeader) + "\r\n\r\n", class: x402.Unknown, reason: "connection_lost"},
		{name: "early hints first", text: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http200(settled), class: x402.Moved},
		{name: "HTTP/1.0, ended by the close", text: "HTTP/1.0 200 OK\r\n\r\n" + settled, class: x402.Moved},
		{name: "wrong content type", text: strings.Replace(http200(settled), "application/json", "text/html", 1), class: x402.Moved},
		{name: "gzip that nobody asked for", text: ok + "Content-Encoding: gzip\r\n\r\n" + zipped.String(), class: x402.Unknown, reason: "http_200"},
		{name: "redirect", text: "HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", class: x402.Unknown, reason: "http_307"},
		{name: "long answer", text: http200(settled + strings.Repeat(" ", maxBody)), class: x402.Unknown, reason: "answer_too_large"},
		{name: "longest answer", text: http200(settled + strings.Repeat(" ", maxBody-len(settled))), class: x402.Moved},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, end := context.WithTimeout(t.Context(), patience)
			defer end()
			var calls atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				rawAnswer(row.text, func(c net.Conn) {
					if row.reason == "timeout" {
						end()
						awaitClose(c)
					}
					for err := error(nil); row.endless != "" && err == nil; {
						_, err = io.WriteString(c, row.endless)
					}
				})(w, r)
			})
			s := must(New(Config{URL: url})).Settle(ctx, testPayload(), testRequirements())
			if s.Class != row.class || s.Reason != row.reason || s.NoDecision != (row.class == x402.Unknown) || calls.Load() != 1 {
				t.Errorf("got %s %q, want %s %q (cause %v) after %d calls", s.Class, s.Reason, row.class, row.reason, s.Cause, calls.Load())
			}
		})
	}
}

// TestFailuresBeforeWriting checks that a failure counts as not sent if it happens before a
// byte of HTTP reaches the peer.
func TestFailuresBeforeWriting(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request arrived over a connection that was not trusted")
	}))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived without TLS") })
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for _, row := range []struct {
		name, url string
		dial      func(context.Context, string, string) (net.Conn, error)
		limit     time.Duration
		reason    string
	}{
		{name: "certificate not trusted", url: untrusted.URL, limit: patience, reason: "connect_failed"},
		{name: "no TLS at the other end", url: strings.Replace(plain, "http", "https", 1), limit: patience, reason: "connect_failed"},
		{name: "port refused", url: "http://127.0.0.1:1", limit: patience, reason: "connect_failed"},
		{name: "dial hangs", url: origin, dial: hang, limit: 100 * time.Millisecond, reason: "timeout"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := must(New(Config{URL: row.url}))
			if row.dial != nil {
				f.dial = row.dial
			}
			ctx, cancel := context.WithTimeout(t.Context(), row.limit)
			s := f.Settle(ctx, testPayload(), testRequirements())
			cancel()
			if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != row.reason || s.Cause == nil {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// TestOwnTransportKeepsNoConnection checks that the client closes the connection after each
// call. Otherwise a server could close a kept connection while the next settle uses that
// connection. The transport must use no proxy, and must resume TLS sessions.
func TestOwnTransportKeepsNoConnection(t *testing.T) {
	t.Parallel()
	gone, calls := make(chan bool, 3), 0
	f := must(New(Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		rawAnswer(http200(settled), awaitClose)(w, r)
		gone <- r.Close
	})}))
	for n := range 3 {
		if s := settle(t, f); s.Class != x402.Moved || !<-gone || calls != n+1 {
			t.Fatalf("call %d of %d: %+v", n, calls, s)
		}
	}
	if tr := f.newTransport(t.Context()); tr.Proxy != nil || tr.TLSClientConfig.ClientSessionCache != f.sessions || f.sessions == nil {
		t.Errorf("the transport is %+v", tr)
	}
}

// TestHandshakeThatHangsEndsWithTheCall checks that a TLS handshake ends with the call, even
// if the server does not answer it. Otherwise net/http would let the handshake continue until
// its time-out.
func TestHandshakeThatHangsEndsWithTheCall(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	gone := make(chan error, 1)
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Read(make([]byte, 1)) // returns once the handshake has begun
			end()
			_, err = io.Copy(io.Discard, c)
		}
		gone <- err
	}()
	f := must(New(Config{URL: "https://" + l.Addr().String()}))
	transport := f.newTransport(ctx)
	transport.TLSHandshakeTimeout = time.Hour
	f.transport = func(context.Context) http.RoundTripper { return transport }
	s := f.Settle(ctx, testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "timeout" {
		t.Errorf("got %+v", s)
	}
	if err := <-gone; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlived the call")
	}
}

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

// equal fails the test if two values differ.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// clientOver returns a client that gives each request to the function transport.
func clientOver(t testing.TB, transport func(*http.Request) (*http.Response, error)) *Client {
	f := must(New(Config{URL: origin}))
	f.transport = func(context.Context) http.RoundTripper { return roundTrip(transport) }
	return f
}

// settle calls Settle with patience as the time limit. Settle must return long before that:
// only a failing test waits so long.
func settle(t *testing.T, f *Client) x402.Settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return f.Settle(ctx, testPayload(), testRequirements())
}

// serve starts a facilitator for one test, and returns its origin.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// patience is far longer than a call over loopback takes on any machine.
const patience = 2 * time.Minute

// rawAnswer returns a handler that reads the request, writes text as the raw answer, calls f
// with the connection, and closes the connection.
func rawAnswer(text string, f func(c net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		// If the test has failed, the connection must not make the suite hang.
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, text)
		f(c)
	}
}

// awaitClose blocks until the peer has closed the connection.
func awaitClose(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// roundTrip is a function that serves as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// callHooks calls the httptrace hooks as a real transport would. wrote says whether the
// transport has written a header field.
func callHooks(r *http.Request, wrote bool) {
	t := httptrace.ContextClientTrace(r.Context())
	t.GetConn("peer:443")
	if wrote {
		t.WroteHeaderField("Host", []string{"peer"})
	}
}
