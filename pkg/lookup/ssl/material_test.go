package ssl

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// parts are the elements of a certificate in DER. Each can be replaced by
// anything; the zero value of one leaves it out.
type parts struct {
	version, serial, inner, issuer, validity, subject, spki []byte
	rest                                                    []byte // behind the key
	outer                                                   []byte
}

// der joins the parts and signs them with ECDSA, which nobody checks.
func (p parts) der(key crypto.Signer) []byte {
	tbs := tlv(0x30, p.version, p.serial, p.inner, p.issuer, p.validity, p.subject, p.spki, p.rest)
	sum := sha256.Sum256(tbs)
	return tlv(0x30, tbs, p.outer, tlv(0x03, []byte{0}, testbed.Must(key.Sign(rand.Reader, sum[:], crypto.SHA256))))
}

// names are the extensions of a certificate for names.
func names(list ...string) []byte {
	var entries [][]byte
	for _, n := range list {
		entries = append(entries, dnsName(n))
	}
	return extensions(san(entries...))
}

// plain are the parts of an ordinary certificate for domain.
func plain(key crypto.Signer) parts {
	alg := tlv(0x30, oid("1.2.840.10045.4.3.2"))
	return parts{
		version: unhex("a003020102"), serial: unhex("02020102"), inner: alg, outer: alg,
		issuer:   name(rdn(attr("2.5.4.10", utf8s("Example CA")))),
		validity: validity(utc("260101000000Z"), utc("270101000000Z")),
		subject:  name(rdn(attr("2.5.4.3", utf8s(domain)))),
		spki:     testbed.Must(x509.MarshalPKIXPublicKey(key.Public())),
		rest:     names(domain),
	}
}

// with returns the DER of plain after a change.
func with(change func(*parts)) []byte {
	p := plain(ecKey())
	if change != nil {
		change(&p)
	}
	return p.der(ecKey())
}

// tlv is a DER element.
func tlv(tag byte, content ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(asn1.Tag(tag), func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(content, nil)) })
	return b.BytesOrPanic()
}

func oid(dotted string) []byte {
	return tlv(0x06, testbed.Must(testbed.Must(x509.ParseOID(dotted)).MarshalBinary()))
}

func unhex(s string) []byte { return testbed.Must(hex.DecodeString(s)) }

func name(rdns ...[]byte) []byte          { return tlv(0x30, rdns...) }
func rdn(attrs ...[]byte) []byte          { return tlv(0x31, attrs...) }
func attr(typ string, v []byte) []byte    { return tlv(0x30, oid(typ), v) }
func utf8s(s string) []byte               { return tlv(0x0c, []byte(s)) }
func printable(s string) []byte           { return tlv(0x13, []byte(s)) }
func utc(s string) []byte                 { return tlv(0x17, []byte(s)) }
func generalized(s string) []byte         { return tlv(0x18, []byte(s)) }
func validity(from, to []byte) []byte     { return tlv(0x30, from, to) }
func extensions(list ...[]byte) []byte    { return tlv(0xa3, tlv(0x30, list...)) }
func dnsName(s string) []byte             { return tlv(0x82, []byte(s)) }
func san(names ...[]byte) []byte          { return ext("2.5.29.17", tlv(0x30, names...)) }
func ext(typ string, value []byte) []byte { return tlv(0x30, oid(typ), tlv(0x04, value)) }

// Keys are made once: the tests are about certificates.
var (
	ecKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return curveKey(elliptic.P256()) })
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return testbed.Must(rsa.GenerateKey(rand.Reader, 2048)) })
)

func curveKey(c elliptic.Curve) *ecdsa.PrivateKey {
	return testbed.Must(ecdsa.GenerateKey(c, rand.Reader))
}

const domain = "www.example.com"

// now is the middle of the validity that certificates of these tests have.
func now() time.Time { return time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC) }

const address = "93.184.216.34"

// peer serves connections until the test ends.
func peer(t testing.TB, serve func(net.Conn)) *testbed.Origins {
	t.Helper()
	w := testbed.NewOrigins(t)
	w.Accept(domain, address, serve)
	return w
}

// handshakes serves handshakes and keeps each connection until the client leaves.
// change may be nil.
func handshakes(chain [][]byte, key crypto.PrivateKey, change func(*tls.Config)) func(net.Conn) {
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

// atMost fixes the version of a server.
func atMost(version uint16, suites ...uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, version, suites
	}
}

func client(c guard.Connector) *Client { return New(Config{Connector: c, Now: now}) }

func query() Query { return Query{Domain: domain} }

// lookUp asks with a deadline that only a hang reaches.
func lookUp(t *testing.T, w *testbed.Origins) (Result, error) {
	t.Helper()
	return client(w.Dialer()).Lookup(testbed.Soon(t), query())
}

// inspect is Inspect with the connection closed at the end of the test.
func inspect(t *testing.T, w *testbed.Origins) (Result, *tls.Conn, error) {
	t.Helper()
	ctx := testbed.Soon(t)
	r, conn, err := client(w.Dialer()).Inspect(ctx, query(), testbed.Must(w.Dialer().Resolve(ctx, domain)))
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

// code is the fault code of an error, empty for nil.
func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
