package simnet

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// resolverAddrs are the service's default resolvers.
func resolverAddrs() []string { return []string{"1.1.1.1", "8.8.8.8", "9.9.9.10"} }

// openResolvers starts them, each on UDP and TCP.
func (n *internet) openResolvers(t *testing.T) {
	t.Helper()
	for _, a := range resolverAddrs() {
		r := &resolver{at: a, hosts: n.hosts, asked: map[dns.Question]int{}, six: map[string]chan struct{}{}}
		n.resolvers = append(n.resolvers, r)
		s, err := testbed.ListenDNS(net.JoinHostPort(a, "53"), r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
	}
}

// forget lets answers that change begin anew.
func (n *internet) forget() {
	for _, r := range n.resolvers {
		r.mu.Lock()
		clear(r.asked)
		r.mu.Unlock()
	}
}

// resolver is one public resolver.
type resolver struct {
	at    string
	hosts map[string]host
	mu    sync.Mutex
	asked map[dns.Question]int // queries about names whose answers change
	six   map[string]chan struct{}
}

// inStep lets the addresses of a name of both families that must not be
// connected to go out together: IPv6 first. On a busy machine the service may
// read IPv6 after its grace, and then it rightly knows of IPv4 alone. Somebody
// who asks for IPv4 only is answered a little later.
func (r *resolver) inStep(qtype uint16, name string, h host, send func()) {
	const alone = time.Second
	if h.serve != nil || !h.has(netip.Addr.Is4) || !h.has(netip.Addr.Is6) || qtype != dns.TypeA && qtype != dns.TypeAAAA {
		send()
		return
	}
	r.mu.Lock()
	if r.six[name] == nil {
		r.six[name] = make(chan struct{}, 1)
	}
	gone := r.six[name]
	r.mu.Unlock()
	if qtype == dns.TypeA {
		select {
		case <-gone:
		case <-time.After(alone):
		}
		send()
		return
	}
	send()
	select {
	case gone <- struct{}{}:
	default:
	}
}

// has says that a host has an address of a kind.
func (h host) has(kind func(netip.Addr) bool) bool {
	return slices.ContainsFunc(h.addrs, func(a string) bool { return kind(netip.MustParseAddr(a)) })
}

// ServeDNS answers from the table of hosts.
func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	name = strings.TrimSuffix(name, ".")
	h, known := r.hosts[name]
	if !ok || h.silent {
		return
	}
	_, overUDP := w.RemoteAddr().(*net.UDPAddr)
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	switch {
	case !known:
		m.Rcode = dns.RcodeNameError
	case h.rcode != 0:
		m.Rcode = h.rcode
	case h.overTCP && overUDP:
		m.Truncated = true
	default:
		m.Answer = r.answer(q.Question[0], name, h)
		if _, there := r.hosts[h.alias]; h.alias != "" && !there {
			m.Rcode = dns.RcodeNameError // of the last name, RFC 6604
		}
	}
	if h.trick != nil {
		h.trick(asked{w: w, honest: m, udp: overUDP, at: r.at})
		return
	}
	r.inStep(qtype, name, h, func() { _ = w.WriteMsg(m) }) // the client may be gone
}

func (r *resolver) answer(q dns.Question, name string, h host) []dns.RR {
	var out []dns.RR
	if h.alias != "" {
		out = append(out, record(q.Name, "60 IN CNAME "+h.alias+"."))
		if q.Qtype == dns.TypeCNAME {
			return out
		}
		target := dns.Question{Name: h.alias + ".", Qtype: q.Qtype}
		return append(out, r.answer(target, h.alias, r.hosts[h.alias])...)
	}
	addrs := h.addrs
	if h.later != nil && r.again(dns.Question{Name: name, Qtype: q.Qtype}) {
		addrs = h.later
	}
	for _, a := range addrs {
		ip := netip.MustParseAddr(a)
		switch {
		case q.Qtype == dns.TypeA && ip.Is4():
			out = append(out, record(q.Name, "300 IN A "+a))
		case q.Qtype == dns.TypeAAAA && ip.Is6(): // the zone file parser has no mapped ones
			head := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 300}
			out = append(out, &dns.AAAA{Hdr: head, AAAA: net.IP(ip.AsSlice())})
		}
	}
	for _, text := range h.records {
		if rr := record(q.Name, text); rr.Header().Rrtype == q.Qtype {
			out = append(out, rr)
		}
	}
	return out
}

// again says whether this resolver was asked that before.
func (r *resolver) again(q dns.Question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[q]++
	return r.asked[q] > 1
}

// record is a record in zone file form, without its owner.
func record(owner, text string) dns.RR { return must(dns.NewRR(owner + " " + text)) }
