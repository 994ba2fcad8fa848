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

func gzipped(t *testing.T, plain []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	return b.String()
}

func gzipAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestSettleAgainstBadPeers runs the real transport against servers that
// misbehave after they have the request.
func TestSettleAgainstBadPeers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		handle func(int64, net.Conn)
		hangs  bool // after that, and the time of the call is up
		class  x402.Class
		reason string
	}{
		{"good", answerWith(http200(settled)), false, x402.Moved, ""},
		{"close after reading", answerWith(""), false, x402.Unknown, "connection_lost"},
		{"half a status line", answerWith("HTTP/1.1 2"), false, x402.Unknown, "connection_lost"},
		{"half a body", answerWith(http200(settled)[:len(http200(settled))-20]), false, x402.Unknown, "connection_lost"},
		{"whole JSON, short of its length", answerWith("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + settled), false, x402.Unknown, "connection_lost"},
		{"bad chunk", answerWith("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + settled), false, x402.Unknown, "connection_lost"},
		{"not HTTP", answerWith("220 mail.example.com ESMTP\r\n"), false, x402.Unknown, "connection_lost"},
		{"no answer", answerWith(""), true, x402.Unknown, "timeout"},
		{"half an answer, then nothing", answerWith(http200(settled)[:90]), true, x402.Unknown, "timeout"},
		{"endless body", func(_ int64, c net.Conn) {
			answerWith("HTTP/1.1 200 OK\r\n\r\n{\"x\":\"")(0, c)
			for _, err := c.Write(bytes.Repeat([]byte("a"), 4096)); err == nil; {
				_, err = c.Write(bytes.Repeat([]byte("a"), 4096))
			}
		}, false, x402.Unknown, "answer_too_large"},
		{"endless header", func(_ int64, c net.Conn) {
			answerWith("HTTP/1.1 200 OK\r\n")(0, c)
			for _, err := io.WriteString(c, "X: y\r\n"); err == nil; {
				_, err = io.WriteString(c, "X: "+strings.Repeat("y", 1000)+"\r\n")
			}
		}, false, x402.Unknown, "connection_lost"},
		{"one huge header", answerWith("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2*maxHeader) + "\r\n\r\n" + settled), false, x402.Unknown, "connection_lost"},
		{"drip", func(_ int64, c net.Conn) {
			_, _, _ = readRequest(c)
			for _, b := range []byte(http200(settled)) {
				_, _ = c.Write([]byte{b})
			}
		}, false, x402.Moved, ""},
		{"early hints first", answerWith("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http200(settled)), false, x402.Moved, ""},
		{"HTTP/1.0, ended by the close", answerWith("HTTP/1.0 200 OK\r\n\r\n" + settled), false, x402.Moved, ""},
		{"wrong content type", answerWith(strings.Replace(http200(settled), "application/json", "text/html", 1)), false, x402.Moved, ""},
		{"gzip that nobody asked for", answerWith(gzipAnswer(gzipped(t, []byte(settled)))), false, x402.Unknown, "http_200"},
		{"gzip bomb", answerWith(gzipAnswer(gzipped(t, make([]byte, 8<<20)))), false, x402.Unknown, "http_200"},
		{"long answer", answerWith(http200(settled + strings.Repeat(" ", maxBody))), false, x402.Unknown, "answer_too_large"},
		{"longest answer", answerWith(http200(settled + strings.Repeat(" ", maxBody-len(settled)))), false, x402.Moved, ""},
		{"answer without reading the body", func(_ int64, c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 16))
			_, _ = io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
			untilGone(c)
		}, false, x402.Unknown, "http_503"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, end := context.WithCancel(within(t, patience))
			defer end()
			p := newPeer(t, func(n int64, c net.Conn) {
				row.handle(n, c)
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

// TestCloseBeforeReading: which side wins is up to the kernel, but "refused"
// and "settled" are impossible, and the request is never written twice.
func TestCloseBeforeReading(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(int64, net.Conn) {})
	f := newClient(t, Config{URL: p.url})
	const calls = 20
	for range calls {
		s := settle(t, f)
		if s.Class != x402.Unknown && s.Class != x402.NotSent {
			t.Fatalf("got %+v", s)
		}
	}
	if n := p.conns.Load(); n != calls {
		t.Errorf("%d connections for %d calls", n, calls)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, settled)
	}))
	defer target.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(target.URL, status))
		f := newClient(t, Config{URL: srv.URL})
		ctx := within(t, patience)
		s := f.Settle(ctx, testPayload(), testRequirements())
		if s.Class != x402.Unknown || s.Reason != fmt.Sprintf("http_%d", status) {
			t.Errorf("%d: settle %+v", status, s)
		}
		if v := f.Verify(ctx, testPayload(), testRequirements()); v.Valid || v.Fault == nil || v.Fault.Code != fault.FacilitatorMisconfigured {
			t.Errorf("%d: verify %+v", status, v)
		}
		srv.Close()
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the payment was sent to the redirect's target %d times", n)
	}
}

// TestFailuresBeforeWriting: each is "not sent", and the peer has seen no byte
// of HTTP.
func TestFailuresBeforeWriting(t *testing.T) {
	t.Parallel()
	quiet := log.New(io.Discard, "", 0)
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request arrived over a connection that was not trusted")
	}))
	untrusted.Config.ErrorLog = quiet
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := newPeer(t, func(_ int64, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	refused := "http://" + l.Addr().String()
	l.Close()
	nxdomain := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "facilitator.example", IsNotFound: true}
	}
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	broken := errors.New("no route")
	noRoute := func(context.Context, string, string) (net.Conn, error) { return nil, broken }
	for _, row := range []struct {
		name   string
		url    string
		dial   dialFunc
		limit  time.Duration
		reason string
	}{
		{"no route", origin, noRoute, 2 * time.Minute, "connect_failed"},
		{"certificate not trusted", untrusted.URL, nil, 2 * time.Minute, "connect_failed"},
		{"no TLS at the other end", "https://" + plain.addr, nil, 2 * time.Minute, "connect_failed"},
		{"port refused", refused, nil, 2 * time.Minute, "connect_failed"},
		{"name not found", origin, nxdomain, 2 * time.Minute, "connect_failed"},
		{"dial hangs", origin, hang, 100 * time.Millisecond, "timeout"},
	} {
		f := newClient(t, Config{URL: row.url, Transport: newTransport(row.dial, nil)})
		s := f.Settle(within(t, row.limit), testPayload(), testRequirements())
		if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != row.reason || s.Cause == nil {
			t.Errorf("%s: got %+v", row.name, s)
		}
		if row.name != "no route" {
			continue
		}
		// The cause is kept for the log.
		err := f.Supported(t.Context(), network)
		if !errors.Is(err, broken) || !errors.Is(s.Cause, broken) || fault.From(err).Code != fault.FacilitatorUnavailable {
			t.Errorf("supported: %v; settle: %v", err, s.Cause)
		}
	}
}

// TestOwnTransportKeepsNoConnection: a server cannot close a kept connection
// under the next settle, because the client closes each one itself.
func TestOwnTransportKeepsNoConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	p := newPeer(t, func(_ int64, c net.Conn) {
		r, _, err := readRequest(c)
		if err != nil {
			return
		}
		if !r.Close {
			_, _ = io.WriteString(c, "HTTP/1.1 500 Expected close\r\nContent-Length: 0\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, http200(settled))
		untilGone(c)
		gone <- struct{}{}
	})
	f := newClient(t, Config{URL: p.url})
	const calls = 50
	for i := range calls {
		if s := settle(t, f); s.Class != x402.Moved {
			t.Fatalf("call %d: %+v", i, s)
		}
		<-gone
	}
	if n := p.conns.Load(); n != calls {
		t.Errorf("%d connections for %d calls", n, calls)
	}
	if tr := newTransport(nil, nil); tr.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

// TestStaleConnection drives an injected transport that does keep connections.
// The server takes the second settle on the kept one and closes without an
// answer, exactly as a server does whose idle time-out is up. The settle may
// have been read, so it is unknown, and it is not written again.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	var settles atomic.Int64
	p := newPeer(t, func(_ int64, c net.Conn) {
		if _, _, err := readRequest(c); err != nil {
			return
		}
		settles.Add(1)
		_, _ = io.WriteString(c, http200(settled))
		if _, _, err := readRequest(c); err == nil {
			settles.Add(1)
		}
	})
	keeping := &http.Transport{}
	defer keeping.CloseIdleConnections()
	f := newClient(t, Config{URL: p.url, Transport: keeping})
	if s := settle(t, f); s.Class != x402.Moved {
		t.Fatalf("first: %+v", s)
	}
	s := settle(t, f)
	if s.Class != x402.Unknown || s.Reason != "connection_lost" {
		t.Errorf("second: %+v", s)
	}
	if settles.Load() != 2 || p.conns.Load() != 1 {
		t.Errorf("%d settles over %d connections, want 2 over 1", settles.Load(), p.conns.Load())
	}
}

// TestStaleConnectionRace closes the kept connection at once, so that the
// client may or may not know it when it writes. Whatever it says must be true:
// settled means that the server has read one settle more, not sent that it has
// read none, and there is never one more than there were calls.
func TestStaleConnectionRace(t *testing.T) {
	t.Parallel()
	var settles atomic.Int64
	p := newPeer(t, func(_ int64, c net.Conn) {
		if _, _, err := readRequest(c); err == nil {
			settles.Add(1)
			_, _ = io.WriteString(c, http200(settled))
		}
	})
	keeping := &http.Transport{}
	defer keeping.CloseIdleConnections()
	f := newClient(t, Config{URL: p.url, Transport: keeping})
	classes := map[x402.Class]int{}
	for range 200 {
		before := settles.Load()
		s := settle(t, f)
		read := settles.Load() - before
		classes[s.Class]++
		switch {
		case read > 1,
			s.Class == x402.Moved && read != 1,
			s.Class == x402.NotSent && read != 0,
			s.Class == x402.Refused:
			t.Fatalf("server read %d, client says %+v", read, s)
		}
	}
	if classes[x402.Moved] == 0 {
		t.Errorf("nothing was settled: %v", classes)
	}
}
