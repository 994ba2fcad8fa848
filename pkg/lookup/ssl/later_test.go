package ssl_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// refused are certificates that crypto/x509 does not parse, or that crypto/tls
// does not go on with. The leaf is a result all the same.
func refused() map[string][]byte {
	return map[string][]byte{
		"duplicate extension": with(func(p *parts) { p.rest = extensions(san(dnsName(domain)), san(dnsName("b.example"))) }),
		"UTF-8 in a dNSName":  with(func(p *parts) { p.rest = extensions(san(dnsName("bücher.example"))) }),
		"bad IP SAN":          with(func(p *parts) { p.rest = extensions(san(dnsName(domain), tlv(0x87, []byte{1, 2, 3}))) }),
		"bad URI SAN":         with(func(p *parts) { p.rest = extensions(san(tlv(0x86, []byte("http://[::1")))) }),
		"printable with @":    with(func(p *parts) { p.subject = name(rdn(attr("2.5.4.3", printable("a_b@c")))) }),
		"UniversalString":     with(func(p *parts) { p.subject = name(rdn(attr("2.5.4.3", tlv(0x1c, []byte{0, 0, 0, 'a'})))) }),
		"broken UTF-8":        with(func(p *parts) { p.subject = name(rdn(attr("2.5.4.3", utf8s("a\xff")))) }),
		"fraction of seconds": with(func(p *parts) { p.validity = validity(generalized("20260101000000.5Z"), utc("270101000000Z")) }),
		"inner is not outer":  with(func(p *parts) { p.outer = tlv(0x30, oid("1.2.840.10045.4.3.4")) }),
		"version 4":           with(func(p *parts) { p.version = unhex("a003020103") }),
		"padded serial":       with(func(p *parts) { p.serial = unhex("020300007f") }),
		"trailing data":       append(with(nil), 1, 2, 3),
		"unknown key":         with(func(p *parts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.3.4")), unhex("030100")) }),
		"explicit curve":      with(func(p *parts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.840.10045.2.1"), tlv(0x30)), unhex("030100")) }),
		"RSA of 9216 bits":    with(func(p *parts) { p.spki = hugeRSA() }),
	}
}

// hugeRSA is a key of more bits than crypto/tls takes.
func hugeRSA() []byte {
	n := append([]byte{0, 0xff}, bytes.Repeat([]byte{0xff}, 9216/8-1)...)
	key := tlv(0x30, tlv(0x02, n), unhex("0203010001"))
	return tlv(0x30, tlv(0x30, oid("1.2.840.113549.1.1.1"), unhex("0500")), tlv(0x03, []byte{0}, key))
}

func TestLookupRefusedByTheStandardLibrary(t *testing.T) {
	t.Parallel()
	retry := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} } // a HelloRetryRequest first
	for name, der := range refused() {
		for version, change := range map[string]func(*tls.Config){"tlsv1.2": atMost(tls.VersionTLS12), "tlsv1.3": nil, "tlsv1.3 retry": retry} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				p := tlsPeer(t, [][]byte{der}, ecKey(), change)
				r, conn, err := inspect(t, p)
				if err != nil {
					t.Fatal(err)
				}
				leaf := bytes.TrimSuffix(der, []byte{1, 2, 3})
				sum := sha256.Sum256(leaf)
				if r.FingerprintSHA256 != hex.EncodeToString(sum[:]) || text(r.TLSVersion) != version[:7] || text(r.Cipher) == "null" {
					t.Errorf("%+v, %s %s", r, text(r.TLSVersion), text(r.Cipher))
				}
				if conn != nil || p.dials.Load() != 1 {
					t.Errorf("connection %v after %d dials", conn, p.dials.Load())
				}
			})
		}
	}
}

// One broken certificate above the leaf is enough for crypto/tls to give up.
func TestLookupBrokenChain(t *testing.T) {
	t.Parallel()
	der := with(nil)
	for _, max := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r, err := lookup(t, tlsPeer(t, [][]byte{der, {1, 2, 3}}, ecKey(), atMost(max)))
		if err != nil || r.Subject != "CN="+domain || !r.HostnameMatch {
			t.Errorf("%x: %+v, %v", max, r, err)
		}
	}
}

// A negative serial needs the godebug line of go.mod to complete its
// handshake; without it the leaf is still a result, but without a connection.
func TestLookupNegativeSerial(t *testing.T) {
	t.Parallel()
	der := with(func(p *parts) { p.serial = unhex("0202ff00") })
	r, conn, err := inspect(t, tlsPeer(t, [][]byte{der}, ecKey(), nil))
	if err != nil || r.Serial != "-0100" {
		t.Fatalf("serial %q, %v", r.Serial, err)
	}
	if conn == nil {
		t.Error("no connection: is x509negativeserial=1 in go.mod?")
	}
}

// TestLookupFailsLater: the certificate came, and then the handshake failed.
func TestLookupFailsLater(t *testing.T) {
	der := [][]byte{with(nil)}
	other := curveKey(elliptic.P256())
	demand := func(highest uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MaxVersion, c.ClientAuth = highest, tls.RequireAnyClientCert }
	}
	type row struct {
		peer    *connector
		version string
		conn    bool
	}
	origintest.Each(t, map[string]row{
		"client certificate, TLS 1.2": {tlsPeer(t, der, ecKey(), demand(tls.VersionTLS12)), "tlsv1.2", false},
		// Our side is done before the server says no.
		"client certificate, TLS 1.3": {tlsPeer(t, der, ecKey(), demand(tls.VersionTLS13)), "tlsv1.3", true},
		"key of another, TLS 1.2":     {tlsPeer(t, der, other, atMost(tls.VersionTLS12)), "tlsv1.2", false},
		"key of another, TLS 1.3":     {tlsPeer(t, der, other, nil), "tlsv1.3", false},
		"alert":                       {firstFlight(t, der, func(c net.Conn) { c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }), "tlsv1.2", false},
		"close":                       {firstFlight(t, der, func(net.Conn) {}), "tlsv1.2", false},
		"reset":                       {firstFlight(t, der, func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }), "tlsv1.2", false},
		"garbage":                     {firstFlight(t, der, func(c net.Conn) { c.Write(bytes.Repeat([]byte{0xff}, 1<<16)) }), "tlsv1.2", false},
	}, func(t *testing.T, c row) {
		r, conn, err := inspect(t, c.peer)
		if err != nil || r.Subject != "CN="+domain || text(r.TLSVersion) != c.version || text(r.Cipher) == "null" {
			t.Errorf("%+v, %v", r, err)
		}
		if (conn != nil) != c.conn || c.peer.dials.Load() != 1 {
			t.Errorf("connection %v after %d dials", conn, c.peer.dials.Load())
		}
	})
}

// TestLookupHangsLater: the certificate came, in part of its message or before
// the rest of the handshake, and then nothing. The result comes in time.
func TestLookupHangsLater(t *testing.T) {
	leaf := with(nil)
	hang := func(c net.Conn) { io.Copy(io.Discard, c) }
	long := [][]byte{leaf, with(func(p *parts) { p.rest = tlv(0xa3, make([]byte, 60<<10)) })}
	origintest.Each(t, map[string]*connector{
		"after the flight":        firstFlight(t, [][]byte{leaf}, hang),
		"inside the message":      cutFlight(t, long, tls.VersionTLS12, 20<<10, hang),
		"inside the message, 1.3": cutFlight(t, long, tls.VersionTLS13, 20<<10, hang),
		"refused and then silent": firstFlight(t, [][]byte{append(leaf, 0)}, hang),
	}, func(t *testing.T, p *connector) {
		origintest.Enough(t, 500*time.Millisecond, func(ctx context.Context) bool {
			r, err := client(p).Lookup(ctx, query())
			if err != nil || r.Subject != "CN="+domain || text(r.TLSVersion) == "null" {
				t.Logf("%+v, %v", r, err)
				return false
			}
			return true
		})
	})
}
