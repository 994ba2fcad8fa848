package origin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

const (
	name = "a.test.com"
	addr = "93.184.216.34"
)

// host is the origin of a name, on loopback.
func host(ctx context.Context, t *testing.T, w *testbed.Origins) *origin.Host {
	t.Helper()
	c := origin.New(origin.Config{Connector: w.Dialer(), UserAgent: "hostfacts (test)"})
	target, err := c.Resolve(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	h := c.Host(target)
	t.Cleanup(h.Close)
	return h
}

// fetch asks the world's host for / on a Host of its own.
func fetch(ctx context.Context, t *testing.T, w *testbed.Origins) (origin.Answer, error) {
	t.Helper()
	h := host(ctx, t, w)
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

// The request is what the spec says, and nothing that tells clients apart.
func TestRequest(t *testing.T) {
	t.Parallel()
	w := testbed.NewOrigins(t)
	got := make(chan string, 1)
	w.Serve(name, addr, func(conn *tls.Conn) {
		got <- request(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	})
	if _, err := fetch(testbed.Soon(t), t, w); err != nil {
		t.Fatal(err)
	}
	want := "HEAD / HTTP/1.1\r\nHost: a.test.com\r\nUser-Agent: hostfacts (test)\r\nAccept: */*\r\n\r\n"
	if r := <-got; r != want {
		t.Errorf("request %q, want %q", r, want)
	}
}

// forever writes until the connection is closed.
func forever(head, piece string) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		request(bufio.NewReader(conn))
		_, err := io.WriteString(conn, head)
		for err == nil {
			_, err = io.WriteString(conn, piece)
		}
	}
}

// TestAnswers: the status and the headers, or how the request failed. How a head is
// read is tested in the package that reads it, too.
func TestAnswers(t *testing.T) {
	const (
		ok      = "HTTP/1.1 200 OK\r\n"
		failed  = "http_failed: The HTTPS request failed: "
		foreign = failed + "the response is not HTTP/1.1."
		odd     = failed + "the response status is outside 100 to 599."
		long    = failed + "the response headers are longer than 64 KiB."
		none    = failed + "the connection ended without a response."
		cut     = failed + "the response headers are incomplete."
	)
	sends := func(wire string) func(*tls.Conn) { return testbed.Answers(wire) }
	much := strings.Repeat("x", 65000)
	type row struct {
		peer func(*tls.Conn)
		want string
	}
	testbed.Each(t, map[string]row{
		"plain":                     {sends(ok + "Server: a\r\n\r\n"), "200 map[Server:[a]]"},
		"redirect is not followed":  {sends("HTTP/1.1 301 Moved\r\nLocation: /b\r\n\r\n"), "301 map[Location:[/b]]"},
		"highest":                   {sends("HTTP/1.1 599 x\r\n\r\n"), "599 map[]"},
		"interim answers":           {sends("HTTP/1.1 103 E\r\nLink: x\r\n\r\n" + ok + "Server: a\r\n\r\n"), "200 map[Server:[a]]"},
		"unasked upgrade":           {sends("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), "101 map[Upgrade:[x]]"},
		"duplicates in order":       {sends(ok + "Via: a\r\nvia: b\r\n\r\n"), "200 map[Via:[a b]]"},
		"bare line feeds":           {sends("HTTP/1.0 204\nServer: a\n\n"), "204 map[Server:[a]]"},
		"folded line":               {sends(ok + "Server: a\r\n  b\r\n\r\n"), "200 map[Server:[a b]]"},
		"bytes outside ASCII":       {sends(ok + "Server : caf\xe9\r\n\r\n"), "200 map[Server :[caf\xe9]]"},
		"nothing is made of Pragma": {sends(ok + "Pragma: no-cache\r\n\r\n"), "200 map[Pragma:[no-cache]]"},
		"length and body":           {sends(ok + "Content-Length: x\r\n\r\n<html>"), "200 map[Content-Length:[x]]"},
		"almost 64 KiB":             {sends(ok + "A: " + much + "\r\n\r\n"), "200 map[A:[" + much + "]]"},

		"closed":              {sends(""), none},
		"closed in the head":  {sends(ok + "Server: a\r\n"), cut},
		"closed in a line":    {sends("HTTP/1.1 20"), foreign},
		"closed in a header":  {sends(ok + "Server: a"), cut},
		"HTTP/2":              {sends("HTTP/2 200\r\n\r\n"), foreign},
		"lower case":          {sends("http/1.1 200 OK\r\n\r\n"), foreign},
		"signed status":       {sends("HTTP/1.1 +20 x\r\n\r\n"), foreign},
		"status 099":          {sends("HTTP/1.1 099 x\r\n\r\n"), odd},
		"status 600":          {sends("HTTP/1.1 600 x\r\n\r\n"), odd},
		"cookie, no colon":    {sends(ok + "A: b\r\nSet-Cookie sid=SECRET\r\n\r\n"), foreign},
		"long, no colon":      {sends(ok + "A: b\r\n" + strings.Repeat("\x01", 64000) + "\r\n\r\n"), foreign},
		"endless line":        {forever(ok+"A: ", "xxxxxxxxxxxxxxxx"), long},
		"endless status line": {forever("HTTP/1.1 200 ", "OK"), long},
		"endless headers":     {forever(ok, "A: b\r\n"), long},
		"endless interim":     {forever("", "HTTP/1.1 103 Early\r\nA: b\r\n\r\n"), long},
		"reset": {func(conn *tls.Conn) {
			request(bufio.NewReader(conn))
			conn.NetConn().(*net.TCPConn).SetLinger(0)
			conn.NetConn().Close()
		}, none},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Serve(name, addr, c.peer)
		a, err := fetch(testbed.Soon(t), t, w)
		got := fmt.Sprint(a.Status, " ", map[string][]string(a.Header))
		if err == nil && (a.Method != "HEAD" || a.Peer.String() != addr) {
			t.Errorf("%s %s", a.Method, a.Peer)
		}
		if err != nil {
			got = string(fault.From(err).Code) + ": " + fault.From(err).Public()
			// An error is logged: it has neither a cookie nor a page of the peer's text.
			if text := err.Error(); len(text) > 1024 || strings.Contains(text, "SECRET") || strings.Contains(text, name) {
				t.Errorf("%d bytes of error, %.200q", len(text), text)
			}
		}
		if got != c.want {
			t.Errorf("got %.200q, want %.200q", got, c.want)
		}
		if d := w.Dials(); len(d) != 1 {
			t.Errorf("dialled %v: the failure of a fresh connection is the origin's", d)
		}
	})
}

// TestHandshakes: old and new versions, expired certificate and wrong name are all
// answered; what is no handshake is not.
func TestHandshakes(t *testing.T) {
	version := func(v uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion = v, v }
	}
	wants := func(version uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, version }
	}
	refuses := func(c *tls.Config) {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("no") }
	}
	type row struct {
		change func(*tls.Config) // nil for a server that only sends something
		sends  string
		want   string // part of a message; empty for an answer
	}
	testbed.Each(t, map[string]row{
		"TLS 1.0":                       {version(tls.VersionTLS10), "", ""},
		"TLS 1.1":                       {version(tls.VersionTLS11), "", ""},
		"TLS 1.2":                       {version(tls.VersionTLS12), "", ""},
		"TLS 1.3":                       {version(tls.VersionTLS13), "", ""},
		"plain HTTP":                    {nil, "HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS"},
		"closed":                        {nil, "", "handshake failed"},
		"alert":                         {refuses, "", "refused it"},
		"client certificate in TLS 1.2": {wants(tls.VersionTLS12), "", "refused it"},
		"client certificate in TLS 1.3": {wants(tls.VersionTLS13), "", "refused it"},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Accept(name, addr, func(conn net.Conn) {
			if c.change == nil {
				io.WriteString(conn, c.sends)
				return
			}
			cfg := w.TLS()
			c.change(cfg)
			secure := tls.Server(conn, cfg)
			if secure.Handshake() == nil && secure.ConnectionState().ServerName == name {
				testbed.Answers("HTTP/1.1 200 OK\r\n\r\n")(secure)
			}
			io.Copy(io.Discard, conn)
		})
		a, err := fetch(testbed.Soon(t), t, w)
		if f := fault.From(err); c.want != "" && (f.Code != fault.HandshakeFailed || !strings.Contains(f.Public(), c.want)) {
			t.Errorf("%v, want handshake_failed with %q", err, c.want)
		}
		if c.want == "" && (err != nil || a.Status != 200) {
			t.Errorf("%d, %v", a.Status, err)
		}
	})
}

// Peers that stop at some point, the handshake or a part of the head, are waited for
// until the time is up, which these end themselves once they have got that far.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"handshake", "", "H", "HTTP/1.1 200 OK\r\nServer: a", "HTTP/1.1 100 Continue\r\n\r\n"} {
		t.Run(fmt.Sprintf("after %q", head), func(t *testing.T) {
			t.Parallel()
			w := testbed.NewOrigins(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if head == "handshake" {
				w.Accept(name, addr, func(conn net.Conn) {
					conn.Read(make([]byte, 1))
					cancel()
					io.Copy(io.Discard, conn)
				})
			} else {
				w.Serve(name, addr, func(conn *tls.Conn) {
					request(bufio.NewReader(conn))
					io.WriteString(conn, head)
					cancel()
					io.Copy(io.Discard, conn)
				})
			}
			if _, err := fetch(ctx, t, w); !errors.Is(err, origin.ErrTimeout) {
				t.Errorf("%v, want ErrTimeout", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := testbed.NewOrigins(t)
		w.Resolve(name, testbed.OriginName{Addrs: []string{addr}})
		w.Peer(addr, testbed.Hole)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, err := fetch(ctx, t, w); fault.From(err).Code != fault.ConnectFailed || ctx.Err() != nil {
			t.Errorf("%v, want connect_failed before the time is up", err)
		}
	})
}
