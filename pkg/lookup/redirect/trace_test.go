package redirect_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	a, aAddr = "a.test.com", "93.184.216.1"
	b, bAddr = "b.test.com", "93.184.216.2"
)

func lookUp(ctx context.Context, w *testbed.Origins) (redirect.Result, error) {
	c := redirect.New(&origin.Client{Connector: w.Dialer(), UserAgent: "hostfacts (test)"})
	return c.Lookup(ctx, redirect.Query{Domain: a})
}

// site serves a host. pages maps a path to an answer: "status location", or only the status.
func site(w *testbed.Origins, name, addr string, pages map[string]string) {
	w.HTTP(name, addr, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		status, location := 404, ""
		fmt.Sscanf(pages[r.URL.RequestURI()], "%d %s", &status, &location)
		if location != "" {
			rw.Header()["Location"] = []string{location}
		}
		rw.Header().Set("Set-Cookie", "a=b")
		rw.WriteHeader(status)
	}))
}

// summarize returns a result in one line: the status and path of each hop, and the stop reason.
func summarize(r redirect.Result) string {
	var out []string
	for i, h := range r.Hops {
		if h.Index != i {
			return fmt.Sprintf("hop %d has index %d", i, h.Index)
		}
		out = append(out, fmt.Sprintf("%d %s", h.Status, strings.TrimPrefix(h.URL, "https://")))
	}
	end := "null"
	if r.StopReason != nil {
		end = string(*r.StopReason)
	}
	if r.Truncated {
		end += " truncated"
	}
	if n := len(r.Hops); r.HopCount != n || r.FinalURL != r.Hops[n-1].URL || r.StartURL != "https://"+a+"/" || r.Domain != a {
		return fmt.Sprintf("%+v", r)
	}
	return strings.Join(out, ", ") + ": " + end
}

func TestTrace(t *testing.T) {
	chain := func(last string) map[string]string {
		return map[string]string{"/": "301 /1", "/1": "302 /2", "/2": "303 /3", "/3": "307 /4", "/4": last}
	}
	const firstFourHops = "301 a.test.com/, 302 a.test.com/1, 303 a.test.com/2, 307 a.test.com/3, "
	type row struct {
		a, b  map[string]string
		want  string
		dials int
	}
	testbed.Each(t, map[string]row{
		"no redirect":        {map[string]string{"/": "200"}, nil, "200 a.test.com/: null", 1},
		"300":                {map[string]string{"/": "300 /x"}, nil, "300 a.test.com/: null", 1},
		"201 has a Location": {map[string]string{"/": "201 /x"}, nil, "201 a.test.com/: null", 1},
		"five hops, the end": {chain("200"), nil, firstFourHops + "200 a.test.com/4: null", 1},
		"five hops, more":    {chain("308 /5"), nil, firstFourHops + "308 a.test.com/4: max_hops truncated", 1},
		"five hops, a loop":  {chain("308 /2"), nil, firstFourHops + "308 a.test.com/4: loop", 1},
		"other host":         {map[string]string{"/": "301 https://b.test.com/x"}, map[string]string{"/x": "200"}, "301 a.test.com/, 200 b.test.com/x: null", 2},
		"there and back": {map[string]string{"/": "301 https://b.test.com/", "/x": "200"}, map[string]string{"/": "302 //a.test.com/x"},
			"301 a.test.com/, 302 b.test.com/, 200 a.test.com/x: null", 2},
		"loop to itself":      {map[string]string{"/": "301 /"}, nil, "301 a.test.com/: loop", 1},
		"loop in other words": {map[string]string{"/": "301 https://A.test.com:443#x"}, nil, "301 a.test.com/: loop", 1},
		"loop over two hosts": {map[string]string{"/": "301 https://b.test.com/"}, map[string]string{"/": "301 https://a.test.com/"},
			"301 a.test.com/, 301 b.test.com/: loop", 2},
		"the query makes a difference":   {map[string]string{"/": "301 /?x", "/?x": "200"}, nil, "301 a.test.com/, 200 a.test.com/?x: null", 1},
		"a host name with an underscore": {map[string]string{"/": "301 https://my_shop.test.com/50%-off"}, nil, "301 a.test.com/, 200 my_shop.test.com/50%-off: null", 2},
		"a backslash is a slash":         {map[string]string{"/": `301 /\b.test.com/x`}, map[string]string{"/x": "200"}, "301 a.test.com/, 200 b.test.com/x: null", 2},
		"nxdomain":                       {map[string]string{"/": "301 https://none.test.com/"}, nil, "301 a.test.com/: nxdomain", 1},
		"blocked_address":                {map[string]string{"/": "301 https://private.test.com/"}, nil, "301 a.test.com/: blocked_address", 1},
		"connect_failed":                 {map[string]string{"/": "301 https://dead.test.com/"}, nil, "301 a.test.com/: connect_failed", 2},
		"handshake_failed":               {map[string]string{"/": "301 https://plain.test.com/"}, nil, "301 a.test.com/: handshake_failed", 2},
		"http_failed":                    {map[string]string{"/": "301 https://garbage.test.com/"}, nil, "301 a.test.com/: http_failed", 3},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		site(w, a, aAddr, c.a)
		site(w, b, bAddr, c.b)
		w.Serve("my_shop.test.com", "93.184.216.12", func(conn *tls.Conn) { // a server of net/http would refuse the path
			if line, _ := bufio.NewReader(conn).ReadString('\n'); line == "HEAD /50%-off HTTP/1.1\r\n" {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			}
		})
		w.Resolve("private.test.com", testbed.OriginName{Addrs: []string{"10.0.0.1"}})
		w.Resolve("dead.test.com", testbed.OriginName{Addrs: []string{"93.184.216.9"}})
		w.Accept("plain.test.com", "93.184.216.10", func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 400 x\r\n\r\n"); io.Copy(io.Discard, conn) })
		w.Serve("garbage.test.com", "93.184.216.11", testbed.Answers("?\r\n\r\n"))
		r, err := lookUp(testbed.Soon(t), w)
		if err != nil {
			t.Fatal(err)
		}
		if got := summarize(r); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if n := len(w.Dials()); n != c.dials {
			t.Errorf("%d connections, want %d: one per host, and another for GET where HEAD fails", n, c.dials)
		}
		asked := w.Asked()
		if slices.Sort(asked); len(slices.Compact(slices.Clone(asked))) != len(asked) {
			t.Errorf("resolved %v: each host once", asked)
		}
	})
}

// TestJSON checks every byte of a result in JSON, whose form is from the product's
// specification (§2.5). The trace has a HEAD that is replaced by GET, a Location that is not
// UTF-8, and a Location in an answer that does not redirect.
func TestJSON(t *testing.T) {
	t.Parallel()
	w := testbed.NewOrigins(t)
	w.Serve(a, aAddr, testbed.Answers("HTTP/1.1 405 x\r\n\r\n", "HTTP/1.1 302 x\r\nLocation: /caf\xe9#y\r\nLocation: /z\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 201 x\r\nLocation: http://x\r\n\r\n"))
	r, err := lookUp(testbed.Soon(t), w)
	if err != nil {
		t.Fatal(err)
	}
	got := testbed.Must(json.Marshal(r))
	want := `{"domain":"a.test.com","start_url":"https://a.test.com/","final_url":"https://a.test.com/caf%E9","hop_count":2,` +
		`"truncated":false,"stop_reason":null,"hops":[` +
		`{"index":0,"url":"https://a.test.com/","method":"GET","status":302,"peer_ip":"93.184.216.1","location":"/café#y"},` +
		`{"index":1,"url":"https://a.test.com/caf%E9","method":"HEAD","status":201,"peer_ip":"93.184.216.1","location":"http://x"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if n := len(w.Dials()); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

// TestErrors checks the failures of a later hop that are not stop reasons. If the resolvers of
// the service fail, or the time ends, the call must return an error.
func TestErrors(t *testing.T) {
	type row struct {
		prepare func(w *testbed.Origins, expire func())
		want    fault.Code
		silence bool
	}
	resolveTo := func(err error) func(*testbed.Origins, func()) {
		return func(w *testbed.Origins, _ func()) { w.Resolve(b, testbed.OriginName{Err: err}) }
	}
	testbed.Each(t, map[string]row{
		"resolvers":    {resolveTo(fmt.Errorf("x: %w", guard.ErrResolvers)), lookup.RedirectTimeout, false},
		"unresolvable": {resolveTo(fmt.Errorf("x: %w", guard.ErrUnresolvable)), lookup.RedirectTimeout, true},
		"a bug":        {resolveTo(errors.New("a bug")), fault.InternalError, false},
		"too late": {func(w *testbed.Origins, expire func()) {
			w.Serve(b, bAddr, func(conn *tls.Conn) {
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, "HTTP/1.1 3")
				expire()
				io.Copy(io.Discard, conn)
			})
		}, lookup.RedirectTimeout, true},
	}, func(t *testing.T, c row) {
		w := testbed.NewOrigins(t)
		site(w, a, aAddr, map[string]string{"/": "301 https://b.test.com/"})
		ctx, expire := testbed.Expiring(testbed.Soon(t))
		c.prepare(w, expire)
		_, err := lookUp(ctx, w)
		if f := fault.From(err); err == nil || f.Code != c.want || f.IsSilence() != c.silence {
			t.Errorf("%v, want %s", err, c.want)
		}
	})
}

// TestLittleTimeLeft checks when a time-out is blamed on the earlier hops: only if they left
// the next hop less than a second, and the next hop starts before the deadline. The first hop
// has no earlier hops, so its time-out is never blamed on them.
func TestLittleTimeLeft(t *testing.T) {
	testbed.Each(t, map[string]struct {
		redirects bool
		left      time.Duration
		silence   bool
	}{
		"enough":        {redirects: true, left: time.Minute},
		"hardly any":    {redirects: true, left: 999 * time.Millisecond, silence: true},
		"past":          {redirects: true, left: -time.Second},
		"the first hop": {left: 999 * time.Millisecond},
	}, func(t *testing.T, c struct {
		redirects bool
		left      time.Duration
		silence   bool
	}) {
		w := testbed.NewOrigins(t)
		down := testbed.OriginName{Err: fmt.Errorf("x: %w", guard.ErrResolvers)}
		ctx := &movableDeadline{Context: testbed.Soon(t)}
		ctx.setLeft(time.Minute)
		w.Resolve(b, down)
		if c.redirects {
			w.HTTP(a, aAddr, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				ctx.setLeft(c.left)
				rw.Header().Set("Location", "https://"+b+"/")
				rw.WriteHeader(http.StatusFound)
			}))
		} else {
			w.Resolve(a, down)
			ctx.setLeft(c.left)
		}
		_, err := lookUp(ctx, w)
		if f := fault.From(err); err == nil || f.Code != lookup.RedirectTimeout || f.IsSilence() != c.silence {
			t.Errorf("%v, silence %v; want redirect_timeout, silence %v", err, f.IsSilence(), c.silence)
		}
	})
}

// movableDeadline is a context whose deadline a test can move.
type movableDeadline struct {
	context.Context
	left atomic.Int64
}

func (m *movableDeadline) setLeft(d time.Duration) { m.left.Store(int64(d)) }

func (m *movableDeadline) Deadline() (time.Time, bool) {
	return time.Now().Add(time.Duration(m.left.Load())), true
}
