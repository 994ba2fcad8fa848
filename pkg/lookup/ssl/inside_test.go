package ssl

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// must is for set-up that cannot fail unless the test is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// ordinary is a certificate with a bit of everything, and its key.
func ordinary() ([]byte, *ecdsa.PrivateKey) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0xff), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(4e9, 0),
		Subject:        pkix.Name{CommonName: "www.example.com", Organization: []string{"a+b, c"}, StreetAddress: []string{" x "}},
		DNSNames:       []string{"www.example.com", "*.example.com"},
		EmailAddresses: []string{"a@example.com"}, IPAddresses: []net.IP{net.IPv6loopback},
	}
	return must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)), key
}

// recording is what a client reads in a real handshake with a server, whose
// secret and certificates are known.
func recording(t testing.TB, conn net.Conn, highest uint16) (*recorder, tls.ConnectionState) {
	t.Helper()
	rec := &recorder{Conn: conn}
	c := tls.Client(rec, config("www.example.com", highest, rec, new(seen)))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	return rec, c.ConnectionState()
}

// local is a recording with crypto/tls as the server.
func local(t testing.TB, highest uint16, curves ...tls.CurveID) (*recorder, tls.ConnectionState) {
	t.Helper()
	der, key := ordinary()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		s := tls.Server(c, &tls.Config{
			CurvePreferences: curves, MinVersion: tls.VersionTLS10,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		})
		if s.Handshake() == nil {
			s.Read(make([]byte, 1))
		}
	}()
	conn := must(net.Dial("tcp", l.Addr().String()))
	rec, state := recording(t, conn, highest)
	conn.Close()
	<-done
	return rec, state
}

// check compares what was read from a recording with what crypto/tls saw.
func check(t *testing.T, rec *recorder, state tls.ConnectionState) {
	t.Helper()
	f := readFlight(rec.read, rec.secret)
	if !f.hello || f.version != state.Version || f.suite != state.CipherSuite || f.alert != -1 ||
		!bytes.Equal(f.leaf, state.PeerCertificates[0].Raw) {
		t.Errorf("%+v, want %x %x %x", f, state.Version, state.CipherSuite, state.PeerCertificates[0].Raw)
	}
}

func TestFlight(t *testing.T) {
	t.Parallel()
	for _, max := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		rec, state := local(t, max)
		check(t, rec, state)
		// Cut anywhere, it is the same leaf or none.
		for n := range rec.read {
			if f := readFlight(rec.read[:n], rec.secret); f.leaf != nil && !bytes.Equal(f.leaf, state.PeerCertificates[0].Raw) {
				t.Fatalf("%x: cut at %d the leaf is %x", max, n, f.leaf)
			}
		}
		if f := readFlight(rec.read, nil); (f.leaf == nil) != (max == tls.VersionTLS13) {
			t.Errorf("%x: without the secret the leaf is %x", max, f.leaf)
		}
	}
	rec, state := local(t, tls.VersionTLS13, tls.CurveP384) // a HelloRetryRequest first
	check(t, rec, state)
}

// Every suite of TLS 1.3, for which the server has to be another one:
// crypto/tls chooses by the hardware.
func TestFlightSuites(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs the openssl command")
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs the openssl command")
	}
	der, key := ordinary()
	raw := must(x509.MarshalPKCS8PrivateKey(key))
	file := filepath.Join(t.TempDir(), "pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	for suite, id := range map[string]uint16{
		"TLS_AES_128_GCM_SHA256":       tls.TLS_AES_128_GCM_SHA256,
		"TLS_AES_256_GCM_SHA384":       tls.TLS_AES_256_GCM_SHA384,
		"TLS_CHACHA20_POLY1305_SHA256": tls.TLS_CHACHA20_POLY1305_SHA256,
	} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, "openssl", "s_server", "-accept", "127.0.0.1:0", "-naccept", "1",
				"-cert", file, "-key", file, "-ciphersuites", suite)
			out := must(cmd.StdoutPipe())
			must(cmd.StdinPipe()) // it ends with its input
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cancel()
			var seen []byte
			port := regexp.MustCompile(`ACCEPT 127\.0\.0\.1:(\d+)`)
			for b := make([]byte, 512); !port.Match(seen); {
				n, err := out.Read(b)
				if err != nil {
					t.Fatalf("%v: %s", err, seen)
				}
				seen = append(seen, b[:n]...)
			}
			go io.Copy(io.Discard, out)
			conn := must(net.Dial("tcp", "127.0.0.1:"+string(port.FindSubmatch(seen)[1])))
			defer conn.Close()
			rec, state := recording(t, conn, tls.VersionTLS13)
			if state.CipherSuite != id {
				t.Fatalf("suite %x", state.CipherSuite)
			}
			check(t, rec, state)
		})
	}
}

// A server's choice that was not offered has no name.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	hello := append([]byte{3, 0}, make([]byte, 32)...) // SSL 3.0
	hello = append(hello, 0, 0, 0x39, 0)               // TLS_DHE_RSA_WITH_AES_256_CBC_SHA
	raw := append([]byte{22, 3, 0, 0, 54, 2, 0, 0, byte(len(hello))}, hello...)
	raw = append(raw, 11, 0, 0, 8, 0, 0, 5, 0, 0, 2, 0xde, 0xad)
	f := readFlight(raw, nil)
	if !bytes.Equal(f.leaf, []byte{0xde, 0xad}) || versionText(f.version) != nil || cipherText(f.suite) != nil {
		t.Errorf("%+v", f)
	}
}

func TestFirstCertificate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version    uint16
		body, want string
	}{
		{tls.VersionTLS12, "000005" + "000002dead", "dead"},
		{tls.VersionTLS12, "000009" + "000002dead" + "00", "dead"}, // the rest is to come
		{tls.VersionTLS12, "000009" + "000003dead", ""},            // its end is to come
		{tls.VersionTLS12, "000004" + "000002dead", ""},            // longer than the list
		{tls.VersionTLS12, "000003" + "000000", ""},
		{tls.VersionTLS12, "000000", ""},
		{tls.VersionTLS12, "0000", ""},
		{tls.VersionTLS13, "00" + "000007" + "000002dead" + "0000", "dead"},
		{tls.VersionTLS13, "02aaaa" + "000007" + "000002dead" + "0000", "dead"},
		{tls.VersionTLS13, "ff" + "000007" + "000002dead" + "0000", ""},
	} {
		if got := hex.EncodeToString(firstCertificate(must(hex.DecodeString(c.body)), c.version)); got != c.want {
			t.Errorf("%x %s: %s, want %s", c.version, c.body, got, c.want)
		}
	}
}

func TestSerialText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"00": "00", "0000": "00", "01": "01", "7f": "7f", "0080": "80", "80": "-80", "ff": "-01", "ff00": "-0100", "ffff01": "-ff", "8000": "-8000", "0102": "0102",
	} {
		if got := serialText(must(hex.DecodeString(in))); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

func TestReadTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x17260102030405Z": "2026-01-02T03:04:05Z", "\x172601020304Z": "2026-01-02T03:04:00Z",
		"\x17491231235959Z": "2049-12-31T23:59:59Z", "\x17500101000000Z": "1950-01-01T00:00:00Z", "\x17680101000000Z": "1968-01-01T00:00:00Z", "\x17690101000000Z": "1969-01-01T00:00:00Z",
		"\x17260102030405+0130": "2026-01-02T01:34:05Z", "\x17500101000000+0100": "1949-12-31T23:00:00Z",
		"\x1820260102030405Z": "2026-01-02T03:04:05Z", "\x1820260102030405.999Z": "2026-01-02T03:04:05Z", "\x18202601020304Z": "2026-01-02T03:04:00Z", "\x182026010203Z": "2026-01-02T03:00:00Z",
		"\x1820260102030405": "2026-01-02T03:04:05Z", "\x1820260102030405-0100": "2026-01-02T04:04:05Z",
		"\x1800000101000000Z": "0000-01-01T00:00:00Z", "\x1899991231235959Z": "9999-12-31T23:59:59Z",
		"\x1899991231235959-0100": "", "\x1800000101000000+0100": "",
		"\x17": "", "\x17260230000000Z": "", "\x17260102030460Z": "", "\x17260102030405": "", "\x1820260102Z": "", "\x0c20260102030405Z": "", "\x1720260102030405Z": "",
	} {
		s := slices.Concat([]byte{in[0], byte(len(in) - 1)}, []byte(in[1:]))
		got, ok := readTime((*cryptobyte.String)(&s))
		if ok != (want != "") || ok && timeText(got) != want {
			t.Errorf("%q is %s, %v, want %s", in, timeText(got), ok, want)
		}
	}
}
