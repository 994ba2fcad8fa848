package registry_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

// A lookup of a host name: the registry is asked about its registrable domain. The
// bootstrap file and the registry, which is reached through the guard, are on
// loopback.
func ExampleClient_Lookup() {
	rdap := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("asked for", r.URL.Path)
		_, _ = io.WriteString(w, `{"objectClassName": "domain", "ldhName": "EXAMPLE.ORG", "handle": "D1-EX", "status": ["active"],
			"nameservers": [{"objectClassName": "nameserver", "ldhName": "A.IANA-SERVERS.NET"}]}`)
	}))
	defer rdap.Close()
	iana := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version": "1.0", "services": [[["org"], ["https://example.com/rdap/"]]]}`)
	}))
	defer iana.Close()

	roots := x509.NewCertPool()
	roots.AddCert(rdap.Certificate()) // its name is example.com
	client := registry.New(whois.Config{
		BootstrapURL: iana.URL, RootCAs: roots, UserAgent: "example", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Connector: testbed.Behind(rdap.Listener.Addr()),
	})
	r, err := client.Lookup(context.Background(), whois.Query{Domain: "www.example.org"})
	fmt.Println(r.Domain, *r.Handle, r.Status, r.Nameservers, err)
	// Output:
	// asked for /rdap/domain/example.org
	// www.example.org D1-EX [active] [a.iana-servers.net] <nil>
}
