package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, "moved")
	}
}

// TestPolicies: where redirects of RDAP servers and of the bootstrap URL may lead,
// from one URL to the next.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to     string
		follow, stay bool
	}{
		{"https://a.com/x", "https://b.com/", true, false},
		{"https://a.com/x", "https://a.com/y", true, true},
		{"https://a.com/x", "https://A.com:443/y", true, true},
		{"https://a.com/x", "http://a.com/", false, false},
		{"https://a.com/x", "https://a.com:80/", true, false}, // where nobody is
		{"https://a.com/x", "https://a.com:6379/", false, false},
		{"https://a.com:6379/x", "https://a.com:6379/", true, true},
		{"https://a.com:6379/x", "https://a.com/", true, true},
		{"https://a.com/x", "https://u:p@a.com/", false, false},
		{"https://a.com/x", "https://a.com:99999/", false, false},
		{"https://a.com/x", "file:///etc/passwd", false, false},
		{"https://127.0.0.1:8443/x", "https://127.0.0.2:8443/y", true, false},
		{"http://a.com/x", "http://a.com/", true, false},
		{"http://a.com/x", "https://a.com/", true, true},
		{"http://a.com/x", "http://a.com:11211/", false, false},
		{"http://a.com/x", "https://a.com:6379/", false, false},
	} {
		via := []*http.Request{{URL: must(url.Parse(c.from))}}
		next := &http.Request{URL: must(url.Parse(c.to))}
		if err := follow(next, via); (err == nil) != c.follow {
			t.Errorf("a registry may lead from %s to %s: %v", c.from, c.to, err)
		}
		if err := stay(next, via); (err == nil) != c.stay {
			t.Errorf("the bootstrap URL may lead from %s to %s: %v", c.from, c.to, err)
		}
		for _, policy := range []func(*http.Request, []*http.Request) error{follow, stay} {
			if policy(via[0], []*http.Request{via[0], via[0], via[0], via[0]}) == nil {
				t.Errorf("a fourth redirect to %s is followed", c.from)
			}
		}
	}
	back := []*http.Request{{URL: must(url.Parse("http://a.com/"))}, {URL: must(url.Parse("https://a.com/"))}}
	if follow(back[0], back) == nil {
		t.Error("a registry may lead from http over https to http")
	}
}

// TestRedirects follows them: each host that one names is resolved and checked like
// the first.
func TestRedirects(t *testing.T) {
	testbed.Each(t, map[string]struct {
		to   string
		code fault.Code
	}{
		"to another host":        {"https://end.registry.com/x", ""},
		"relative":               {"/end", ""},
		"two":                    {"https://two.registry.com/", ""},
		"a loop":                 {"https://rdap.registry.com/v1/domain/example.com", fault.RDAPUpstream},
		"to a 404":               {"https://gone.registry.com/", fault.NotFound},
		"to a private address":   {"https://blocked.registry.com/", fault.RDAPUpstream},
		"to an IP address":       {"https://127.0.0.1/", fault.RDAPUpstream},
		"to http":                {"http://end.registry.com/", fault.RDAPUpstream},
		"to localhost":           {"https://localhost/", fault.RDAPUpstream},
		"without a host":         {"https:///x", fault.RDAPUpstream},
		"not a URL, long":        {"http://[sid=SECRET" + strings.Repeat("x", 62000), fault.RDAPUpstream},
		"long":                   {"https://nobody.registry.com/sid=SECRET" + strings.Repeat("%80", 20000), fault.RDAPUpstream},
		"names what was asked":   {"https://nobody.registry.com/domain/example.com", fault.RDAPUpstream},
		"to a wrong certificate": {"https://alias.registry.com/", fault.RDAPUpstream},
	}, func(t *testing.T, c struct {
		to   string
		code fault.Code
	}) {
		s := newStage(t)
		end := s.https("end.registry.com", says(domain()))
		s.http("end.registry.com", says(domain()))
		s.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/end" {
				says(domain())(w, r)
				return
			}
			redirect(c.to)(w, r)
		})
		s.https("gone.registry.com", status(404, ""))
		s.https("two.registry.com", redirect("https://end.registry.com/"))
		for _, at := range []string{"alias.registry.com:443", "localhost:443", "127.0.0.1:443"} {
			s.place(at, end)
		}
		s.fails["resolve blocked.registry.com"] = fault.New(fault.BlockedAddress, errors.New("10.0.0.1"))
		got, err := s.lookup("example.com")
		for _, host := range s.asked {
			if !strings.HasSuffix(host, ".registry.com") {
				t.Errorf("%s was resolved", host)
			}
		}
		if c.code != "" {
			wantCode(t, err, c.code)
			tellsNothing(t, err)
			return
		}
		if err != nil || got.RDAPServer != oldServer {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// tellsNothing holds an error, which is logged, to a line's length, and to
// neither a cookie nor the name that was asked about.
func tellsNothing(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if text := err.Error(); len(text) > 1024 || strings.Contains(text, "SECRET") || strings.Contains(text, "example.com") {
		t.Errorf("%d bytes of error, %.200q", len(text), text)
	}
}

// TestUnreachable: a registry that cannot be reached, over https or, where the file
// names nothing else, http.
func TestUnreachable(t *testing.T) {
	const resolve, dial = "resolve rdap.registry.com", "dial rdap.registry.com"
	fails := func(where string, err error) func(*stage) {
		return func(s *stage) { s.fails[where] = err }
	}
	at := func(l func(*stage) net.Listener) func(*stage) {
		return func(s *stage) { s.place("rdap.registry.com:443", l(s)) }
	}
	type row struct {
		set     func(*stage)
		code    fault.Code
		message string
	}
	testbed.Each(t, map[string]row{
		"not public":          {fails(resolve, fault.New(fault.BlockedAddress, nil)), fault.RDAPUpstream, "public"},
		"not public, dialled": {fails(dial, fault.New(fault.BlockedAddress, nil)), fault.RDAPUpstream, "public"},
		"no such host":        {fails(resolve, fault.New(fault.NXDomain, nil)), fault.RDAPUpstream, "reached"},
		"no connection":       {fails(dial, fault.New(fault.ConnectFailed, nil)), fault.RDAPUpstream, "reached"},
		"resolvers down":      {fails(resolve, fmt.Errorf("x: %w", guard.ErrResolvers)), fault.WhoisTimeout, ""},
		"no route":            {fails(dial, fmt.Errorf("x: %w", guard.ErrNoRoute)), fault.WhoisTimeout, ""},
		"another error":       {fails(dial, errors.New("x")), fault.RDAPUpstream, ""},
		"not TLS":             {at(func(s *stage) net.Listener { return s.http("rdap.registry.com", says(domain())) }), fault.RDAPUpstream, ""},
		"another's certificate": {at(func(s *stage) net.Listener { return s.https("other.registry.com", says(domain())) }),
			fault.RDAPUpstream, ""},
		"unknown authority": {at(func(s *stage) net.Listener { return newStage(s.t).https("rdap.registry.com", says(domain())) }),
			fault.RDAPUpstream, ""},
		"hangs up in the handshake": {func(s *stage) { s.tcp(func(net.Conn) {}) }, fault.RDAPUpstream, ""},
	}, func(t *testing.T, c row) {
		s := newStage(t)
		c.set(s)
		_, err := s.lookup("example.com")
		wantCode(t, err, c.code)
		if m := fault.From(err).Public(); !strings.Contains(m, c.message) {
			t.Errorf("message %q", m)
		}
	})
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

// TestPeers are servers that write to the connection themselves. How a head and its
// body are framed is tested in the package that reads them.
func TestPeers(t *testing.T) {
	good := domain()
	const ok, gzipped = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
	testbed.Each(t, map[string]struct {
		write string
		ok    bool
	}{
		"honest":                  {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good), good), true},
		"length too large":        {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good)+1, good), false},
		"early hints":             {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5) + ok + good, true},
		"early hints for ever":    {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 6) + ok + good, false},
		"switching protocols":     {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + good, false},
		"gzip unasked":            {gzipped + zipped(good), true},
		"gzip bomb":               {gzipped + zipped(`{"x":"`+strings.Repeat("x", 50<<20)+`"}`), false},
		"not gzip":                {gzipped + good, false},
		"unknown encoding":        {"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\n" + good, false},
		"gzip of nothing, often":  {gzipped + strings.Repeat(zipped(""), 1<<17) + zipped(good), false},
		"a little too long":       {ok + good + strings.Repeat(" ", 1<<20+1-len(good)), false},
		"long but allowed":        {ok + good + strings.Repeat(" ", 1<<20-len(good)), true},
		"chunked for ever":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 1<<20), false},
		"too many headers":        {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Y: zzzzzzzzzzzzzzzz\r\n", 1<<13) + "\r\n" + good, false},
		"nothing":                 {"", false},
		"cookie without a colon":  {"HTTP/1.1 200 OK\r\nA: b\r\nSet-Cookie sid=SECRET\r\n\r\n", false},
		"long transfer encoding":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: sid=SECRET" + strings.Repeat("\x80", 60000) + "\r\n\r\n", false},
		"error with endless body": {"HTTP/1.1 500 X\r\n\r\n" + strings.Repeat("x", 4<<20), false},
	}, func(t *testing.T, c struct {
		write string
		ok    bool
	}) {
		s := newStage(t)
		s.raw(func(conn net.Conn) { io.WriteString(conn, c.write) })
		got, err := s.lookup("example.com")
		if c.ok && (err != nil || got.Domain != "example.com") {
			t.Errorf("got %+v, %v", got, err)
		}
		if !c.ok {
			wantCode(t, err, fault.RDAPUpstream)
			tellsNothing(t, err)
		}
	})
}

// drip writes a byte at a time until the client hangs up.
func drip(start string) func(net.Conn) {
	return func(c net.Conn) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for _, err := io.WriteString(c, start); err == nil; _, err = c.Write([]byte(" ")) {
			<-tick.C
		}
	}
}

func TestSlowPeers(t *testing.T) {
	testbed.Each(t, map[string]func(*stage){
		"silent after the handshake": func(s *stage) { s.raw(silence) },
		"silent in the handshake":    func(s *stage) { s.tcp(silence) },
		"drips headers":              func(s *stage) { s.raw(drip("HTTP/1.1 200 OK\r\nX: ")) },
		"drips a body":               func(s *stage) { s.raw(drip("HTTP/1.1 200 OK\r\n\r\n")) },
		"slow after a redirect": func(s *stage) {
			s.tcp(silence)
			s.set(func() { s.hosts["slow.registry.com:443"] = s.hosts["rdap.registry.com:443"] })
			s.https("rdap.registry.com", redirect("https://slow.registry.com/"))
		},
	}, func(t *testing.T, set func(*stage)) {
		s := newStage(t)
		set(s)
		_, err := s.lookup("example.io") // loads the bootstrap file
		wantCode(t, err, fault.RDAPUnavailable)
		for _, cancelled := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if cancelled {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			_, err := s.Lookup(ctx, Query{Domain: "example.com"})
			cancel()
			wantCode(t, err, fault.WhoisTimeout)
		}
	})
}

// The body of an answer that is used for its status alone is not waited for.
func TestStatusWithoutBody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.raw(drip("HTTP/1.1 404 Not Found\r\n\r\n"))
	_, err := s.lookup("example.com")
	wantCode(t, err, fault.NotFound)
	s.raw(drip("HTTP/1.1 302 Found\r\nLocation: https://new.registry.com/\r\n\r\n"))
	if _, err := s.lookup("example.com"); err != nil {
		t.Error(err)
	}
}
