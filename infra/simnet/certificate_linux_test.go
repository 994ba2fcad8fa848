package simnet

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"sync"
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
	spki, err := x509.MarshalPKIXPublicKey(handKey().Public())
	if err != nil {
		panic(err) // of a key of our own
	}
	algorithm := der(0x30, oid("1.2.840.10045.4.3.2"))
	p := &pieces{
		version: unhex("a003020102"), serial: unhex("02020102"), inner: algorithm, outer: algorithm,
		issuer:   der(0x30, rdn("2.5.4.10", der(0x0c, []byte("Handmade CA")))),
		validity: der(0x30, der(0x17, []byte("260101000000Z")), der(0x17, []byte("360101000000Z"))),
		subject:  der(0x30, rdn("2.5.4.3", der(0x0c, []byte(name)))),
		key:      spki,
		rest:     extensions(sans(dnsName(name))),
	}
	for _, c := range changes {
		c(p)
	}
	tbs := der(0x30, p.version, p.serial, p.inner, p.issuer, p.validity, p.subject, p.key, p.rest)
	sum := sha256.Sum256(tbs)
	signature, err := handKey().Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return append(der(0x30, tbs, p.outer, der(0x03, []byte{0}, signature)), p.after...)
}

// handKey is the key of all handmade certificates; nobody checks their
// signatures.
var handKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return key
})

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
	o, err := x509.ParseOID(dotted)
	if err != nil {
		panic(err) // a mistake in the table
	}
	raw, err := o.MarshalBinary()
	if err != nil {
		panic(err)
	}
	return der(0x06, raw)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err) // a mistake in the table
	}
	return b
}

func rdn(attribute string, value []byte) []byte { return der(0x31, der(0x30, oid(attribute), value)) }
func extensions(list ...[]byte) []byte          { return der(0xa3, der(0x30, list...)) }
func dnsName(s string) []byte                   { return der(0x82, []byte(s)) }
func sans(names ...[]byte) []byte               { return extension("2.5.29.17", der(0x30, names...)) }
func extension(id string, value []byte) []byte  { return der(0x30, oid(id), der(0x04, value)) }

// shows serves a chain of any bytes with the key of handmade certificates, over
// a version of TLS and those before it.
func shows(highest uint16, chain func(ca *authority, name string) [][]byte, change ...func(*tls.Config)) server {
	return func(ca *authority, name string) func(conn net.Conn) {
		config := &tls.Config{
			Certificates: []tls.Certificate{{Certificate: chain(ca, name), PrivateKey: handKey()}},
			MinVersion:   tls.VersionTLS10, MaxVersion: highest,
		}
		for _, c := range change {
			c(config)
		}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			if secure.Handshake() == nil {
				answer(secure, ok())
			}
		}
	}
}

// made shows one handmade certificate.
func made(changes ...piece) server { return shows(tls.VersionTLS13, alone(changes...)) }

// made12 shows it over TLS 1.2.
func made12(changes ...piece) server { return shows(tls.VersionTLS12, alone(changes...)) }

func alone(changes ...piece) func(*authority, string) [][]byte {
	return func(_ *authority, name string) [][]byte { return [][]byte{handmade(name, changes...)} }
}

// followed shows an ordinary leaf before other elements of a chain.
func followed(others ...[]byte) func(*authority, string) [][]byte {
	return func(_ *authority, name string) [][]byte { return append([][]byte{handmade(name)}, others...) }
}
