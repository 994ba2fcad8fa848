package facilitator

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func http200(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// gzipped is an answer in an encoding that nobody asked for.
func gzipped(t *testing.T, plain []byte) func(net.Conn) {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(plain)
	must(t, errors.Join(err, w.Close()))
	return answerWith(strings.Replace(http200(b.String()), "\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n", 1))
}

// endless is an answer that begins so and does not end.
func endless(begin, more string) func(net.Conn) {
	return func(c net.Conn) {
		answerWith(begin)(c)
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, more)
		}
	}
}

// TestSettleAgainstBadPeers runs the real transport against servers that
// misbehave after they have the request.
func TestSettleAgainstBadPeers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		handle func(net.Conn)
		hangs  bool // after that, and the time of the call is up
		class  x402.Class
		reason string
	}{
		{"close after reading", answerWith(""), false, x402.Unknown, "connection_lost"},
		{"short of its length", answerWith("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + settled), false, x402.Unknown, "connection_lost"},
		{"no answer", answerWith(""), true, x402.Unknown, "timeout"},
		{"half an answer, then nothing", answerWith(http200(settled)[:90]), true, x402.Unknown, "timeout"},
		{"endless body", endless("HTTP/1.1 200 OK\r\n\r\n{\"x\":\"", strings.Repeat("a", 4096)), false, x402.Unknown, "answer_too_large"},
		{"endless header", endless("HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n"), false, x402.Unknown, "connection_lost"},
		{"huge header", answerWith("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2*maxHeader) + "\r\n\r\n"), false, x402.Unknown, "connection_lost"},
		{"early hints first", answerWith("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http200(settled)), false, x402.Moved, ""},
		{"HTTP/1.0, ended by the close", answerWith("HTTP/1.0 200 OK\r\n\r\n" + settled), false, x402.Moved, ""},
		{"wrong content type", answerWith(strings.Replace(http200(settled), "application/json", "text/html", 1)), false, x402.Moved, ""},
		{"gzip that nobody asked for", gzipped(t, []byte(settled)), false, x402.Unknown, "http_200"},
		{"long answer", answerWith(http200(settled + strings.Repeat(" ", maxBody))), false, x402.Unknown, "answer_too_large"},
		{"longest answer", answerWith(http200(settled + strings.Repeat(" ", maxBody-len(settled)))), false, x402.Moved, ""},
		{"answer without reading the body", func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 16))
			_, _ = io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
			untilGone(c)
		}, false, x402.Unknown, "http_503"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, end := context.WithTimeout(t.Context(), patience)
			defer end()
			p := newPeer(t, func(c net.Conn) {
				row.handle(c)
				if row.hangs {
					end()
					untilGone(c)
				}
			})
			s := newClient(t, Config{URL: p.url}).Settle(ctx, testPayload(), testRequirements())
			if s.Class != row.class || s.Reason != row.reason {
				t.Errorf("got %s %q, want %s %q (cause %v)", s.Class, s.Reason, row.class, row.reason, s.Cause)
			}
			if n := p.conns.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	target := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the payment was sent to the redirect's target") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		f := newClient(t, Config{URL: serve(t, http.RedirectHandler(target, status).ServeHTTP)})
		if s := settle(t, f); s.Class != x402.Unknown || s.Reason != fmt.Sprintf("http_%d", status) {
			t.Errorf("%d: settle %+v", status, s)
		}
		if v := f.Verify(t.Context(), testPayload(), testRequirements()); v.Fault == nil || v.Fault.Code != fault.FacilitatorMisconfigured {
			t.Errorf("%d: verify %+v", status, v)
		}
	}
}

// TestFailuresBeforeWriting: each is "not sent", and the peer has seen no byte
// of HTTP.
func TestFailuresBeforeWriting(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request arrived over a connection that was not trusted")
	}))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := newPeer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	refused := "http://" + l.Addr().String()
	l.Close()
	broken := errors.New("no route")
	noRoute := func(context.Context, string, string) (net.Conn, error) { return nil, broken }
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for _, row := range []struct {
		name, url string
		dial      dialFunc
		limit     time.Duration
		reason    string
	}{
		{"certificate not trusted", untrusted.URL, nil, patience, "connect_failed"},
		{"no TLS at the other end", "https://" + plain.addr, nil, patience, "connect_failed"},
		{"port refused", refused, nil, patience, "connect_failed"},
		{"dial hangs", origin, hang, 100 * time.Millisecond, "timeout"},
		{"no route", origin, noRoute, patience, "connect_failed"},
	} {
		f := newClient(t, Config{URL: row.url, Transport: newTransport(row.dial)})
		ctx, cancel := context.WithTimeout(t.Context(), row.limit)
		s := f.Settle(ctx, testPayload(), testRequirements())
		cancel()
		if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != row.reason || s.Cause == nil {
			t.Errorf("%s: got %+v", row.name, s)
		}
		if row.name == "no route" && !errors.Is(s.Cause, broken) {
			t.Errorf("the cause is lost: %v", s.Cause)
		}
	}
}

// TestOwnTransportKeepsNoConnection: a server cannot close a kept connection
// under the next settle, because the client closes each one itself.
func TestOwnTransportKeepsNoConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan bool, 3)
	p := newPeer(t, func(c net.Conn) {
		r, err := readRequest(c)
		_, _ = io.WriteString(c, http200(settled))
		untilGone(c)
		gone <- err == nil && r.Close
	})
	f := newClient(t, Config{URL: p.url})
	for n := range int64(3) {
		if s := settle(t, f); s.Class != x402.Moved || !<-gone || p.conns.Load() != n+1 {
			t.Fatalf("call %d over connection %d: %+v", n, p.conns.Load(), s)
		}
	}
	// What a new connection costs is less where it resumes a TLS session.
	if tr := newTransport(nil); tr.Proxy != nil || tr.TLSClientConfig.ClientSessionCache == nil {
		t.Errorf("the transport is %+v", tr)
	}
}

// TestStaleConnection drives an injected transport that does keep connections.
// The server takes the second settle on the kept one and closes without an
// answer, exactly as a server does whose idle time-out is up. The settle may
// have been read, so it is unknown, and it is not written again.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	var settles atomic.Int64
	p := newPeer(t, func(c net.Conn) {
		answerWith(http200(settled))(c)
		if _, err := readRequest(c); err == nil {
			settles.Add(1)
		}
	})
	keeping := &http.Transport{}
	defer keeping.CloseIdleConnections()
	f := newClient(t, Config{URL: p.url, Transport: keeping})
	if s := settle(t, f); s.Class != x402.Moved {
		t.Fatalf("first: %+v", s)
	}
	if s := settle(t, f); s.Class != x402.Unknown || s.Reason != "connection_lost" || settles.Load() != 1 || p.conns.Load() != 1 {
		t.Errorf("second: %+v, %d more settles over %d connections, want 1 over 1", s, settles.Load(), p.conns.Load())
	}
}

// TestHandshakeThatHangsEndsWithTheCall: net/http would let the handshake go on
// for its own time-out; nothing of ours may outlive the call.
func TestHandshakeThatHangsEndsWithTheCall(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	gone := make(chan error, 1)
	p := newPeer(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1)) // the handshake has begun
		end()
		_, err := io.Copy(io.Discard, c)
		gone <- err
	})
	transport := newTransport(nil)
	transport.TLSHandshakeTimeout = time.Hour
	s := newClient(t, Config{URL: "https://" + p.addr, Transport: transport}).Settle(ctx, testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "timeout" {
		t.Errorf("got %+v", s)
	}
	if err := <-gone; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlived the call")
	}
}
