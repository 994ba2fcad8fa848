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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

const (
	name = "a.test.com"
	addr = "93.184.216.34"
)

func client(w *origintest.World) *origin.Client {
	return origin.New(origin.Config{Connector: w.Dialer(), UserAgent: "hostfacts (test)"})
}

// fetch asks the world's host for / on a Host of its own.
func fetch(ctx context.Context, t *testing.T, w *origintest.World) (origin.Answer, error) {
	t.Helper()
	c := client(w)
	target, err := c.Resolve(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	h := c.Host(target)
	defer h.Close()
	return h.Fetch(ctx, "/")
}

// request reads the head of a request and returns it; "" at the end.
func request(r *bufio.Reader) string {
	var out strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		if out.WriteString(line); line == "\r\n" {
			return out.String()
		}
	}
}

func TestAnswers(t *testing.T) {
	type row struct {
		wire   string
		status int
		header http.Header
	}
	origintest.Each(t, map[string]row{
		"plain":                                  {"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n", 200, http.Header{"Server": {"a"}}},
		"redirect is not followed":               {"HTTP/1.1 301 Moved\r\nLocation: /b\r\n\r\n", 301, http.Header{"Location": {"/b"}}},
		"server error":                           {"HTTP/1.1 503 No\r\n\r\n", 503, http.Header{}},
		"lowest and highest":                     {"HTTP/1.1 599 x\r\n\r\n", 599, http.Header{}},
		"interim answers":                        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nServer: a\r\n\r\n", 200, http.Header{"Server": {"a"}}},
		"unasked upgrade":                        {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", 101, http.Header{"Upgrade": {"x"}}},
		"duplicates in order":                    {"HTTP/1.1 200 OK\r\nVia: a\r\nvia: b\r\n\r\n", 200, http.Header{"Via": {"a", "b"}}},
		"bare line feeds":                        {"HTTP/1.1 200 OK\nServer: a\n\n", 200, http.Header{"Server": {"a"}}},
		"no reason":                              {"HTTP/1.1 204\r\n\r\n", 204, http.Header{}},
		"HTTP/1.0":                               {"HTTP/1.0 200 OK\r\nServer: a\r\n\r\n", 200, http.Header{"Server": {"a"}}},
		"folded line":                            {"HTTP/1.1 200 OK\r\nServer: a\r\n  b\r\n\r\n", 200, http.Header{"Server": {"a b"}}},
		"space before the colon is another name": {"HTTP/1.1 200 OK\r\nServer : a\r\n\r\n", 200, http.Header{"Server ": {"a"}}},
		"empty value":                            {"HTTP/1.1 200 OK\r\nServer:\r\n\r\n", 200, http.Header{"Server": {""}}},
		"bytes outside ASCII":                    {"HTTP/1.1 200 OK\r\nServer: caf\xe9\r\n\r\n", 200, http.Header{"Server": {"caf\xe9"}}},
		"nothing is made of Pragma":              {"HTTP/1.1 200 OK\r\nPragma: no-cache\r\n\r\n", 200, http.Header{"Pragma": {"no-cache"}}},
		"length is no business of ours":          {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 200, http.Header{"Content-Length": {"x"}}},
		"body after HEAD":                        {"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n<html>", 200, http.Header{"Server": {"a"}}},
		"almost 64 KiB":                          {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 65000) + "\r\n\r\n", 200, http.Header{"A": {strings.Repeat("x", 65000)}}},
	}, func(t *testing.T, c row) {
		w := origintest.New(t)
		w.Serve(name, addr, origintest.Answers(c.wire))
		a, err := fetch(origintest.Soon(t), t, w)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != c.status || a.Method != "HEAD" || a.Peer.String() != addr {
			t.Errorf("%d %s %s", a.Status, a.Method, a.Peer)
		}
		if diff := cmp.Diff(c.header, a.Header); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	})
}

// forever writes until the connection is closed.
func forever(head, piece string) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		request(bufio.NewReader(conn))
		io.WriteString(conn, head)
		for {
			if _, err := io.WriteString(conn, piece); err != nil {
				return
			}
		}
	}
}

func TestRequestFails(t *testing.T) {
	type row struct {
		peer func(*tls.Conn)
		says string
	}
	origintest.Each(t, map[string]row{
		"closed":              {origintest.Answers(""), "without a response"},
		"closed in the head":  {origintest.Answers("HTTP/1.1 200 OK\r\nServer: a\r\n"), "incomplete"},
		"closed in a line":    {origintest.Answers("HTTP/1.1 20"), "not HTTP/1.1"},
		"closed in a header":  {origintest.Answers("HTTP/1.1 200 OK\r\nServer: a"), "incomplete"},
		"garbage":             {origintest.Answers("\x00\x01\x02\r\n\r\n"), "not HTTP/1.1"},
		"HTTP/0.9":            {origintest.Answers("<html></html>\r\n\r\n"), "not HTTP/1.1"},
		"HTTP/2":              {origintest.Answers("HTTP/2 200\r\n\r\n"), "not HTTP/1.1"},
		"lower case":          {origintest.Answers("http/1.1 200 OK\r\n\r\n"), "not HTTP/1.1"},
		"ICY":                 {origintest.Answers("ICY 200 OK\r\n\r\n"), "not HTTP/1.1"},
		"short status":        {origintest.Answers("HTTP/1.1 99 x\r\n\r\n"), "not HTTP/1.1"},
		"signed status":       {origintest.Answers("HTTP/1.1 +20 x\r\n\r\n"), "not HTTP/1.1"},
		"status 000":          {origintest.Answers("HTTP/1.1 000 x\r\n\r\n"), "outside 100 to 599"},
		"status 099":          {origintest.Answers("HTTP/1.1 099 x\r\n\r\n"), "outside 100 to 599"},
		"status 600":          {origintest.Answers("HTTP/1.1 600 x\r\n\r\n"), "outside 100 to 599"},
		"status 999":          {origintest.Answers("HTTP/1.1 999 x\r\n\r\n"), "outside 100 to 599"},
		"no colon":            {origintest.Answers("HTTP/1.1 200 OK\r\nServer\r\n\r\n"), "not HTTP/1.1"},
		"cookie, no colon":    {origintest.Answers("HTTP/1.1 200 OK\r\nA: b\r\nSet-Cookie sid=SECRET\r\n\r\n"), "not HTTP/1.1"},
		"long, no colon":      {origintest.Answers("HTTP/1.1 200 OK\r\nA: b\r\n" + strings.Repeat("\x01", 64000) + "\r\n\r\n"), "not HTTP/1.1"},
		"control byte":        {origintest.Answers("HTTP/1.1 200 OK\r\nServer: a\x01b\r\n\r\n"), "not HTTP/1.1"},
		"endless line":        {forever("HTTP/1.1 200 OK\r\nA: ", "xxxxxxxxxxxxxxxx"), "64 KiB"},
		"endless status line": {forever("HTTP/1.1 200 ", "OK"), "64 KiB"},
		"endless headers":     {forever("HTTP/1.1 200 OK\r\n", "A: b\r\n"), "64 KiB"},
		"endless interim":     {forever("", "HTTP/1.1 103 Early\r\nA: b\r\n\r\n"), "64 KiB"},
		"reset": {func(conn *tls.Conn) {
			request(bufio.NewReader(conn))
			conn.NetConn().(*net.TCPConn).SetLinger(0)
			conn.NetConn().Close()
		}, "without a response"},
	}, func(t *testing.T, c row) {
		w := origintest.New(t)
		w.Serve(name, addr, c.peer)
		_, err := fetch(origintest.Soon(t), t, w)
		if f := fault.From(err); f.Code != fault.HTTPFailed || !strings.Contains(f.Public(), c.says) {
			t.Errorf("%v, want http_failed with %q", err, c.says)
		}
		// An error is logged: it has neither a cookie nor a page of the peer's text.
		if text := err.Error(); len(text) > 1024 || strings.Contains(text, "SECRET") || strings.Contains(text, name) {
			t.Errorf("%d bytes of error, %.200q", len(text), text)
		}
		if d := w.Dials(); len(d) != 1 {
			t.Errorf("dialled %v: the failure of a fresh connection is the origin's", d)
		}
	})
}

func TestHandshakeFails(t *testing.T) {
	needsCert := func(v uint16) func(*origintest.World) {
		return func(w *origintest.World) {
			w.Accept(name, addr, func(conn net.Conn) {
				cfg := w.TLS()
				cfg.ClientAuth, cfg.MaxVersion = tls.RequireAnyClientCert, v
				secure := tls.Server(conn, cfg)
				secure.Handshake()
				io.Copy(io.Discard, conn)
			})
		}
	}
	type row struct {
		set  func(*origintest.World)
		says string
	}
	origintest.Each(t, map[string]row{
		"plain HTTP": {func(w *origintest.World) {
			w.Accept(name, addr, func(conn net.Conn) {
				io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				io.Copy(io.Discard, conn)
			})
		}, "does not speak TLS"},
		"alert": {func(w *origintest.World) {
			w.Accept(name, addr, func(conn net.Conn) {
				secure := tls.Server(conn, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("no") }})
				secure.Handshake()
				io.Copy(io.Discard, conn)
			})
		}, "refused it"},
		"closed":                        {func(w *origintest.World) { w.Accept(name, addr, func(net.Conn) {}) }, "handshake failed"},
		"client certificate in TLS 1.2": {needsCert(tls.VersionTLS12), "refused it"},
		"client certificate in TLS 1.3": {needsCert(tls.VersionTLS13), "refused it"},
	}, func(t *testing.T, c row) {
		w := origintest.New(t)
		c.set(w)
		_, err := fetch(origintest.Soon(t), t, w)
		if f := fault.From(err); f.Code != fault.HandshakeFailed || !strings.Contains(f.Public(), c.says) {
			t.Errorf("%v, want handshake_failed with %q", err, c.says)
		}
	})
}

// Old and new versions, expired certificate and wrong name: all are answered.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, v := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) {
			t.Parallel()
			w := origintest.New(t)
			w.Accept(name, addr, func(conn net.Conn) {
				cfg := w.TLS()
				cfg.MinVersion, cfg.MaxVersion = v, v
				secure := tls.Server(conn, cfg)
				if err := secure.Handshake(); err != nil {
					t.Errorf("handshake: %v", err)
				}
				if sni := secure.ConnectionState().ServerName; sni != name {
					t.Errorf("SNI %q", sni)
				}
				origintest.Answers("HTTP/1.1 200 OK\r\n\r\n")(secure)
			})
			if a, err := fetch(origintest.Soon(t), t, w); err != nil || a.Status != 200 {
				t.Errorf("%d, %v", a.Status, err)
			}
		})
	}
}

// Peers that stop at some point are waited for until the time is up, which
// these end themselves once they have got that far.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"", "H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nServer: a", "HTTP/1.1 100 Continue\r\n\r\n"} {
		t.Run(fmt.Sprintf("after %q", head), func(t *testing.T) {
			t.Parallel()
			w := origintest.New(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.Serve(name, addr, func(conn *tls.Conn) {
				request(bufio.NewReader(conn))
				io.WriteString(conn, head)
				cancel()
				io.Copy(io.Discard, conn)
			})
			if _, err := fetch(ctx, t, w); !errors.Is(err, origin.ErrTimeout) {
				t.Errorf("%v, want ErrTimeout", err)
			}
		})
	}
	t.Run("in the handshake", func(t *testing.T) {
		t.Parallel()
		w := origintest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.Accept(name, addr, func(conn net.Conn) {
			conn.Read(make([]byte, 1))
			cancel()
			io.Copy(io.Discard, conn)
		})
		if _, err := fetch(ctx, t, w); !errors.Is(err, origin.ErrTimeout) {
			t.Errorf("%v, want ErrTimeout", err)
		}
	})
	t.Run("in the dial", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := origintest.New(t)
			w.Resolve(name, origintest.Name{Addrs: []string{addr}})
			w.Peer(addr, origintest.Hole)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			if _, err := fetch(ctx, t, w); fault.From(err).Code != fault.ConnectFailed || ctx.Err() != nil {
				t.Errorf("%v, want connect_failed before the time is up", err)
			}
		})
	})
}

// The request is what the spec says, and nothing that tells clients apart.
func TestRequest(t *testing.T) {
	t.Parallel()
	w := origintest.New(t)
	got := make(chan string, 1)
	w.Serve(name, addr, func(conn *tls.Conn) {
		got <- request(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	})
	if _, err := fetch(origintest.Soon(t), t, w); err != nil {
		t.Fatal(err)
	}
	want := "HEAD / HTTP/1.1\r\nHost: a.test.com\r\nUser-Agent: hostfacts (test)\r\nAccept: */*\r\n\r\n"
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}
