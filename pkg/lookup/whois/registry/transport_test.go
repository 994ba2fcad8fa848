package registry

import (
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
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestPolicies: where redirects of RDAP servers and of the bootstrap URL may lead,
// from one URL to the next.
func TestPolicies(t *testing.T) {
	type row struct {
		from, to     string
		follow, stay bool
	}
	rows := map[string]row{}
	for _, r := range []row{
		{"https://a.com/x", "https://A.com:443/y", true, true},
		{"https://a.com/x", "http://a.com/", false, false},
		{"https://a.com/x", "https://a.com:80/", false, false},
		{"https://a.com/x", "https://a.com:6379/", false, false},
		{"https://a.com:6379/x", "https://a.com/", true, true},
		{"https://a.com/x", "https://u:p@a.com/", false, false},
		{"https://a.com/x", "file:///etc/passwd", false, false},
		{"https://127.0.0.1:8443/x", "https://127.0.0.2:8443/y", true, false},
		{"http://a.com/x", "http://a.com:80/", true, false},
		{"http://a.com/x", "https://a.com/", true, true},
		{"http://a.com/x https://a.com/", "http://a.com/", false, false},
		{"https://a.com/1 https://a.com/2 https://a.com/3", "https://a.com/4", true, true},
		{"https://a.com/1 https://a.com/2 https://a.com/3 https://a.com/4", "https://a.com/5", false, false},
	} {
		rows[r.from+" to "+r.to] = r
	}
	testbed.Each(t, rows, func(t *testing.T, r row) {
		var via []*http.Request
		for from := range strings.FieldsSeq(r.from) {
			via = append(via, &http.Request{URL: must(url.Parse(from))})
		}
		next := &http.Request{URL: must(url.Parse(r.to))}
		if f, s := follow(next, via), stay(next, via); (f == nil) != r.follow || (s == nil) != r.stay {
			t.Errorf("a registry may lead there: %v, the bootstrap URL: %v", f, s)
		}
	})
}

// TestRedirects follows them: each host that one names is resolved and checked like
// the first.
func TestRedirects(t *testing.T) {
	type row struct {
		to   string
		code fault.Code
	}
	each(t, map[string]row{
		"to another host":        {"https://end.registry.com/x", ""},
		"relative":               {"/end", ""},
		"a loop":                 {"https://rdap.registry.com/v1/domain/example.com", lookup.RDAPUpstream},
		"to a 404":               {"https://gone.registry.com/", lookup.NotFound},
		"to a private address":   {"https://blocked.registry.com/", lookup.RDAPUpstream},
		"to an IP address":       {"https://127.0.0.1/", lookup.RDAPUpstream},
		"to http":                {"http://end.registry.com/", lookup.RDAPUpstream},
		"not a URL, long":        {"http://[sid=SECRET" + strings.Repeat("x", 62000), lookup.RDAPUpstream},
		"long":                   {"https://nobody.registry.com/sid=SECRET" + strings.Repeat("%80", 20000), lookup.RDAPUpstream},
		"names what was asked":   {"https://nobody.registry.com/domain/example.com", lookup.RDAPUpstream},
		"to a wrong certificate": {"https://a.b.registry.com/", lookup.RDAPUpstream},
	}, func(t *testing.T, s *stage, c row) {
		s.https("rdap.registry.com", func(w io.Writer, r *http.Request) {
			if r.URL.Path == "/end" {
				says(domain())(w, r)
				return
			}
			drip("HTTP/1.1 302 x\r\nLocation: "+c.to+"\r\n\r\n")(w, r) // a body that is not waited for
		})
		for _, name := range []string{"end.registry.com", "a.b.registry.com", "127.0.0.1"} {
			s.https(name, says(domain()))
		}
		s.place("end.registry.com:80", serve(says(domain())))
		s.https("gone.registry.com", status(404, ""))
		s.fails["resolve blocked.registry.com"] = lookup.Fault(lookup.BlockedAddress, errors.New("10.0.0.1"))
		s.wants(c.code, "")
		for _, host := range s.asked {
			if !strings.HasSuffix(host, ".registry.com") {
				t.Errorf("%s was resolved", host)
			}
		}
	})
}

// TestUnreachable: a registry that cannot be reached.
func TestUnreachable(t *testing.T) {
	const at, resolve, dial = "rdap.registry.com:443", "resolve rdap.registry.com", "dial rdap.registry.com"
	fails := func(where string, err error) func(*stage) {
		return func(s *stage) { s.fails[where] = err }
	}
	type row struct {
		set     func(*stage)
		code    fault.Code
		message string
	}
	each(t, map[string]row{
		"not public":          {fails(resolve, lookup.Fault(lookup.BlockedAddress, nil)), lookup.RDAPUpstream, "public"},
		"not public, dialled": {fails(dial, lookup.Fault(lookup.BlockedAddress, nil)), lookup.RDAPUpstream, "public"},
		"no such host":        {fails(resolve, lookup.Fault(lookup.NXDomain, nil)), lookup.RDAPUpstream, "reached"},
		"no connection":       {fails(dial, lookup.Fault(lookup.ConnectFailed, nil)), lookup.RDAPUpstream, "reached"},
		"resolvers down":      {fails(resolve, fmt.Errorf("x: %w", guard.ErrResolvers)), lookup.WhoisTimeout, "could not be resolved"},
		"no route":            {fails(dial, fmt.Errorf("x: %w", guard.ErrNoRoute)), lookup.WhoisTimeout, "no IPv6 route"},
		"another error":       {fails(dial, errors.New("x")), lookup.RDAPUpstream, ""},
		"not TLS":             {func(s *stage) { s.place(at, serve(says(domain()))) }, lookup.RDAPUpstream, ""},
		"unknown authority":   {func(s *stage) { s.place(at, secure(certificate(), says(domain()))) }, lookup.RDAPUpstream, ""},
		"hangs up":            {func(s *stage) { s.place(at, func(net.Conn) {}) }, lookup.RDAPUpstream, ""},
	}, func(_ *testing.T, s *stage, c row) {
		c.set(s)
		s.wants(c.code, c.message)
	})
}

// drip says something, and then a byte at a time until the client hangs up.
func drip(start string) site {
	return func(w io.Writer, _ *http.Request) {
		for _, err := io.WriteString(w, start); err == nil; _, err = io.WriteString(w, " ") {
			time.Sleep(5 * time.Millisecond) // in the bubble
		}
	}
}

func TestSlowPeers(t *testing.T) {
	each(t, map[string]func(*stage) func(net.Conn){
		"silent after the handshake": func(s *stage) func(net.Conn) {
			return secure(s.cert, func(w io.Writer, _ *http.Request) { silence(w.(net.Conn)) })
		},
		"silent in the handshake": func(*stage) func(net.Conn) { return silence },
		"drips headers":           func(s *stage) func(net.Conn) { return secure(s.cert, drip("HTTP/1.1 200 OK\r\nX: ")) },
		"drips a body":            func(s *stage) func(net.Conn) { return secure(s.cert, drip("HTTP/1.1 200 OK\r\n\r\n")) },
		"silent after a redirect": func(s *stage) func(net.Conn) {
			s.place("slow.registry.com:443", silence)
			return secure(s.cert, redirect("https://slow.registry.com/"))
		},
	}, func(t *testing.T, s *stage, peer func(*stage) func(net.Conn)) {
		s.place("rdap.registry.com:443", peer(s))
		s.failsAt(t.Context(), 8*time.Second, lookup.WhoisTimeout) // by itself
		hurried, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s.failsAt(hurried, 2*time.Second, lookup.WhoisTimeout)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		s.failsAt(ctx, 500*time.Millisecond, lookup.WhoisTimeout)
	})
}
