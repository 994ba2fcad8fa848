package simnet

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// resolverAddrs returns the addresses of the service's default resolvers.
func resolverAddrs() []string { return []string{"1.1.1.1", "8.8.8.8", "9.9.9.10"} }

// resolvers is the DNS server behind the addresses of all resolvers. It answers with the
// records of the hosts.
type resolvers struct {
	hosts       map[string]host
	zone        testbed.Zone
	askedBefore sync.Map // pairs of a query and the address of the resolver that got it
	firstFaults *firstResolver
}

func (n *internet) openResolvers(t *testing.T) {
	// The service queries this record to find out whether its resolvers answer.
	records := map[string][]dns.RR{"com.": {record("com.", "300 IN NS a.gtld-servers.net.")}}
	for name, h := range n.hosts {
		owner := name + "."
		records[owner] = addresses(owner, slices.Concat(h.deadAddrs, h.addrs))
		for _, text := range h.records {
			records[owner] = append(records[owner], record(owner, text))
		}
	}
	r := &resolvers{hosts: n.hosts, firstFaults: &n.firstFaults, zone: testbed.Zone{Records: records}}
	for _, a := range resolverAddrs() {
		s := testbed.Must(testbed.ListenDNS(net.JoinHostPort(a, "53"), r))
		t.Cleanup(func() { _ = s.Close() })
	}
	openPortals(t, r)
}

func record(owner, text string) dns.RR { return testbed.Must(dns.NewRR(owner + " " + text)) }

// addresses returns A and AAAA records in the generic form of RFC 3597, because an AAAA record
// in zone file form cannot have an IPv4-mapped address.
func addresses(owner string, addrs []string) (list []dns.RR) {
	for _, a := range addrs {
		ip := netip.MustParseAddr(a).AsSlice()
		list = append(list, record(owner, fmt.Sprintf(`300 IN TYPE%d \# %d %x`, map[int]uint16{4: dns.TypeA, 16: dns.TypeAAAA}[len(ip)], len(ip), ip)))
	}
	return list
}

func (r *resolvers) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	h := r.hosts[strings.TrimSuffix(name, ".")]
	if !ok || h.silent {
		return
	}
	if !r.firstFaults.waitToReply(w.LocalAddr()) {
		return
	}
	m, zone := testbed.Reply(q), r.zone
	if _, again := r.askedBefore.LoadOrStore(fmt.Sprint(name, qtype, w.LocalAddr()), true); again && h.laterAddrs != nil {
		zone = testbed.Zone{Records: map[string][]dns.RR{name: addresses(name, h.laterAddrs)}}
	}
	if m.Rcode = h.rcode; h.rcode == dns.RcodeSuccess {
		zone.Answer(m, name, qtype)
	}
	testbed.Send(w, q, m)
}

type host struct {
	name string // as in the tables; allHosts replaces this name with the full domain name
	// addrs are the addresses in the host's A and AAAA records. A host that has a server, but
	// no addrs, gets a new public IPv4 address.
	addrs []string
	// deadAddrs are addresses at which nothing answers. Their records come before those of addrs.
	deadAddrs []string
	// laterAddrs are the addresses that replace addrs when a resolver gets the same query again.
	laterAddrs []string
	records    []string // other records, in zone file form without the owner
	rcode      int      // the response code of every answer about the host
	silent     bool     // whether no resolver answers queries about the host
	serve      server   // the server on port 443 of the host's addresses
}

func allHosts() []host {
	certificates, _ := certificateSites()
	all := slices.Concat(certificates, hosts(), brokenHosts(), specialHosts())
	if *runs > 1 {
		all = append(all, measuredHosts()...)
	}
	for i := range all {
		all[i].name = domainName(all[i].name)
	}
	return all
}

const (
	closedAddr    = "93.184.1.1" // the address of a host on which nothing listens
	sixAddr       = "2606:2800:220:1::6"
	unroutedAddr  = "2606:2800:221:1::6" // an address to which no route leads
	bootstrapAddr = "93.184.2.1:80"
	bootstrapURL  = "http://" + bootstrapAddr + "/rdap/dns.json"
)

// routes assigns every address to this machine, with two exceptions. To unreachable addresses,
// there is no route. Packets from the other namespace to blackhole addresses are silently
// dropped. To listen on an IPv6 address, a server also needs that address on an interface.
const routes = `link set lo up
route add local 0.0.0.0/0 dev lo table local
route add local ::/0 dev lo table local
route add unreachable 2606:2800:221::/48 table local
route add blackhole ` + deadNetwork + ` table local
route add blackhole ` + deadNetworkSix + ` table local
addr add ` + sixAddr + `/128 dev lo nodad
`

// internet holds everything that the service can reach.
type internet struct {
	ca          *testbed.Authority
	tap         *tap
	hosts       map[string]host
	namespace   farNamespace // the namespace of the service; nil means the namespace of this process
	lines       [2]line      // one line to the service, and one from the service
	firstFaults firstResolver
	// allowedPeers has the addresses that the service may connect to: the server of the bootstrap
	// file, and port 443 of closedAddr and of every host that has a server.
	allowedPeers map[netip.AddrPort]bool
}

func newInternet(t *testing.T) *internet {
	subject := pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}}
	n := &internet{ca: testbed.NewAuthority(t, subject), hosts: map[string]host{}, allowedPeers: map[netip.AddrPort]bool{}}
	n.allowedPeers[netip.MustParseAddrPort(closedAddr+":443")] = true
	n.allowedPeers[netip.MustParseAddrPort(bootstrapAddr)] = true
	next := netip.MustParseAddr("93.184.16.1")
	for _, h := range allHosts() {
		if _, twice := n.hosts[h.name]; twice {
			t.Fatalf("two hosts are called %s", h.name)
		}
		if h.serve != nil && h.addrs == nil {
			h.addrs, next = []string{next.String()}, next.Next()
		}
		n.hosts[h.name] = h
	}
	testbed.Check(testbed.IP(routes))
	if *runs > 1 {
		testbed.Check(testbed.IP(addAddrCommands()))
	}
	if *rtt > 0 {
		n.namespace = newFarNamespace(t, *rtt, &n.lines)
	}
	n.tap = newTap(t)
	for _, h := range n.hosts {
		for _, a := range h.addrs {
			if serverAddr := netip.AddrPortFrom(netip.MustParseAddr(a), 443); h.serve != nil {
				n.allowedPeers[serverAddr] = true
				h.serve(t, n.ca, h.name, serverAddr.String())
			}
		}
	}
	n.openResolvers(t)
	serveBootstrap(t)
	return n
}

func listen(t *testing.T, addr string) net.Listener {
	l := testbed.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", addr))
	t.Cleanup(func() { l.Close() })
	return l
}

// serveBootstrap serves IANA's file of RDAP servers (RFC 9224) at bootstrapURL.
func serveBootstrap(t *testing.T) {
	var services [][][]string
	for tld, baseURL := range registries() {
		services = append(services, [][]string{{tld}, {baseURL}})
	}
	doc := testbed.Must(json.Marshal(map[string]any{"version": "1.0", "publication": "2026-11-01T00:00:00Z", "services": services}))
	l := listen(t, bootstrapAddr)
	go func() { _ = http.Serve(l, serveText(string(doc))) }() //nolint:gosec // needs no time-out: it ends with the test
}

// server starts a server for a host. The server listens on the last argument, an ip:port,
// until the test ends.
type server func(t *testing.T, ca *testbed.Authority, name, addr string)

// respondWith returns a handler that answers with a status and header fields. The fields need
// not be well-formed.
func respondWith(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header()[name] = append(w.Header()[name], value)
		}
		w.WriteHeader(status)
	}
}

func serveOK(w http.ResponseWriter, r *http.Request) {
	respondWith(http.StatusOK, "Server: simnet", "Content-Type: text/html")(w, r)
}

func redirectTo(location string) http.HandlerFunc {
	return respondWith(http.StatusFound, "Location: "+location)
}

func serveText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func servePaths(pages map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if page, ok := pages[r.RequestURI]; ok {
			page(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// redirectChain returns a handler that answers with a page after n redirects.
func redirectChain(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) <= n {
			redirectTo(r.URL.Path+"x")(w, r)
		}
	}
}

// onlyGET answers GET and closes the connection for any other method.
func onlyGET(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		hangUp(w, r)
	}
	serveOK(w, r)
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// sendEndlessHeader sends header fields until the client hangs up.
func sendEndlessHeader(w http.ResponseWriter, _ *http.Request) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err == nil {
		defer conn.Close()
		_, err = out.WriteString("HTTP/1.1 200 OK\r\n")
	}
	for err == nil {
		_, err = out.WriteString("X-Filler: " + strings.Repeat("x", 1000) + "\r\n")
	}
}

// web returns an HTTPS server that accepts every client.
func web(h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webUpTo(tls.VersionTLS13, h, edits...)
}

// webUpTo returns an HTTPS server that refuses a client if the first TLS version in the
// client's hello is above highest.
func webUpTo(highest uint16, h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webFor(func(hello *tls.ClientHelloInfo) bool { return hello.SupportedVersions[0] <= highest }, h, edits...)
}

// webFor returns an HTTPS server that refuses a client unless isAccepted returns true for the
// client's hello.
func webFor(isAccepted func(*tls.ClientHelloInfo) bool, h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webWithConfig(func(config *tls.Config) {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !isAccepted(hello) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
	}, h, edits...)
}

// webWithConfig returns an HTTPS server after editConfig has changed its TLS configuration.
func webWithConfig(editConfig func(*tls.Config), h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return func(t *testing.T, ca *testbed.Authority, name, addr string) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name, edits...)}, MinVersion: tls.VersionTLS10}
		editConfig(config)
		s := &http.Server{Handler: h, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
		l := tls.NewListener(listen(t, addr), config)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
	}
}

// plainHTTP is a server that speaks HTTP without TLS. muteServer, below, is a server that never
// accepts a connection: the kernel completes the TCP handshake, and nothing follows.
func plainHTTP(t *testing.T, _ *testbed.Authority, _, addr string) {
	l := listen(t, addr)
	go func() { _ = http.Serve(l, nil) }() //nolint:gosec // needs no time-out: it ends with the test
}

func muteServer(t *testing.T, _ *testbed.Authority, _, addr string) { listen(t, addr) }

// opensslServer returns a server that runs openssl s_server, with a key of the given kind and a
// certificate for that key. The server serves one client after the other. With -rev, it answers
// each line with the reversed line, and does not read its standard input.
func opensslServer(key string, args ...string) server {
	return func(t *testing.T, _ *testbed.Authority, name, addr string) {
		file := filepath.Join(t.TempDir(), "server.pem") // key and certificate
		request := append([]string{"req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:" + name,
			"-keyout", file, "-out", file, "-newkey"}, strings.Fields(key)...)
		testbed.Must(exec.Command("openssl", request...).Output())
		p := testbed.Must(programs.Start(exec.Command("openssl", append([]string{"s_server", "-accept", addr, "-rev", "-cert", file}, args...)...)))
		t.Cleanup(p.Kill)
		testbed.Check(p.Listens(addr))
	}
}
