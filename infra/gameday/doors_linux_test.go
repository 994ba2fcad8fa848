package gameday

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// patience is how long a scenario waits for something that must happen.
const patience = 60 * time.Second

// door is a server that can be shut. While it is shut, the machine refuses connections to its
// address.
type door struct {
	addr   string
	listen func() (end func(), err error)

	mu  sync.Mutex
	end func() // stops the server; nil while the door is shut
}

func openDoor(t testing.TB, addr string, listen func() (end func(), err error)) *door {
	d := &door{addr: addr, listen: listen}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.shut)
	return d
}

func (d *door) open() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.end == nil {
		d.end, err = d.listen()
	}
	return err
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.end != nil {
		d.end()
		d.end = nil
	}
}

// serve starts an HTTP server behind a door. If tlsConfig is not nil, the server uses TLS.
func serve(t testing.TB, addr string, h http.Handler, tlsConfig *tls.Config) *door {
	return openDoor(t, addr, func() (func(), error) {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		if tlsConfig != nil {
			listener = tls.NewListener(listener, tlsConfig)
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
		go func() { _ = server.Serve(listener) }() // returns an error when the door is shut
		return func() { _ = server.Close() }, nil
	})
}

const registryName = "rdap.registry.net"

// resolver is the recursive resolver of one world. Every name exists.
type resolver struct {
	*door
	ignoresQueries atomic.Bool // whether the resolver receives queries without answering them
	originStrayed  atomic.Bool // whether the public origin resolves to the same address as every other name
}

func newResolver(t testing.TB, addr string, origin, registry, front net.IP) *resolver {
	r := &resolver{}
	zone := testbed.ReadZone(t, fmt.Sprintf("*. 30 A %s\n%s. 30 A %s\ncom. 30 NS a.gtld-servers.net.\n", origin, registryName, registry))
	names := resolveFront(front, &r.originStrayed, zone)
	r.door = openDoor(t, addr, func() (func(), error) {
		s, err := testbed.ListenDNS(addr, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if !r.ignoresQueries.Load() {
				names.ServeDNS(w, q)
			}
		}))
		if err != nil {
			return nil, err
		}
		return func() { _ = s.Close() }, nil // an error would mean that the server has not started
	})
	return r
}

// serveRegistry handles requests to an RDAP registry in which every domain under com exists.
func serveRegistry(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/rdap+json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the client has gone away
		"objectClassName": "domain", "ldhName": strings.TrimPrefix(q.URL.Path, "/v1/domain/"), "handle": "1_DOMAIN_COM", "status": []string{"active"},
		"events": []map[string]string{{"eventAction": "registration", "eventDate": "2001-02-03T04:05:06Z"}},
	})
}

// serveBootstrap serves IANA's bootstrap file, which lists the registries.
func serveBootstrap(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"version":"1.0","publication":"2026-11-01T00:00:00Z","services":[[["com"],["https://%s/v1/"]]]}`, registryName)
}

func serveOrigin(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
}
