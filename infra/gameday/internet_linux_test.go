package gameday

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// openHTTPS serves on port 443 of an address until the test ends.
func (s *stage) openHTTPS(t *testing.T, ip net.IP, h http.Handler) {
	t.Helper()
	listener, err := tls.Listen("tcp", net.JoinHostPort(ip.String(), "443"), &tls.Config{GetCertificate: s.ca.For})
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
