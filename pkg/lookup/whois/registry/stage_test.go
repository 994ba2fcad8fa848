package registry

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
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

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

const (
	oldServer = "https://rdap.registry.com/v1/"
	newServer = "https://new.registry.com/"
)

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

// stage is a client with a clock, a Cache, a bootstrap server and registries on
// loopback, for which it is the Connector. When the test ends, every connection that
// it made must have been closed.
type stage struct {
	*Client
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	url  string // of the bootstrap file
	open atomic.Int64
	hits atomic.Int64 // requests for the bootstrap file
	log  bytes.Buffer

	mu    sync.Mutex
	now   time.Time
	iana  http.HandlerFunc
	until func() bool       // what the registry of com waits for
	hosts map[string]string // host:port to the address of a listener
	fails map[string]error  // what is said of "resolve host" and of "dial host"
	asked []string          // hosts that were resolved

	cache memory
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, now: noon, iana: says(standard()), hosts: map[string]string{}, fails: map[string]error{},
		pool: x509.NewCertPool(), key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	}
	t.Cleanup(func() {
		if left := s.open.Load(); left != 0 {
			t.Errorf("%d connections were left open", left)
		}
	})
	s.ca = &x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	s.ca = s.sign(*s.ca)
	s.pool.AddCert(s.ca)
	s.url = s.serve(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		s.mu.Lock()
		serve := s.iana
		s.mu.Unlock()
		serve(w, r)
	}, nil).URL + "/rdap/dns.json"
	s.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) {
		s.wait(r.Context())
		says(domain())(w, r)
	})
	s.https("new.registry.com", says(domain()))
	s.Client = s.process(time.Hour)
	return s
}

// process is another process with the same Cache, whose calls are bounded. A test in
// which none may end early, however busy the machine is, gives hours.
func (s *stage) process(calls time.Duration) *Client {
	c := New(Config{
		Connector: s, RootCAs: s.pool, BootstrapURL: s.url, Cache: &s.cache, UserAgent: "test/1",
		Now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.now
		},
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	c.bootstrap.fetchTimeout, c.bootstrap.cacheTimeout = time.Hour, calls
	return c
}

func (s *stage) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stage) bootstraps(h http.HandlerFunc) { s.set(func() { s.iana = h }) }
func (s *stage) advance(d time.Duration)       { s.set(func() { s.now = s.now.Add(d) }) }

// wait returns when what the registry waits for has come true.
func (s *stage) wait(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		until := s.until
		s.mu.Unlock()
		if until == nil || until() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// memory is a Cache.
type memory struct {
	mu                sync.Mutex
	doc               []byte
	fetched           time.Time
	err               error // of both methods
	hang              bool  // Get, until the context ends
	gets, puts, calls int   // calls are under way
}

func (m *memory) Get(ctx context.Context) ([]byte, time.Time, error) {
	m.set(func() { m.calls++; m.gets++ })
	if m.hang {
		<-ctx.Done()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
	if m.hang {
		return nil, time.Time{}, ctx.Err()
	}
	return m.doc, m.fetched, m.err
}

func (m *memory) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if err := errors.Join(m.err, ctx.Err()); err != nil {
		return err
	}
	m.doc, m.fetched = bytes.Clone(doc), fetched
	return nil
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// must is for set-up that cannot fail unless the test is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// sign makes a certificate for an hour before and after now.
func (s *stage) sign(c x509.Certificate) *x509.Certificate {
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, &c, s.ca, &s.key.PublicKey, s.key))))
}

// tls is the configuration of a server with a certificate.
func (s *stage) tls(c x509.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{s.sign(c).Raw}, PrivateKey: s.key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

func (s *stage) place(hostport string, l net.Listener) {
	s.set(func() { s.hosts[hostport] = l.Addr().String() })
}

// https starts a server for a name on port 443.
func (s *stage) https(name string, h http.HandlerFunc) net.Listener {
	l := s.serve(h, s.tls(x509.Certificate{DNSNames: []string{name}})).Listener
	s.place(name+":443", l)
	return l
}

// http starts a plain server for a name on port 80.
func (s *stage) http(name string, h http.HandlerFunc) net.Listener {
	l := s.serve(h, nil).Listener
	s.place(name+":80", l)
	return l
}

func (s *stage) serve(h http.HandlerFunc, cfg *tls.Config) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if server.TLS = cfg; cfg != nil {
		server.StartTLS()
	} else {
		server.Start()
	}
	s.t.Cleanup(server.Close)
	return server
}

// raw makes the registry of com a server that has the connection after the TLS
// handshake to itself, request read.
func (s *stage) raw(serve func(net.Conn)) {
	cfg := s.tls(x509.Certificate{DNSNames: []string{"rdap.registry.com"}})
	s.tcp(func(c net.Conn) {
		secure := tls.Server(c, cfg)
		defer secure.Close()
		if _, err := secure.Read(make([]byte, 4096)); err == nil {
			serve(secure)
		}
	})
}

// tcp makes it one that has the connection to itself.
func (s *stage) tcp(serve func(net.Conn)) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	var running sync.WaitGroup
	s.t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			running.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	s.place("rdap.registry.com:443", l)
}

// silence reads until the client hangs up.
func silence(c net.Conn) { io.Copy(io.Discard, c) }

// Resolve implements guard.Connector.
func (s *stage) Resolve(ctx context.Context, name string) (guard.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	if err, ok := s.fails["resolve "+name]; ok {
		return guard.Target{}, err
	}
	return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, ctx.Err()
}

// Dial implements guard.Connector.
func (s *stage) Dial(ctx context.Context, t guard.Target, port uint16) (net.Conn, netip.Addr, error) {
	s.mu.Lock()
	address, err := s.hosts[fmt.Sprintf("%s:%d", t.Name, port)], s.fails["dial "+t.Name]
	s.mu.Unlock()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, netip.Addr{}, fault.New(fault.ConnectFailed, err)
	}
	return testbed.CountOpen(conn, &s.open), t.Addrs[0], nil
}

// file is a bootstrap file; each service is "suffix suffix... url url...".
func file(services ...string) string {
	var out []string
	for _, s := range services {
		var parts [2][]string
		for f := range strings.FieldsSeq(s) {
			i := strings.Count(f, "://")
			parts[i] = append(parts[i], fmt.Sprintf("%q", f))
		}
		out = append(out, fmt.Sprintf("[[%s],[%s]]", strings.Join(parts[0], ","), strings.Join(parts[1], ",")))
	}
	return wrap(strings.Join(out, ","))
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

func says(body string) http.HandlerFunc { return status(http.StatusOK, body) }

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// domain is a domain object of example.com with more members.
func domain(members ...string) string { return domainOf("example.com", members...) }

func domainOf(name string, members ...string) string {
	return `{"objectClassName":"domain","ldhName":"` + name + `"` + strings.Join(append([]string{""}, members...), ",") + `}`
}

// lookup asks with a deadline far away.
func (s *stage) lookup(domain string) (Result, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	defer cancel()
	return s.Lookup(ctx, Query{Domain: domain})
}

// want looks example.com up, and says how often IANA and the Cache were called
// in all so far.
func (s *stage) want(server string, hits int64, puts int) {
	s.t.Helper()
	got, err := s.lookup("example.com")
	s.counts(hits, puts)
	if err != nil || got.RDAPServer != server {
		s.t.Errorf("server %q, %v; want %q", got.RDAPServer, err, server)
	}
}

// fetches is want with a registry that waits until IANA was asked and the Cache
// filled so many times in all.
func (s *stage) fetches(server string, hits int64, puts int) {
	s.t.Helper()
	s.set(func() {
		s.until = func() bool {
			s.cache.mu.Lock()
			defer s.cache.mu.Unlock()
			return s.hits.Load() >= hits && s.cache.puts >= puts
		}
	})
	s.want(server, hits, puts)
}

// loaded has fetched the bootstrap file.
func loaded(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.fetches(oldServer, 1, 1)
	return s
}

func (s *stage) counts(hits int64, puts int) {
	s.t.Helper()
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if h := s.hits.Load(); h != hits || s.cache.puts != puts {
		s.t.Errorf("IANA was asked %d times and the cache filled %d times, want %d and %d", h, s.cache.puts, hits, puts)
	}
}

// unloaded looks example.com up while there is no bootstrap file, and says how
// often IANA was asked in all so far. prevented: this lookup did not ask it.
func (s *stage) unloaded(prevented bool, hits int64) {
	s.t.Helper()
	_, err := s.lookup("example.com")
	wantFault(s.t, err, fault.BootstrapUnavailable, prevented)
	s.counts(hits, 0)
}

// wantFault compares an error's code, and whether it says that nobody was asked.
func wantFault(t testing.TB, err error, code fault.Code, prevented bool) {
	t.Helper()
	if f := fault.From(err); err == nil || f.Code != code || f.IsPrevented() != prevented {
		t.Errorf("got %v, want %s, prevented %v", err, code, prevented)
	}
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	wantFault(t, err, code, false)
}
