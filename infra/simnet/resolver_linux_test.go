package simnet

import (
	"net"
	"net/netip"
	"slices"
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
	at          string
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
		r := &resolver{at: a, hosts: n.hosts, asked: map[dns.Question]bool{}}
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
	overUDP := w.RemoteAddr().Network() == "udp"
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	zone := r.zone
	if h.later != nil && r.again(dns.Question{Name: name, Qtype: qtype}) {
		zone = r.later
	}
	switch {
	case h.rcode != 0:
		m.Rcode = h.rcode
	case h.overTCP && overUDP:
		m.Truncated = true
	default:
		zone.Answer(m, name, qtype)
	}
	if h.trick != nil {
		h.trick(asked{w: w, honest: m, udp: overUDP, edns: q.IsEdns0() != nil, at: r.at})
		return
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

// asked is one query at one resolver, and the honest answer to it.
type asked struct {
	w      dns.ResponseWriter
	honest *dns.Msg
	udp    bool
	edns   bool
	at     string // the resolver's address
}

type trick func(asked)

func changes(change func(*dns.Msg)) trick {
	return func(a asked) {
		change(a.honest)
		honestly(a)
	}
}

// rcodes answers with a return code and nothing else.
func rcodes(code int) trick { return changes(func(m *dns.Msg) { m.Rcode, m.Answer = code, nil }) }

// denied is NXDOMAIN; its proof is the SOA record of a zone, or none.
func denied(soa ...string) trick {
	return changes(func(m *dns.Msg) {
		m.Rcode, m.Answer, m.Ns = dns.RcodeNameError, nil, nil
		for _, zone := range soa {
			m.Ns = append(m.Ns, record(zone, "60 IN SOA a.root-servers.net. nstld.verisign-grs.com. 1 2 3 4 5"))
		}
	})
}

func honestly(a asked) { _ = a.w.WriteMsg(a.honest) } // the client may be gone
func nothing(asked)    {}

// each gives every resolver another trick, in the order of the defaults.
func each(first, second, third trick) trick {
	return func(a asked) {
		[]trick{first, second, third}[slices.Index(resolverAddrs(), a.at)](a)
	}
}

// overUDP plays a trick with datagrams and is honest over TCP.
func overUDP(t trick) trick {
	return func(a asked) {
		if a.udp {
			t(a)
		} else {
			honestly(a)
		}
	}
}

// withEDNS plays a trick with queries of EDNS and is honest to others.
func withEDNS(t trick) trick {
	return func(a asked) {
		if a.edns {
			t(a)
		} else {
			honestly(a)
		}
	}
}

// answers answers whatever the type with records in zone file form; @ is the name that was asked.
func answers(records ...string) trick {
	return changes(func(m *dns.Msg) {
		m.Answer = nil
		for _, text := range records {
			owner, rest, _ := strings.Cut(strings.ReplaceAll(text, "@", m.Question[0].Name), " ")
			m.Answer = append(m.Answer, record(owner, rest))
		}
	})
}
