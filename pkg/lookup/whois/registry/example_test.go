package registry_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

// exampleAddress is a guard.Resolver that gives every name one address.
type exampleAddress struct{ netip.Addr }

func (a exampleAddress) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{a.Addr}, nil
}

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
		BootstrapURL: iana.URL, RootCAs: roots, UserAgent: "example",
		Connector: guard.NewDialer(guard.DialerConfig{
			Resolver: exampleAddress{netip.MustParseAddr("93.184.215.14")},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, rdap.Listener.Addr().String())
			},
		}),
	})
	r, err := client.Lookup(context.Background(), whois.Query{Domain: "www.example.org"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Domain, *r.Handle, r.Status, r.Nameservers)
	// Output:
	// asked for /rdap/domain/example.org
	// www.example.org D1-EX [active] [a.iana-servers.net]
}
