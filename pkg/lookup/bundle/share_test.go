package bundle

import (
	"context"
	"io"
	"net"
	"net/netip"
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
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// names is a resolver behind pipes that notes its questions. In a synctest
// bubble no grace and no resent question depends on the machine.
type names struct {
	t       *testing.T
	records map[string]string // data by type, of every name
	rcode   int
	mu      sync.Mutex
	asked   []string
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
	name, kind := q.Question[0].Name, miekg.TypeToString[q.Question[0].Qtype]
	n.mu.Lock()
	n.asked = append(n.asked, strings.ToLower(name)+" "+kind)
	n.mu.Unlock()
	m := new(miekg.Msg).SetRcode(q, n.rcode)
	if data := n.records[kind]; data != "" {
		rr, err := miekg.NewRR(name + " 60 IN " + kind + " " + data)
		if err != nil {
			n.t.Errorf("%s %s: %v", kind, data, err)
			return nil
		}
		m.Answer = append(m.Answer, rr)
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

// The dns child, the certificate and the headers are of one resolution, the
// child is what the dns tool says by itself, and all addresses are judged.
func TestUptimeResolvesOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		records   map[string]string
		rcode     int
		ssl, http fault.Code
		addrs     string
	}{
		{name: "both families", records: map[string]string{"A": "93.184.216.34", "AAAA": "2606:4700::1"}, addrs: "93.184.216.34 2606:4700::1"},
		{name: "a private address beside a public one", records: map[string]string{"A": "93.184.216.34", "AAAA": "fd00::1"},
			ssl: fault.BlockedAddress, http: fault.BlockedAddress},
		{name: "no address", ssl: fault.ConnectFailed, http: fault.ConnectFailed},
		{name: "nxdomain", rcode: miekg.RcodeNameError, ssl: fault.NXDomain, http: fault.NXDomain},
		{name: "SERVFAIL", rcode: miekg.RcodeServerFailure, ssl: fault.ConnectFailed, http: fault.ConnectFailed},
		{name: "REFUSED", rcode: miekg.RcodeRefused, ssl: fault.SSLTimeout, http: fault.HeadersTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &names{t: t, records: c.records, rcode: c.rcode}
				resolvers := n.client()
				alone, aloneErr := resolvers.Lookup(t.Context(), dns.Query{Domain: "example.com", Type: "A"})
				n.questions()
				r, h := checkBy(t, resolvers)
				if asked, want := n.questions(), []string{"example.com. A", "example.com. AAAA"}; !slices.Equal(asked, want) {
					t.Errorf("asked %v, want %v", asked, want)
				}
				if diff := cmp.Diff(alone, r.DNS.Result); diff != "" {
					t.Errorf("the dns child is not what the tool answers: %s", diff)
				}
				want := fault.Code("")
				if aloneErr != nil {
					want = fault.From(aloneErr).Code
				}
				if got := code(r.DNS.Fault); got != want {
					t.Errorf("the dns child failed with %q, the tool with %q", got, want)
				}
				if ssl, http := code(r.SSL.Fault), code(r.Headers.Fault); ssl != c.ssl || http != c.http {
					t.Errorf("ssl %q and headers %q, want %q and %q", ssl, http, c.ssl, c.http)
				}
				if got := join(h.target.Addrs); got != c.addrs {
					t.Errorf("connected to %q, want %q", got, c.addrs)
				}
			})
		})
	}
}

// The dns child shares the certificate's resolution where it asks for
// addresses, and is what the dns tool says by itself for every type.
func TestHostIntelResolvesOnce(t *testing.T) {
	addresses := []string{"example.com. A", "example.com. AAAA", "rdap.example.net. A", "rdap.example.net. AAAA"}
	for kind, want := range map[string][]string{
		"A": addresses, "AAAA": addresses,
		"MX": slices.Insert(slices.Clone(addresses), 2, "example.com. MX"),
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &names{t: t, records: map[string]string{"A": "93.184.216.34", "AAAA": "2606:4700::1", "MX": "10 mx.example.com."}}
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
				c := NewHostIntel(resolvers, ssl.New(ssl.Config{Connector: dialer}), registry(dialer))
				r, err := c.Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: kind})
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
	for name, look := range map[string]func(*testing.T, *dns.Client){
		"host-intel": func(t *testing.T, resolvers *dns.Client) {
			dialer := guard.NewDialer(guard.DialerConfig{Resolver: resolvers})
			c := NewHostIntel(resolvers, ssl.New(ssl.Config{Connector: dialer}), registry(dialer))
			r, err := c.Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: "MX"})
			if err != nil || code(r.DNS.Fault) != fault.DNSTimeout || code(r.SSL.Fault) != fault.SSLTimeout {
				t.Errorf("%+v, %v", r, err)
			}
		},
		"uptime-check": func(t *testing.T, resolvers *dns.Client) {
			if r, _ := checkBy(t, resolvers); r.Verdict != Down {
				t.Errorf("%+v", r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resolvers, open := mute()
				look(t, resolvers)
				if n := open.Load(); n != 0 {
					t.Errorf("%d questions are under way after the answer", n)
				}
			})
		})
	}
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

// checkBy checks a good host whose name these resolvers know.
func checkBy(t *testing.T, resolvers *dns.Client) (UptimeResult, *host) {
	t.Helper()
	h := good()
	c := NewUptime(guard.NewDialer(guard.DialerConfig{Resolver: resolvers}), resolvers, h, h)
	r, err := c.Lookup(t.Context(), UptimeQuery{Domain: "example.com"})
	if err != nil {
		t.Error(err)
	}
	return r, h
}

func code(f *fault.Error) fault.Code {
	if f == nil {
		return ""
	}
	return f.Code
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}
