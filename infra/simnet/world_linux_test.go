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
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

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
	plain   server   // on port 80, for a host that has serve
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

const (
	// holeAddr is in a net that swallows whatever is sent to it.
	holeAddr = "151.101.1.1"
	// wallAddr is in a net without a route to it.
	wallAddr = "199.232.1.1"
	// closedAddr is the address of a host where nothing listens.
	closedAddr = "93.184.1.1"
)

// routes give every address of IPv4 to this machine, but for two nets.
const routes = `link set lo up
route add local 0.0.0.0/0 dev lo table local
route add local ::/0 dev lo table local
link add hole0 type veth peer name hole1
link set hole0 arp off up
link set hole1 up
route add 151.101.0.0/16 dev hole0 table local
route add unreachable 199.232.0.0/16 table local
`

// internet is everything that the service can reach.
type internet struct {
	ca        *authority
	tap       *tap
	hosts     map[string]host
	far       *far   // where the service is; nil for here
	bootstrap string // URL
	resolvers []*resolver
	// public are the places that the service may connect to: the ports 443 and 80
	// of the addresses of a host that has servers there.
	public map[netip.AddrPort]bool
}

func newInternet(t *testing.T) *internet {
	subject := pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}}
	n := &internet{ca: testbed.NewAuthority(t, subject), hosts: map[string]host{}, public: map[netip.AddrPort]bool{}}
	for _, at := range []string{holeAddr + ":443", wallAddr + ":443", closedAddr + ":443"} {
		n.public[netip.MustParseAddrPort(at)] = true
	}
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
	for port, serve := range map[uint16]server{443: h.serve, 80: h.plain} {
		if serve == nil {
			continue
		}
		talk := serve(t, n.ca, h.name)
		for _, a := range h.addrs {
			at := netip.AddrPortFrom(netip.MustParseAddr(a), port)
			n.public[at] = true
			if a != closedAddr {
				listen(t, at.String(), talk)
			}
		}
	}
}

func listen(t *testing.T, at string, talk func(net.Conn)) {
	t.Helper()
	l := must(new(net.ListenConfig).Listen(t.Context(), "tcp", at))
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
	doc := must(json.Marshal(map[string]any{"version": "1.0", "publication": "2026-11-01T00:00:00Z", "services": services}))
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
