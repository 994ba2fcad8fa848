package ssl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/origin"
)

// TestLookup holds what a server is told, and the shape of spec §2.2, byte for byte. The
// connection that Inspect hands on carries data.
func TestLookup(t *testing.T) {
	t.Parallel()
	der, body := with(nil), strings.Repeat("x", 1<<20)
	sum := sha256.Sum256(der)
	hellos := make(chan *tls.ClientHelloInfo, 1)
	got, conn, err := inspect(t, peer(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{
			Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: ecKey()}},
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { hellos <- h; return nil, nil },
		})
		s.Read(make([]byte, 100))
		io.WriteString(s, body)
		s.Close()
	}))
	want := `{"domain":"www.example.com","port":443,"sni":"www.example.com","peer_ip":"93.184.216.34",` +
		`"tls_version":"tlsv1.3","cipher":"tls_aes_128_gcm_sha256","subject":"CN=www.example.com","issuer":"O=Example CA",` +
		`"serial":"0102","not_before":"2026-01-01T00:00:00Z","not_after":"2027-01-01T00:00:00Z",` +
		`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["www.example.com"],` +
		`"fingerprint_sha256":"` + hex.EncodeToString(sum[:]) + `","signature_algorithm":"ecdsa-with-SHA256"}`
	if d := cmp.Diff(want, string(must(json.Marshal(got)))); d != "" || err != nil {
		t.Fatal(err, d)
	}
	curves := []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	versions := []uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}
	if h := <-hellos; h.ServerName != domain || h.SupportedProtos != nil || !slices.Equal(h.SupportedCurves, curves) ||
		!slices.Equal(h.SupportedVersions, versions) || slices.Contains(h.Extensions, 35) { // session_ticket
		t.Errorf("%+v", h)
	}
	io.WriteString(conn, "HEAD / HTTP/1.1\r\n\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The largest chains that crypto/tls reads, and larger ones.
func TestLarge(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"host-" + strings.Repeat("a", 20) + ".example.net"}, 5999)
	serial := append(unhex("00ab"), make([]byte, 29)...)
	der := with(func(p *parts) { // with a match beyond the names that are shown
		p.rest, p.serial, p.subject = names(append(many, domain)...), tlv(2, serial), name()
	})
	got, err := lookUp(t, peer(t, handshakes([][]byte{der}, ecKey(), nil)))
	if err != nil || len(got.SANs) != 5000 || !got.HostnameMatch || got.Serial != "ab"+strings.Repeat("00", 29) || got.Subject != "" {
		t.Errorf("%v, %d names, match %v, serial %s, subject %q", err, len(got.SANs), got.HostnameMatch, got.Serial, got.Subject)
	}
	if n := len(namesText([]string{strings.Repeat("a", maxNamesText), "b"})); n != 1 {
		t.Errorf("%d names of %d bytes", n, maxNamesText)
	}
	// Above the limit of crypto/tls, a small leaf is still there to be seen, and a large
	// one by a reader that does not need the rest of the message.
	for what, leaf := range map[string][]byte{"large": der, "small": with(nil)} {
		got, err := lookUp(t, peer(t, handshakes([][]byte{leaf, make([]byte, 256<<10)}, ecKey(), nil)))
		if err != nil || !got.HostnameMatch {
			t.Errorf("a %s leaf above the limit: %+v, %v", what, got, err)
		}
	}
}

// recording is what a client reads in a real handshake with a server of crypto/tls,
// and what crypto/tls saw of it.
func recording(t testing.TB, highest uint16, curves ...tls.CurveID) (read, secret []byte, state tls.ConnectionState) {
	t.Helper()
	w := peer(t, handshakes([][]byte{with(nil)}, ecKey(), func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS10, curves }))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conn, _, err := w.Dialer().Dial(ctx, must(w.Dialer().Resolve(ctx, domain)), origin.Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rec := &recorder{Conn: conn}
	cfg := origin.TLSConfig(domain, highest)
	cfg.KeyLogWriter = &rec.keys
	c := tls.Client(rec, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	return rec.read.Bytes(), rec.secret(), c.ConnectionState()
}

func TestFlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		highest uint16
		curves  []tls.CurveID
	}{{tls.VersionTLS10, nil}, {tls.VersionTLS11, nil}, {tls.VersionTLS12, nil}, {tls.VersionTLS13, nil},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP384}}, // a HelloRetryRequest first
	} {
		read, secret, state := recording(t, c.highest, c.curves...)
		leaf := state.PeerCertificates[0].Raw
		f := readFlight(bytes.NewReader(read), secret)
		if !f.hello || f.version != state.Version || f.suite != state.CipherSuite || f.alert != -1 || !bytes.Equal(f.leaf, leaf) {
			t.Errorf("%+v, want %x %x %x", f, state.Version, state.CipherSuite, leaf)
		}
		// Cut anywhere, it is the same leaf or none.
		for n := range read {
			if f := readFlight(bytes.NewReader(read[:n]), secret); f.leaf != nil && !bytes.Equal(f.leaf, leaf) {
				t.Fatalf("%x: cut at %d the leaf is %x", c.highest, n, f.leaf)
			}
		}
		if f := readFlight(bytes.NewReader(read), nil); (f.leaf == nil) != (c.highest == tls.VersionTLS13) {
			t.Errorf("%x: without the secret the leaf is %x", c.highest, f.leaf)
		}
	}
	// The other suites of TLS 1.3 were recorded from another server: that of
	// crypto/tls chooses by the hardware.
	suites := map[uint16]bool{}
	for _, seed := range kept("flights.hex") {
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

// A server's choice has the name that IANA and crypto/tls give it, also when it was not
// offered.
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
	f.leaf = with(nil)
	if r, err := f.result(query(), netip.Addr{}, now()); err != nil || r.TLSVersion != nil || text(r.Cipher) != "tls_dhe_rsa_with_aes_256_cbc_sha" {
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
	for _, s := range suites() {
		if once[s.id] {
			t.Errorf("%04x %s is there twice", s.id, s.name)
		}
		once[s.id] = true
	}
}

// What a cut leaves of a message is in TestFlight.
func TestFirstCertificate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version    uint16
		body, want string
	}{
		{tls.VersionTLS12, "000004" + "000002dead", ""}, // longer than the list
		{tls.VersionTLS12, "000003" + "000000", ""},
		{tls.VersionTLS13, "02aaaa" + "000007" + "000002dead" + "0000", "dead"},
		{tls.VersionTLS13, "ff" + "000007" + "000002dead" + "0000", ""},
	} {
		leaf := firstCertificate(unhex(c.body), c.version)
		if got := hex.EncodeToString(leaf); got != c.want || (leaf == nil) != (got == "") {
			t.Errorf("%x %s: %s, want %s", c.version, c.body, got, c.want)
		}
	}
}

// FuzzFlight: whatever was recorded, reading it ends, and a leaf is a part of
// it unless it was decrypted.
func FuzzFlight(f *testing.F) {
	for _, highest := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		read, secret, _ := recording(f, highest)
		f.Add(read, secret)
	}
	for _, seed := range kept("flights.hex") {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, raw, secret []byte) {
		got := readFlight(bytes.NewReader(raw), secret)
		if len(got.leaf) > len(raw) || got.leaf != nil && (!got.hello || len(got.leaf) == 0) || got.alert < -1 || got.alert > 255 {
			t.Errorf("%+v", got)
		}
		if again := readFlight(iotest.OneByteReader(bytes.NewReader(raw)), secret); !bytes.Equal(again.leaf, got.leaf) {
			t.Error("read byte by byte, it differs")
		}
	})
}
