package simnet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync/atomic"
	"testing"
	"time"
)

// authority issues the certificates of this internet.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial atomic.Int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Simnet CA", Organization: []string{"Simnet"}, Country: []string{"US"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key}
}

func (a *authority) pem() []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}) // to memory
	return b.Bytes()
}

// edit changes a certificate before it is signed.
type edit func(*x509.Certificate)

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = fixed("2020-01-01T00:00:00Z"), fixed("2020-12-31T23:59:59Z")
}

func notYetValid(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = fixed("2090-01-01T00:00:00Z"), fixed("2090-12-31T23:59:59Z")
}

func named(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }

func serial(n int64) edit { return func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) } }

func fixed(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err) // a constant of this file
	}
	return t
}

// leaf is a certificate for a name, valid now.
func (a *authority) leaf(name string, edits ...edit) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000 + a.serial.Add(1)), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
	}
	for _, e := range edits {
		e(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		panic(err) // a template that cannot be encoded is a mistake in the table
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}
