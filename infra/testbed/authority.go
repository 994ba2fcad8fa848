package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Authority issues the TLS certificates of the servers in a test.
type Authority struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
	File string // the path of the authority's certificate in PEM, for SSL_CERT_FILE

	serial atomic.Int64
	shown  sync.Map // the certificates that For has made: a *tls.Certificate for each server name
}

// NewAuthority returns an authority with a new key.
func NewAuthority(tb testing.TB, subject pkix.Name) *Authority {
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               subject,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	a := &Authority{
		Cert: Must(x509.ParseCertificate(der)),
		Key:  key,
		File: filepath.Join(tb.TempDir(), "ca.pem"),
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	Check(os.WriteFile(a.File, text, 0o600))
	return a
}

// Leaf returns a certificate for a name, with a new key. The certificate is valid now, unless
// one of the edits changes that before it is signed.
func (a *Authority) Leaf(name string, edits ...func(*x509.Certificate)) tls.Certificate {
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000 + a.serial.Add(1)),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(12 * time.Hour),
	}
	for _, e := range edits {
		e(template)
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.Key))
	return tls.Certificate{Certificate: [][]byte{der, a.Cert.Raw}, PrivateKey: key}
}

// For returns the certificate for the server name in a client's hello. The certificate is made
// at the first request for the name. For can be used as the GetCertificate function of a
// tls.Config.
func (a *Authority) For(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c, ok := a.shown.Load(hello.ServerName); ok {
		return c.(*tls.Certificate), nil
	}
	leaf := a.Leaf(hello.ServerName)
	c, _ := a.shown.LoadOrStore(hello.ServerName, &leaf)
	return c.(*tls.Certificate), nil
}
