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
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestConnections checks which requests of one Host share a connection. The origin has a list
// of answers for each connection; some answers refuse HEAD. The bytes of a body must never be
// read as the next answer, even if they look like one.
func TestConnections(t *testing.T) {
	const (
		ok    = "HTTP/1.1 200 OK\r\nServer: b\r\nContent-Length: 1000000\r\n\r\n<html>"
		no    = "HTTP/1.1 405 No\r\n\r\n"
		fine  = "HTTP/1.1 200 OK\r\n\r\n"
		last  = "HTTP/1.1 204 x\r\n\r\n"
		decoy = "HTTP/1.1 299 Decoy\r\n\r\n"
	)
	type row struct {
		conns [][]string // the answers over each connection; the last list serves all further connections
		want  string     // the method and status of each request, or its error
		dials int
	}
	testbed.Each(t, map[string]row{
		"405":                          {[][]string{{"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n", ok}}, "[GET 200]", 1},
		"405 announces a body":         {[][]string{{"HTTP/1.1 405 No\r\nContent-Length: 20\r\n\r\n", decoy}, {ok}}, "[GET 200]", 2},
		"501 announces a chunked body": {[][]string{{"HTTP/1.1 501 No\r\nTransfer-Encoding: chunked\r\n\r\n", decoy}, {ok}}, "[GET 200]", 2},
		"501":                          {[][]string{{"HTTP/1.1 501 No\r\n\r\n", ok}}, "[GET 200]", 1},
		"405 twice":                    {[][]string{{no, no}}, "[GET 405]", 1},
		"404 stays":                    {[][]string{{"HTTP/1.1 404 No\r\n\r\n", ok}}, "[HEAD 404]", 1},
		"405 and close":                {[][]string{{"HTTP/1.1 405 No\r\nConnection: Close\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405 in HTTP/1.0":              {[][]string{{"HTTP/1.0 405 No\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405 in HTTP/3.0":              {[][]string{{"HTTP/3.0 405 No\r\n\r\n", ok}}, "[GET 200]", 1},
		"405, then gone":               {[][]string{{no}, {ok}}, "[GET 200]", 2},
		"405 with a body":              {[][]string{{no + "<html>no</html>\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405, GET fails on both lines": {[][]string{{no, "?\r\n\r\n"}, {"?\r\n\r\n"}}, "[http_failed]", 2},
		"HEAD closes, GET answers":     {[][]string{{""}, {ok}}, "[GET 200]", 2},
		"HEAD cut off, GET answers":    {[][]string{{"HTTP/1.1 200 OK\r\nServer"}, {ok}}, "[GET 200]", 2},
		"HEAD is not HTTP, GET is":     {[][]string{{"<html>"}, {ok}}, "[GET 200]", 2},
		"HEAD closes, GET is refused":  {[][]string{{""}, {no}}, "[GET 405]", 2},

		"kept":    {[][]string{{fine, fine, last}}, "[HEAD 200 HEAD 200 HEAD 204]", 1},
		"hung up": {[][]string{{fine}, {fine}, {last}}, "[HEAD 200 HEAD 200 HEAD 204]", 3},
		"closed":  {[][]string{{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", last}, {last}}, "[HEAD 200 HEAD 204]", 2},

		"decoy after HEAD": {[][]string{{no + decoy}, {last}}, "[GET 204]", 2},
		"decoy after GET": {[][]string{{no, "HTTP/1.1 302 x\r\nContent-Length: 22\r\n\r\n", decoy}, {last}},
			"[GET 302 HEAD 204]", 2},
		"decoy, chunked": {[][]string{{no, "HTTP/1.1 302 x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", decoy}, {last}},
			"[GET 302 HEAD 204]", 2},
		"decoy, upgraded": {[][]string{{"HTTP/1.1 101 x\r\n\r\n", decoy}, {last}}, "[HEAD 101 HEAD 204]", 2},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		var n atomic.Int32
		w.Serve(testName, testAddr, func(conn *tls.Conn) {
			testbed.Answers(c.conns[min(int(n.Add(1)), len(c.conns))-1]...)(conn)
		})
		h := newHost(t.Context(), t, w)
		var got []string
		for len(fmt.Sprint(got)) < len(c.want) {
			a, err := h.Fetch(testbed.Soon(t), "/x?y")
			if got = append(got, fmt.Sprintf("%s %d", a.Method, a.Status)); err != nil {
				got[len(got)-1] = string(fault.From(err).Code)
			}
		}
		if fmt.Sprint(got) != c.want || len(w.Dials()) != c.dials {
			t.Errorf("%v over %d connections, want %s over %d", got, len(w.Dials()), c.want, c.dials)
		}
	})
}

// TestFault checks which errors become the time-out of the lookup, and their messages. An
// error about the target must keep its code, even if the time of the lookup is over as well.
func TestFault(t *testing.T) {
	other := errors.New("a bug")
	endedCtx, cancel := context.WithCancel(t.Context())
	cancel()
	type row struct {
		ctx      context.Context
		err      error
		want     fault.Code
		wantText string // part of the message
	}
	testbed.Each(t, map[string]row{
		"silent":               {endedCtx, fmt.Errorf("x: %w", origin.ErrSilence), lookup.HeadersTimeout, "timed out"},
		"resolvers":            {t.Context(), fmt.Errorf("x: %w", guard.ErrResolvers), lookup.HeadersTimeout, guard.Unresolved},
		"unresolvable":         {t.Context(), fmt.Errorf("x: %w", guard.ErrUnresolvable), lookup.HeadersTimeout, guard.Unresolvable},
		"no route":             {t.Context(), lookup.Fault(lookup.ConnectFailed, guard.ErrNoRoute), lookup.ConnectFailed, ""},
		"verdict":              {t.Context(), lookup.Fault(lookup.NXDomain, nil), lookup.NXDomain, ""},
		"verdict with the end": {endedCtx, lookup.Fault(lookup.ConnectFailed, context.DeadlineExceeded), lookup.ConnectFailed, ""},
		"bug":                  {t.Context(), other, fault.InternalError, ""},
		"anything at the end":  {endedCtx, other, lookup.HeadersTimeout, "before the host could answer"},
	}, func(t *testing.T, c row) {
		got := origin.Fault(c.ctx, c.err, lookup.HeadersTimeout)
		silence := errors.Is(c.err, origin.ErrSilence) || errors.Is(c.err, guard.ErrUnresolvable)
		if f := fault.From(got); f.Code != c.want || !errors.Is(got, c.err) || f.IsSilence() != silence || !strings.Contains(f.Public(), c.wantText) {
			t.Errorf("%v, want %q", got, c.want)
		}
	})
}

const (
	testName = "a.test.com"
	testAddr = "93.184.216.34"
)

// newHost returns a Host for the origin a.test.com, which w serves on loopback.
func newHost(ctx context.Context, t *testing.T, w *testbed.Origins) *origin.Host {
	t.Helper()
	c := &origin.Client{Connector: w.Dialer(), UserAgent: "hostfacts (test)"}
	h := c.Host(testbed.Must(c.Connector.Resolve(ctx, testName)), nil, netip.Addr{})
	t.Cleanup(h.Close)
	return h
}

// fetchRoot requests / on a new Host.
func fetchRoot(ctx context.Context, t *testing.T, w *testbed.Origins) (origin.Answer, error) {
	t.Helper()
	h := newHost(ctx, t, w)
	defer h.Close()
	return h.Fetch(ctx, "/")
}

// repeatPiece returns a server that writes the text in head once, and then the text in piece
// again and again until the connection is closed.
func repeatPiece(head, piece string) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		http.ReadRequest(bufio.NewReader(conn))
		_, err := io.WriteString(conn, head)
		for err == nil {
			_, err = io.WriteString(conn, piece)
		}
	}
}

// TestAnswers checks the status and headers that Fetch returns, or its error. Other tests of
// package origin cover how a head is read.
func TestAnswers(t *testing.T) {
	const (
		ok         = "HTTP/1.1 200 OK\r\n"
		failed     = "http_failed: The HTTPS request failed: "
		notHTTP    = failed + "the response is not HTTP/1.1."
		badStatus  = failed + "the response status is below 100."
		tooLong    = failed + "the response headers are longer than 300 KiB."
		noResponse = failed + "the connection ended without a response."
		incomplete = failed + "the response headers are incomplete."
	)
	sends := func(wire string) func(*tls.Conn) { return testbed.Answers(wire) }
	much := strings.Repeat("x", 300<<10-100)
	type row struct {
		peer func(*tls.Conn)
		want string
	}
	testbed.Each(t, map[string]row{
		"plain":                     {sends(ok + "Server: a\r\n\r\n"), "200 map[Server:[a]]"},
		"interim answers":           {sends("HTTP/1.1 103 E\r\nLink: x\r\n\r\n" + ok + "Server: a\r\n\r\n"), "200 map[Server:[a]]"},
		"unasked upgrade":           {sends("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), "101 map[Upgrade:[x]]"},
		"duplicates in order":       {sends(ok + "Via: a\r\nvia: b\r\n\r\n"), "200 map[Via:[a b]]"},
		"bare line feeds":           {sends("HTTP/1.0 204\nServer: a\n\n"), "204 map[Server:[a]]"},
		"folded line":               {sends(ok + "Server: a\r\n  b\r\n\r\n"), "200 map[Server:[a b]]"},
		"bytes outside ASCII":       {sends(ok + "Server : caf\xe9\r\n\r\n"), "200 map[Server:[caf\xe9]]"},
		"control bytes":             {sends(ok + "Set-Cookie: a=\x01b\x7f\r\nServer:\x00 a\tb\r\r\n\r\n"), "200 map[Server:[a\tb] Set-Cookie:[a=b]]"},
		"lines that are not fields": {sends(ok + " Server: a\r\nno colon\r\n Via: no\r\n: b\r\nVi a: c\r\n\x85: d\r\nVia: e\r\n\r\n"), "200 map[Server:[a] Via:[e]]"},
		"a line of blanks":          {sends(ok + " \r\nServer: a\r\n\r\n"), "200 map[Server:[a]]"},
		"a status line at odds":     {sends("http/1.1  200OK\r\nServer: a\r\n\r\n"), "200 map[Server:[a]]"},
		"a status line of HTTP/2":   {sends("HTTP/2 200\r\nServer: a\r\n\r\n"), "200 map[Server:[a]]"},
		"LinkedIn's status":         {sends("HTTP/1.1 999 Request denied\r\n\r\n"), "999 map[]"},
		"nothing is made of Pragma": {sends(ok + "Pragma: no-cache\r\n\r\n"), "200 map[Pragma:[no-cache]]"},
		"length and body":           {sends("HTTP/1.1 599 x\r\nContent-Length: x\r\n\r\n<html>"), "599 map[Content-Length:[x]]"},
		"almost 300 KiB":            {sends(ok + "A: " + much + "\r\n\r\n"), "200 map[A:[" + much + "]]"},

		"closed":             {sends(""), noResponse},
		"closed in the head": {sends(ok + "Server: a\r\n"), incomplete},
		"HTTP/2":             {sends("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80"), notHTTP},
		"signed status":      {sends("HTTP/1.1 +20 x\r\n\r\n"), notHTTP},
		"status 099":         {sends("HTTP/1.1 099 x\r\n\r\n"), badStatus},
		"status 1000":        {sends("HTTP/1.1 1000 x\r\n\r\n"), notHTTP},
		"HTTP/0.9":           {sends("HTTP/0.9 200 OK\r\n\r\n"), notHTTP},
		"no end of a cookie": {sends(ok + "A: b\r\nSet-Cookie sid=SECRET" + strings.Repeat("\x01", 60000) + "\r\n"), incomplete},
		"endless headers":    {repeatPiece(ok, "A: b\r\n"), tooLong},
		"endless interim":    {repeatPiece("", "HTTP/1.1 103 Early\r\nA: b\r\n\r\n"), tooLong},
		"reset": {func(conn *tls.Conn) {
			http.ReadRequest(bufio.NewReader(conn))
			conn.NetConn().(*net.TCPConn).SetLinger(0)
			conn.NetConn().Close()
		}, noResponse},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Serve(testName, testAddr, c.peer)
		a, err := fetchRoot(testbed.Soon(t), t, w)
		got := fmt.Sprint(a.Status, " ", map[string][]string(a.Header))
		if err == nil && (a.Method != "HEAD" || a.Peer.String() != testAddr) {
			t.Errorf("%s %s", a.Method, a.Peer)
		}
		if err != nil {
			got = string(fault.From(err).Code) + ": " + fault.From(err).Public()
			// Errors are logged, so they must be short and contain no cookie and no text from
			// the peer.
			if text := err.Error(); len(text) > 1024 || strings.Contains(text, "SECRET") || strings.Contains(text, testName) {
				t.Errorf("%d bytes of error, %.200q", len(text), text)
			}
		}
		if got != c.want {
			t.Errorf("got %.200q, want %.200q", got, c.want)
		}
		dials := 1
		if err != nil {
			dials = 2 // one for HEAD and one for GET, and no further attempts
		}
		if d := w.Dials(); len(d) != dials {
			t.Errorf("dialled %v, want %d", d, dials)
		}
	})
}

// refuseAbove returns a change of a tls.Config that makes a server refuse every hello that
// offers a version of TLS above highest.
func refuseAbove(highest uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.SupportedVersions[0] > highest {
				return nil, errors.New("no")
			}
			return nil, nil
		}
	}
}

// acceptCurve returns a change of a tls.Config that makes a server accept only one kind of key
// exchange.
func acceptCurve(id tls.CurveID) func(*tls.Config) {
	return func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{id} }
}

// filterALPN returns a change of a tls.Config that makes a server refuse hellos by their ALPN.
// If wanted is true, the server accepts only hellos whose ALPN is exactly http/1.1. If wanted
// is false, the server refuses exactly these hellos.
func filterALPN(wanted bool) func(*tls.Config) {
	return func(c *tls.Config) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Equal(h.SupportedProtos, []string{"http/1.1"}) != wanted {
				return nil, errors.New("no")
			}
			return nil, nil
		}
	}
}

// TestHandshakes checks handshakes with various hosts. Old and new versions of TLS, and hosts
// that fail on a TLS 1.3 hello, must lead to an answer. Bytes that are not a handshake must
// lead to an error. The request must contain nothing that tells clients apart.
func TestHandshakes(t *testing.T) {
	version := func(v uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion = v, v }
	}
	requireClientCert := func(version uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, version }
	}
	const narrow = " What was offered to the host may have been too narrow."
	type row struct {
		configure  func(*tls.Config) // nil for a server that makes no handshake and only sends some bytes
		plainBytes string
		want       string // the end of the error message; empty if an answer is expected
		dials      int
	}
	testbed.Each(t, map[string]row{
		"TLS 1.0":                       {version(tls.VersionTLS10), "", "", 1},
		"TLS 1.3":                       {version(tls.VersionTLS13), "", "", 1},
		"chokes on TLS 1.3":             {refuseAbove(tls.VersionTLS12), "", "", 3},
		"hybrid key exchange alone":     {acceptCurve(tls.X25519MLKEM768), "", "", 1},
		"the other hybrid alone":        {acceptCurve(tls.SecP256r1MLKEM768), "", "", 1},
		"wants ALPN":                    {filterALPN(true), "", "", 1},
		"refuses ALPN":                  {filterALPN(false), "", "", 2},
		"plain HTTP":                    {nil, "HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS on port 443.", 1},
		"closed":                        {nil, "", "The TLS handshake failed." + narrow, 3},
		"alert":                         {refuseAbove(0), "", "refused it." + narrow, 3},
		"client certificate in TLS 1.2": {requireClientCert(tls.VersionTLS12), "", "refused it.", 1},
		"client certificate in TLS 1.3": {requireClientCert(tls.VersionTLS13), "", "refused it.", 1},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Accept(testName, testAddr, func(conn net.Conn) {
			if c.configure == nil {
				io.WriteString(conn, c.plainBytes)
				return
			}
			cfg := w.TLS()
			c.configure(cfg)
			answerRequest(t, tls.Server(conn, cfg))
			io.Copy(io.Discard, conn)
		})
		a, err := fetchRoot(testbed.Soon(t), t, w)
		if f := fault.From(err); c.want != "" && (f.Code != lookup.HandshakeFailed || !strings.HasSuffix(f.Public(), c.want)) {
			t.Errorf("%v, want handshake_failed with %q", err, c.want)
		}
		if d := w.Dials(); len(d) != c.dials {
			t.Errorf("dialled %v, want %d", d, c.dials)
		}
		if c.want == "" && (err != nil || a.Status != 200) {
			t.Errorf("%d, %v", a.Status, err)
		}
	})
}

// answerRequest completes the handshake if the client asks for the host a.test.com, and
// answers the request.
func answerRequest(t *testing.T, secure *tls.Conn) {
	t.Helper()
	const request = "HEAD / HTTP/1.1\r\nHost: a.test.com\r\nUser-Agent: hostfacts (test)\r\nAccept: */*\r\n\r\n"
	if secure.Handshake() != nil || secure.ConnectionState().ServerName != testName {
		return
	}
	got := make([]byte, len(request))
	if _, err := io.ReadFull(secure, got); err == nil && string(got) != request {
		t.Errorf("request %q, want %q", got, request)
	}
	io.WriteString(secure, "HTTP/1.1 200 OK\r\n\r\n")
}

// TestTimeouts checks peers that stop during the handshake or within the head. When the peer
// has stopped, either the time expires or the caller cancels, and the lookup ends. Only
// expired time may count as the silence of the peer.
func TestTimeouts(t *testing.T) {
	heads := map[string]string{
		"handshake": "-", "request": "", "status": "H", "header": "HTTP/1.1 200 OK\r\nServer: a",
		"interim": "HTTP/1.1 100 Continue\r\n\r\n", "second handshake": "--",
		"second request": "HTTP/1.1 405 No\r\n\r\n", "third handshake": "---",
	}
	testbed.Each(t, heads, func(t *testing.T, head string) {
		wantTimeout(t, head, true)
		wantTimeout(t, head, false)
	})
}

// wantTimeout checks the error when an origin sends the text in head and stops. If head
// consists of dashes, the origin sends nothing and stops during a handshake: the first for one
// dash, the second for two, and so on. Then the time expires if timeExpires is true; otherwise
// the caller cancels.
func wantTimeout(t *testing.T, head string, timeExpires bool) {
	t.Helper()
	w := testbed.NewOrigins(t)
	ctx, cancel := context.WithCancel(t.Context())
	if timeExpires {
		ctx, cancel = testbed.Expiring(t.Context())
	}
	defer cancel()
	stop := func(conn net.Conn) {
		cancel()
		io.Copy(io.Discard, conn)
	}
	w.Serve(testName, testAddr, func(conn *tls.Conn) {
		http.ReadRequest(bufio.NewReader(conn))
		io.WriteString(conn, head)
		if strings.Contains(head, "405") {
			http.ReadRequest(bufio.NewReader(conn)) // the GET, on the same connection
		}
		stop(conn)
	})
	if strings.HasPrefix(head, "-") {
		var n atomic.Int32
		w.Accept(testName, testAddr, func(conn net.Conn) {
			conn.Read(make([]byte, 1))
			if int(n.Add(1)) == len(head) { // earlier connections are closed at once
				stop(conn)
			}
		})
	}
	_, err := fetchRoot(ctx, t, w)
	if code := fault.From(origin.Fault(ctx, err, lookup.HeadersTimeout)).Code; code != lookup.HeadersTimeout || errors.Is(err, origin.ErrSilence) != timeExpires {
		t.Errorf("%v, want a time-out, and silence %v", err, timeExpires)
	}
}
