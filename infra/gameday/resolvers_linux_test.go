package gameday

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// resolvers are the public recursive resolvers of one world. Every name exists,
// and those of hosts are at their address.
type resolvers struct {
	addrs  []string // ip:port
	origin net.IP   // of every name but the following
	hosts  map[string]net.IP
	mute   atomic.Bool // they hear and say nothing
	// silent: nobody answers for the names that payers ask about, as for domains
	// whose own name servers are dead.
	silent atomic.Bool

	mu      sync.Mutex
	servers []*testbed.DNSServer // none when they cannot be reached
}

func newResolvers(t *testing.T, addrs []string, origin net.IP, hosts map[string]net.IP) *resolvers {
	t.Helper()
	r := &resolvers{addrs: addrs, origin: origin, hosts: hosts}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.shut)
	return r
}

func (r *resolvers) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.servers) > 0 {
		return nil
	}
	for _, a := range r.addrs {
		s, err := testbed.ListenDNS(a, r)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	return nil
}

// shut leaves nobody at their addresses: queries are refused by the machine.
func (r *resolvers) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		_ = s.Close() // it has started
	}
	r.servers = nil
}

// ServeDNS answers a question about an address, and that of /ready; other types
// have no records.
func (r *resolvers) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok || r.mute.Load() || r.silent.Load() && strings.HasSuffix(name, payersNames+".") {
		return
	}
	m := testbed.Reply(q)
	head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: qtype, Class: dns.ClassINET, Ttl: 30}
	switch {
	case qtype == dns.TypeNS && name == "com.":
		m.Answer = []dns.RR{&dns.NS{Hdr: head, Ns: "a.gtld-servers.net."}}
	case qtype == dns.TypeA:
		at, special := r.hosts[name]
		if !special {
			at = r.origin
		}
		m.Answer = []dns.RR{&dns.A{Hdr: head, A: at}}
	}
	testbed.Send(w, q, m)
}
