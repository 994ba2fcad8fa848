package bundle

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// names is a resolver behind pipes, inside a synctest bubble, that notes its
// questions. Its connections take a second to close.
type names struct {
	records map[string]string // data by type, of every name; nil is silence
	mu      sync.Mutex
	asked   []string
	open    int // connections
}

// client is the production client that asks it.
func (n *names) client() *dns.Client {
	return dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go n.serve(far)
		n.count(1)
		return &slow{Conn: near, names: n}, nil
	}})
}

func (n *names) count(add int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open += add
	return n.open
}

func (n *names) serve(far net.Conn) {
	defer far.Close()
	for buf := make([]byte, 1<<12); ; {
		size, err := far.Read(buf)
		if err != nil {
			return
		}
		q := new(miekg.Msg)
		if n.records == nil || q.Unpack(buf[:size]) != nil {
			continue
		}
		name, kind := q.Question[0].Name, miekg.TypeToString[q.Question[0].Qtype]
		n.mu.Lock()
		n.asked = append(n.asked, strings.ToLower(name)+" "+kind)
		n.mu.Unlock()
		m := new(miekg.Msg).SetReply(q)
		if rr, err := miekg.NewRR(name + " 60 IN " + kind + " " + n.records[kind]); err == nil && n.records[kind] != "" {
			m.Answer = append(m.Answer, rr)
		}
		wire, _ := m.Pack()
		_, _ = far.Write(wire)
	}
}

type slow struct {
	net.Conn
	names *names
	once  sync.Once
}

func (c *slow) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		time.Sleep(time.Second) // in the bubble
		c.names.count(-1)
	})
	return err
}

// One resolution serves all children; that of dns is what the dns tool says by
// itself. A question that nobody waits for any more ends before the answer is given:
// nothing of a call outlives it.
func TestResolvesOnce(t *testing.T) {
	records := map[string]string{"A": "93.184.216.34", "AAAA": "2606:4700::1", "MX": "10 mx.example.com."}
	addresses := []string{"example.com. A", "example.com. AAAA"}
	intel := append(slices.Clone(addresses), "rdap.example.net. A", "rdap.example.net. AAAA")
	for name, c := range map[string]struct {
		kind    string // of host-intel; uptime-check without one
		records map[string]string
		want    []string
	}{
		"uptime-check":                     {"", records, addresses},
		"host-intel, A":                    {"A", records, intel},
		"host-intel, AAAA":                 {"AAAA", records, intel},
		"host-intel, MX":                   {"MX", records, slices.Insert(slices.Clone(intel), 2, "example.com. MX")},
		"uptime-check, silent resolvers":   {"", nil, nil},
		"host-intel, MX, silent resolvers": {"MX", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &names{records: c.records}
				resolvers := n.client()
				alone, err := resolvers.Lookup(t.Context(), dns.Query{Domain: "example.com", Type: max(c.kind, "A")})
				n.asked = nil
				got, web := through(t, resolvers, c.kind)
				if n.count(0) != 0 {
					t.Errorf("%d questions are under way after the answer", n.count(0))
				}
				if diff := cmp.Diff(alone, got.Result); diff != "" || got.Failed() != (err != nil) || (c.records == nil) != (err != nil) {
					t.Errorf("the dns child is not what the tool answers: %v, %v %s", got.Fault, err, diff)
				}
				if slices.Sort(n.asked); !slices.Equal(n.asked, c.want) {
					t.Errorf("asked %v, want %v", n.asked, c.want)
				}
				if silent := web != nil && web.Code == fault.SSLTimeout; silent != (c.records == nil) {
					t.Errorf("ssl: %v", web)
				}
			})
		})
	}
}

// through asks a bundle, and returns its dns child and what became of the certificate.
func through(t *testing.T, resolvers *dns.Client, kind string) (Child[dns.Result], *fault.Error) {
	t.Helper()
	dialer := guard.NewDialer(guard.DialerConfig{
		Resolver: resolvers, HasRoute: func(context.Context, netip.Addr) bool { return false },
		Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
		},
	})
	if kind == "" {
		h := good()
		r, err := NewUptime(dialer, resolvers, h, h).Lookup(t.Context(), UptimeQuery{Domain: "example.com"})
		if err != nil || r.SSL.Fault == nil && len(h.target.Addrs) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		return r.DNS, r.SSL.Fault
	}
	registry := look[whois.Query, whois.Result](func(ctx context.Context, _ whois.Query) (whois.Result, error) {
		_, err := dialer.Resolve(ctx, "rdap.example.net") // as the registry lookup does
		return whois.Result{}, err
	})
	b := NewHostIntel(resolvers, ssl.New(ssl.Config{Connector: dialer}), registry)
	r, err := b.Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: kind})
	if err != nil || !r.SSL.Failed() {
		t.Errorf("%+v, %v", r, err)
	}
	return r.DNS, r.SSL.Fault
}
