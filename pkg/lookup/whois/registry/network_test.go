package registry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// network is a small internet on loopback: it maps host:port to listeners, and
// is the Connector. When the test ends, every connection it made must have
// been closed.
type network struct {
	t    testing.TB
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	open atomic.Int64

	mu      sync.Mutex
	hosts   map[string]string // host:port -> address of a listener
	resolve map[string]error  // what Resolve says of a host
	dial    map[string]error  // what Dial says of a host
	asked   []string          // hosts that Resolve was asked for
}

var _ guard.Connector = (*network)(nil)

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{
		t: t, hosts: map[string]string{}, resolve: map[string]error{}, dial: map[string]error{}, pool: x509.NewCertPool(),
		key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	}
	ca := x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	n.ca = &ca
	n.ca = n.sign(ca)
	n.pool.AddCert(n.ca)
	t.Cleanup(func() {
		if left := n.open.Load(); left != 0 {
			t.Errorf("%d connections were left open", left)
		}
	})
	return n
}

// must is for set-up that cannot fail unless the test is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// sign makes a certificate for an hour before and after now.
func (n *network) sign(c x509.Certificate) *x509.Certificate {
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, &c, n.ca, &n.key.PublicKey, n.key))))
}

// tls is the configuration of a server with a certificate.
func (n *network) tls(c x509.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{n.sign(c).Raw}, PrivateKey: n.key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

func (n *network) place(hostport string, l net.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[hostport] = l.Addr().String()
}

// local starts a server that has a certificate for its address on loopback.
func (n *network) local(h http.HandlerFunc) *httptest.Server {
	cfg := n.tls(x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, DNSNames: []string{"localhost"},
	})
	cfg.NextProtos = nil
	return n.serve(h, cfg)
}

// https starts a server for a name on port 443.
func (n *network) https(name string, h http.HandlerFunc) *httptest.Server {
	s := n.serve(h, n.tls(x509.Certificate{DNSNames: []string{name}}))
	n.place(name+":443", s.Listener)
	return s
}

// http starts a plain server for a name on port 80.
func (n *network) http(name string, h http.HandlerFunc) *httptest.Server {
	s := n.serve(h, nil)
	n.place(name+":80", s.Listener)
	return s
}

func (n *network) serve(h http.HandlerFunc, cfg *tls.Config) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.TLS = cfg; cfg != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	n.t.Cleanup(s.Close)
	return s
}

// raw starts a server that has the connection after the TLS handshake to
// itself, request read.
func (n *network) raw(name string, serve func(net.Conn)) {
	cfg := n.tls(x509.Certificate{DNSNames: []string{name}})
	n.tcp(name, func(c net.Conn) {
		secure := tls.Server(c, cfg)
		defer secure.Close()
		if _, err := secure.Read(make([]byte, 4096)); err == nil {
			serve(secure)
		}
	})
}

// tcp starts a server that has the connection to itself.
func (n *network) tcp(name string, serveRaw func(net.Conn)) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	var running sync.WaitGroup
	n.t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				serveRaw(conn)
			})
		}
	})
	n.place(name+":443", l)
}

// silence reads until the client hangs up.
func silence(c net.Conn) { io.Copy(io.Discard, c) }

func (n *network) Resolve(ctx context.Context, name string) (guard.Target, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, name)
	if err, ok := n.resolve[name]; ok {
		return guard.Target{}, err
	}
	for at := range n.hosts {
		if strings.HasPrefix(at, name+":") {
			return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, ctx.Err()
		}
	}
	if _, ok := n.dial[name]; ok {
		return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, nil
	}
	return guard.Target{}, fault.New(fault.NXDomain, nil)
}

func (n *network) Dial(ctx context.Context, t guard.Target, port uint16) (net.Conn, netip.Addr, error) {
	n.mu.Lock()
	address := n.hosts[fmt.Sprintf("%s:%d", t.Name, port)]
	err := n.dial[t.Name]
	n.mu.Unlock()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	if address == "" {
		return nil, netip.Addr{}, fault.New(fault.ConnectFailed, fmt.Errorf("nobody at %s:%d", t.Name, port))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, netip.Addr{}, fault.New(fault.ConnectFailed, err)
	}
	return origintest.Count(conn, &n.open), t.Addrs[0], nil
}

// file is a bootstrap file; each service is "suffix suffix... url url...".
func file(services ...string) string {
	var out []string
	for _, s := range services {
		var suffixes, urls []string
		for f := range strings.FieldsSeq(s) {
			if strings.Contains(f, "://") {
				urls = append(urls, fmt.Sprintf("%q", f))
			} else {
				suffixes = append(suffixes, fmt.Sprintf("%q", f))
			}
		}
		out = append(out, fmt.Sprintf("[[%s],[%s]]", strings.Join(suffixes, ","), strings.Join(urls, ",")))
	}
	return `{"description":"test","publication":"2026-11-01T00:00:00Z","version":"1.0","services":[` + strings.Join(out, ",") + `]}`
}

// iana serves a bootstrap file and counts how often.
type iana struct {
	*httptest.Server
	hits  atomic.Int64
	moved func() // called when something was counted
	mu    sync.Mutex
	serve http.HandlerFunc
}

func newIANA(t testing.TB, doc string) *iana {
	t.Helper()
	i := &iana{moved: func() {}}
	i.set(text(doc))
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.hits.Add(1)
		i.moved()
		i.mu.Lock()
		serve := i.serve
		i.mu.Unlock()
		serve(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *iana) set(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.serve = h
}

func text(body string) http.HandlerFunc { return status(http.StatusOK, body) }

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// standard is the bootstrap file of most tests.
func standard() string {
	return file(
		"com https://rdap.registry.com/v1",
		"uk https://rdap.nominet.uk/uk/",
		"kg http://rdap.cctld.kg/",
		"dev http://plain.registry.dev/ https://secure.registry.dev/rdap",
	)
}

// client asks registries in the network.
func client(t testing.TB, n *network) *registry.Client {
	t.Helper()
	return registry.New(registry.Config{
		Connector: n, RootCAs: n.pool, BootstrapURL: newIANA(t, standard()).URL + "/rdap/dns.json", UserAgent: "test/1",
	})
}

// lookup asks with a deadline far away.
func lookup(t testing.TB, c *registry.Client, domain string) (registry.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	return c.Lookup(ctx, registry.Query{Domain: domain})
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if f := fault.From(err); err == nil || f.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// wantPrevented compares whether an error says that nobody was asked.
func wantPrevented(t testing.TB, err error, want bool) {
	t.Helper()
	if got := fault.From(err).IsPrevented(); got != want {
		t.Errorf("%v: prevented %v, want %v", err, got, want)
	}
}
