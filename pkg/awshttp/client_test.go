package awshttp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/awshttp"
)

const maxReply = 1000

func config() awshttp.Config {
	return awshttp.Config{AttemptTimeout: time.Minute, MaxReply: maxReply, IdleTimeout: 5 * time.Second}
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
func TestReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply  http.HandlerFunc
		status int
		length int
		fails  string
	}{
		"whole":                  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "whole") }, 200, 5, ""},
		"empty":                  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, 204, 0, ""},
		"an error of the server": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, 500, 0, ""},
		"as long as it may be":   {sends(maxReply), 200, maxReply, ""},
		"too long":               {sends(maxReply + 1), 0, 0, "a reply of more than 1000 bytes"},
		"endless":                {sends(1 << 20), 0, 0, "a reply of more than 1000 bytes"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}, 0, 0, "read the reply: unexpected EOF"},
		"a redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		}, 302, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				c.reply(w, r)
			}))
			t.Cleanup(s.Close)
			status, body, err := get(t, awshttp.New(config()), s.URL)
			if status != c.status || len(body) != c.length || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%d, %d bytes, %v", status, len(body), err)
			}
			if n := calls.Load(); n != 1 { // nothing is repeated, and no redirect followed
				t.Errorf("%d requests", n)
			}
		})
	}
}

// sends sends n bytes without saying before how many they are.
func sends(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for left := n; left > 0; left -= 500 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), min(left, 500)))
			w.(http.Flusher).Flush()
		}
	}
}

// What the environment says of proxies is not read.
func TestNoProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	var dialed string
	c := config()
	c.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		dialed = network + " " + address
		return nil, io.ErrClosedPipe
	}
	if _, _, err := get(t, awshttp.New(c), "http://api.test/"); err == nil || dialed != "tcp api.test:80" {
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
	go p.serve(theirs, n)
	return ours, nil
}

func (p *peer) serve(c net.Conn, n int64) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
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
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	}
}

// A failed attempt takes the idle connections with it: those that idled through a
// freeze have died together, and the next attempt takes a new one. The attempt ends
// in its time.
func TestFailureDropsIdleConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const kept = 3
		p := &peer{together: kept, all: make(chan struct{})}
		c := awshttp.New(awshttp.Config{AttemptTimeout: 700 * time.Millisecond, MaxReply: maxReply, IdleTimeout: 5 * time.Second, Dial: p.dial})
		for range kept {
			go func() {
				if _, _, err := get(t, c, "http://api.test/"); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		p.silent.Store(true)
		begun := time.Now()
		if _, _, err := get(t, c, "http://api.test/"); err == nil || time.Since(begun) != 700*time.Millisecond {
			t.Errorf("an attempt on a dead connection: %v after %s", err, time.Since(begun))
		}
		if _, _, err := get(t, c, "http://api.test/"); err != nil || p.dials.Load() != kept+1 {
			t.Errorf("the next attempt: %v on %d connections, want one more than %d", err, p.dials.Load(), kept)
		}
		<-time.After(6 * time.Second) // the last connection ends
	})
}

// A connection is kept as long as it is told to be, or not at all.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	for idle, want := range map[time.Duration]int64{0: 3, 5 * time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{all: make(chan struct{})}
			close(p.all)
			c := awshttp.New(awshttp.Config{AttemptTimeout: time.Second, MaxReply: maxReply, IdleTimeout: idle, Dial: p.dial})
			for _, pause := range []time.Duration{0, 4 * time.Second, 6 * time.Second} {
				<-time.After(pause)
				if _, _, err := get(t, c, "http://api.test/"); err != nil {
					t.Error(err)
				}
			}
			if n := p.dials.Load(); n != want {
				t.Errorf("kept for %s: %d connections, want %d", idle, n, want)
			}
			<-time.After(6 * time.Second)
		})
	}
}
