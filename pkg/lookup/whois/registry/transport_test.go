package registry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, "moved")
	}
}

func TestRedirects(t *testing.T) {
	const blocked = "blocked.registry.com"
	type row struct {
		to   string // empty: no redirect
		code fault.Code
	}
	origintest.Each(t, map[string]row{
		"to another host":        {"https://end.registry.com/x", ""},
		"relative":               {"/end", ""},
		"three":                  {"https://two.registry.com/", ""},
		"four":                   {"https://three.registry.com/", fault.RDAPUpstream},
		"a loop":                 {"https://rdap.registry.com/v1/domain/example.com", fault.RDAPUpstream},
		"to a 404":               {"https://gone.registry.com/", fault.NotFound},
		"to http":                {"http://end.registry.com/", fault.RDAPUpstream},
		"to a private address":   {"https://" + blocked + "/", fault.RDAPUpstream},
		"to an IP address":       {"https://127.0.0.1/", fault.RDAPUpstream},
		"to an IPv6 address":     {"https://[::1]/", fault.RDAPUpstream},
		"to a number":            {"https://2130706433/", fault.RDAPUpstream},
		"to localhost":           {"https://localhost/", fault.RDAPUpstream},
		"to metadata":            {"https://metadata.google.internal/", fault.RDAPUpstream},
		"to nowhere":             {"https://nxdomain.registry.com/", fault.RDAPUpstream},
		"to a closed port":       {"https://end.registry.com:80/", fault.RDAPUpstream},
		"to another port":        {"https://end.registry.com:6379/", fault.RDAPUpstream},
		"with a user":            {"https://u:p@end.registry.com/", fault.RDAPUpstream},
		"to another scheme":      {"file:///etc/passwd", fault.RDAPUpstream},
		"without a host":         {"https:///x", fault.RDAPUpstream},
		"not a URL":              {"https://[/", fault.RDAPUpstream},
		"not a URL, long":        {"http://[" + strings.Repeat("\x7f\x80", 31000) + "sid=SECRET", fault.RDAPUpstream},
		"long":                   {"https://nxdomain.registry.com/sid=SECRET" + strings.Repeat("%80", 20000), fault.RDAPUpstream},
		"names what was asked":   {"https://nxdomain.registry.com/domain/example.com", fault.RDAPUpstream},
		"to a wrong certificate": {"https://alias.registry.com/", fault.RDAPUpstream},

		// The server of .kg, which is listed with http only, is asked over http, and may
		// redirect to http or https, but not back.
		"http, no redirect":     {"", ""},
		"http to http":          {"http://plain.cctld.kg/", ""},
		"http to https":         {"https://secure.cctld.kg/", ""},
		"http to https to http": {"https://back.cctld.kg/", fault.RDAPUpstream},
		"http to a port":        {"http://plain.cctld.kg:11211/", fault.RDAPUpstream},
		"http to https, a port": {"https://secure.cctld.kg:6379/", fault.RDAPUpstream},
	}, func(t *testing.T, c row) {
		n := newNetwork(t)
		asked, answering := "example.com", "https://rdap.registry.com/v1/"
		if c.to == "" || strings.Contains(c.to, ".cctld.kg") {
			asked, answering = "example.kg", "http://rdap.cctld.kg/"
		}
		object := text(domainOf(asked))
		start := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/end" || c.to == "" {
				object(w, r)
				return
			}
			redirect(c.to)(w, r)
		}
		n.http("rdap.cctld.kg", start)
		plain := n.http("plain.cctld.kg", object)
		n.place("end.registry.com:80", plain.Listener)
		n.place("plain.cctld.kg:11211", plain.Listener)
		for name, h := range map[string]http.HandlerFunc{
			"rdap.registry.com": start, "back.cctld.kg": redirect("http://plain.cctld.kg/"),
			"gone.registry.com": status(404, ""), "one.registry.com": redirect("https://end.registry.com/"),
			"two.registry.com": redirect("https://one.registry.com/"), "three.registry.com": redirect("https://two.registry.com/"),
		} {
			n.https(name, h)
		}
		n.place("secure.cctld.kg:6379", n.https("secure.cctld.kg", object).Listener)
		end := n.https("end.registry.com", object)
		for _, at := range []string{"alias.registry.com:443", "end.registry.com:6379", "localhost:443", "127.0.0.1:443"} {
			n.place(at, end.Listener)
		}
		n.resolve[blocked] = fault.New(fault.BlockedAddress, errors.New("10.0.0.1"))
		got, err := lookup(t, client(t, n), asked)
		for _, host := range n.asked {
			if !strings.HasSuffix(host, ".registry.com") && !strings.HasSuffix(host, ".cctld.kg") {
				t.Errorf("%s was resolved", host)
			}
		}
		if c.code != "" {
			wantCode(t, err, c.code)
			tellsNothing(t, err)
			return
		}
		if err != nil || got.RDAPServer != answering {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	type row struct {
		set     func(*network)
		code    fault.Code
		message string
	}
	origintest.Each(t, map[string]row{
		"not public":          {func(n *network) { n.resolve["rdap.registry.com"] = fault.New(fault.BlockedAddress, nil) }, fault.RDAPUpstream, "public"},
		"not public, dialled": {func(n *network) { n.dial["rdap.registry.com"] = fault.New(fault.BlockedAddress, nil) }, fault.RDAPUpstream, "public"},
		"no such host":        {func(*network) {}, fault.RDAPUpstream, "reached"},
		"no connection":       {func(n *network) { n.dial["rdap.registry.com"] = fault.New(fault.ConnectFailed, nil) }, fault.RDAPUpstream, "reached"},
		"resolvers down":      {func(n *network) { n.resolve["rdap.registry.com"] = fmt.Errorf("x: %w", guard.ErrResolvers) }, fault.WhoisTimeout, ""},
		"no route":            {func(n *network) { n.dial["rdap.registry.com"] = fmt.Errorf("x: %w", guard.ErrNoRoute) }, fault.WhoisTimeout, ""},
		"another error":       {func(n *network) { n.dial["rdap.registry.com"] = errors.New("x") }, fault.RDAPUpstream, ""},
		"not TLS": {func(n *network) {
			n.place("rdap.registry.com:443", n.http("rdap.registry.com", text(domain())).Listener)
		}, fault.RDAPUpstream, ""},
		"certificate for another name": {func(n *network) {
			n.place("rdap.registry.com:443", n.https("other.registry.com", text(domain())).Listener)
		}, fault.RDAPUpstream, ""},
		"unknown authority": {func(n *network) {
			n.place("rdap.registry.com:443", newNetwork(n.t).https("rdap.registry.com", text(domain())).Listener)
		}, fault.RDAPUpstream, ""},
		"hangs up in the handshake": {func(n *network) { n.tcp("rdap.registry.com", func(net.Conn) {}) }, fault.RDAPUpstream, ""},
	}, func(t *testing.T, tt row) {
		n := newNetwork(t)
		tt.set(n)
		_, err := lookup(t, client(t, n), "example.com")
		wantCode(t, err, tt.code)
		if m := fault.From(err).Public(); !strings.Contains(m, tt.message) {
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

// TestPeers are servers that write to the connection themselves. None of them
// may hold a call longer than it takes to see through it.
func TestPeers(t *testing.T) {
	good := domain()
	head := "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"
	bomb := zipped(`{"x":"` + strings.Repeat("x", 50<<20) + `"}`)
	type row struct {
		write string
		ok    bool
	}
	origintest.Each(t, map[string]row{
		"honest":                  {fmt.Sprintf(head+"\r\n%s", len(good), good), true},
		"no length, closes":       {"HTTP/1.0 200 OK\r\n\r\n" + good, true},
		"early hints":             {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5) + fmt.Sprintf(head+"\r\n%s", len(good), good), true},
		"early hints for ever":    {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 500), false},
		"switching protocols":     {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + good, false},
		"gzip unasked":            {fmt.Sprintf(head+"Content-Encoding: gzip\r\n\r\n%s", len(zipped(good)), zipped(good)), true},
		"gzip bomb":               {fmt.Sprintf(head+"Content-Encoding: gzip\r\n\r\n%s", len(bomb), bomb), false},
		"not gzip":                {fmt.Sprintf(head+"Content-Encoding: gzip\r\n\r\n%s", len(good), good), false},
		"unknown encoding":        {fmt.Sprintf(head+"Content-Encoding: br\r\n\r\n%s", len(good), good), false},
		"length too large":        {fmt.Sprintf(head+"\r\n%s", len(good)+1, good), false},
		"length too small":        {fmt.Sprintf(head+"\r\n%s", len(good)-1, good), false},
		"negative length":         {fmt.Sprintf(head+"\r\n%s", -1, good), false},
		"two lengths":             {fmt.Sprintf(head+"Content-Length: 3\r\n\r\n%s", len(good), good), false},
		"claims an exabyte":       {fmt.Sprintf(head+"\r\n%s", 1<<60, good), false},
		"too long":                {fmt.Sprintf(head+"\r\n%s", 2<<20, good+strings.Repeat(" ", 2<<20)), false},
		"too long by close":       {"HTTP/1.0 200 OK\r\n\r\n" + good + strings.Repeat(" ", 4<<20), false},
		"long but allowed":        {fmt.Sprintf(head+"\r\n%s", 1<<20, good+strings.Repeat(" ", 1<<20-len(good))), true},
		"chunked":                 {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good), true},
		"chunk cut short":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s", len(good)+9, good), false},
		"chunked for ever":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 1<<20), false},
		"too many headers":        {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Y: zzzzzzzzzzzzzzzz\r\n", 1<<13) + "\r\n" + good, false},
		"many headers":            {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Y: zzzzzzzzzzzzzzzz\r\n", 1<<10) + "\r\n" + good, true},
		"too long a header":       {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("z", 1<<17) + "\r\n\r\n" + good, false},
		"gzip of nothing, often":  {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + strings.Repeat(zipped(""), 1<<17) + zipped(good), false},
		"gzip in some members":    {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + strings.Repeat(zipped(""), 9) + zipped(good), true},
		"status line for ever":    {strings.Repeat("z", 1<<20), false},
		"not HTTP":                {"220 smtp.example.com ESMTP\r\n", false},
		"nothing":                 {"", false},
		"headers and the end":     {"HTTP/1.1 200 OK\r\n\r\n", false},
		"status line of controls": {strings.Repeat("\x01", 64000) + "\r\n\r\n", false},
		"header of controls":      {"HTTP/1.1 200 OK\r\n" + strings.Repeat("\x01", 64000) + "\r\n\r\n", false},
		"cookie without a colon":  {"HTTP/1.1 200 OK\r\nA: b\r\nSet-Cookie sid=SECRET\r\n\r\n", false},
		"long chunk size":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("z", 60000) + "\r\n", false},
		"long transfer encoding":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: sid=SECRET" + strings.Repeat("\x80", 60000) + "\r\n\r\n", false},
		"long length":             {"HTTP/1.1 200 OK\r\nContent-Length: sid=SECRET" + strings.Repeat("\x80", 60000) + "\r\n\r\n", false},
		"status 999":              {"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", false},
		"error with endless body": {"HTTP/1.1 500 X\r\n\r\n" + strings.Repeat("x", 4<<20), false},
	}, func(t *testing.T, tt row) {
		n := newNetwork(t)
		n.raw("rdap.registry.com", func(c net.Conn) { io.WriteString(c, tt.write) })
		got, err := lookup(t, client(t, n), "example.com")
		if tt.ok && (err != nil || got.Domain != "example.com") {
			t.Errorf("got %+v, %v", got, err)
		}
		if !tt.ok {
			wantCode(t, err, fault.RDAPUpstream)
			tellsNothing(t, err)
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

// drip writes a byte at a time until the client hangs up.
func drip(start string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, start); err != nil {
			return
		}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
		}
	}
}

func TestSlowPeers(t *testing.T) {
	origintest.Each(t, map[string]func(*network){
		"silent after the handshake": func(n *network) { n.raw("rdap.registry.com", silence) },
		"silent in the handshake":    func(n *network) { n.tcp("rdap.registry.com", silence) },
		"drips headers":              func(n *network) { n.raw("rdap.registry.com", drip("HTTP/1.1 200 OK\r\nX: ")) },
		"drips a body":               func(n *network) { n.raw("rdap.registry.com", drip("HTTP/1.1 200 OK\r\n\r\n")) },
		"stops in the body": func(n *network) {
			n.raw("rdap.registry.com", func(c net.Conn) {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
				silence(c)
			})
		},
		"slow after a redirect": func(n *network) {
			n.https("rdap.registry.com", redirect("https://slow.registry.com/"))
			n.raw("slow.registry.com", silence)
		},
	}, func(t *testing.T, set func(*network)) {
		n := newNetwork(t)
		set(n)
		c := client(t, n)
		_, err := lookup(t, c, "example.io") // loads the bootstrap file
		wantCode(t, err, fault.RDAPUnavailable)
		for _, cancelled := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if cancelled {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			_, err := c.Lookup(ctx, registry.Query{Domain: "example.com"})
			cancel()
			wantCode(t, err, fault.WhoisTimeout)
		}
	})
}

// The body of an answer that is used for its status alone is not waited for.
func TestStatusWithoutBody(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.raw("rdap.registry.com", drip("HTTP/1.1 404 Not Found\r\n\r\n"))
	_, err := lookup(t, client(t, n), "example.com")
	wantCode(t, err, fault.NotFound)
	n.raw("rdap.registry.com", drip("HTTP/1.1 302 Found\r\nLocation: https://end.registry.com/\r\n\r\n"))
	n.https("end.registry.com", text(domain()))
	if _, err := lookup(t, client(t, n), "example.com"); err != nil {
		t.Error(err)
	}
}

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	seen := make(chan *http.Request, 1)
	protocol := make(chan *tls.ConnectionState, 1)
	n.https("secure.registry.dev", func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		protocol <- r.TLS
		text(domainOf("example.dev"))(w, r)
	})
	if _, err := lookup(t, client(t, n), "www.example.dev"); err != nil {
		t.Fatal(err)
	}
	r, state := <-seen, <-protocol
	if r.URL.Path != "/rdap/domain/example.dev" || r.Host != "secure.registry.dev" || r.Proto != "HTTP/1.1" || r.ContentLength != 0 ||
		!r.Close || r.Header.Get("Cookie") != "" || state.ServerName != "secure.registry.dev" || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("request %+v, TLS %+v", r, state)
	}
}
