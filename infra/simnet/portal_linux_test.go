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

// portal is a resolver that denies every name. The first label of the name decides which SOA
// record comes with the denial: that of the root, that of the name itself, or none.
type portal struct {
	nameServers *resolvers // answers queries for name servers; if it is nil, these queries are denied like all others
}

func (p portal) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok {
		return
	}
	if p.nameServers != nil && qtype == dns.TypeNS {
		p.nameServers.ServeDNS(w, q)
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
			rowMaker("dns")(name, wantError(lookup.UpstreamUnavailable)),
			rowMaker("dns")(name, wantError(lookup.UpstreamUnavailable), "type=MX"),
			rowMaker("ssl-check")(name, wantError(lookup.SSLTimeout)),
			rowMaker("headers")(name, wantError(lookup.HeadersTimeout)),
			rowMaker("resolve-redirect")(name, wantError(lookup.RedirectTimeout)),
			rowMaker("whois")(name, wantError(lookup.WhoisTimeout)),
			rowMaker("uptime-check")(name, wantResult(childError("dns", lookup.UpstreamUnavailable), childError("ssl", lookup.SSLTimeout), childError("headers", lookup.HeadersTimeout))),
			rowMaker("host-intel")(name, wantResult(childError("dns", lookup.UpstreamUnavailable), childError("ssl", lookup.SSLTimeout), childError("whois", lookup.WhoisTimeout))))
	}
	return rows
}

// relayedRows returns the rows for a service with two resolvers. The first, at relayAddr,
// denies the name in every query for addresses. The second, 1.1.1.1, gives true answers, which
// the service must sell.
func relayedRows() []row {
	return []row{
		rowMaker("dns")("example.com", wantResult(`"rcode":"NOERROR"`, `"resolver":"1.1.1.1"`, `"records":[{"address":"`)),
		rowMaker("headers")("example.com", wantResult(`"status":200`)),
		rowMaker("whois")("www.example.com", wantResult(`"handle":"1234_DOMAIN_COM-VRSN"`)),
	}
}
