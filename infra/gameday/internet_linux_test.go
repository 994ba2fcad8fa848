package gameday

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// authority issues the certificates of every world.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	file   string // with the certificate in PEM
	leaves sync.Map
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Game Day CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // to memory
	if err := os.WriteFile(a.file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// leaf is the certificate for the name that a client asks for.
func (a *authority) leaf(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c, ok := a.leaves.Load(hello.ServerName); ok {
		return c.(*tls.Certificate), nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: hello.ServerName}, DNSNames: []string{hello.ServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c, _ := a.leaves.LoadOrStore(hello.ServerName, &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.key})
	return c.(*tls.Certificate), nil
}

// openHTTPS serves on port 443 of an address until the test ends.
func (a *authority) openHTTPS(t *testing.T, ip net.IP, h http.Handler) {
	t.Helper()
	listener, err := tls.Listen("tcp", net.JoinHostPort(ip.String(), "443"), &tls.Config{GetCertificate: a.leaf})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }() // ends with an error when it is closed
	t.Cleanup(func() { _ = server.Close() })
}

// registryName is the name of the RDAP registry of every world.
const registryName = "rdap.registry.net"

// registry is an RDAP registry that has every domain of the top-level domain
// com. It turns away who asks too often, when it is limited.
type registry struct{ limited atomic.Bool }

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if r.limited.Load() {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	name, ok := strings.CutPrefix(q.URL.Path, "/v1/domain/")
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", "application/rdap+json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the function may be gone
		"objectClassName": "domain", "ldhName": name, "handle": "1_DOMAIN_COM", "status": []string{"active"},
		"events": []map[string]string{{"eventAction": "registration", "eventDate": "2001-02-03T04:05:06Z"}},
	})
}

// bootstrap is IANA's file of registries.
func bootstrap(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"version":"1.0","publication":"2026-11-01T00:00:00Z","services":[[["com"],["https://%s/v1/"]]]}`, registryName)
}

// origin is the web server of every other name.
func origin(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Server", "gameday")
}
