package gameday

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// frontName is the domain of every world.
const frontName = "api.facts.net"

// front serves the public origin of a world: the gateway, behind TLS.
type front struct {
	ca          *testbed.Authority
	gateway     http.Handler // set once the gateway exists
	mappingLost atomic.Bool  // whether the domain has lost its mapping to the API
	expiresSoon atomic.Bool  // whether the certificate expires soon
}

// newFront starts the front at an address.
func newFront(t testing.TB, ca *testbed.Authority, ip net.IP) *front {
	f := &front{ca: ca}
	serve(t, net.JoinHostPort(ip.String(), "443"), f, &tls.Config{GetCertificate: f.certificate})
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.mappingLost.Load() {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"Not Found"}`) // an error means that the client has gone away
		return
	}
	f.gateway.ServeHTTP(w, r)
}

// certificate returns a certificate that was recently renewed. While expiresSoon is set, it
// returns a certificate that ACM failed to renew.
func (f *front) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	left := 60 * 24 * time.Hour
	if f.expiresSoon.Load() {
		left = 10 * 24 * time.Hour
	}
	leaf := f.ca.Leaf(hello.ServerName, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(left) })
	return &leaf, nil
}

// resolveFront returns a DNS handler that answers from the zone, except that the public origin
// resolves to ip. While strayed is set, the public origin resolves as the zone says.
func resolveFront(ip net.IP, strayed *atomic.Bool, zone testbed.Zone) dns.Handler {
	own := testbed.Must(dns.NewRR(fmt.Sprintf("%s. 30 A %s", frontName, ip)))
	return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		name, qtype, ok := testbed.Question(q)
		if !ok || name != frontName+"." || strayed.Load() {
			zone.ServeDNS(w, q)
			return
		}
		m := testbed.Reply(q)
		if qtype == dns.TypeA {
			m.Answer = append(m.Answer, own)
		}
		testbed.Send(w, q, m)
	})
}
