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
	gates  gates
	// inside is how many held names are looked up at this moment, and peak how
	// many were at most.
	inside, peak int
}

// The modes of lab names. A name that is healed answers like healthy.
const (
	modeHealthy  = "healthy"  // A 192.0.2.77, TTL 30
	modeSilent   = "silent"   // no answer
	modeRefused  = "refused"  // REFUSED
	modeNotImp   = "notimp"   // NOTIMP
	modeServfail = "servfail" // SERVFAIL
	modeFormerr  = "formerr"  // FORMERR to a question with EDNS, healthy without
	modeHeld     = "held"     // healthy, once its gate is open
)

// labDomain is the parent of the names whose second label is a mode.
const labDomain = ".lab.example.com."

func newResolver(tb testing.TB) *resolver {
	r := &resolver{zone: readZone(tb), asked: map[string]map[string]bool{}, healed: map[string]bool{}, gates: gates{}}
	r.addr = testbed.Resolver(tb, r)
	tb.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gates.open()
	})
	return r
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok {
		return
	}
	first := r.note(name, q)
	m := testbed.Reply(q)
	if !strings.HasSuffix(name, labDomain) {
		r.zone.Answer(m, name, qtype)
	} else if !r.lab(name, q, m, first) {
		return
	}
	testbed.Send(w, q, m)
}

// note counts a question, and says whether it is new. When the client fears a loss,
// it sends the same question again, over TCP as well: with the same id, and the same
// letter case of the name.
func (r *resolver) note(name string, q *dns.Msg) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked[name] == nil {
		r.asked[name] = map[string]bool{}
	}
	question := fmt.Sprint(q.Id, q.Question[0].Name)
	again := r.asked[name][question]
	r.asked[name][question] = true
	return !again
}

// lab fills in the answer for a lab name, or says that there is none. first is
// whether the question is new.
func (r *resolver) lab(name string, q, m *dns.Msg, first bool) bool {
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
	case modeRefused, modeNotImp, modeServfail:
		m.Rcode = map[string]int{
			modeRefused: dns.RcodeRefused, modeNotImp: dns.RcodeNotImplemented, modeServfail: dns.RcodeServerFailure,
		}[mode]
		return true
	case modeFormerr:
		if q.IsEdns0() != nil {
			m.Rcode = dns.RcodeFormatError
			return true
		}
	case modeHeld:
		r.count(first, 1)
		r.gate(name).pass(nil)
		r.count(first, -1)
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

// count notes that a held name begins or ends to be looked up.
func (r *resolver) count(first bool, change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.inside += change
		r.peak = max(r.peak, r.inside)
	}
}

// held is how many held names are looked up, at this moment and at most.
func (r *resolver) held() (inside, peak int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside, r.peak
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
	return r.gates.at(dns.Fqdn(name))
}

// zoneText is what the resolver knows. The first record is the SOA of negative
// answers. Addresses are those of RFC 5737 and RFC 3849.
const zoneText = `
$ORIGIN example.com.
$TTL 3600
@            SOA   ns1.Example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
@            NS    ns1.example.com.
@            NS    NS2.Example.NET.
@       300  A     192.0.2.1
@       300  MX    10 mx1.example.com.
@       300  MX    20 MX2.example.com.
www     300  A     192.0.2.10
www     120  A     192.0.2.11
www     600  AAAA  2001:db8:0:0::10
nomail       MX    0 .
internal  60 A     10.0.0.1
txt     60   TXT   "v=spf1 include:_spf.example.net " "-all"
txt     90   TXT   "<script>alert(1)</script> \"quoted\" back\\slash"
binary       TXT   "\255\254\000tail" "caf\195\169" "half\195" "\169whole"
_dmarc       TXT   "v=DMARC1; p=reject"
shop    300  CNAME cdn.example.net.
cdn.example.net.   60  CNAME Edge.Example.ORG.
edge.example.org. 900  A     198.51.100.7
dangling 300 CNAME gone.example.net.
alias   300  CNAME www.example.com.
xn--bcher-kva 300 A 192.0.2.20
wide         MX    5 mail.example.com.
com. 172800 IN NS   a.gtld-servers.net.
`

// bigTXT does not fit into a datagram: 20 strings of 200 bytes.
func bigTXT() []string {
	list := make([]string, 20)
	for i := range list {
		list[i] = strings.Repeat(string(rune('a'+i)), 200)
	}
	return list
}

func readZone(tb testing.TB) testbed.Zone {
	tb.Helper()
	zone := testbed.ReadZone(tb, zoneText)
	zone.Records["big.example.com."] = []dns.RR{&dns.TXT{
		Hdr: dns.RR_Header{Name: "big.example.com.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60},
		Txt: bigTXT(),
	}}
	return zone
}
