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

// resolverAddrs are the service's default resolvers.
func resolverAddrs() []string { return []string{"1.1.1.1", "8.8.8.8", "9.9.9.10"} }

// resolvers answer as one, with the records that hosts have.
type resolvers struct {
	hosts map[string]host
	zone  testbed.Zone
	asked sync.Map // queries, and whom of the resolvers
	first *firstResolver
}

func (n *internet) openResolvers(t *testing.T) {
	// The service asks for these when it is asked whether it is ready.
	records := map[string][]dns.RR{"com.": {record("com.", "300 IN NS a.gtld-servers.net.")}}
	for name, h := range n.hosts {
		owner := name + "."
		records[owner] = addresses(owner, slices.Concat(h.dead, h.addrs))
		for _, text := range h.records {
			records[owner] = append(records[owner], record(owner, text))
		}
	}
	r := &resolvers{hosts: n.hosts, first: &n.first, zone: testbed.Zone{Records: records}}
	for _, a := range resolverAddrs() {
		s := testbed.Must(testbed.ListenDNS(net.JoinHostPort(a, "53"), r))
		t.Cleanup(func() { _ = s.Close() })
	}
	openPortals(t, r)
}

func record(owner, text string) dns.RR { return testbed.Must(dns.NewRR(owner + " " + text)) }

// addresses are A and AAAA records. The zone file form has no mapped ones.
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
	if !r.first.replies(w.LocalAddr()) {
		return
	}
	m, zone := testbed.Reply(q), r.zone
	if _, again := r.asked.LoadOrStore(fmt.Sprint(name, qtype, w.LocalAddr()), true); again && h.later != nil {
		zone = testbed.Zone{Records: map[string][]dns.RR{name: addresses(name, h.later)}}
	}
	if m.Rcode = h.rcode; h.rcode == dns.RcodeSuccess {
		zone.Answer(m, name, qtype)
	}
	testbed.Send(w, q, m)
}

type host struct {
	name string // as in the tables, see full
	// addrs are its A and AAAA records. A host with serve and without addrs
	// gets a new public IPv4 address.
	addrs []string
	// dead are A and AAAA records before those of addrs, of addresses that nobody answers at.
	dead []string
	// later are its A and AAAA records from each resolver's second query on.
	later   []string
	records []string // others, in zone file form without the owner
	rcode   int      // of every answer about it
	silent  bool     // no resolver answers
	serve   server   // what listens on port 443 of its addresses
}

func allHosts() []host {
	certificates, _ := certificateSites()
	all := slices.Concat(certificates, hosts(), brokenHosts(), specialHosts())
	if *runs > 1 {
		all = append(all, measuredHosts()...)
	}
	for i := range all {
		all[i].name = full(all[i].name)
	}
	return all
}

const (
	closedAddr    = "93.184.1.1" // of a host where nothing listens
	sixAddr       = "2606:2800:220:1::6"
	unroutedAddr  = "2606:2800:221:1::6" // there is no route to
	bootstrapAddr = "93.184.2.1:80"
	bootstrapURL  = "http://" + bootstrapAddr + "/rdap/dns.json"
)

// routes give every address to this machine, but those without a route and those that swallow what
// is sent to them from another namespace. A server wants its address of IPv6 one by one.
const routes = `link set lo up
route add local 0.0.0.0/0 dev lo table local
route add local ::/0 dev lo table local
route add unreachable 2606:2800:221::/48 table local
route add blackhole ` + deadNetwork + ` table local
route add blackhole ` + deadNetworkSix + ` table local
addr add ` + sixAddr + `/128 dev lo nodad
`

// internet is everything that the service can reach.
type internet struct {
	ca    *testbed.Authority
	tap   *tap
	hosts map[string]host
	far   far     // where the service is; nil for here
	lines [2]line // to there and back
	first firstResolver
	// public are the places that the service may connect to: the bootstrap file's, and port 443
	// of closedAddr and of the addresses of a host that has a server there.
	public map[netip.AddrPort]bool
}

func newInternet(t *testing.T) *internet {
	subject := pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}}
	n := &internet{ca: testbed.NewAuthority(t, subject), hosts: map[string]host{}, public: map[netip.AddrPort]bool{}}
	n.public[netip.MustParseAddrPort(closedAddr+":443")] = true
	n.public[netip.MustParseAddrPort(bootstrapAddr)] = true
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
		testbed.Check(testbed.IP(measuredAddrs()))
	}
	if *rtt > 0 {
		n.far = newFar(t, *rtt, &n.lines)
	}
	n.tap = newTap(t)
	for _, h := range n.hosts {
		for _, a := range h.addrs {
			if at := netip.AddrPortFrom(netip.MustParseAddr(a), 443); h.serve != nil {
				n.public[at] = true
				h.serve(t, n.ca, h.name, at.String())
			}
		}
	}
	n.openResolvers(t)
	serveBootstrap(t)
	return n
}

func listen(t *testing.T, at string) net.Listener {
	l := testbed.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", at))
	t.Cleanup(func() { l.Close() })
	return l
}

// serveBootstrap serves IANA's file of RDAP servers (RFC 9224), at an address of the operator's.
func serveBootstrap(t *testing.T) {
	var services [][][]string
	for tld, base := range registries() {
		services = append(services, [][]string{{tld}, {base}})
	}
	doc := testbed.Must(json.Marshal(map[string]any{"version": "1.0", "publication": "2026-11-01T00:00:00Z", "services": services}))
	l := listen(t, bootstrapAddr)
	go func() { _ = http.Serve(l, body(string(doc))) }() //nolint:gosec // until the test ends
}

// server listens on an address of a host, ip:port, until the test ends.
type server func(t *testing.T, ca *testbed.Authority, name, at string)

// says answers with a status and fields, which need not be well-formed.
func says(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header()[name] = append(w.Header()[name], value)
		}
		w.WriteHeader(status)
	}
}

func ok(w http.ResponseWriter, r *http.Request) {
	says(http.StatusOK, "Server: simnet", "Content-Type: text/html")(w, r)
}

func to(location string) http.HandlerFunc { return says(http.StatusFound, "Location: "+location) }

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func paths(pages map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if page, ok := pages[r.RequestURI]; ok {
			page(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// chain redirects n times.
func chain(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) <= n {
			to(r.URL.Path+"x")(w, r)
		}
	}
}

// onlyGET hangs up on everything else.
func onlyGET(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		hangUp(w, r)
	}
	ok(w, r)
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// endless sends headers without end.
func endless(w http.ResponseWriter, _ *http.Request) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err == nil {
		defer conn.Close()
		_, err = out.WriteString("HTTP/1.1 200 OK\r\n")
	}
	for err == nil {
		_, err = out.WriteString("X-Filler: " + strings.Repeat("x", 1000) + "\r\n")
	}
}

// web is an HTTPS origin.
func web(h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webUpTo(tls.VersionTLS13, h, edits...)
}

// webUpTo is one that refuses a hello that offers more than a version of TLS.
func webUpTo(highest uint16, h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webFor(func(hello *tls.ClientHelloInfo) bool { return hello.SupportedVersions[0] <= highest }, h, edits...)
}

// webFor is one that refuses every hello but those that it wants.
func webFor(wants func(*tls.ClientHelloInfo) bool, h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return webBy(func(config *tls.Config) {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !wants(hello) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
	}, h, edits...)
}

// webBy is one whose TLS is changed.
func webBy(change func(*tls.Config), h http.HandlerFunc, edits ...func(*x509.Certificate)) server {
	return func(t *testing.T, ca *testbed.Authority, name, at string) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name, edits...)}, MinVersion: tls.VersionTLS10}
		change(config)
		s := &http.Server{Handler: h, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
		l := tls.NewListener(listen(t, at), config)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
	}
}

// plain speaks HTTP without TLS, and mute leaves connections to the kernel.
func plain(t *testing.T, _ *testbed.Authority, _, at string) {
	l := listen(t, at)
	go func() { _ = http.Serve(l, nil) }() //nolint:gosec // until the test ends
}

func mute(t *testing.T, _ *testbed.Authority, _, at string) { listen(t, at) }

// byOpenSSL is an openssl s_server, which talks to one client after the other, with a certificate
// for a key of a kind. It sends back what it is sent, reversed, so that no client is waited for.
func byOpenSSL(key string, args ...string) server {
	return func(t *testing.T, _ *testbed.Authority, name, at string) {
		file := filepath.Join(t.TempDir(), "server.pem") // key and certificate
		request := append([]string{"req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:" + name,
			"-keyout", file, "-out", file, "-newkey"}, strings.Fields(key)...)
		testbed.Must(exec.Command("openssl", request...).Output())
		p := testbed.Must(programs.Start(exec.Command("openssl", append([]string{"s_server", "-accept", at, "-rev", "-cert", file}, args...)...)))
		t.Cleanup(p.Kill)
		testbed.Check(p.Listens(at))
	}
}
