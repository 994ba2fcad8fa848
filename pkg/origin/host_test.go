package origin_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// TestConnections puts requests on one Host, until the last status is seen, to an
// origin with answers for each connection. Some take no HEAD, and bytes that belong
// to a body are never taken for the next answer, even if they look like one.
func TestConnections(t *testing.T) {
	const (
		ok    = "HTTP/1.1 200 OK\r\nServer: b\r\nContent-Length: 1000000\r\n\r\n<html>"
		no    = "HTTP/1.1 405 No\r\n\r\n"
		fine  = "HTTP/1.1 200 OK\r\n\r\n"
		last  = "HTTP/1.1 204 x\r\n\r\n"
		decoy = "HTTP/1.1 299 Decoy\r\n\r\n"
	)
	type row struct {
		conns [][]string // the last is that of all further ones
		want  string     // of each request
		dials int
	}
	testbed.Each(t, map[string]row{
		"405":                          {[][]string{{"HTTP/1.1 405 No\r\nContent-Length: 20\r\n\r\n", ok}}, "[GET 200]", 1},
		"501":                          {[][]string{{"HTTP/1.1 501 No\r\n\r\n", ok}}, "[GET 200]", 1},
		"405 twice":                    {[][]string{{no, no}}, "[GET 405]", 1},
		"404 stays":                    {[][]string{{"HTTP/1.1 404 No\r\n\r\n", ok}}, "[HEAD 404]", 1},
		"405 and close":                {[][]string{{"HTTP/1.1 405 No\r\nConnection: Close\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405 in HTTP/1.0":              {[][]string{{"HTTP/1.0 405 No\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405, then gone":               {[][]string{{no}, {ok}}, "[GET 200]", 2},
		"405 with a body":              {[][]string{{no + "<html>no</html>\r\n\r\n", ok}, {ok}}, "[GET 200]", 2},
		"405, GET fails on both lines": {[][]string{{no, "?\r\n\r\n"}, {"?\r\n\r\n"}}, "[http_failed]", 2},

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
		w.Serve(name, addr, func(conn *tls.Conn) {
			testbed.Answers(c.conns[min(int(n.Add(1)), len(c.conns))-1]...)(conn)
		})
		h := host(t.Context(), t, w)
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

func TestFetchRefusesOddPaths(t *testing.T) {
	t.Parallel()
	w := testbed.NewOrigins(t)
	w.Resolve(name, testbed.OriginName{Addrs: []string{addr}})
	h := host(t.Context(), t, w)
	for _, p := range []string{"", "x", "/a b", "/\r\nHost: b", "/\x7f", "/é", "http://b/"} {
		if _, err := h.Fetch(t.Context(), p); err == nil || fault.From(err).Code != fault.InternalError {
			t.Errorf("%q: %v, want an error without a code", p, err)
		}
	}
	if len(w.Dials()) != 0 {
		t.Error("connected")
	}
}

// TestFault: which errors are the tool's time-out. A verdict about the target is not,
// also when the time ends with it.
func TestFault(t *testing.T) {
	t.Parallel()
	other := errors.New("a bug")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want fault.Code
	}{
		{t.Context(), fmt.Errorf("x: %w", origin.ErrTimeout), fault.HeadersTimeout},
		{t.Context(), fmt.Errorf("x: %w", guard.ErrResolvers), fault.HeadersTimeout},
		{t.Context(), fmt.Errorf("x: %w", guard.ErrNoRoute), fault.HeadersTimeout},
		{t.Context(), fault.New(fault.NXDomain, nil), fault.NXDomain},
		{over, fault.New(fault.NXDomain, nil), fault.NXDomain},
		{t.Context(), fault.New(fault.ConnectFailed, context.DeadlineExceeded), fault.ConnectFailed},
		{t.Context(), other, fault.InternalError},
		{over, other, fault.HeadersTimeout},
	} {
		w := testbed.NewOrigins(t)
		w.Resolve(name, testbed.OriginName{Err: c.err})
		_, err := origin.New(origin.Config{Connector: w.Dialer(), UserAgent: "x"}).Resolve(c.ctx, name)
		if got := origin.Fault(err, fault.HeadersTimeout); fault.From(got).Code != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v with %v: %v, want %q", c.err, c.ctx.Err(), got, c.want)
		}
	}
}

// FuzzText: the outcome is UTF-8 and, where it changed anything, gives back
// every byte.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "café €", "caf\xe9", "\xff\x00", "é\xe9", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := origin.Text(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q: %q is not UTF-8", s, got)
		}
		back := s
		if got != s {
			back = ""
			for _, r := range got {
				back += string([]byte{byte(r)})
			}
		}
		if back != s || utf8.ValidString(s) && got != s {
			t.Errorf("%q: %q gives back %q", s, got, back)
		}
	})
}
