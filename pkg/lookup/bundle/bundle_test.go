package bundle

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

type fact struct {
	N int `json:"n"`
}

// TestChild checks the JSON of a child's result and of a child's error. The JSON of an error
// must follow spec §2.8 and must not reveal a foreign error. It must not say whether the
// result is owed, because only a header of the answer says that.
func TestChild(t *testing.T) {
	gone := lookup.Faultf(lookup.NXDomain, nil, "gone")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"result":    {err: nil, want: `{"n":7}`},
		"fault":     {err: gone, want: `{"error":{"code":"nxdomain","message":"gone"}}`},
		"prevented": {err: fmt.Errorf("x: %w", gone.Prevented()), want: `{"error":{"code":"nxdomain","message":"gone"}}`},
		"foreign":   {err: errors.New("secret"), want: `{"error":{"code":"internal_error",`},
		"panic":     {err: errPanic, want: `{"error":{"code":"internal_error",`},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(lookUpChild(t.Context(), func(_ context.Context, n int) (fact, error) {
				if c.err == errPanic {
					panic("secret")
				}
				return fact{n}, c.err
			}, 7))
			if err != nil || !strings.HasPrefix(string(b), c.want) || strings.Contains(string(b), "secret") {
				t.Errorf("%s: %s, %v", name, b, err)
			}
		})
	}
}

var errPanic = errors.New("panics")

// TestOwed checks the Owed of both bundles for the faults of their three children. Owed must
// list the fields whose faults have the class fault.Owed. Prevented must be true if there are
// such fields and none of their lookups was tried. Silent must be true if the target was
// silent in at least one of these lookups.
func TestOwed(t *testing.T) {
	late := lookup.Fault(lookup.SSLTimeout, nil)
	prevented, gone := lookup.Fault(lookup.BootstrapUnavailable, nil).Prevented(), lookup.Fault(lookup.NXDomain, nil)
	for want, faults := range map[string][3]*fault.Error{ // the key gives the expected fields, Prevented and Silent; the values are the faults of dns, ssl and the third child
		"[] false false":             {},
		"[] false false, answers":    {0: gone, 2: gone.Silence()},
		"[dns ssl last] false false": {late, late, late},
		"[ssl] false false":          {1: fault.New(fault.InternalError, nil)},
		"[dns last] true false":      {prevented, gone, prevented},
		"[dns last] false false":     {0: prevented, 2: late},
		"[ssl] false true":           {0: gone, 1: late.Silence()},
		"[ssl last] false true":      {1: late.Silence(), 2: prevented},
	} {
		t.Run(want, func(t *testing.T) {
			want, _, _ := strings.Cut(want, ",")
			d, s := Child[dns.Result]{Fault: faults[0]}, Child[ssl.Result]{Fault: faults[1]}
			for last, owed := range map[string]Owed{
				"whois":   HostIntelResult{DNS: d, SSL: s, Whois: Child[whois.Result]{Fault: faults[2]}}.Owed(),
				"headers": UptimeResult{DNS: d, SSL: s, Headers: Child[headers.Result]{Fault: faults[2]}}.Owed(),
			} {
				if got := fmt.Sprint(owed.Parts, owed.Prevented(), owed.Silent); got != strings.Replace(want, "last", last, 1) {
					t.Errorf("%s: %s", last, got)
				}
			}
		})
	}
}

// contextWithin returns a context whose deadline is d from now.
func contextWithin(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

type lookupFunc[Q, R any] func(context.Context, Q) (R, error)

func (l lookupFunc[Q, R]) Lookup(ctx context.Context, q Q) (R, error) { return l(ctx, q) }

// lookupTaking returns a lookup that takes d. If the lookup's context ends earlier, the lookup
// fails with ssl_timeout.
func lookupTaking[Q, R any](d time.Duration) lookupFunc[Q, R] {
	return func(ctx context.Context, _ Q) (r R, err error) {
		select {
		case <-time.After(d):
			return r, nil
		case <-ctx.Done():
			return r, lookup.Fault(lookup.SSLTimeout, ctx.Err())
		}
	}
}

// TestSlowChild checks that the children run at the same time. A slow child must time out
// before the bundle runs out of time. Its field then has the failure, and the other children
// must keep their results.
func TestSlowChild(t *testing.T) {
	for name, c := range map[string]struct{ slow, deadline, wantTime time.Duration }{
		"side by side":      {slow: 3 * time.Second, deadline: time.Hour, wantTime: 3 * time.Second},
		"slow":              {slow: time.Hour, deadline: 12 * time.Second, wantTime: 8 * time.Second},
		"slow, little time": {slow: time.Hour, deadline: 3 * time.Second, wantTime: 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := contextWithin(t, c.deadline)
				begun := time.Now()
				d, w := lookupTaking[dns.Query, dns.Result](2*time.Second), lookupTaking[whois.Query, whois.Result](time.Second)
				r, err := HostIntel{d, lookupTaking[ssl.Query, ssl.Result](c.slow), w}.Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
				if err != nil || (r.SSL.Fault != nil) != (c.slow == time.Hour) || r.DNS.Fault != nil || r.Whois.Fault != nil || time.Since(begun) != c.wantTime {
					t.Errorf("%s: %+v, %v after %s", name, r, err, time.Since(begun))
				}
			})
		})
	}
}

// frozenContext is a context whose deadline has passed but that has not ended, because its
// timer has not fired yet. This happens in a process that was frozen and has just resumed.
type frozenContext struct{ context.Context }

func (frozenContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestBundlesOutOfTime checks that a bundle that runs out of time returns its own time-out,
// whatever its children return. In the case "stubborn", a child ignores its context and
// continues after the deadline. In the case "thawed", the process was frozen until after the
// deadline, and the timer of the context has not fired yet. In the case "left", the caller has
// cancelled the context.
func TestBundlesOutOfTime(t *testing.T) {
	stubborn := lookupFunc[dns.Query, dns.Result](func(context.Context, dns.Query) (dns.Result, error) {
		time.Sleep(2 * time.Second)
		return dns.Result{}, nil
	})
	h := healthyHost()
	for want, look := range map[fault.Code]func(context.Context) error{
		lookup.HostIntelTimeout: func(ctx context.Context) error {
			b := HostIntel{stubborn, lookupTaking[ssl.Query, ssl.Result](0), lookupTaking[whois.Query, whois.Result](0)}
			_, err := b.Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
			return err
		},
		lookup.UptimeCheckTimeout: func(ctx context.Context) error {
			_, err := Uptime{h, stubborn, h, h}.Lookup(ctx, guard.Query{Domain: "example.com"})
			return err
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cancelled, leave := context.WithCancel(contextWithin(t, time.Hour))
				leave()
				for what, ctx := range map[string]context.Context{"stubborn": contextWithin(t, time.Second), "thawed": frozenContext{t.Context()}, "left": cancelled} {
					if err := look(ctx); fault.From(err).Code != want {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

// host simulates the resolvers and the web server of a host. Its methods are those of the
// lookups, and return the results and errors in its fields.
type host struct {
	resolve, dns, ssl, headers error
	certificate                ssl.Result
	status                     int
	rcode                      string // the rcode of the DNS result
	conn                       *tls.Conn

	resolveCount int
	usedConn     *tls.Conn
	target       guard.Target
	peer         netip.Addr
}

func (h *host) Resolve(context.Context, string) (guard.Target, error) {
	h.resolveCount++
	return guard.Target{Name: "example.com", Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, h.resolve
}

func (h *host) Dial(context.Context, guard.Target, uint16) (net.Conn, netip.Addr, error) {
	panic("the bundle does not dial by itself")
}

func (h *host) Lookup(context.Context, dns.Query) (dns.Result, error) {
	return dns.Result{Rcode: h.rcode}, h.dns
}

func (h *host) Inspect(context.Context, ssl.Query, guard.Target) (ssl.Result, *tls.Conn, error) {
	return h.certificate, h.conn, h.ssl
}

func (h *host) LookupOn(_ context.Context, _ headers.Query, t guard.Target, c *tls.Conn, peer netip.Addr) (headers.Result, error) {
	h.usedConn, h.target, h.peer = c, t, peer
	return headers.Result{Status: h.status}, h.headers
}

func healthyHost() *host {
	return &host{certificate: ssl.Result{HostnameMatch: true, PeerIP: "93.184.216.34"}, status: 200, conn: &tls.Conn{}}
}

// TestUptime checks the verdict for every row of spec §3.1, and the codes of the children that
// failed. The certificate lookup and the headers lookup share one resolution and one
// connection. So if the certificate lookup fails, the headers lookup must have the same
// failure.
func TestUptime(t *testing.T) {
	failing := func(code fault.Code) error { return lookup.Fault(code, nil) }
	for name, c := range map[string]struct {
		change func(h *host)
		want   string
	}{
		"all well":      {change: func(*host) {}, want: "up"},
		"499":           {change: func(h *host) { h.status = 499 }, want: "up"},
		"500":           {change: func(h *host) { h.status = 500 }, want: "degraded"},
		"expired":       {change: func(h *host) { h.certificate.Expired = true }, want: "degraded"},
		"not yet valid": {change: func(h *host) { h.certificate.NotYetValid = true }, want: "degraded"},
		"mismatch":      {change: func(h *host) { h.certificate.HostnameMatch = false }, want: "degraded"},
		// In these three cases the host answers over IPv6, but it has no good A records. If
		// the dns child has an error, the verdict is down. If the dns child has a result, the
		// verdict is up, whatever the rcode in the result.
		"A is silent, AAAA is good":   {change: func(h *host) { h.dns = failing(lookup.DNSTimeout) }, want: "down dns_timeout"},
		"A is SERVFAIL, AAAA is good": {change: func(h *host) { h.rcode = "SERVFAIL" }, want: "up"},
		"A is denied, AAAA is good":   {change: func(h *host) { h.dns = failing(lookup.NXDomain) }, want: "down nxdomain"},
		"expired and headers fail": {change: func(h *host) { h.certificate.Expired, h.headers = true, failing(lookup.HTTPFailed) },
			want: "down http_failed"},
		"handshake fails": {change: func(h *host) { h.ssl = failing(lookup.HandshakeFailed) }, want: "down handshake_failed handshake_failed"},
		"ssl is late":     {change: func(h *host) { h.ssl = failing(lookup.SSLTimeout) }, want: "down ssl_timeout headers_timeout"},
		"ssl is silent":   {change: func(h *host) { h.ssl = lookup.Fault(lookup.SSLTimeout, nil).Silence() }, want: "down ssl_timeout! headers_timeout!"},
		"blocked":         {change: func(h *host) { h.resolve = failing(lookup.BlockedAddress) }, want: "down blocked_address blocked_address"},
		"resolvers":       {change: func(h *host) { h.resolve = fmt.Errorf("x: %w", guard.ErrResolvers) }, want: "down ssl_timeout headers_timeout"},
		// The handshake failed after the certificate was received, so there is a certificate
		// but no connection. The headers lookup makes a new connection.
		"no connection": {change: func(h *host) { h.conn = nil }, want: "up"},
	} {
		t.Run(name, func(t *testing.T) {
			h := healthyHost()
			c.change(h)
			r, err := Uptime{h, h, h, h}.Lookup(contextWithin(t, time.Minute), guard.Query{Domain: "example.com"})
			got := string(r.Verdict)
			for _, f := range []*fault.Error{r.DNS.Fault, r.SSL.Fault, r.Headers.Fault} {
				got += faultText(f)
			}
			if s, h := r.SSL.Fault, r.Headers.Fault; s != nil && h != nil && s.Message != h.Message {
				t.Errorf("%q and %q of one cause", s.Message, h.Message)
			}
			if got != c.want || err != nil || h.resolveCount != 1 {
				t.Errorf("%s, %v, after %d resolutions; want %s", got, err, h.resolveCount, c.want)
			}
			asked := h.target.Addrs != nil
			if asked != (r.SSL.Fault == nil) || asked && (h.usedConn != h.conn || h.peer.String() != "93.184.216.34") {
				t.Errorf("headers were looked up: %v, over %p to %s, want %p", asked, h.usedConn, h.peer, h.conn)
			}
		})
	}
}

// faultText returns a space and the code of a fault, followed by an exclamation mark if the
// fault is the silence of the host. It returns "" for nil.
func faultText(f *fault.Error) string {
	if f == nil {
		return ""
	}
	if f.IsSilence() {
		return " " + string(f.Code) + "!"
	}
	return " " + string(f.Code)
}

// TestResolvesOnce checks that the children of a bundle share the resolution of a name. The
// test runs both bundles with a resolver that stays silent. In each bundle, each question must
// be sent once, over one UDP socket. The test does not count the questions about com, with
// which package dns checks whether the resolver works.
func TestResolvesOnce(t *testing.T) {
	// The keys are the record types for HostIntel. The values are the expected numbers of
	// questions: A and AAAA in each bundle and for the registry's server, and MX for that key.
	for kind, want := range map[string]int64{"A": 6, "MX": 7} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				dial := func(_ context.Context, network, _ string) (net.Conn, error) {
					near, far := net.Pipe()
					go func() {
						query, m := make([]byte, 512), new(miekg.Msg)
						n, _ := far.Read(query)
						if network == "udp" && m.Unpack(query[:n]) == nil && !strings.EqualFold(m.Question[0].Name, "com.") {
							asked.Add(1)
						}
						io.Copy(io.Discard, far)
					}()
					return near, nil
				}
				resolvers := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: dial})
				dialer := &guard.Dialer{Resolver: resolvers}
				registry := lookupFunc[whois.Query, whois.Result](func(ctx context.Context, _ whois.Query) (whois.Result, error) {
					_, err := dialer.Resolve(ctx, "rdap.example.net") // the lookup of registration data resolves the name of the registry's server
					return whois.Result{}, err
				})
				u, uerr := Uptime{dialer, resolvers, healthyHost(), healthyHost()}.Lookup(contextWithin(t, time.Hour), guard.Query{Domain: "example.com"})
				h, herr := HostIntel{resolvers, ssl.New(ssl.Config{Connector: dialer}), registry}.
					Lookup(contextWithin(t, time.Hour), HostIntelQuery{Domain: "example.com", DNSType: kind})
				if asked.Load() != want || uerr != nil || herr != nil {
					t.Errorf("%d questions, want %d, %v, %v", asked.Load(), want, uerr, herr)
				}
				dnsFaults := faultText(u.DNS.Fault) + faultText(h.DNS.Fault)
				sslFaults := faultText(u.SSL.Fault) + faultText(h.SSL.Fault)
				if dnsFaults+sslFaults != " dns_timeout dns_timeout ssl_timeout ssl_timeout" {
					t.Errorf("%s,%s", dnsFaults, sslFaults)
				}
			})
		})
	}
}
