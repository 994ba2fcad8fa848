package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/hostintel"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/uptime"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// outcome is how a child of a bundle ends.
type outcome int

const (
	answered  outcome = iota // with a result
	targets                  // with a fact about the target
	ours                     // with a failure of ours
	prevented                // untried, because of an earlier failure of ours
	outcomes
)

func (o outcome) String() string { return [...]string{"ok", "target's", "owed", "prevented"}[o] }

// err is the error of a child.
func (o outcome) err() error {
	switch o {
	case targets:
		return fault.New(fault.NXDomain, nil)
	case ours:
		return fault.New(fault.UpstreamUnavailable, nil)
	case prevented:
		return fault.New(fault.UpstreamUnavailable, nil).Prevented()
	}
	return nil
}

// ending is a lookup that ends so.
type ending[Q, R any] outcome

func (e ending[Q, R]) Lookup(context.Context, Q) (r R, err error) { return r, outcome(e).err() }

// site is the host of an uptime check.
type site struct{ ssl, headers outcome }

func (site) Resolve(context.Context, string) (guard.Target, error) { return guard.Target{}, nil }

func (site) Dial(context.Context, guard.Target, uint16) (net.Conn, netip.Addr, error) {
	return nil, netip.Addr{}, fault.New(fault.ConnectFailed, nil)
}

func (s site) Inspect(context.Context, ssl.Query, guard.Target) (ssl.Result, *tls.Conn, error) {
	return ssl.Result{}, nil, s.ssl.err()
}

func (s site) LookupOn(context.Context, headers.Query, guard.Target, *tls.Conn, netip.Addr) (headers.Result, error) {
	return headers.Result{}, s.headers.err()
}

// children are three fields of a bundle and how each ends.
type children struct {
	fields [3]string
	ends   [3]outcome
}

// everyCombination calls do with every way in which three children can end.
func everyCombination(fields [3]string, do func(children)) {
	for a := range outcomes {
		for b := range outcomes {
			for c := range outcomes {
				do(children{fields, [3]outcome{a, b, c}})
			}
		}
	}
}

// checkReply compares what the Gate is told with how the children ended, and
// says which fields the body shows as failed.
func (c children) checkReply(t *testing.T, got x402.Reply, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%v: %v", c.ends, err)
		return
	}
	var failed, owed []string
	for i, end := range c.ends {
		if end != answered {
			failed = append(failed, c.fields[i])
		}
		if end == ours || end == prevented {
			owed = append(owed, c.fields[i])
		}
	}
	none := len(owed) > 0 && !slices.Contains(c.ends[:], ours)
	if !slices.Equal(got.Owed, owed) || got.Prevented != none {
		t.Errorf("%v: owed %q, prevented %v; want %q, %v", c.ends, got.Owed, got.Prevented, owed, none)
	}
	if in := failedIn(t, got.Body, c.fields); !slices.Equal(in, failed) {
		t.Errorf("%v: the body shows %q as failed, want %q: %s", c.ends, in, failed, got.Body)
	}
}

// failedIn are those fields of a bundle's body whose value is the error object
// of spec §2.8 and nothing else.
func failedIn(t *testing.T, body []byte, fields [3]string) []string {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(body, &parts); err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, name := range fields {
		var value struct {
			Error map[string]string `json:"error"`
		}
		if err := json.Unmarshal(parts[name], &value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if value.Error == nil {
			continue
		}
		failed = append(failed, name)
		if len(value.Error) != 2 || value.Error["code"] == "" || value.Error["message"] == "" {
			t.Errorf("%s: %s", name, parts[name])
		}
	}
	return failed
}

// replyOf runs the job of an operation as the Gate does.
func replyOf(t *testing.T, op Operation) (x402.Reply, error) {
	t.Helper()
	j, err := op.job("domain=example.com")
	if err != nil {
		t.Fatal(err)
	}
	return j.Run(t.Context())
}

func TestUptimeCheckOwes(t *testing.T) {
	everyCombination([3]string{"dns", "ssl", "headers"}, func(c children) {
		d, s, h := c.ends[0], c.ends[1], c.ends[2]
		got, err := replyOf(t, UptimeCheck(uptime.New(
			site{}, ending[dns.Query, dns.Result](d), site{ssl: s}, site{headers: h},
		)))
		if s != answered {
			c.ends[2] = s // the headers are not asked for without a connection
		}
		c.checkReply(t, got, err)
	})
}

// iana is a bootstrap server that fails a number of times, and counts how often
// it was asked. Beside it is the registry that its file names for the TLD com,
// which knows no domain but example.com.
type iana struct {
	fails  int32
	asked  atomic.Int32
	server *httptest.Server
}

func newIANA(t *testing.T, fails int32, known bool) *iana {
	t.Helper()
	i := &iana{fails: fails}
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/domain/"):
			if !known {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, `{"objectClassName":"domain","ldhName":"example.com"}`)
		case i.asked.Add(1) <= i.fails:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, port, _ := strings.Cut(i.server.Listener.Addr().String(), ":")
			fmt.Fprintf(w, `{"version":"1.0","services":[[["com"],["http://rdap.example.net:%s/"]]]}`, port)
		}
	}))
	t.Cleanup(i.server.Close)
	return i
}

// whois is the client of production, by a clock that stands still where it is.
func (i *iana) whois(now func() time.Time) *registry.Client {
	return registry.New(registry.Config{Connector: loopback{}, BootstrapURL: i.server.URL, Now: now})
}

// loopback reaches every host on this machine.
type loopback struct{}

func (loopback) Resolve(_ context.Context, name string) (guard.Target, error) {
	return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, nil
}

func (loopback) Dial(ctx context.Context, t guard.Target, port uint16) (net.Conn, netip.Addr, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return conn, t.Addrs[0], err
}

// withWhois is a registry's client whose next lookup ends so, and its server.
func withWhois(t *testing.T, end outcome) (*registry.Client, *iana) {
	t.Helper()
	var fails int32
	if end == ours || end == prevented {
		fails = 1
	}
	i := newIANA(t, fails, end != targets)
	begun := time.Now()
	client := i.whois(func() time.Time { return begun })
	if end == prevented {
		if _, err := client.Lookup(t.Context(), whois.Query{Domain: "example.com"}); fault.From(err).Code != fault.BootstrapUnavailable {
			t.Fatalf("the lookup before: %v", err)
		}
	}
	return client, i
}

// The registry's client is the one of production: a download of the bootstrap
// file that failed prevents the next one.
func TestHostIntelOwes(t *testing.T) {
	everyCombination([3]string{"dns", "ssl", "whois"}, func(c children) {
		client, bootstrap := withWhois(t, c.ends[2])
		got, err := replyOf(t, HostIntel(hostintel.New(
			ending[dns.Query, dns.Result](c.ends[0]), ending[ssl.Query, ssl.Result](c.ends[1]), client,
		)))
		c.checkReply(t, got, err)
		if n := bootstrap.asked.Load(); n != 1 {
			t.Errorf("%v: the bootstrap server was asked %d times", c.ends, n)
		}
	})
}

// One failure, the pause after it, and the download that follows: the lookup of
// the pause alone says that it was prevented.
func TestWhoisPrevented(t *testing.T) {
	i := newIANA(t, 1, true)
	now := time.Now()
	client := i.whois(func() time.Time { return now })
	for _, c := range []struct {
		name      string
		wait      time.Duration
		failed    bool
		prevented bool
		asked     int32 // of the bootstrap server, in all so far
	}{
		{name: "the download that fails", failed: true, asked: 1},
		{name: "the pause", failed: true, prevented: true, asked: 1},
		{name: "the end of the pause", wait: 2*time.Second - time.Nanosecond, failed: true, prevented: true, asked: 1},
		{name: "after the pause", wait: time.Nanosecond, asked: 2},
	} {
		now = now.Add(c.wait)
		_, err := replyOf(t, Whois(client))
		if got := err != nil; got != c.failed {
			t.Errorf("%s: %v", c.name, err)
		}
		if f := fault.From(err); c.failed && (f.Code != fault.BootstrapUnavailable || f.IsPrevented() != c.prevented) {
			t.Errorf("%s: %v, prevented %v, want %v", c.name, f, f.IsPrevented(), c.prevented)
		}
		if n := i.asked.Load(); n != c.asked {
			t.Errorf("%s: the bootstrap server was asked %d times, want %d", c.name, n, c.asked)
		}
	}
}

// A bundle that fails as a whole owes all of its answer, and names no part; so
// does a single lookup, whose error alone says whether it was prevented. A code
// that the operation does not list is a bug, and a bug was not prevented.
func TestOwedAsAWhole(t *testing.T) {
	marked := fault.New(fault.DNSTimeout, nil).Prevented()
	for name, c := range map[string]struct {
		op        catalog.Operation
		err       error
		code      fault.Code
		prevented bool
	}{
		"bundle":               {catalog.HostIntel(), fault.New(fault.HostIntelTimeout, nil), fault.HostIntelTimeout, false},
		"tool":                 {catalog.DNS(), fault.New(fault.DNSTimeout, nil), fault.DNSTimeout, false},
		"tool, prevented":      {catalog.DNS(), fmt.Errorf("lookup: %w", marked), fault.DNSTimeout, true},
		"tool, unlisted":       {catalog.Headers(), marked, fault.InternalError, false},
		"tool, its own bug":    {catalog.DNS(), fault.New(fault.InternalError, marked), fault.InternalError, false},
		"bundle, child's code": {catalog.HostIntel(), marked, fault.InternalError, false},
	} {
		got, err := replyOf(t, Operation{entry: c.op, timeout: fault.InternalError, parse: func(values url.Values) (url.Values, run, error) {
			return values, func(context.Context) (any, error) { return nil, c.err }, nil
		}})
		if f := fault.From(err); f.Code != c.code || f.IsPrevented() != c.prevented {
			t.Errorf("%s: %v, prevented %v; want %s, %v", name, f, f.IsPrevented(), c.code, c.prevented)
		}
		if got.Body != nil || got.Owed != nil || got.Prevented {
			t.Errorf("%s: a reply beside the error: %+v", name, got)
		}
	}
	// A result that is no bundle's owes nothing.
	got, err := replyOf(t, DNS(ending[dns.Query, dns.Result](answered)))
	if err != nil || len(got.Body) == 0 || got.Owed != nil || got.Prevented {
		t.Errorf("%+v, %v", got, err)
	}
}
