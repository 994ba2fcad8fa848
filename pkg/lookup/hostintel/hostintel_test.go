package hostintel_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/hostintel"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

type look[Q, R any] func(context.Context, Q) (R, error)

func (l look[Q, R]) Lookup(ctx context.Context, q Q) (R, error) { return l(ctx, q) }

// takes is a lookup that takes a while, and stops when it is told to.
func takes[Q, R any](d time.Duration, r R, err error) look[Q, R] {
	return func(ctx context.Context, _ Q) (R, error) {
		select {
		case <-time.After(d):
			return r, err
		case <-ctx.Done():
			var none R
			return none, fault.New(fault.SSLTimeout, ctx.Err())
		}
	}
}

func client(d, s, w time.Duration, err error) hostintel.Client {
	return hostintel.New(
		takes[dns.Query](d, dns.Result{Rcode: "NOERROR", Records: []dns.Record{}}, err),
		takes[ssl.Query](s, ssl.Result{Subject: "CN=x"}, err),
		takes[whois.Query](w, whois.Result{Source: "rdap"}, err),
	)
}

func TestSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r, err := client(2*time.Second, 3*time.Second, time.Second, nil).Lookup(t.Context(), hostintel.Query{Domain: "example.com", DNSType: "A"})
		if err != nil || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if r.DNS.Failed() || r.SSL.Failed() || r.Whois.Failed() {
			t.Errorf("%+v", r)
		}
	})
}

// A slow child is a time-out in its field; the others stand.
func TestSlowChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		r, err := client(time.Second, time.Hour, time.Second, nil).Lookup(ctx, hostintel.Query{Domain: "example.com", DNSType: "A"})
		if err != nil || !r.SSL.Failed() || r.SSL.Fault.Code != fault.SSLTimeout || r.DNS.Failed() || r.Whois.Failed() {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestEveryChildFails(t *testing.T) {
	r, err := client(0, 0, 0, fault.New(fault.NXDomain, nil)).Lookup(t.Context(), hostintel.Query{Domain: "example.com", DNSType: "A"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil || strings.Count(string(b), `{"error":{"code":"nxdomain"`) != 3 {
		t.Errorf("%s, %v", b, err)
	}
}

// Every child is owed under the name of its field.
func TestOwed(t *testing.T) {
	ours, target := fault.New(fault.InternalError, nil), fault.New(fault.NotFound, nil)
	for _, c := range []struct {
		name            string
		dns, ssl, whois error
		want            []string
		prevented       bool
	}{
		{name: "all well"},
		{name: "facts about the target", dns: target, ssl: target, whois: target},
		{name: "dns", dns: ours, ssl: target, want: []string{"dns"}},
		{name: "ssl", ssl: ours, want: []string{"ssl"}},
		{name: "whois", whois: ours, dns: target, want: []string{"whois"}},
		{name: "all", dns: ours, ssl: ours, whois: ours, want: []string{"dns", "ssl", "whois"}},
		{name: "whois prevented", whois: ours.Prevented(), want: []string{"whois"}, prevented: true},
		{name: "whois prevented and dns tried", dns: ours, whois: ours.Prevented(), want: []string{"dns", "whois"}},
	} {
		r, err := hostintel.New(
			takes[dns.Query](0, dns.Result{}, c.dns), takes[ssl.Query](0, ssl.Result{}, c.ssl), takes[whois.Query](0, whois.Result{}, c.whois),
		).Lookup(t.Context(), hostintel.Query{Domain: "example.com", DNSType: "A"})
		if err != nil {
			t.Fatal(err)
		}
		if got, prevented := r.Owed(); !slices.Equal(got, c.want) || prevented != c.prevented {
			t.Errorf("%s: %q, prevented %v; want %q, %v", c.name, got, prevented, c.want, c.prevented)
		}
	}
}

func TestBundleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stubborn := hostintel.New(look[dns.Query, dns.Result](func(context.Context, dns.Query) (dns.Result, error) {
			time.Sleep(2 * time.Second) // does not heed its context
			return dns.Result{}, nil
		}), takes[ssl.Query](0, ssl.Result{}, nil), takes[whois.Query](0, whois.Result{}, nil))
		_, err := stubborn.Lookup(ctx, hostintel.Query{Domain: "example.com", DNSType: "A"})
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.HostIntelTimeout {
			t.Errorf("%v", err)
		}
	})
}

// A process that was frozen past the deadline owes the answer, even if what its
// children say is there before the context knows.
func TestThawedTooLate(t *testing.T) {
	r, err := client(0, 0, 0, nil).Lookup(thawed{t.Context()}, hostintel.Query{Domain: "example.com", DNSType: "A"})
	if fault.From(err).Code != fault.HostIntelTimeout {
		t.Errorf("%+v, %v", r, err)
	}
}

type thawed struct{ context.Context }

func (thawed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestParseQuery(t *testing.T) {
	for query, want := range map[string]string{
		"domain=Example.COM.":                "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=mx":     "dns_type=MX&domain=example.com",
		"domain=example.com&type=MX":         "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=":       "invalid_type",
		"domain=example.com&dns_type=SRV":    "invalid_type",
		"domain=_dmarc.example.com":          "invalid_domain",
		"domain=127.0.0.1":                   "invalid_domain",
		"domain=example.com&domain=a.com":    "invalid_domain",
		"dns_type=A":                         "invalid_domain",
		"domain=localhost&dns_type=nonsense": "invalid_domain",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q, err := hostintel.ParseQuery(values)
		got := q.Values().Encode()
		if err != nil {
			got = string(fault.From(err).Code)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// The dns child shares the certificate's resolution where it asks for
// addresses, and is what the dns tool says by itself for every type.
func TestOneResolution(t *testing.T) {
	addresses := []string{"example.com. A", "example.com. AAAA", "rdap.example.net. A", "rdap.example.net. AAAA"}
	for kind, want := range map[string][]string{
		"A": addresses, "AAAA": addresses,
		"MX": slices.Insert(slices.Clone(addresses), 2, "example.com. MX"),
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &names{t: t}
				resolvers := n.client()
				alone, err := resolvers.Lookup(t.Context(), dns.Query{Domain: "example.com", Type: kind})
				if err != nil {
					t.Fatal(err)
				}
				n.questions()
				dialer := guard.NewDialer(guard.DialerConfig{
					Resolver: resolvers, HasRoute: func(context.Context, netip.Addr) bool { return false },
					Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
						return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
					},
				})
				c := hostintel.New(resolvers, ssl.New(ssl.Config{Connector: dialer}), registry(dialer))
				r, err := c.Lookup(t.Context(), hostintel.Query{Domain: "example.com", DNSType: kind})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(alone, r.DNS.Result); diff != "" || r.DNS.Failed() || len(alone.Records) != 1 {
					t.Errorf("the dns child is not what the tool answers: %v %s", r.DNS.Fault, diff)
				}
				if !r.SSL.Failed() || r.SSL.Fault.Code != fault.ConnectFailed || r.Whois.Failed() {
					t.Errorf("ssl %v, whois %v", r.SSL.Fault, r.Whois.Fault)
				}
				if asked := n.questions(); !slices.Equal(asked, want) {
					t.Errorf("asked %v, want %v", asked, want)
				}
			})
		})
	}
}

// registry resolves a registry's host, as the registry lookup does.
func registry(d *guard.Dialer) look[whois.Query, whois.Result] {
	return func(ctx context.Context, _ whois.Query) (whois.Result, error) {
		_, err := d.Resolve(ctx, "rdap.example.net")
		return whois.Result{}, err
	}
}

// A question that nobody waits for any more ends before the answer is given:
// nothing of a call outlives it.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resolvers, open := mute()
		dialer := guard.NewDialer(guard.DialerConfig{Resolver: resolvers})
		c := hostintel.New(resolvers, ssl.New(ssl.Config{Connector: dialer}), registry(dialer))
		r, err := c.Lookup(t.Context(), hostintel.Query{Domain: "example.com", DNSType: "MX"})
		if err != nil || !r.DNS.Failed() || r.DNS.Fault.Code != fault.DNSTimeout || !r.SSL.Failed() || r.SSL.Fault.Code != fault.SSLTimeout {
			t.Errorf("%+v, %v", r, err)
		}
		if n := open.Load(); n != 0 {
			t.Errorf("%d questions are under way after the answer", n)
		}
	})
}

// mute is a resolver that never answers, whose connections take a second to
// close, and how many of them are open.
func mute() (*dns.Client, *atomic.Int64) {
	open := new(atomic.Int64)
	return dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }() // until near is closed
		open.Add(1)
		return &slow{Conn: near, open: open}, nil
	}}), open
}

type slow struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *slow) Close() error {
	c.once.Do(func() {
		time.Sleep(time.Second) // in the bubble
		c.open.Add(-1)
	})
	return c.Conn.Close()
}

// names is a resolver behind pipes that knows every name and notes its
// questions. In a synctest bubble no grace and no resent question depends on
// the machine.
type names struct {
	t     *testing.T
	mu    sync.Mutex
	asked []string
}

// client is the production client that asks it.
func (n *names) client() *dns.Client {
	return dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			buf := make([]byte, 1<<12)
			for {
				size, err := far.Read(buf)
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond) // in the bubble
				_, _ = far.Write(n.answer(buf[:size]))
			}
		}()
		return near, nil
	}})
}

func (n *names) answer(query []byte) []byte {
	q := new(miekg.Msg)
	if err := q.Unpack(query); err != nil {
		n.t.Errorf("query: %v", err)
		return nil
	}
	name, qtype := q.Question[0].Name, q.Question[0].Qtype
	n.mu.Lock()
	n.asked = append(n.asked, strings.ToLower(name)+" "+miekg.TypeToString[qtype])
	n.mu.Unlock()
	m := new(miekg.Msg).SetReply(q)
	for _, text := range []string{" 60 IN A 93.184.216.34", " 60 IN AAAA 2606:4700::1", " 60 IN MX 10 mx.example.com."} {
		rr, err := miekg.NewRR(name + text)
		if err != nil {
			n.t.Errorf("%s: %v", text, err)
		} else if rr.Header().Rrtype == qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	wire, err := m.Pack()
	if err != nil {
		n.t.Errorf("reply: %v", err)
	}
	return wire
}

// questions are those since the last call, sorted.
func (n *names) questions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Sorted(slices.Values(n.asked))
	n.asked = nil
	return out
}
