package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// resolver is the recursive resolver that every world asks, over UDP and TCP
// on one port of 127.0.0.1. Most names are those of zone; a name of the form
// <anything>.<mode>.lab.example.com is answered as its mode says.
type resolver struct {
	addr string // ip:port
	zone testbed.Zone

	mu     sync.Mutex
	asked  map[string]map[string]bool // name -> questions, a datagram sent again counted once
	healed map[string]bool
	gates  map[string]*gate // name -> where its questions wait
}

// The modes of lab names. A name that is healed answers like healthy.
const (
	modeHealthy = "healthy" // A 192.0.2.77, TTL 30
	modeSilent  = "silent"  // no answer
	modeRefused = "refused" // REFUSED
	modeHeld    = "held"    // healthy, once its gate is open
)

// labDomain is the parent of the names whose second label is a mode.
const labDomain = ".lab.example.com."

func newResolver(tb testing.TB) *resolver {
	r := &resolver{zone: testbed.ReadZone(tb, zoneText), asked: map[string]map[string]bool{}, healed: map[string]bool{}, gates: map[string]*gate{}}
	r.addr = testbed.Resolver(tb, r)
	tb.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, g := range r.gates {
			g.open()
		}
	})
	return r
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok {
		return
	}
	r.note(name, q)
	m := testbed.Reply(q)
	if !strings.HasSuffix(name, labDomain) {
		r.zone.Answer(m, name, qtype)
	} else if !r.lab(name, q, m) {
		return
	}
	testbed.Send(w, q, m)
}

// note counts a question once. When the client fears a loss, it sends the same
// question again, over TCP as well: with the same id, and the same letter case of
// the name.
func (r *resolver) note(name string, q *dns.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked[name] == nil {
		r.asked[name] = map[string]bool{}
	}
	r.asked[name][fmt.Sprint(q.Id, q.Question[0].Name)] = true
}

// lab fills in the answer for a lab name, or says that there is none.
func (r *resolver) lab(name string, q, m *dns.Msg) bool {
	labels := dns.SplitDomainName(name)
	mode := labels[len(labels)-4]
	r.mu.Lock()
	if r.healed[name] {
		mode = modeHealthy
	}
	r.mu.Unlock()
	switch mode {
	case modeSilent:
		return false
	case modeRefused:
		m.Rcode = dns.RcodeRefused
		return true
	case modeHeld:
		r.gate(name).pass(nil)
	}
	if q.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30},
			A:   net.IPv4(192, 0, 2, 77),
		}}
	}
	return true
}

// lookups is how often a name was asked about.
func (r *resolver) lookups(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked[dns.Fqdn(name)])
}

// heal makes a lab name answer from now on.
func (r *resolver) heal(name string) {
	r.mu.Lock()
	r.healed[dns.Fqdn(name)] = true
	r.mu.Unlock()
	r.gate(dns.Fqdn(name)).open()
}

// gate is where the questions about a held name wait.
func (r *resolver) gate(name string) *gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	name = dns.Fqdn(name)
	if r.gates[name] == nil {
		r.gates[name] = newGate()
	}
	return r.gates[name]
}

// zoneText is what the resolver knows. The first record is the SOA of negative
// answers. Addresses are those of RFC 5737.
const zoneText = `
$ORIGIN example.com.
$TTL 3600
@            SOA   ns1.Example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
@       300  A     192.0.2.1
@       300  MX    10 mx1.example.com.
@       300  MX    20 MX2.example.com.
www     300  A     192.0.2.10
internal  60 A     10.0.0.1
xn--bcher-kva 300 MX 5 mail.example.com.
com. 172800 IN NS   a.gtld-servers.net.
`
