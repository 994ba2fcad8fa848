package ssl_test

import (
	"context"
	"crypto"
	"crypto/elliptic"
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
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// TestLookupJSON holds the shape of spec §2.2, byte for byte.
func TestLookupJSON(t *testing.T) {
	t.Parallel()
	der := with(nil)
	sum := sha256.Sum256(der)
	got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"domain":"www.example.com","port":443,"sni":"www.example.com","peer_ip":"127.0.0.1",` +
		`"tls_version":"tlsv1.3","cipher":"tls_aes_128_gcm_sha256","subject":"CN=www.example.com","issuer":"O=Example CA",` +
		`"serial":"0102","not_before":"2026-01-01T00:00:00Z","not_after":"2027-01-01T00:00:00Z",` +
		`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["www.example.com"],` +
		`"fingerprint_sha256":"` + hex.EncodeToString(sum[:]) + `","signature_algorithm":"ecdsa-with-SHA256"}`
	if d := cmp.Diff(want, string(b)); d != "" {
		t.Error(d)
	}
}

// TestLookupFlags varies what the three flags depend on.
func TestLookupFlags(t *testing.T) {
	type row struct {
		from, to              time.Duration // the validity, seen from now
		names                 []string
		expired, early, match bool
	}
	const day = 24 * time.Hour
	usual := []string{domain, "*.example.com"}
	origintest.Each(t, map[string]row{
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
		"wrong host":        {-day, day, []string{"www.example.net"}, false, false, false},
		"trailing dot":      {-day, day, []string{domain + "."}, false, false, false},
		"NUL in a name":     {-day, day, []string{domain + "\x00.evil.example"}, false, false, false},
		"CN only":           {-day, day, []string{}, false, false, false},
	}, func(t *testing.T, c row) {
		// Names of other kinds, and of the issuer, are beside the point.
		for _, others := range []bool{false, true} {
			der := issue(ecKey(), func(x *x509.Certificate) {
				x.NotBefore, x.NotAfter, x.DNSNames = now().Add(c.from), now().Add(c.to), c.names
				if others {
					x.EmailAddresses, x.IPAddresses = []string{"a@example.com"}, []net.IP{net.IPv4(127, 0, 0, 1)}
					x.ExtraExtensions = []pkix.Extension{{Id: []int{2, 5, 29, 18}, Value: tlv(0x30, dnsName(domain))}}
				}
			})
			got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
			if err != nil {
				t.Fatal(err)
			}
			if got.Expired != c.expired || got.NotYetValid != c.early || got.HostnameMatch != c.match {
				t.Errorf("expired %v, not yet valid %v, match %v", got.Expired, got.NotYetValid, got.HostnameMatch)
			}
			if d := cmp.Diff(c.names, got.SANs); d != "" {
				t.Error(d)
			}
		}
	})
}

// TestLookupVersions takes the leaf under every version and kind of suite that
// crypto/tls has.
func TestLookupVersions(t *testing.T) {
	t.Parallel()
	rsaLeaf, ecLeaf := [][]byte{issue(rsaKey(), nil)}, [][]byte{issue(ecKey(), nil)}
	for _, c := range []struct {
		chain           [][]byte
		key             crypto.PrivateKey
		max, suite      uint16
		version, cipher string
	}{
		{rsaLeaf, rsaKey(), tls.VersionTLS10, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, "tlsv1", "tls_ecdhe_rsa_with_aes_128_cbc_sha"},
		{rsaLeaf, rsaKey(), tls.VersionTLS10, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA, "tlsv1", "tls_rsa_with_3des_ede_cbc_sha"},
		{rsaLeaf, rsaKey(), tls.VersionTLS11, tls.TLS_RSA_WITH_AES_256_CBC_SHA, "tlsv1.1", "tls_rsa_with_aes_256_cbc_sha"},
		{rsaLeaf, rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_RC4_128_SHA, "tlsv1.2", "tls_rsa_with_rc4_128_sha"},
		{rsaLeaf, rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_CBC_SHA256, "tlsv1.2", "tls_rsa_with_aes_128_cbc_sha256"},
		{ecLeaf, ecKey(), tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "tlsv1.2", "tls_ecdhe_ecdsa_with_chacha20_poly1305_sha256"},
		{ecLeaf, ecKey(), tls.VersionTLS13, 0, "tlsv1.3", "tls_aes_128_gcm_sha256"},
	} {
		t.Run(c.version+" "+c.cipher, func(t *testing.T) {
			t.Parallel()
			p := tlsPeer(t, c.chain, c.key, atMost(c.max, c.suite))
			got, err := lookup(t, p)
			if err != nil || text(got.TLSVersion) != c.version || text(got.Cipher) != c.cipher || p.dials.Load() != 1 {
				t.Errorf("%s %s after %d dials, %v", text(got.TLSVersion), text(got.Cipher), p.dials.Load(), err)
			}
		})
	}
}

// TestLookupAlgorithms issues with every key and hash that the standard
// library signs with.
func TestLookupAlgorithms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  crypto.Signer
		alg  x509.SignatureAlgorithm
		want string
	}{
		{rsaKey(), x509.SHA1WithRSA, "sha1WithRSAEncryption"},
		{rsaKey(), x509.SHA256WithRSA, "sha256WithRSAEncryption"},
		{rsaKey(), x509.SHA384WithRSA, "sha384WithRSAEncryption"},
		{rsaKey(), x509.SHA512WithRSA, "sha512WithRSAEncryption"},
		{rsaKey(), x509.SHA256WithRSAPSS, "rsassaPss"},
		{ecKey(), x509.ECDSAWithSHA1, "ecdsa-with-SHA1"},
		{ecKey(), x509.ECDSAWithSHA256, "ecdsa-with-SHA256"},
		{curveKey(elliptic.P384()), x509.ECDSAWithSHA384, "ecdsa-with-SHA384"},
		{curveKey(elliptic.P521()), x509.ECDSAWithSHA512, "ecdsa-with-SHA512"},
		{edKey(), x509.PureEd25519, "Ed25519"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			der := issue(c.key, func(x *x509.Certificate) { x.SignatureAlgorithm = c.alg })
			got, err := lookup(t, tlsPeer(t, [][]byte{der}, c.key, nil))
			if err != nil || got.SignatureAlgorithm != c.want {
				t.Errorf("%q, %v", got.SignatureAlgorithm, err)
			}
		})
	}
}

// What signs the certificate is said outside of what is signed.
func TestLookupOuterAlgorithm(t *testing.T) {
	t.Parallel()
	der := with(func(p *parts) { p.outer = tlv(0x30, oid("1.2.840.10045.4.3.4")) })
	got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil || got.SignatureAlgorithm != "ecdsa-with-SHA512" {
		t.Errorf("%q, %v", got.SignatureAlgorithm, err)
	}
}

// A server that fails on a TLS 1.3 hello is asked once more without.
func TestLookupIntolerant(t *testing.T) {
	t.Parallel()
	der := [][]byte{with(nil)}
	for name, serve := range map[string]func(net.Conn){
		"alert": func(c net.Conn) { c.Write([]byte{21, 3, 3, 0, 2, 2, 70}) },
		"close": func(net.Conn) {},
	} {
		p := peer(t, func(c net.Conn) {
			cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: der, PrivateKey: ecKey()}}}
			cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				if h.SupportedVersions[0] != tls.VersionTLS13 {
					return nil, nil
				}
				serve(c)
				c.Close()
				return nil, io.EOF
			}
			serveTLS(c, cfg)
		})
		r, err := lookup(t, p)
		if err != nil || text(r.TLSVersion) != "tlsv1.2" || p.dials.Load() != 2 {
			t.Errorf("%s: %+v after %d dials, %v", name, r, p.dials.Load(), err)
		}
	}
}

// TestLookupHello looks at what a server is told.
func TestLookupHello(t *testing.T) {
	t.Parallel()
	hellos := make(chan *tls.ClientHelloInfo, 1)
	p := tlsPeer(t, [][]byte{with(nil)}, ecKey(), func(c *tls.Config) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) { hellos <- h; return nil, nil }
	})
	if _, err := lookup(t, p); err != nil {
		t.Fatal(err)
	}
	h := <-hellos
	if h.ServerName != domain || len(h.SupportedProtos) != 0 {
		t.Errorf("SNI %q, ALPN %q", h.ServerName, h.SupportedProtos)
	}
	if d := cmp.Diff([]tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}, h.SupportedCurves); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}, h.SupportedVersions); d != "" {
		t.Error(d)
	}
	for _, e := range h.Extensions {
		if e == 35 { // session_ticket
			t.Error("session tickets are offered")
		}
	}
}

// The connection that Inspect hands on carries data, beyond the deadline of
// the call and any bound of the handshake.
func TestInspectConnection(t *testing.T) {
	t.Parallel()
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{with(nil)}, PrivateKey: ecKey()}}}
	body := strings.Repeat("x", 1<<20)
	p := peer(t, func(c net.Conn) {
		s := tls.Server(c, cfg)
		s.Read(make([]byte, 100))
		io.WriteString(s, body)
		s.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	target, _ := p.Resolve(ctx, domain)
	_, conn, err := client(p).Inspect(ctx, query(), target)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "HEAD / HTTP/1.1\r\n\r\n")
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// inspect is Inspect with the connection closed at the end of the test.
func inspect(t *testing.T, p *connector) (ssl.Result, *tls.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	target, err := p.Resolve(ctx, domain)
	if err != nil {
		t.Fatal(err)
	}
	r, conn, err := client(p).Inspect(ctx, query(), target)
	if conn != nil {
		t.Cleanup(func() { conn.Close() })
	}
	return r, conn, err
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// A serial of 30 bytes and the largest chains that crypto/tls reads.
func TestLookupLarge(t *testing.T) {
	t.Parallel()
	names := make([]string, 6000)
	for i := range names {
		names[i] = "host-" + strings.Repeat("a", 20) + ".example.net"
	}
	names[len(names)-1] = domain
	huge := new(big.Int).Lsh(big.NewInt(0xab), 29*8)
	der := issue(ecKey(), func(c *x509.Certificate) {
		c.DNSNames, c.SerialNumber, c.Subject = names, huge, pkix.Name{}
	})
	got, err := lookup(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil {
		t.Fatal(err)
	}
	// The match is with a name beyond those that are shown.
	if len(got.SANs) != 5000 || !got.HostnameMatch || got.Serial != "ab"+strings.Repeat("00", 29) || got.Subject != "" {
		t.Errorf("%d names, match %v, serial %s, subject %q", len(got.SANs), got.HostnameMatch, got.Serial, got.Subject)
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

// BenchmarkLookup against a peer on loopback: a certificate that crypto/tls
// takes, one that has to be decrypted from the recording, and for comparison
// the bare handshake.
func BenchmarkLookup(b *testing.B) {
	for name, der := range map[string][]byte{"ordinary": with(nil), "refused": with(func(p *parts) { p.version = unhex("a003020103") })} {
		b.Run(name, func(b *testing.B) {
			p := tlsPeer(b, [][]byte{der}, ecKey(), nil)
			c := client(p)
			for b.Loop() {
				if _, err := c.Lookup(b.Context(), query()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("bare handshake", func(b *testing.B) {
		p := tlsPeer(b, [][]byte{with(nil)}, ecKey(), nil)
		for b.Loop() {
			conn, _, err := p.Dial(b.Context(), guard.Target{Name: domain, Addrs: []netip.Addr{netip.MustParseAddr(address)}}, 443)
			if err != nil {
				b.Fatal(err)
			}
			s := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: domain, CurvePreferences: []tls.CurveID{tls.X25519}})
			if err := s.HandshakeContext(b.Context()); err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}
