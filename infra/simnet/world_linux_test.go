package simnet

import (
	"crypto/x509/pkix"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
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

// resolver is one public resolver, with the records that hosts have, and have later.
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
		s := testbed.Must(testbed.ListenDNS(net.JoinHostPort(a, "53"), r))
		t.Cleanup(func() { _ = s.Close() })
	}
}

func record(owner, text string) dns.RR { return testbed.Must(dns.NewRR(owner + " " + text)) }

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

type host struct {
	name string // as in the tables, see full
	// addrs are its A and AAAA records. A host with serve and without addrs
	// gets a new public IPv4 address.
	addrs []string
	// later are its A and AAAA records from each resolver's second query on.
	later   []string
	alias   string   // CNAME
	records []string // others, in zone file form without the owner
	rcode   int      // of every answer about it
	silent  bool     // no resolver answers
	overTCP bool     // answers do not fit into a datagram
	serve   server   // what listens on port 443 of its addresses
}

// site is a host with the rows that ask about it.
type site struct {
	host
	rows []row
}

func allHosts() []host {
	hosts := slices.Concat(
		nameHosts(), tlsHosts(), httpHosts(), redirectHosts(), registryHosts(), specialHosts(),
	)
	for _, s := range certificateSites() {
		hosts = append(hosts, s.host)
	}
	for i := range hosts {
		hosts[i].name = full(hosts[i].name)
	}
	return hosts
}

func nameHosts() []host {
	return []host{
		{name: "example.com", serve: web(ok(), named("example.com", "www.example.com"), serial(0x0a1b2c)), records: []string{
			"300 IN MX 10 mx1.example.com.", "200 IN MX 20 MX2.example.com.", `300 IN TXT "v=spf1 " "-all"`,
			"300 IN NS ns1.example.com.", "300 IN SOA ns1.example.com. admin.example.com. 1 2 3 4 5",
		}},
		{name: "bare.com", serve: web(ok())},
		{name: "www", alias: "example.com"},
		{name: "dangling", alias: "gone.example.com"},
		{name: "empty"},
		{name: "_dmarc", records: []string{`60 IN TXT "v=DMARC1; p=none"`}},
		{name: "loopback", addrs: []string{"127.0.0.1"}},
		{name: "servfail", rcode: dns.RcodeServerFailure},
		{name: "refused", rcode: dns.RcodeRefused},
		{name: "silent", silent: true},
		{name: "long", overTCP: true, serve: web(ok()), records: []string{`60 IN TXT "` + strings.Repeat("a", 255) + `"`}},
		{name: "six", addrs: []string{"2606:2800:220:1::6"}, serve: web(ok())},
		{name: "xn--bcher-kva.com", serve: web(ok())},
	}
}

// closedAddr is the address of a host where nothing listens.
const closedAddr = "93.184.1.1"

// routes give every address to this machine.
const routes = `link set lo up
route add local 0.0.0.0/0 dev lo table local
route add local ::/0 dev lo table local
`

// internet is everything that the service can reach.
type internet struct {
	ca        *authority
	tap       *tap
	hosts     map[string]host
	far       *far   // where the service is; nil for here
	bootstrap string // URL
	resolvers []*resolver
	// public are the places that the service may connect to: port 443 of the addresses of a
	// host that has a server there, and of closedAddr.
	public map[netip.AddrPort]bool
}

func newInternet(t *testing.T) *internet {
	subject := pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}}
	n := &internet{ca: testbed.NewAuthority(t, subject), hosts: map[string]host{}, public: map[netip.AddrPort]bool{}}
	n.public[netip.MustParseAddrPort(closedAddr+":443")] = true
	batch := routes
	next := netip.MustParseAddr("93.184.16.1")
	for _, h := range allHosts() {
		if _, twice := n.hosts[h.name]; twice {
			t.Fatalf("two hosts are called %s", h.name)
		}
		if h.serve != nil && h.addrs == nil {
			h.addrs, next = []string{next.String()}, next.Next()
		}
		for _, a := range h.addrs {
			if h.serve != nil && strings.Contains(a, ":") { // a bind wants IPv6 addresses one by one
				batch += "addr add " + a + "/128 dev lo nodad\n"
			}
		}
		n.hosts[h.name] = h
	}
	if err := testbed.IP(batch); err != nil {
		t.Fatalf("set the network up: %v", err)
	}
	if *rtt > 0 {
		n.far = newFar(t, *rtt)
	}
	n.tap = newTap(t)
	for _, h := range n.hosts {
		n.open(t, h)
	}
	n.openResolvers(t)
	n.bootstrap = n.serveBootstrap(t)
	return n
}

func (n *internet) open(t *testing.T, h host) {
	if h.serve == nil {
		return
	}
	talk := h.serve(t, n.ca, h.name)
	for _, a := range h.addrs {
		at := netip.AddrPortFrom(netip.MustParseAddr(a), 443)
		n.public[at] = true
		listen(t, at.String(), talk)
	}
}

func listen(t *testing.T, at string, talk func(net.Conn)) {
	l := testbed.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", at))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				talk(conn)
			}()
		}
	}()
}

// serveBootstrap is IANA's file of RDAP servers (RFC 9224), at an address of the operator's.
func (n *internet) serveBootstrap(t *testing.T) string {
	var services [][][]string
	for _, r := range registries() {
		services = append(services, [][]string{{r.tld}, {r.base}})
	}
	doc := testbed.Must(json.Marshal(map[string]any{"version": "1.0", "publication": "2026-11-01T00:00:00Z", "services": services}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(doc) // the service may be gone
	}))
	server.Listener.Close()
	if err := n.far.do(func() (err error) {
		server.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL + "/rdap/dns.json"
}
