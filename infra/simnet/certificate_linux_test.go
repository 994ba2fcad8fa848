package simnet

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"math/big"
	"net"
	"sync"
	"time"
)

// pieces are the elements of a certificate in DER (RFC 5280 §4.1), so that any
// of them can be what the library would not write.
type pieces struct {
	version, serial, inner, issuer, validity, subject, key, rest, outer []byte
	after                                                               []byte // behind the certificate
}

// piece changes some of them.
type piece func(*pieces)

// handmade is an otherwise ordinary certificate for a name.
func handmade(name string, changes ...piece) []byte {
	algorithm := der(0x30, oid("1.2.840.10045.4.3.2"))
	p := &pieces{
		version: unhex("a003020102"), serial: unhex("02020102"), inner: algorithm, outer: algorithm,
		issuer:   der(0x30, rdn("2.5.4.10", der(0x0c, []byte("Handmade CA")))),
		validity: der(0x30, der(0x17, []byte("260101000000Z")), der(0x17, []byte("360101000000Z"))),
		subject:  der(0x30, rdn("2.5.4.3", der(0x0c, []byte(name)))),
		key:      must(x509.MarshalPKIXPublicKey(handKey().Public())),
		rest:     extensions(sans(dnsName(name))),
	}
	for _, c := range changes {
		c(p)
	}
	tbs := der(0x30, p.version, p.serial, p.inner, p.issuer, p.validity, p.subject, p.key, p.rest)
	sum := sha256.Sum256(tbs)
	signature := must(handKey().Sign(rand.Reader, sum[:], crypto.SHA256))
	return append(der(0x30, tbs, p.outer, der(0x03, []byte{0}, signature)), p.after...)
}

// must is for what only a mistake in the tables makes an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// handKey is the key of all handmade certificates; nobody checks their
// signatures.
var handKey = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })

// der is an element with a tag.
func der(tag byte, content ...[]byte) []byte {
	body := bytes.Join(content, nil)
	switch n := len(body); {
	case n < 1<<7:
		return append([]byte{tag, byte(n)}, body...)
	case n < 1<<8:
		return append([]byte{tag, 0x81, byte(n)}, body...)
	case n < 1<<16:
		return append([]byte{tag, 0x82, byte(n >> 8), byte(n)}, body...)
	default:
		return append([]byte{tag, 0x83, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
	}
}

func oid(dotted string) []byte {
	id := must(x509.ParseOID(dotted))
	return der(0x06, must(id.MarshalBinary()))
}

func unhex(s string) []byte                     { return must(hex.DecodeString(s)) }
func rdn(attribute string, value []byte) []byte { return der(0x31, der(0x30, oid(attribute), value)) }
func extensions(list ...[]byte) []byte          { return der(0xa3, der(0x30, list...)) }
func dnsName(s string) []byte                   { return der(0x82, []byte(s)) }
func sans(names ...[]byte) []byte               { return extension("2.5.29.17", der(0x30, names...)) }
func extension(id string, value []byte) []byte  { return der(0x30, oid(id), der(0x04, value)) }

// shows serves a chain with a key, and its origin answers.
func shows(chain func(ca *authority, name string) [][]byte, key crypto.PrivateKey, change func(*tls.Config)) server {
	return func(ca *authority, name string) func(conn net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{{Certificate: chain(ca, name), PrivateKey: key}}, MinVersion: tls.VersionTLS10}
		change(config)
		return func(conn net.Conn) {
			if secure := tls.Server(conn, config); secure.Handshake() == nil {
				answer(secure, ok())
			}
		}
	}
}

func upTo(version uint16) func(*tls.Config) {
	return func(c *tls.Config) { c.MaxVersion = version }
}

// made shows one handmade certificate.
func made(changes ...piece) server { return madeUpTo(tls.VersionTLS13, changes...) }

// madeUpTo shows it over a version of TLS or one before it.
func madeUpTo(version uint16, changes ...piece) server {
	return shows(func(_ *authority, name string) [][]byte { return [][]byte{handmade(name, changes...)} }, handKey(), upTo(version))
}

// chained shows a chain of any bytes, over a version of TLS or one before it.
func chained(version uint16, elements ...[]byte) server {
	return shows(func(*authority, string) [][]byte { return elements }, handKey(), upTo(version))
}

// followed shows an ordinary leaf before other elements of a chain.
func followed(version uint16, others ...[]byte) server {
	return shows(func(_ *authority, name string) [][]byte { return append([][]byte{handmade(name)}, others...) }, handKey(), upTo(version))
}

// reversed shows the authority before the leaf.
func reversed() server {
	return shows(func(ca *authority, name string) [][]byte { return [][]byte{ca.Cert.Raw, handmade(name)} }, handKey(), asIs)
}

// briefly is a certificate's template for two hours around now.
func briefly(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
}

// selfSigned shows a certificate without any name but the alternative one.
func selfSigned() server {
	return shows(func(_ *authority, name string) [][]byte {
		template := briefly(7, name)
		return [][]byte{must(x509.CreateCertificate(rand.Reader, template, template, handKey().Public(), handKey()))}
	}, handKey(), asIs)
}

// keyed serves a certificate of the authority for a key.
func keyed(key crypto.Signer, change func(*tls.Config)) server {
	return shows(func(ca *authority, name string) [][]byte {
		return [][]byte{must(x509.CreateCertificate(rand.Reader, briefly(0x51, name), ca.Cert, key.Public(), ca.Key))}
	}, key, change)
}

func curve(c elliptic.Curve) server {
	return keyed(must(ecdsa.GenerateKey(c, rand.Reader)), only(tls.VersionTLS12))
}

func edwards() server {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return keyed(must(key, err), asIs)
}

var sharedRSA = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })

func withRSA() server { return keyed(sharedRSA(), asIs) }

// suite is an RSA key with which one cipher suite is used.
func suite(id uint16) server {
	return keyed(sharedRSA(), func(c *tls.Config) { c.CipherSuites, c.MaxVersion = []uint16{id}, tls.VersionTLS12 })
}

// otherKey is a public key whose private key the server does not have.
func otherKey(p *pieces) {
	p.key = must(x509.MarshalPKIXPublicKey(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Public()))
}

// rsaKey is a public key of some length, whose private key nobody has.
func rsaKey(bits int) piece {
	return func(p *pieces) {
		modulus := make([]byte, bits/8)
		_, _ = rand.Read(modulus) // never fails
		modulus[0] |= 0x80
		public := der(0x30, der(0x02, append([]byte{0}, modulus...)), unhex("0203010001"))
		p.key = der(0x30, der(0x30, oid("1.2.840.113549.1.1.1"), der(0x05)), der(0x03, []byte{0}, public))
	}
}
