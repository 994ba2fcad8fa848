package origin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// timedAnswer is the answer of a server and the time that it takes. If the answer is empty, the
// server closes the connection.
type timedAnswer struct {
	delay time.Duration
	wire  string
}

// noAnswer is an answer that comes only after the client has stopped waiting.
var noAnswer = timedAnswer{delay: time.Hour}

// slowHost describes a host with a slow handshake or slow answers, and the expected result.
type slowHost struct {
	handshake time.Duration
	head, get timedAnswer
	want      string
	wantTime  time.Duration
}

// TestSlowHEAD checks that Fetch sends a GET in parallel when HEAD is not answered, and that
// the first answer counts. The handshake and the answer of a slow host may together take all
// the time of the call.
func TestSlowHEAD(t *testing.T) {
	ok, no := "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 405 No\r\n\r\n"
	testbed.Each(t, map[string]slowHost{
		"HEAD hangs":                         {head: noAnswer, get: timedAnswer{0, ok}, want: "GET 200", wantTime: 2 * time.Second},
		"HEAD is slow, GET hangs":            {head: timedAnswer{5 * time.Second, ok}, get: noAnswer, want: "HEAD 200", wantTime: 5 * time.Second},
		"HEAD is slow, GET is slower":        {head: timedAnswer{3 * time.Second, ok}, get: timedAnswer{2 * time.Second, ok}, want: "HEAD 200", wantTime: 3 * time.Second},
		"HEAD is refused late":               {head: timedAnswer{3 * time.Second, no}, get: timedAnswer{2 * time.Second, ok}, want: "GET 200", wantTime: 4 * time.Second},
		"HEAD hangs up late":                 {head: timedAnswer{3 * time.Second, ""}, get: timedAnswer{2 * time.Second, ok}, want: "GET 200", wantTime: 4 * time.Second},
		"HEAD is slow, GET hangs up":         {head: timedAnswer{4 * time.Second, ok}, get: timedAnswer{0, ""}, want: "HEAD 200", wantTime: 4 * time.Second},
		"HEAD hangs up late, GET at once":    {head: timedAnswer{3 * time.Second, ""}, get: timedAnswer{0, ""}, want: "http_failed", wantTime: 3 * time.Second},
		"HEAD hangs, GET hangs up":           {head: noAnswer, get: timedAnswer{0, ""}, want: "silence", wantTime: 12 * time.Second},
		"both hang":                          {head: noAnswer, get: noAnswer, want: "silence", wantTime: 12 * time.Second},
		"handshake of 5 s and answer of 5 s": {handshake: 5 * time.Second, head: timedAnswer{5 * time.Second, ok}, get: noAnswer, want: "HEAD 200", wantTime: 10 * time.Second},
	}, func(t *testing.T, c slowHost) {
		cfg := testbed.NewOrigins(t).TLS()
		synctest.Test(t, func(t *testing.T) { c.check(t, cfg) })
	})
}

func (c slowHost) check(t *testing.T, cfg *tls.Config) {
	var open atomic.Int64
	testEnded := make(chan struct{})
	defer close(testEnded)
	connector := &guard.Dialer{
		HasRoute: func(context.Context, netip.Addr) bool { return true },
		Connect: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go c.serve(far, cfg, testEnded)
			return testbed.CountOpen(near, &open), nil
		},
	}
	h := (&origin.Client{Connector: connector, UserAgent: "hostfacts (test)"}).
		Host(guard.Target{Name: testName, Addrs: []netip.Addr{netip.MustParseAddr(testAddr)}}, nil, netip.Addr{})
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	begun := time.Now()
	a, err := h.Fetch(ctx, "/")
	got := fmt.Sprintf("%s %d", a.Method, a.Status)
	switch code := testbed.Code(err); {
	case errors.Is(err, origin.ErrSilence):
		got = "silence"
	case code == lookup.HTTPFailed:
		got = string(code)
	case err != nil:
		t.Fatal(err)
	}
	if took := time.Since(begun); got != c.want || took != c.wantTime {
		t.Errorf("%s after %v, want %s after %v", got, took, c.want, c.wantTime)
	}
	if n := open.Load(); n > 1 {
		t.Errorf("%d connections are open", n)
	}
	h.Close()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections were left open", n)
	}
}

// serve completes the handshake and answers one request.
func (c slowHost) serve(conn net.Conn, cfg *tls.Config, testEnded <-chan struct{}) {
	defer conn.Close()
	select {
	case <-time.After(c.handshake):
	case <-testEnded:
		return
	}
	secure := tls.Server(conn, cfg)
	r, err := http.ReadRequest(bufio.NewReader(secure))
	if err != nil {
		return
	}
	answer := c.head
	if r.Method == http.MethodGet {
		answer = c.get
	}
	select {
	case <-time.After(answer.delay):
	case <-testEnded:
		return
	}
	io.WriteString(secure, answer.wire)
}

// TestOnlyHEADFailed checks the error if HEAD fails and the TLS handshake for GET fails as
// well. The error must be the http_failed of HEAD, not a handshake_failed.
func TestOnlyHEADFailed(t *testing.T) {
	t.Parallel()
	w := testbed.NewOrigins(t)
	var n atomic.Int32
	w.Accept(testName, testAddr, func(conn net.Conn) {
		if n.Add(1) > 1 { // the connection for GET
			conn.Read(make([]byte, 1))
			return
		}
		http.ReadRequest(bufio.NewReader(tls.Server(conn, w.TLS())))
	})
	_, err := fetchRoot(testbed.Soon(t), t, w)
	const want = "The HTTPS request with HEAD failed, and there was no connection for one with GET."
	if f := fault.From(err); f.Code != lookup.HTTPFailed || f.Public() != want {
		t.Errorf("%v, want http_failed: %s", err, want)
	}
}

// TestPanicBeside checks a panic in the goroutine of a request. It must become a panic in the
// goroutine of the caller, who can recover from it, so that the process does not end.
func TestPanicBeside(t *testing.T) {
	t.Parallel()
	cfg := testbed.NewOrigins(t).TLS()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		dials := 0
		connector := &guard.Dialer{
			HasRoute: func(context.Context, netip.Addr) bool { return true },
			Connect: func(context.Context, string, string) (net.Conn, error) {
				dials++
				if dials > 1 { // the dial of GET
					panic("a bug")
				}
				near, far := net.Pipe()
				go slowHost{head: noAnswer}.serve(far, cfg, over)
				return near, nil
			},
		}
		h := (&origin.Client{Connector: connector, UserAgent: "hostfacts (test)"}).
			Host(guard.Target{Name: testName, Addrs: []netip.Addr{netip.MustParseAddr(testAddr)}}, nil, netip.Addr{})
		defer h.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("recovered %v, want the bug", p)
			}
		}()
		_, err := h.Fetch(ctx, "/")
		t.Errorf("it returned: %v", err)
	})
}
