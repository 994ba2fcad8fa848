package origin_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// TestMethods plays servers that do not take HEAD, and counts connections.
func TestMethods(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nServer: b\r\nContent-Length: 1000000\r\n\r\n<html>"
	type row struct {
		conns [][]string // per connection, its answers
		want  string
		dials int
	}
	origintest.Each(t, map[string]row{
		"405":                          {[][]string{{"HTTP/1.1 405 No\r\nContent-Length: 20\r\n\r\n", ok}}, "GET 200", 1},
		"501":                          {[][]string{{"HTTP/1.1 501 No\r\n\r\n", ok}}, "GET 200", 1},
		"405 twice":                    {[][]string{{"HTTP/1.1 405 No\r\n\r\n", "HTTP/1.1 405 No\r\n\r\n"}}, "GET 405", 1},
		"404 stays":                    {[][]string{{"HTTP/1.1 404 No\r\n\r\n", ok}}, "HEAD 404", 1},
		"405 and close":                {[][]string{{"HTTP/1.1 405 No\r\nConnection: Close\r\n\r\n"}, {ok}}, "GET 200", 2},
		"405 in HTTP/1.0":              {[][]string{{"HTTP/1.0 405 No\r\n\r\n"}, {ok}}, "GET 200", 2},
		"405, then gone":               {[][]string{{"HTTP/1.1 405 No\r\n\r\n"}, {ok}}, "GET 200", 2},
		"405 with a body":              {[][]string{{"HTTP/1.1 405 No\r\n\r\n<html>no</html>\r\n\r\n", ok}, {ok}}, "GET 200", 2},
		"405, GET is never ending":     {[][]string{{"HTTP/1.1 405 No\r\n\r\n", ok}}, "GET 200", 1},
		"405, GET fails on both lines": {[][]string{{"HTTP/1.1 405 No\r\n\r\n", "?\r\n\r\n"}, {"?\r\n\r\n"}}, "http_failed", 2},
	}, func(t *testing.T, c row) {
		w := origintest.New(t)
		var mu sync.Mutex
		n := 0
		w.Serve(name, addr, func(conn *tls.Conn) {
			mu.Lock()
			script := c.conns[min(n, len(c.conns)-1)]
			n++
			mu.Unlock()
			origintest.Answers(script...)(conn)
		})
		a, err := fetch(origintest.Soon(t), t, w)
		got := fmt.Sprintf("%s %d", a.Method, a.Status)
		if err != nil {
			got = string(fault.From(err).Code)
		}
		if got != c.want || len(w.Dials()) != c.dials {
			t.Errorf("%s over %d connections, want %s over %d (%v)", got, len(w.Dials()), c.want, c.dials, err)
		}
	})
}

// One Host asks again over the same connection, and over another when the
// origin has hung up in between.
func TestHostKeepsItsConnection(t *testing.T) {
	type row struct {
		peer  func(*tls.Conn)
		dials int
	}
	origintest.Each(t, map[string]row{
		"kept":    {origintest.Answers("HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"), 1},
		"hung up": {origintest.Answers("HTTP/1.1 200 OK\r\n\r\n"), 3},
		"closed":  {origintest.Answers("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), 3},
	}, func(t *testing.T, c row) {
		w := origintest.New(t)
		w.Serve(name, addr, c.peer)
		o := client(w)
		target, err := o.Resolve(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		h := o.Host(target)
		defer h.Close()
		for range 3 {
			if a, err := h.Fetch(origintest.Soon(t), "/x?y"); err != nil || a.Status != 200 {
				t.Fatalf("%d, %v", a.Status, err)
			}
		}
		if n := len(w.Dials()); n != c.dials {
			t.Errorf("%d connections, want %d", n, c.dials)
		}
	})
}

func TestFetchRefusesOddPaths(t *testing.T) {
	t.Parallel()
	w := origintest.New(t)
	h := client(w).Host(guard.Target{Name: name})
	for _, p := range []string{"", "x", "/a b", "/\r\nHost: b", "/\x7f", "/é", "http://b/"} {
		if _, err := h.Fetch(t.Context(), p); err == nil || codeOf(err) != "" {
			t.Errorf("%q: %v, want an error without a code", p, err)
		}
	}
	if len(w.Dials()) != 0 {
		t.Error("connected")
	}
}

func codeOf(err error) fault.Code {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func TestFault(t *testing.T) {
	t.Parallel()
	other := errors.New("a bug")
	for _, c := range []struct {
		err  error
		want fault.Code
	}{
		{fmt.Errorf("x: %w", origin.ErrTimeout), fault.HeadersTimeout},
		{fmt.Errorf("x: %w", guard.ErrResolvers), fault.HeadersTimeout},
		{fmt.Errorf("x: %w", guard.ErrNoRoute), fault.HeadersTimeout},
		{fault.New(fault.NXDomain, nil), fault.NXDomain},
		{fault.New(fault.ConnectFailed, context.DeadlineExceeded), fault.ConnectFailed},
		{other, ""},
	} {
		if got := codeOf(origin.Fault(c.err, fault.HeadersTimeout)); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if origin.Fault(other, fault.HeadersTimeout) != other {
		t.Error("a foreign error was changed")
	}
}

// Bytes that belong to a body are never taken for the next answer, even if
// they look like one.
func TestBodyIsNoAnswer(t *testing.T) {
	const decoy = "HTTP/1.1 200 Decoy\r\n\r\n"
	origintest.Each(t, map[string][]string{
		"after HEAD": {"HTTP/1.1 405 No\r\n\r\n" + decoy},
		"after GET":  {"HTTP/1.1 405 No\r\n\r\n", "HTTP/1.1 302 x\r\nContent-Length: 22\r\n\r\n", decoy},
		"chunked":    {"HTTP/1.1 405 No\r\n\r\n", "HTTP/1.1 302 x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", decoy},
		"upgraded":   {"HTTP/1.1 101 x\r\n\r\n", decoy},
	}, func(t *testing.T, first []string) {
		w := origintest.New(t)
		var n atomic.Int32
		w.Serve(name, addr, func(conn *tls.Conn) {
			if n.Add(1) == 1 {
				origintest.Answers(first...)(conn)
				return
			}
			origintest.Answers("HTTP/1.1 204 x\r\n\r\n")(conn)
		})
		o := client(w)
		target, err := o.Resolve(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		h := o.Host(target)
		defer h.Close()
		var last origin.Answer
		for last.Status != 204 {
			if last, err = h.Fetch(origintest.Soon(t), "/"); err != nil || last.Status == 200 {
				t.Fatalf("%d, %v", last.Status, err)
			}
		}
		if d := len(w.Dials()); d != 2 {
			t.Errorf("%d connections, want 2", d)
		}
	})
}
