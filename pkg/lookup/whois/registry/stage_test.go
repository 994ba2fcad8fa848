package registry

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	oldServer = "https://rdap.registry.com/v1/"
	newServer = "https://new.registry.com/"
)

// stage is the setup of a test in a synctest bubble: a client with a Cache and a log, and the
// servers to which the client can connect. The server of the bootstrap file answers at once,
// and a registry answers after a second. The stage is also the client's Connector.
type stage struct {
	*Client
	t           *testing.T
	begin       time.Time
	cert        tls.Certificate // the self-signed certificate of all registries, which the client trusts as a root
	cache       memoryCache
	log         bytes.Buffer
	connectErrs map[string]error // the errors that Resolve and Dial return; a key is "resolve" or "dial", a space and the host

	connector guard.Connector // the client's Connector: the stage itself, unless a test sets another
	url       string          // the URL of the bootstrap file
	directErr error           // the error that the method direct returns; nil means that direct connects
	openCount atomic.Int64    // the number of open connections and of calls of Cache.Get that hang

	running sync.WaitGroup // the goroutines of servers that have not ended

	mu            sync.Mutex
	servers       map[string]func(net.Conn) // the functions that serve a connection, by host:port
	resolvedNames []string                  // the hosts that the client has resolved, in order
	directDials   []string                  // the host:port of each direct connection
	ianaConns     int                       // the number of connections to data.iana.org, the server of the bootstrap file
}

// runStage runs a test with a new stage.
func runStage(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, begin: time.Now(), cert: certificate(), servers: map[string]func(net.Conn){}, connectErrs: map[string]error{}}
		s.connector, s.url = s, "http://data.iana.org/rdap/dns.json"
		s.cache.hangingGets = &s.openCount
		s.serveBootstrap(respondOK(standardFile()))
		s.addRegistry("rdap.registry.com", respondOK(domainJSON()))
		s.addRegistry("new.registry.com", respondOK(domainJSON()))
		s.restart()
		test(t, s)
		s.running.Wait() // wait for servers that have not yet noticed that the client hung up
	})
}

// eachStage calls run for each case of a table, with a new stage.
func eachStage[C any](t *testing.T, cases map[string]C, run func(t *testing.T, s *stage, c C)) {
	t.Helper()
	testbed.Each(t, cases, func(t *testing.T, c C) {
		runStage(t, func(t *testing.T, s *stage) { run(t, s, c) })
	})
}

// restart replaces the client by a new one with the same Cache, as if a new process had
// started.
func (s *stage) restart() {
	roots := x509.NewCertPool()
	roots.AddCert(s.cert.Leaf)
	s.Client = New(whois.Config{
		Connector: s.connector, Direct: s.direct, RootCAs: roots, BootstrapURL: s.url,
		Cache: &s.cache, UserAgent: "test/1", Now: time.Now, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
}

// memoryCache is a Cache in memory. Only one lookup at a time may use it.
type memoryCache struct {
	doc         []byte
	fetched     time.Time
	err         error // the error that Get and Put return; nil means none
	hangs       bool  // whether Get waits until its context ends, and then returns an error
	putCount    int
	hangingGets *atomic.Int64 // the number of calls of Get that hang
}

func (m *memoryCache) Get(ctx context.Context) ([]byte, time.Time, error) {
	if m.hangs {
		m.hangingGets.Add(1)
		defer m.hangingGets.Add(-1)
		<-ctx.Done()
		return nil, time.Time{}, ctx.Err()
	}
	return m.doc, m.fetched, m.err
}

func (m *memoryCache) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	m.putCount++
	if err := errors.Join(m.err, ctx.Err()); err != nil {
		return err
	}
	m.doc, m.fetched = bytes.Clone(doc), fetched
	return nil
}

func certificate() tls.Certificate {
	key := testbed.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(10, 0, 0), DNSNames: []string{"*.registry.com"}}
	der := testbed.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: testbed.Must(x509.ParseCertificate(der))}
}

// responder is the behaviour of a server: it writes to w the response to the request r.
type responder func(w io.Writer, r *http.Request)

// serveOne returns a server that reads one request from a connection and lets the given
// responder answer it.
func serveOne(respond responder) func(net.Conn) {
	return func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			respond(c, r)
		}
	}
}

// serveTLS returns a registry that speaks TLS with the given certificate. In the handshake it
// prefers HTTP/2, but it answers only over HTTP/1.1. So it answers only a client that offers
// HTTP/1.1 alone.
func serveTLS(cert tls.Certificate, respond responder) func(net.Conn) {
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true}
	return func(c net.Conn) {
		s := tls.Server(c, cfg)
		defer s.Close()
		if s.Handshake() == nil && s.ConnectionState().NegotiatedProtocol == "http/1.1" {
			time.Sleep(time.Second) // fake time, in the synctest bubble
			serveOne(respond)(s)
		}
	}
}

func (s *stage) addServer(hostport string, serve func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[hostport] = serve
}

func (s *stage) addRegistry(name string, respond responder) {
	s.addServer(name+":443", serveTLS(s.cert, respond))
}
func (s *stage) serveBootstrap(respond responder) { s.addServer("data.iana.org:80", serveOne(respond)) }

// silence is a server that reads until the client hangs up, and sends nothing.
func silence(c net.Conn) { io.Copy(io.Discard, c) }

// connect connects the client to a server of the stage through a pipe.
func (s *stage) connect(ctx context.Context, host string, port uint16) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	serve := s.servers[fmt.Sprintf("%s:%d", host, port)]
	if serve == nil || ctx.Err() != nil {
		return nil, lookup.Fault(lookup.ConnectFailed, ctx.Err())
	}
	if host == "data.iana.org" {
		s.ianaConns++
	}
	near, far := net.Pipe()
	s.running.Go(func() {
		serve(far)
		far.Close()
	})
	return testbed.CountOpen(near, &s.openCount), nil
}

// Resolve implements guard.Connector.
func (s *stage) Resolve(ctx context.Context, name string) (guard.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolvedNames = append(s.resolvedNames, name)
	if err, ok := s.connectErrs["resolve "+name]; ok {
		return guard.Target{}, err
	}
	return guard.Target{Name: name, Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, ctx.Err()
}

// Dial implements guard.Connector.
func (s *stage) Dial(ctx context.Context, t guard.Target, port uint16) (net.Conn, netip.Addr, error) {
	if err := s.connectErrs["dial "+t.Name]; err != nil {
		return nil, netip.Addr{}, err
	}
	conn, err := s.connect(ctx, t.Name, port)
	return conn, t.Addrs[0], err
}

// direct is the function in whois.Config.Direct of the client.
func (s *stage) direct(ctx context.Context, _, address string) (net.Conn, error) {
	s.mu.Lock()
	s.directDials = append(s.directDials, address)
	s.mu.Unlock()
	if s.directErr != nil {
		return nil, s.directErr
	}
	host, port, _ := net.SplitHostPort(address)
	return s.connect(ctx, host, uint16(testbed.Must(strconv.ParseUint(port, 10, 16))))
}

// standardFile returns the bootstrap file of most tests.
func standardFile() string {
	return wrap(`[["com"],["https://rdap.registry.com/v1"]],[["kg"],["http://rdap.cctld.kg/"]]`)
}

// newerFile returns a bootstrap file that names another server for com.
func newerFile() string { return wrap(`[["com"],["` + newServer + `"]]`) }

// rawResponse returns a responder that sends the given text, which is a whole response with
// its status line.
func rawResponse(text string) responder {
	return func(w io.Writer, _ *http.Request) { io.WriteString(w, text) }
}

func respondOK(body string) responder { return respondStatus(http.StatusOK, body) }

func respondStatus(code int, body string) responder {
	return rawResponse(fmt.Sprintf("HTTP/1.1 %d x\r\n\r\n%s", code, body))
}

func respondRedirect(to string) responder {
	return rawResponse("HTTP/1.1 302 x\r\nLocation: " + to + "\r\n\r\nmoved")
}

// domainJSON returns the JSON of a domain object about example.com with the given additional
// members.
func domainJSON(members ...string) string { return domainJSONOf("example.com", members...) }

func domainJSONOf(name string, members ...string) string {
	return `{"objectClassName":"domain","ldhName":"` + name + `"` + strings.Join(append([]string{""}, members...), ",") + `}`
}

// lookup looks up a domain with a time limit of eight seconds. The error must have the given
// code; "" means no error. When the lookup returns, no connection may be open and no call of
// the Cache may hang. Errors are logged, so an error must be short, and must contain neither
// the queried name nor the word SECRET, which some tests put into a response.
func (s *stage) lookup(ctx context.Context, domain string, code fault.Code) (whois.Result, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	got, err := s.Lookup(ctx, whois.Query{Domain: domain})
	if n := s.openCount.Load(); n != 0 {
		s.t.Errorf("%d connections or calls were open when the answer came", n)
	}
	wantCode(s.t, err, code)
	if text := fmt.Sprint(err); len(text) > 1024 || strings.Contains(text, "SECRET") || strings.Contains(text, domain) {
		s.t.Errorf("%d bytes of error, %.200q", len(text), text)
	}
	return got, err
}

// wantCode checks that an error has the given code; "" means no error.
func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if testbed.Code(err) != code {
		t.Errorf("got %v, want %q", err, code)
	}
}

// wantLookup looks up example.com and checks the outcome. If a result is expected, server is
// its RDAPServer. If an error is expected, server is the error's code, followed by ", nobody
// was asked" if the error must be marked as prevented. hits is the expected number of
// connections to IANA since the stage was made, and puts is the expected number of calls of
// Cache.Put.
func (s *stage) wantLookup(server string, hits, puts int) {
	s.t.Helper()
	code, prevented, _ := strings.Cut(server, ", ")
	if strings.HasPrefix(server, "https:") {
		code = ""
	}
	got, err := s.lookup(s.t.Context(), "example.com", fault.Code(code))
	if err == nil && got.RDAPServer != server || err != nil && fault.From(err).IsPrevented() != (prevented != "") {
		s.t.Errorf("%s, %v; want %s", got.RDAPServer, err, server)
	}
	s.wantCounts(hits, puts)
}

func (s *stage) wantCounts(hits, puts int) {
	s.t.Helper()
	if s.ianaConns != hits || s.cache.putCount != puts {
		s.t.Errorf("IANA was asked %d times and the cache filled %d times, want %d and %d", s.ianaConns, s.cache.putCount, hits, puts)
	}
}

// wantError looks up example.com and checks the error. The error must have the given code, and
// its public message must contain the given text and nothing of the cause.
func (s *stage) wantError(code fault.Code, message string) {
	s.t.Helper()
	_, err := s.lookup(s.t.Context(), "example.com", code)
	if m := fault.From(err).Public(); !strings.Contains(m, message) || strings.Contains(m, "json") || strings.Contains(m, "registry.com") {
		s.t.Errorf("message %q, want %q in it and nothing of the cause", m, message)
	}
}

// wantFailureAt looks up example.com. The lookup must fail with the given code, after exactly
// the given time.
func (s *stage) wantFailureAt(ctx context.Context, at time.Duration, code fault.Code) {
	s.t.Helper()
	begin := time.Now()
	_, err := s.lookup(ctx, "example.com", code)
	if took := time.Since(begin); took != at {
		s.t.Errorf("%v after %v, want it after %v", err, took, at)
	}
}
