package dynamo_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

const maxReply = 1000

func httpConfig() dynamo.HTTPConfig {
	return dynamo.HTTPConfig{AttemptTimeout: time.Minute, MaxReply: maxReply, IdleTimeout: 5 * time.Second}
}

// get sends a request and reads the reply to its end.
func get(t *testing.T, c *http.Client, url string) (int, string, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// A reply is whole and no longer than it may be, or the attempt has failed.
func TestHTTPReplies(t *testing.T) {
	t.Parallel()
	const tooLong = "a reply of more than 1000 bytes"
	for name, c := range map[string]struct {
		status, promised, sent int
		fails                  string
	}{
		"whole": {200, 5, 5, ""}, "empty": {204, 0, 0, ""}, "an error of the server": {500, 0, 0, ""}, "a redirect": {302, 0, 0, ""},
		"as long as it may be": {200, 0, maxReply, ""}, "too long": {200, 0, maxReply + 1, tooLong}, "endless": {200, 0, 1 << 20, tooLong},
		"cut": {200, 100, 4, "read the reply: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "/elsewhere")
				if c.promised > 0 {
					w.Header().Set("Content-Length", strconv.Itoa(c.promised))
				}
				w.WriteHeader(c.status)
				for left := c.sent; left > 0; left -= 500 {
					_, _ = w.Write(bytes.Repeat([]byte("x"), min(left, 500)))
					w.(http.Flusher).Flush()
				}
			}))
			t.Cleanup(s.Close)
			status, body, err := get(t, dynamo.NewHTTPClient(httpConfig()), s.URL)
			if c.fails == "" && (status != c.status || len(body) != c.sent || err != nil) || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%d, %d bytes, %v", status, len(body), err)
			}
			if n := calls.Load(); n != 1 { // nothing is repeated, and no redirect followed
				t.Errorf("%d requests", n)
			}
		})
	}
}

// What the environment says of proxies is not read.
func TestNoProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	var dialed string
	c := httpConfig()
	c.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		dialed = network + " " + address
		return nil, io.ErrClosedPipe
	}
	if _, _, err := get(t, dynamo.NewHTTPClient(c), "http://api.test/"); err == nil || dialed != "tcp api.test:80" {
		t.Errorf("dialed %q, %v", dialed, err)
	}
}

// peer answers on every connection that is dialed. A connection is silent from the
// moment on at which it is told to be.
type peer struct {
	dials  atomic.Int64
	silent atomic.Bool
	// together holds the first answers until so many requests have come.
	together int64
	arrived  atomic.Int64
	all      chan struct{}
}

func (p *peer) dial(context.Context, string, string) (net.Conn, error) {
	n := p.dials.Add(1)
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		for in := bufio.NewReader(theirs); ; {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if p.silent.Load() && n <= p.together {
				continue // the request is swallowed
			}
			if p.arrived.Add(1) == p.together {
				close(p.all)
			}
			<-p.all
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	return ours, nil
}

// A failed attempt takes the idle connections with it: those that idled through a
// freeze have died together, and the next attempt takes a new one. The attempt ends
// in its time. A connection is kept as long as it is told to be, or not at all.
func TestHTTPConnections(t *testing.T) {
	t.Parallel()
	const kept = 3
	for idle, reused := range map[time.Duration]int64{0: 0, 5 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{together: kept, all: make(chan struct{})}
			c := dynamo.NewHTTPClient(dynamo.HTTPConfig{AttemptTimeout: 700 * time.Millisecond, MaxReply: maxReply, IdleTimeout: idle, Dial: p.dial})
			call := func(dials int64) {
				if _, _, err := get(t, c, "http://api.test/"); err != nil || dials > 0 && p.dials.Load() != dials {
					t.Errorf("kept for %s: %v on %d connections, want %d", idle, err, p.dials.Load(), dials)
				}
			}
			for range kept {
				go call(0)
			}
			synctest.Wait()
			dials := int64(kept)
			if idle > 0 {
				p.silent.Store(true)
				begun := time.Now()
				if _, _, err := get(t, c, "http://api.test/"); err == nil || time.Since(begun) != 700*time.Millisecond {
					t.Errorf("an attempt on a dead connection: %v after %s", err, time.Since(begun))
				}
			}
			call(dials + 1)
			<-time.After(4 * time.Second)
			call(dials + 2 - reused)
			<-time.After(6 * time.Second)
			call(dials + 3 - reused)
			<-time.After(6 * time.Second) // the last connection ends
		})
	}
}
