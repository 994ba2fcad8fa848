package simnet

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// resolverAddrs are the service's default resolvers.
func resolverAddrs() []string { return []string{"1.1.1.1", "8.8.8.8", "9.9.9.10"} }

// resolver is one public resolver. It knows the records of every host, and those that
// some hosts have later.
type resolver struct {
	hosts       map[string]host
	zone, later testbed.Zone
	mu          sync.Mutex
	asked       map[dns.Question]bool // queries about names whose answers change
}

func (n *internet) openResolvers(t *testing.T) {
	records, later := map[string][]dns.RR{}, map[string][]dns.RR{}
	for name, h := range n.hosts {
		owner := name + "."
		records[owner], later[owner] = addresses(owner, h.addrs), addresses(owner, h.later)
		if h.alias != "" {
			h.records = append(h.records, "60 IN CNAME "+h.alias+".")
		}
		for _, text := range h.records {
			records[owner] = append(records[owner], record(owner, text))
		}
	}
	// The service asks for these when it is asked whether it is ready.
	records["com."] = []dns.RR{record("com.", "300 IN NS a.gtld-servers.net.")}
	for _, a := range resolverAddrs() {
		r := &resolver{hosts: n.hosts, asked: map[dns.Question]bool{}}
		r.zone.Records, r.later.Records = records, later
		n.resolvers = append(n.resolvers, r)
		s := must(testbed.ListenDNS(net.JoinHostPort(a, "53"), r))
		t.Cleanup(func() { _ = s.Close() })
	}
}

func record(owner, text string) dns.RR { return must(dns.NewRR(owner + " " + text)) }

// addresses are A and AAAA records. The zone file form has no mapped ones.
func addresses(owner string, addrs []string) (list []dns.RR) {
	for _, a := range addrs {
		ip, head := netip.MustParseAddr(a), dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
		if ip.Is4() {
			list = append(list, &dns.A{Hdr: head, A: ip.AsSlice()})
			continue
		}
		head.Rrtype = dns.TypeAAAA
		list = append(list, &dns.AAAA{Hdr: head, AAAA: ip.AsSlice()})
	}
	return list
}

// forget lets answers that change begin anew.
func (n *internet) forget() {
	for _, r := range n.resolvers {
		r.mu.Lock()
		clear(r.asked)
		r.mu.Unlock()
	}
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	h := r.hosts[strings.TrimSuffix(name, ".")]
	if !ok || h.silent {
		return
	}
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	zone := r.zone
	if h.later != nil && r.again(dns.Question{Name: name, Qtype: qtype}) {
		zone = r.later
	}
	switch {
	case h.rcode != 0:
		m.Rcode = h.rcode
	case h.overTCP && w.RemoteAddr().Network() == "udp":
		m.Truncated = true
	default:
		zone.Answer(m, name, qtype)
	}
	_ = w.WriteMsg(m) // the client may be gone
}

func (r *resolver) again(q dns.Question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.asked[q]
	r.asked[q] = true
	return before
}
