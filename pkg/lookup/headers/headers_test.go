package headers_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

const (
	name = "a.test.com"
	addr = "93.184.216.34"
)

var query = headers.Query{Domain: name}

func client(c guard.Connector) *headers.Client {
	return headers.New(origin.New(origin.Config{Connector: c, UserAgent: "hostfacts (test)"}))
}

func nothing(net.Conn) {}

// TestResult holds results to spec §2.4 byte by byte.
func TestResult(t *testing.T) {
	type row struct {
		wire   string
		status int
		set    map[string]string
	}
	testbed.Each(t, map[string]row{
		"nothing sent":                {"", 200, nil},
		"cookies and others stay out": {"Set-Cookie: a=b\r\nConnection: x\r\nETag: y\r\nAge: 1\r\n", 200, nil},
		"letter case":                 {"SERVER: a\r\ncontent-TYPE: text/html\r\n", 200, map[string]string{"server": "a", "content-type": "text/html"}},
		"empty is not null":           {"Server:\r\n", 200, map[string]string{"server": ""}},
		"lists are joined": {"Cache-Control: no-store\r\nCache-Control: private\r\nContent-Security-Policy: a\r\nContent-Security-Policy: b\r\n" +
			"Content-Security-Policy-Report-Only: c\r\nContent-Security-Policy-Report-Only: d\r\nPermissions-Policy: e=()\r\nPermissions-Policy: f=()\r\n" +
			"Referrer-Policy: g\r\nReferrer-Policy: h\r\nWWW-Authenticate: Basic\r\nWWW-Authenticate: Bearer\r\nX-Powered-By: i\r\nX-Powered-By: j\r\n" +
			"X-Frame-Options: DENY\r\nX-Frame-Options: SAMEORIGIN\r\nX-Content-Type-Options: nosniff\r\nX-Content-Type-Options: x\r\n", 401,
			map[string]string{"cache-control": "no-store, private", "content-security-policy": "a, b", "content-security-policy-report-only": "c, d",
				"permissions-policy": "e=(), f=()", "referrer-policy": "g, h", "www-authenticate": "Basic, Bearer", "x-powered-by": "i, j",
				"x-frame-options": "DENY, SAMEORIGIN", "x-content-type-options": "nosniff, x"}},
		"of others the first counts": {"Strict-Transport-Security: max-age=1\r\nStrict-Transport-Security: max-age=2\r\nLocation: /a\r\nLocation: /b\r\n" +
			"Content-Type: a/b\r\nContent-Type: c/d\r\nServer: e\r\nServer: f\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Origin: g\r\n" +
			"Cross-Origin-Opener-Policy: h\r\nCross-Origin-Opener-Policy: i\r\nCross-Origin-Resource-Policy: j\r\nCross-Origin-Resource-Policy: k\r\n", 200,
			map[string]string{"strict-transport-security": "max-age=1", "location": "/a", "content-type": "a/b", "server": "e",
				"access-control-allow-origin": "*", "cross-origin-opener-policy": "h", "cross-origin-resource-policy": "j"}},
		"not UTF-8": {"Server: caf\xe9\r\nX-Powered-By: \xff\r\nX-Powered-By: café\r\n", 500, map[string]string{"server": "café", "x-powered-by": "ÿ, café"}},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Serve(name, addr, testbed.Answers(fmt.Sprintf("HTTP/1.1 %d x\r\n%s\r\n", c.status, c.wire)))
		r, err := client(w.Dialer()).Lookup(testbed.Soon(t), query)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`{"domain":"a.test.com","url":"https://a.test.com/","method":"HEAD","status":%d,"peer_ip":"93.184.216.34",`+
			`"headers":{"access-control-allow-origin":`, c.status); !strings.HasPrefix(string(b), want) {
			t.Errorf("%s does not begin with %s", b, want)
		}
		var got struct{ Headers map[string]*string }
		if err := json.Unmarshal(b, &got); err != nil || len(got.Headers) != 16 {
			t.Errorf("%d headers, %v", len(got.Headers), err)
		}
		set := map[string]string{}
		for k, v := range got.Headers {
			if v != nil {
				set[k] = *v
			}
		}
		if diff := cmp.Diff(c.set, set, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
}

func TestErrors(t *testing.T) {
	type row struct {
		set  func(*testbed.Origins)
		want fault.Code
	}
	at := func(addrs ...string) func(*testbed.Origins) {
		return func(w *testbed.Origins) { w.Resolve(name, testbed.OriginName{Addrs: addrs}) }
	}
	fails := func(err error) func(*testbed.Origins) {
		return func(w *testbed.Origins) { w.Resolve(name, testbed.OriginName{Err: err}) }
	}
	testbed.Each(t, map[string]row{
		"no such name":    {func(*testbed.Origins) {}, fault.NXDomain},
		"private":         {at("127.0.0.1"), fault.BlockedAddress},
		"resolvers":       {fails(fmt.Errorf("x: %w", guard.ErrResolvers)), fault.HeadersTimeout},
		"handshake":       {func(w *testbed.Origins) { w.Accept(name, addr, nothing) }, fault.HandshakeFailed},
		"no answer":       {func(w *testbed.Origins) { w.Serve(name, addr, testbed.Answers("")) }, fault.HTTPFailed},
		"resolver is bad": {fails(errors.New("a bug")), fault.InternalError},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		c.set(w)
		_, err := client(w.Dialer()).Lookup(testbed.Soon(t), query)
		if got := fault.From(err).Code; got != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	w := testbed.NewOrigins(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.Serve(name, addr, func(conn *tls.Conn) {
		testbed.Answers("HTTP/1.1 200 OK\r\nSer")(conn)
		cancel()
		io.Copy(io.Discard, conn)
	})
	if _, err := client(w.Dialer()).Lookup(ctx, query); fault.From(err).Code != fault.HeadersTimeout {
		t.Errorf("%v, want headers_timeout", err)
	}
}

// TestLookupOn is what uptime-check does: one resolution and one handshake, and
// another where the connection turns out to be dead.
func TestLookupOn(t *testing.T) {
	testbed.Each(t, map[string]int{"it serves": 1, "it is dead": 2}, func(t *testing.T, dials int) {
		w := testbed.NewOrigins(t)
		var n atomic.Int32
		w.Serve(name, addr, func(conn *tls.Conn) {
			if int(n.Add(1)) == dials {
				testbed.Answers("HTTP/1.1 200 OK\r\n\r\n")(conn)
			}
		})
		d, ctx := w.Dialer(), testbed.Soon(t)
		target, err := d.Resolve(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		conn, peer, err := d.Dial(ctx, target, 443)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client(d).LookupOn(ctx, query, target, tls.Client(conn, origin.TLSConfig(name)), peer)
		if err != nil || r.Status != 200 || r.PeerIP != addr || len(w.Dials()) != dials || len(w.Asked()) != 1 {
			t.Errorf("%+v, %v; dialled %v, resolved %v", r, err, w.Dials(), w.Asked())
		}
	})
}

func TestParseQuery(t *testing.T) {
	t.Parallel()
	q, err := headers.ParseQuery(url.Values{"domain": {"Example.COM."}})
	if err != nil || q.Values().Encode() != "domain=example.com" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := headers.ParseQuery(url.Values{"domain": {"_a.b.com"}}); fault.From(err).Code != fault.InvalidDomain {
		t.Errorf("%v, want invalid_domain", err)
	}
}
