package hostintel_test

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
	"github.com/hostfacts/hostfacts/pkg/lookup/hostintel"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

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
