package ssl_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"sync"
	"testing"
	"time"
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
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		panic(err)
	}
	return tlv(0x30, tbs, p.outer, tlv(0x03, []byte{0}, sig))
}

// plain are the parts of an ordinary certificate for domain.
func plain(t testing.TB, key crypto.Signer) parts {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	alg := tlv(0x30, oid("1.2.840.10045.4.3.2"))
	return parts{
		version: unhex("a003020102"), serial: unhex("02020102"), inner: alg, outer: alg,
		issuer:   name(rdn(attr("2.5.4.10", utf8s("Example CA")))),
		validity: validity(utc("260101000000Z"), utc("270101000000Z")),
		subject:  name(rdn(attr("2.5.4.3", utf8s(domain)))),
		spki:     spki,
		rest:     extensions(san(dnsName(domain))),
	}
}

// with returns the DER of plain after a change.
func with(t testing.TB, change func(*parts)) []byte {
	t.Helper()
	p := plain(t, ecKey())
	if change != nil {
		change(&p)
	}
	return p.der(ecKey())
}

// tlv is a DER element.
func tlv(tag byte, content ...[]byte) []byte {
	body := bytes.Join(content, nil)
	out := []byte{tag}
	switch n := len(body); {
	case n < 128:
		out = append(out, byte(n))
	case n < 256:
		out = append(out, 0x81, byte(n))
	case n < 1<<16:
		out = append(out, 0x82, byte(n>>8), byte(n))
	default:
		out = append(out, 0x83, byte(n>>16), byte(n>>8), byte(n))
	}
	return append(out, body...)
}

func oid(dotted string) []byte {
	o, err := x509.ParseOID(dotted)
	if err != nil {
		panic(err)
	}
	raw, err := o.MarshalBinary()
	if err != nil {
		panic(err)
	}
	return tlv(0x06, raw)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

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
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return k
	})
	edKey = sync.OnceValue(func() ed25519.PrivateKey {
		_, k, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(err)
		}
		return k
	})
)

func curveKey(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

// issue has the standard library make a certificate.
func issue(t testing.TB, key crypto.Signer, change func(*x509.Certificate)) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0x0123456789),
		Subject:      pkix.Name{CommonName: domain},
		NotBefore:    now().Add(-24 * time.Hour),
		NotAfter:     now().Add(24 * time.Hour),
		DNSNames:     []string{domain, "*.example.com"},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
