package ssl

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
)

// recording makes a handshake with a server of crypto/tls. The client offers no TLS version
// above the one in highest. The server accepts only the given curves, or its default curves if
// none is given. recording returns the bytes that the client has read, the secret of the
// handshake, and the connection state of the client.
func recording(t testing.TB, highest uint16, curves ...tls.CurveID) (read, secret []byte, state tls.ConnectionState) {
	t.Helper()
	w := startPeer(t, handshakeServer([][]byte{certificateWith(nil)}, ecKey(), func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS10, curves }))
	ctx := testbed.Soon(t)
	conn, _, err := w.Dialer().Dial(ctx, testbed.Must(w.Dialer().Resolve(ctx, testDomain)), origin.Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rec := &recorder{Conn: conn}
	cfg := origin.TLSConfig(testDomain, origin.Modern)
	cfg.MaxVersion = highest
	cfg.KeyLogWriter = &rec.keyLog
	c := tls.Client(rec, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	return rec.received.Bytes(), rec.trafficSecret(), c.ConnectionState()
}

func TestFlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		highest uint16
		curves  []tls.CurveID
	}{{tls.VersionTLS10, nil}, {tls.VersionTLS11, nil}, {tls.VersionTLS12, nil}, {tls.VersionTLS13, nil},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP384}}, // the server sends a HelloRetryRequest first
	} {
		read, secret, state := recording(t, c.highest, c.curves...)
		leaf := state.PeerCertificates[0].Raw
		f := readFlight(bytes.NewReader(read), secret)
		if !f.hasHello || f.version != state.Version || f.suite != state.CipherSuite || f.alert != -1 || !bytes.Equal(f.leaf, leaf) {
			t.Errorf("%+v, want %x %x %x", f, state.Version, state.CipherSuite, leaf)
		}
		// Wherever the recording is cut off, the leaf must be the same or nil.
		for n := range read {
			if f := readFlight(bytes.NewReader(read[:n]), secret); f.leaf != nil && !bytes.Equal(f.leaf, leaf) {
				t.Fatalf("%x: cut at %d the leaf is %x", c.highest, n, f.leaf)
			}
		}
		if f := readFlight(bytes.NewReader(read), nil); (f.leaf == nil) != (c.highest == tls.VersionTLS13) {
			t.Errorf("%x: without the secret the leaf is %x", c.highest, f.leaf)
		}
	}
	// A server of crypto/tls chooses the TLS 1.3 suite that suits the hardware, so the test
	// cannot make it choose the other suites. The handshakes with these were recorded with
	// another server.
	suites := map[uint16]bool{}
	for _, seed := range fuzzSeeds("flights.hex") {
		if len(seed) == 3 {
			f := readFlight(bytes.NewReader(seed[0]), seed[1])
			if suites[f.suite] = true; !bytes.Equal(f.leaf, seed[2]) {
				t.Errorf("%x: the leaf is %x, want %x", f.suite, f.leaf, seed[2])
			}
		}
	}
	if !suites[tls.TLS_AES_256_GCM_SHA384] || !suites[tls.TLS_CHACHA20_POLY1305_SHA256] {
		t.Errorf("recorded are %v", suites)
	}
}

// TestChoice checks the suite and the version that a server has chosen. The name of a suite
// must be its IANA name, even if crypto/tls does not know the suite. For SSL 3.0, the result
// must have no version. A certificate that comes without a ServerHello must be ignored.
func TestChoice(t *testing.T) {
	t.Parallel()
	certificate := []byte{22, 3, 3, 0, 12, 11, 0, 0, 8, 0, 0, 5, 0, 0, 2, 0xde, 0xad}
	if f := readFlight(bytes.NewReader(certificate), nil); f.leaf != nil {
		t.Errorf("a leaf without a hello: %+v", f)
	}
	f := readFlight(bytes.NewReader(append(serverHello(0x300, 0x39), certificate...)), nil) // SSL 3.0
	if !bytes.Equal(f.leaf, []byte{0xde, 0xad}) {
		t.Errorf("%+v", f)
	}
	f.leaf = certificateWith(nil)
	if r, err := f.result(testQuery(), netip.Addr{}, testNow()); err != nil || r.TLSVersion != nil || textOrNull(r.Cipher) != "tls_dhe_rsa_with_aes_256_cbc_sha" {
		t.Errorf("%+v, %v", r, err)
	}
	names := map[uint16]string{0xc09e: "TLS_DHE_RSA_WITH_AES_128_CCM", 0x0011: "TLS_DHE_DSS_EXPORT_WITH_DES40_CBC_SHA", 0xc102: "TLS_GOSTR341112_256_WITH_28147_CNT_IMIT", 0xfefe: ""}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		names[s.ID] = s.Name
	}
	for id, want := range names {
		if got := suiteName(id); got != want {
			t.Errorf("%04x is %s, want %s", id, got, want)
		}
	}
	once := map[uint16]bool{}
	for _, s := range cipherSuites() {
		if once[s.id] {
			t.Errorf("%04x %s is there twice", s.id, s.name)
		}
		once[s.id] = true
	}
}

// TestFirstCertificate checks Certificate messages of TLS 1.3, which begin with a context. If
// the context is cut off, there must be no certificate. TestFlight covers messages that are
// cut off elsewhere.
func TestFirstCertificate(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"02aaaa000007000002dead0000": "dead", "ff000007000002dead0000": ""} {
		if got := hex.EncodeToString(firstCertificate(unhex(body), tls.VersionTLS13)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// FuzzFlight checks that readFlight returns for arbitrary bytes, and returns the same leaf if
// they arrive one by one. A leaf must follow a ServerHello, and must not be longer than the
// input.
func FuzzFlight(f *testing.F) {
	for _, highest := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		read, secret, _ := recording(f, highest)
		f.Add(read, secret)
	}
	for _, seed := range fuzzSeeds("flights.hex") {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, raw, secret []byte) {
		got := readFlight(bytes.NewReader(raw), secret)
		if len(got.leaf) > len(raw) || got.leaf != nil && (!got.hasHello || len(got.leaf) == 0) || got.alert < -1 || got.alert > 255 {
			t.Errorf("%+v", got)
		}
		if again := readFlight(iotest.OneByteReader(bytes.NewReader(raw)), secret); !bytes.Equal(again.leaf, got.leaf) {
			t.Error("read byte by byte, it differs")
		}
	})
}

// serverHello returns a record with a ServerHello that chooses the given version and suite.
func serverHello(version, suite uint16) []byte {
	hello := slices.Concat([]byte{byte(version >> 8), byte(version)}, make([]byte, 33), []byte{byte(suite >> 8), byte(suite), 0})
	message := append([]byte{2, 0, 0, byte(len(hello))}, hello...)
	return append([]byte{22, 3, 3, 0, byte(len(message))}, message...)
}

func helloTLS12() []byte {
	return serverHello(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
}

// fuzzSeeds returns the seeds in a file of testdata, for fuzz tests and other tests. Each line
// of the file is one seed: its arguments in hex, where "-" is an empty argument. A line that
// begins with # is a comment, which says why the seed below is kept.
func fuzzSeeds(file string) [][][]byte {
	text := testbed.Must(os.ReadFile("testdata/" + file))
	var seeds [][][]byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var seed [][]byte
		for _, arg := range strings.Fields(line) {
			seed = append(seed, unhex(strings.TrimPrefix(arg, "-")))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// startPeer starts a server for the host testDomain. The function serve handles its
// connections until the test ends.
func startPeer(t testing.TB, serve func(net.Conn)) *testbed.Origins {
	t.Helper()
	w := testbed.NewOrigins(t)
	w.Accept(testDomain, address, serve)
	return w
}

// handshakeServer returns a server with the given certificate chain and key. It completes the
// handshake and then keeps the connection open until the client sends a byte or closes it. If
// the function change is not nil, it changes the server's configuration.
func handshakeServer(chain [][]byte, key crypto.PrivateKey, change func(*tls.Config)) func(net.Conn) {
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}}
	if change != nil {
		change(cfg)
	}
	return func(c net.Conn) {
		s := tls.Server(c, cfg)
		if s.Handshake() == nil {
			s.Read(make([]byte, 1))
		}
	}
}

// limitServer returns a change, for handshakeServer, that sets the highest TLS version and the
// cipher suites of a server.
func limitServer(version uint16, suites ...uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, version, suites
	}
}

func newClient(c guard.Connector) *Client { return New(Config{Connector: c, Now: testNow}) }

func testQuery() Query { return Query{Domain: testDomain} }

// inspectPeer calls Client.Inspect for the host testDomain. The returned connection is closed
// at the end of the test.
func inspectPeer(t *testing.T, w *testbed.Origins) (Result, *tls.Conn, error) {
	t.Helper()
	ctx := testbed.Soon(t)
	r, conn, err := newClient(w.Dialer()).Inspect(ctx, testQuery(), testbed.Must(w.Dialer().Resolve(ctx, testDomain)))
	if conn != nil {
		t.Cleanup(func() { conn.Close() })
	}
	return r, conn, err
}

func textOrNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}
