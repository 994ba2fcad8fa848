package simnet

import (
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// portalAddrs returns the addresses of resolvers that deny every name. In a network with a
// captive portal, such as that of a hotel, every query gets such an answer, whatever resolver
// the query is for.
func portalAddrs() []string { return []string{"93.184.3.1", "93.184.3.2"} }

// relayAddr is the address of a resolver that gives true answers only to queries for name
// servers.
const relayAddr = "93.184.3.3"

// portal is a resolver that denies every name. The first label of a name decides which SOA
// record the answer has.
type portal struct {
	relays *resolvers // answers queries for name servers; if it is nil, these queries are denied like all others
}

func (p portal) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok {
		return
	}
	if p.relays != nil && qtype == dns.TypeNS {
		p.relays.ServeDNS(w, q)
		return
	}
	m := testbed.Reply(q)
	m.Rcode = dns.RcodeNameError
	kind, _, _ := strings.Cut(name, ".")
	if zone, proves := map[string]string{"root": ".", "own": name}[kind]; proves {
		m.Ns = []dns.RR{record(zone, "60 IN SOA a. b. 1 2 3 4 5")}
	}
	testbed.Send(w, q, m)
}

func openPortals(t *testing.T, truth *resolvers) {
	open := func(addr string, p portal) {
		s := testbed.Must(testbed.ListenDNS(net.JoinHostPort(addr, "53"), p))
		t.Cleanup(func() { _ = s.Close() })
	}
	for _, addr := range portalAddrs() {
		open(addr, portal{})
	}
	open(relayAddr, portal{truth})
}

// deniedRows returns the rows for a network that denies every name. There the service cannot
// answer any question about a host, whatever records the denials contain.
func deniedRows() (rows []row) {
	for _, name := range []string{"bare", "root", "own"} {
		rows = append(rows,
			asks("dns")(name, fails(lookup.UpstreamUnavailable)),
			asks("dns")(name, fails(lookup.UpstreamUnavailable), "type=MX"),
			asks("ssl-check")(name, fails(lookup.SSLTimeout)),
			asks("headers")(name, fails(lookup.HeadersTimeout)),
			asks("resolve-redirect")(name, fails(lookup.RedirectTimeout)),
			asks("whois")(name, fails(lookup.WhoisTimeout)),
			asks("uptime-check")(name, has(child("dns", lookup.UpstreamUnavailable), child("ssl", lookup.SSLTimeout), child("headers", lookup.HeadersTimeout))),
			asks("host-intel")(name, has(child("dns", lookup.UpstreamUnavailable), child("ssl", lookup.SSLTimeout), child("whois", lookup.WhoisTimeout))))
	}
	return rows
}

// relayedRows returns the rows for a service with two resolvers. The first, at relayAddr,
// denies the name in every query for addresses. The second, 1.1.1.1, gives true answers, which
// the service must sell.
func relayedRows() []row {
	return []row{
		asks("dns")("example.com", has(`"rcode":"NOERROR"`, `"resolver":"1.1.1.1"`, `"records":[{"address":"`)),
		asks("headers")("example.com", has(`"status":200`)),
		asks("whois")("www.example.com", has(`"handle":"1234_DOMAIN_COM-VRSN"`)),
	}
}
