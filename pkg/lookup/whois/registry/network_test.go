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
	n := &network{t: t, hosts: map[string]string{}, resolve: map[string]error{}, dial: map[string]error{}}
	var err error
	if n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	n.ca = n.sign(ca, ca)
	n.pool = x509.NewCertPool()
	n.pool.AddCert(n.ca)
	t.Cleanup(func() {
		if left := n.open.Load(); left != 0 {
			t.Errorf("%d connections were left open", left)
		}
	})
	return n
}

func (n *network) sign(c, issuer *x509.Certificate) *x509.Certificate {
	n.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, &n.key.PublicKey, n.key)
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// tls is the configuration of a server with a certificate for a name.
func (n *network) tls(name string) *tls.Config {
	leaf := n.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, n.ca)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: n.key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

func (n *network) place(hostport, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[hostport] = address
}

// https starts a server for a name; port 443 unless the name has one.
func (n *network) https(name string, h http.HandlerFunc) *httptest.Server {
	n.t.Helper()
	host, port, found := strings.Cut(name, ":")
	if !found {
		port = "443"
	}
	s := httptest.NewUnstartedServer(h)
	s.TLS = n.tls(host)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	n.t.Cleanup(s.Close)
	n.place(host+":"+port, s.Listener.Addr().String())
	return s
}

// local starts a server that has a certificate for its address on loopback.
func (n *network) local(h http.HandlerFunc) *httptest.Server {
	n.t.Helper()
	leaf := n.sign(&x509.Certificate{
		SerialNumber: big.NewInt(3), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, n.ca)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: n.key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	n.t.Cleanup(s.Close)
	return s
}

// http starts a plain server for a name on port 80.
func (n *network) http(name string, h http.HandlerFunc) {
	n.t.Helper()
	s := httptest.NewServer(h)
	n.t.Cleanup(s.Close)
	n.place(name+":80", s.Listener.Addr().String())
}

// raw starts a server that has the connection after the TLS handshake to
// itself, request read.
func (n *network) raw(name string, serve func(net.Conn)) {
	n.t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", n.tls(name))
	if err != nil {
		n.t.Fatal(err)
	}
	serveRaw(n.t, l, func(c net.Conn) {
		buf := make([]byte, 4096)
		if _, err := c.Read(buf); err == nil {
			serve(c)
		}
	})
	n.place(name+":443", l.Addr().String())
}

func serveRaw(t testing.TB, l net.Listener, serve func(net.Conn)) {
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
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
	n.open.Add(1)
	return &counted{Conn: conn, open: &n.open}, t.Addrs[0], nil
}

// counted takes itself off the count when it is closed for the first time.
type counted struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
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

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

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
