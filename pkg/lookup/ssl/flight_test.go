package ssl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"testing"
	"time"
)

// recording is what a client reads in a real handshake with a server of crypto/tls,
// and what crypto/tls saw of it.
func recording(t testing.TB, highest uint16, curves ...tls.CurveID) (*recorder, tls.ConnectionState) {
	t.Helper()
	w := tlsPeer(t, [][]byte{with(nil)}, ecKey(), func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS10, curves })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conn, _, err := w.Dialer().Dial(ctx, must(w.Dialer().Resolve(ctx, domain)), Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rec := &recorder{Conn: conn}
	c := tls.Client(rec, config(domain, highest, rec, new(seen)))
	if err := c.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	return rec, c.ConnectionState()
}

func TestFlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		highest uint16
		curves  []tls.CurveID
	}{{tls.VersionTLS10, nil}, {tls.VersionTLS11, nil}, {tls.VersionTLS12, nil}, {tls.VersionTLS13, nil},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP384}}, // a HelloRetryRequest first
	} {
		rec, state := recording(t, c.highest, c.curves...)
		leaf := state.PeerCertificates[0].Raw
		f := readFlight(rec.read, rec.secret)
		if !f.hello || f.version != state.Version || f.suite != state.CipherSuite || f.alert != -1 || !bytes.Equal(f.leaf, leaf) {
			t.Errorf("%+v, want %x %x %x", f, state.Version, state.CipherSuite, leaf)
		}
		// Cut anywhere, it is the same leaf or none.
		for n := range rec.read {
			if f := readFlight(rec.read[:n], rec.secret); f.leaf != nil && !bytes.Equal(f.leaf, leaf) {
				t.Fatalf("%x: cut at %d the leaf is %x", c.highest, n, f.leaf)
			}
		}
		if f := readFlight(rec.read, nil); (f.leaf == nil) != (c.highest == tls.VersionTLS13) {
			t.Errorf("%x: without the secret the leaf is %x", c.highest, f.leaf)
		}
	}
	// The other suites of TLS 1.3 were recorded from another server: that of
	// crypto/tls chooses by the hardware.
	suites := map[uint16]bool{}
	for _, seed := range kept("flights.hex") {
		if len(seed) == 3 {
			f := readFlight(seed[0], seed[1])
			if suites[f.suite] = true; !bytes.Equal(f.leaf, seed[2]) {
				t.Errorf("%x: the leaf is %x, want %x", f.suite, f.leaf, seed[2])
			}
		}
	}
	if !suites[tls.TLS_AES_256_GCM_SHA384] || !suites[tls.TLS_CHACHA20_POLY1305_SHA256] {
		t.Errorf("recorded are %v", suites)
	}
}

// A server's choice that was not offered has no name.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	hello := append([]byte{3, 0}, make([]byte, 32)...) // SSL 3.0
	hello = append(hello, 0, 0, 0x39, 0)               // TLS_DHE_RSA_WITH_AES_256_CBC_SHA
	raw := append([]byte{22, 3, 0, 0, 54, 2, 0, 0, byte(len(hello))}, hello...)
	certificate := []byte{11, 0, 0, 8, 0, 0, 5, 0, 0, 2, 0xde, 0xad}
	if f := readFlight(append([]byte{22, 3, 3, 0, 12}, certificate...), nil); f.leaf != nil {
		t.Errorf("a leaf without a hello: %+v", f)
	}
	f := readFlight(append(raw, certificate...), nil)
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
		{tls.VersionTLS12, "0000", ""},
		{tls.VersionTLS13, "00" + "000007" + "000002dead" + "0000", "dead"},
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
		rec, _ := recording(f, highest)
		f.Add(rec.read, rec.secret)
	}
	for _, seed := range kept("flights.hex") {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, raw, secret []byte) {
		got := readFlight(raw, secret)
		if len(got.leaf) > len(raw) || got.leaf != nil && (!got.hello || len(got.leaf) == 0) || got.alert < -1 || got.alert > 255 {
			t.Errorf("%+v", got)
		}
		if again := readFlight(raw, secret); !bytes.Equal(again.leaf, got.leaf) {
			t.Error("read twice, it differs")
		}
	})
}
