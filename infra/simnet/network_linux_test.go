package simnet

import (
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

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
	asked     []*resolver
}

// newInternet sets the network up and starts every host in it.
func newInternet(t *testing.T) *internet {
	t.Helper()
	n := &internet{ca: testbed.NewAuthority(t, pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}}), hosts: map[string]host{}}
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
	n.resolvers(t)
	n.bootstrap = n.serveBootstrap(t)
	return n
}

// open listens on ports 443 and 80 of a host's addresses.
func (n *internet) open(t *testing.T, h host) {
	t.Helper()
	for port, serve := range map[string]server{"443": h.serve, "80": h.plain} {
		if serve == nil {
			continue
		}
		talk := serve(n.ca, h.name)
		for _, a := range h.addrs {
			if a != closedAddr {
				listen(t, net.JoinHostPort(a, port), talk)
			}
		}
	}
}

// listen has talk have each connection to an address until the test ends.
func listen(t *testing.T, at string, talk func(net.Conn)) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
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

// public are the addresses that hosts of this internet have and that the
// service may connect to: what a host with serve says, and the fixed ones.
func (n *internet) public() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range append(resolverAddrs(), holeAddr, wallAddr, closedAddr) {
		out[netip.MustParseAddr(a)] = true
	}
	for _, h := range n.hosts {
		if h.serve == nil {
			continue
		}
		for _, a := range h.addrs {
			out[netip.MustParseAddr(a)] = true
		}
	}
	return out
}

// serveBootstrap is IANA's file of RDAP servers (RFC 9224), at an address of
// the operator's.
func (n *internet) serveBootstrap(t *testing.T) string {
	t.Helper()
	var services [][][]string
	for tld, base := range registries() {
		services = append(services, [][]string{{tld}, strings.Fields(base)})
	}
	doc, err := json.Marshal(map[string]any{"version": "1.0", "publication": "2026-11-01T00:00:00Z", "services": services})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := n.far.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%s", doc)
	})}
	go func() { _ = server.Serve(listener) }() // ends with an error when it is closed
	t.Cleanup(func() { server.Close() })
	return "http://" + listener.Addr().String() + "/rdap/dns.json"
}
