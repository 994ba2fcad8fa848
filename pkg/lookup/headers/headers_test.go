package headers_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	testName = "a.test.com"
	testAddr = "93.184.216.34"
)

var testQuery = headers.Query{Domain: testName}

func newClient(c guard.Connector) *headers.Client {
	return headers.New(&origin.Client{Connector: c, UserAgent: "hostfacts (test)"})
}

// TestResult checks that a result has the form of spec §2.4 and the values that the origin
// sent. If a header is sent twice, the result must have both values of a list header, and the
// first value of any other header.
func TestResult(t *testing.T) {
	type row struct {
		wire    string
		status  int
		wantSet map[string]string
	}
	twoOfEach, wantAll := "", map[string]string{}
	for want, names := range map[string]string{
		"a, b": "cache-control content-security-policy content-security-policy-report-only permissions-policy referrer-policy " +
			"www-authenticate x-powered-by x-frame-options x-content-type-options",
		"a": "strict-transport-security location content-type server access-control-allow-origin cross-origin-opener-policy " +
			"cross-origin-resource-policy",
	} {
		for name := range strings.FieldsSeq(names) {
			twoOfEach += name + ": a\r\n" + name + ": b\r\n"
			wantAll[name] = want
		}
	}
	testbed.Each(t, map[string]row{
		"nothing sent":                {"", 200, nil},
		"cookies and others stay out": {"Set-Cookie: a=b\r\nConnection: x\r\nETag: y\r\nAge: 1\r\n", 200, nil},
		"letter case":                 {"SERVER: a\r\ncontent-TYPE: text/html\r\n", 200, map[string]string{"server": "a", "content-type": "text/html"}},
		"empty is not null":           {"Server:\r\n", 200, map[string]string{"server": ""}},
		"each twice":                  {twoOfEach, 401, wantAll},
		"not UTF-8":                   {"Server: caf\xe9\r\nX-Powered-By: \xff\r\nX-Powered-By: café\r\n", 500, map[string]string{"server": "café", "x-powered-by": "ÿ, café"}},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		w.Serve(testName, testAddr, testbed.Answers(fmt.Sprintf("HTTP/1.1 %d x\r\n%s\r\n", c.status, c.wire)))
		r, err := newClient(w.Dialer()).Lookup(testbed.Soon(t), testQuery)
		if err != nil {
			t.Fatal(err)
		}
		b := testbed.Must(json.Marshal(r))
		if want := fmt.Sprintf(`{"domain":"a.test.com","url":"https://a.test.com/","method":"HEAD","status":%d,"peer_ip":"93.184.216.34",`+
			`"headers":{"access-control-allow-origin":`, c.status); !strings.HasPrefix(string(b), want) {
			t.Errorf("%s does not begin with %s", b, want)
		}
		var got struct{ Headers map[string]*string }
		if err := json.Unmarshal(b, &got); err != nil || len(got.Headers) != 16 {
			t.Errorf("%d headers, %v", len(got.Headers), err)
		}
		wantSet := map[string]string{}
		for k, v := range got.Headers {
			if v != nil {
				wantSet[k] = *v
			}
		}
		if diff := cmp.Diff(c.wantSet, wantSet, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
}

// TestLong checks the size limits of a response's headers. All headers together may have up to
// 300 KiB, the limit of curl. The sixteen headers of a result may together have up to 64 KiB.
func TestLong(t *testing.T) {
	cookies := strings.Repeat("Set-Cookie: a="+strings.Repeat("b", 990)+"\r\n", 290)
	policy := func(n int) string { return "Content-Security-Policy: " + strings.Repeat("c", n) + "\r\n" }
	testbed.Each(t, map[string]struct {
		wire string
		code fault.Code
	}{
		"290 KB of cookies":            {cookies, ""},
		"64 KiB of policy":             {policy(64 << 10), ""},
		"more than 64 KiB of policy":   {policy(64<<10 + 1), lookup.HTTPFailed},
		"more than 64 KiB in two":      {policy(32<<10) + policy(32<<10+1), lookup.HTTPFailed},
		"more than 300 KiB of cookies": {cookies + cookies, lookup.HTTPFailed},
	}, func(t *testing.T, c struct {
		wire string
		code fault.Code
	}) {
		w := testbed.NewOrigins(t)
		w.Serve(testName, testAddr, testbed.Answers("HTTP/1.1 200 OK\r\n"+c.wire+"\r\n"))
		r, err := newClient(w.Dialer()).Lookup(testbed.Soon(t), testQuery)
		if testbed.Code(err) != c.code || c.code == "" && r.Status != 200 {
			t.Errorf("%d, %v, want %q", r.Status, err, c.code)
		}
	})
}

// TestLookupOn looks up headers over an existing connection, as the uptime check does. The
// lookup must not resolve the name again. If the connection serves the request, the lookup
// must make no other connection. If the connection turns out to be dead, the lookup must make
// one new connection.
func TestLookupOn(t *testing.T) {
	testbed.Each(t, map[string]int{"it serves": 1, "it is dead": 2}, func(t *testing.T, dials int) {
		w := testbed.NewOrigins(t)
		var n atomic.Int32
		w.Serve(testName, testAddr, func(conn *tls.Conn) {
			if int(n.Add(1)) == dials {
				testbed.Answers("HTTP/1.1 200 OK\r\n\r\n")(conn)
			}
		})
		d, ctx := w.Dialer(), testbed.Soon(t)
		target := testbed.Must(d.Resolve(ctx, testName))
		conn, peer, err := d.Dial(ctx, target, 443)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newClient(d).LookupOn(ctx, testQuery, target, tls.Client(conn, origin.TLSConfig(testName, origin.Modern)), peer)
		if err != nil || r.Status != 200 || r.PeerIP != testAddr || len(w.Dials()) != dials || len(w.Asked()) != 1 {
			t.Errorf("%+v, %v; dialled %v, resolved %v", r, err, w.Dials(), w.Asked())
		}
	})
}
