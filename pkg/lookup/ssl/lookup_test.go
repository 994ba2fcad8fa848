package ssl

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// TestLookupJSON holds the shape of spec §2.2, byte for byte.
func TestLookupJSON(t *testing.T) {
	t.Parallel()
	der := with(nil)
	sum := sha256.Sum256(der)
	got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	want := `{"domain":"www.example.com","port":443,"sni":"www.example.com","peer_ip":"93.184.216.34",` +
		`"tls_version":"tlsv1.3","cipher":"tls_aes_128_gcm_sha256","subject":"CN=www.example.com","issuer":"O=Example CA",` +
		`"serial":"0102","not_before":"2026-01-01T00:00:00Z","not_after":"2027-01-01T00:00:00Z",` +
		`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["www.example.com"],` +
		`"fingerprint_sha256":"` + hex.EncodeToString(sum[:]) + `","signature_algorithm":"ecdsa-with-SHA256"}`
	if d := cmp.Diff(want, string(must(json.Marshal(got)))); d != "" || err != nil {
		t.Error(err, d)
	}
}

// TestFlags varies what the three flags depend on.
func TestFlags(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	usual := []string{domain, "*.example.com"}
	for name, c := range map[string]struct {
		from, to              time.Duration // the validity, seen from now
		names                 []string
		expired, early, match bool
	}{
		"valid":             {-day, day, usual, false, false, true},
		"expired":           {-day, -time.Second, usual, true, false, true},
		"last second":       {-day, 0, usual, false, false, true},
		"first second":      {0, day, usual, false, false, true},
		"not yet valid":     {time.Second, day, usual, false, true, true},
		"never valid":       {time.Hour, -time.Hour, usual, true, true, true},
		"wildcard":          {-day, day, []string{"*.example.com"}, false, false, true},
		"letter case":       {-day, day, []string{"WWW.Example.com"}, false, false, true},
		"wildcard too high": {-day, day, []string{"*.com", "example.com"}, false, false, false},
		"wildcard too deep": {-day, day, []string{"*.www.example.com"}, false, false, false},
		"partial wildcard":  {-day, day, []string{"w*.example.com"}, false, false, false},
		"trailing dot":      {-day, day, []string{domain + "."}, false, false, false},
		"NUL in a name":     {-day, day, []string{domain + "\x00.evil.example"}, false, false, false},
		"CN only":           {-day, day, []string{}, false, false, false},
	} {
		leaf := issue(ecKey(), func(x *x509.Certificate) {
			x.NotBefore, x.NotAfter, x.DNSNames = now().Add(c.from), now().Add(c.to), c.names
			x.EmailAddresses, x.IPAddresses = []string{"a@example.com"}, []net.IP{net.IPv4(127, 0, 0, 1)} // beside the point
		})
		got, err := seen{leaf: leaf}.result(query(), netip.Addr{}, now())
		if err != nil || got.Expired != c.expired || got.NotYetValid != c.early || got.HostnameMatch != c.match {
			t.Errorf("%s: expired %v, not yet valid %v, match %v, %v", name, got.Expired, got.NotYetValid, got.HostnameMatch, err)
		}
		if d := cmp.Diff(c.names, got.SANs); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestVersions takes the leaf under every version and kind of suite that crypto/tls
// has.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key             crypto.Signer
		max, suite      uint16
		version, cipher string
	}{
		{rsaKey(), tls.VersionTLS10, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, "tlsv1", "tls_ecdhe_rsa_with_aes_128_cbc_sha"},
		{rsaKey(), tls.VersionTLS10, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA, "tlsv1", "tls_rsa_with_3des_ede_cbc_sha"},
		{rsaKey(), tls.VersionTLS11, tls.TLS_RSA_WITH_AES_256_CBC_SHA, "tlsv1.1", "tls_rsa_with_aes_256_cbc_sha"},
		{rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_RC4_128_SHA, "tlsv1.2", "tls_rsa_with_rc4_128_sha"},
		{rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_CBC_SHA256, "tlsv1.2", "tls_rsa_with_aes_128_cbc_sha256"},
		{ecKey(), tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "tlsv1.2", "tls_ecdhe_ecdsa_with_chacha20_poly1305_sha256"},
	} {
		w := tlsPeer(t, [][]byte{issue(c.key, nil)}, c.key, atMost(c.max, c.suite))
		got, err := lookup(t, w)
		if err != nil || text(got.TLSVersion) != c.version || text(got.Cipher) != c.cipher || len(w.Dials()) != 1 {
			t.Errorf("%s %s, want %s; %q, %v", text(got.TLSVersion), text(got.Cipher), c.cipher, w.Dials(), err)
		}
	}
}

// A server that fails on a TLS 1.3 hello is asked once more without.
func TestIntolerant(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string][]byte{"alert": {21, 3, 3, 0, 2, 2, 70}, "close": nil} {
		w := peer(t, func(c net.Conn) {
			serveTLS(c, &tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{with(nil)}, PrivateKey: ecKey()}},
				GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					if h.SupportedVersions[0] != tls.VersionTLS13 {
						return nil, nil
					}
					c.Write(answer)
					c.Close()
					return nil, io.EOF
				},
			})
		})
		r, err := lookup(t, w)
		if err != nil || text(r.TLSVersion) != "tlsv1.2" || len(w.Dials()) != 2 {
			t.Errorf("%s: %+v after %q, %v", name, r, w.Dials(), err)
		}
	}
}

// TestHello looks at what a server is told.
func TestHello(t *testing.T) {
	t.Parallel()
	hellos := make(chan *tls.ClientHelloInfo, 1)
	if _, err := lookup(t, tlsPeer(t, [][]byte{with(nil)}, ecKey(), func(c *tls.Config) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) { hellos <- h; return nil, nil }
	})); err != nil {
		t.Fatal(err)
	}
	got := <-hellos
	type hello struct {
		SNI      string
		ALPN     []string
		Curves   []tls.CurveID
		Versions []uint16
	}
	want := hello{domain, nil, []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		[]uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}}
	if d := cmp.Diff(want, hello{got.ServerName, got.SupportedProtos, got.SupportedCurves, got.SupportedVersions}); d != "" {
		t.Error(d)
	}
	for _, e := range got.Extensions {
		if e == 35 { // session_ticket
			t.Error("session tickets are offered")
		}
	}
}

// The connection that Inspect hands on carries data, beyond the deadline of
// the call and any bound of the handshake.
func TestInspectConnection(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 1<<20)
	_, conn, err := inspect(t, peer(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{with(nil)}, PrivateKey: ecKey()}}})
		s.Read(make([]byte, 100))
		io.WriteString(s, body)
		s.Close()
	}))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "HEAD / HTTP/1.1\r\n\r\n")
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The largest chains that crypto/tls reads, and larger ones.
func TestLarge(t *testing.T) {
	t.Parallel()
	names := make([]string, 6000)
	for i := range names {
		names[i] = "host-" + strings.Repeat("a", 20) + ".example.net"
	}
	names[len(names)-1] = domain // a match with a name beyond those that are shown
	der := issue(ecKey(), func(c *x509.Certificate) {
		c.DNSNames, c.SerialNumber, c.Subject = names, new(big.Int).Lsh(big.NewInt(0xab), 29*8), pkix.Name{}
	})
	got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil || len(got.SANs) != 5000 || !got.HostnameMatch || got.Serial != "ab"+strings.Repeat("00", 29) || got.Subject != "" {
		t.Errorf("%v, %d names, match %v, serial %s, subject %q", err, len(got.SANs), got.HostnameMatch, got.Serial, got.Subject)
	}
	if n := len(namesText([]string{strings.Repeat("a", maxNamesText), "b"})); n != 1 {
		t.Errorf("%d names of %d bytes", n, maxNamesText)
	}
	// Above the limit of crypto/tls, a small leaf is still there to be seen.
	rest := make([]byte, 256<<10)
	if _, err := lookup(t, tlsPeer(t, [][]byte{der, rest}, ecKey(), nil)); code(err) != fault.HandshakeFailed {
		t.Errorf("a large leaf above the limit: %v", err)
	}
	got, err = lookup(t, tlsPeer(t, [][]byte{with(nil), rest}, ecKey(), nil))
	if err != nil || got.Subject != "CN="+domain {
		t.Errorf("a small leaf above the limit: %+v, %v", got, err)
	}
}
