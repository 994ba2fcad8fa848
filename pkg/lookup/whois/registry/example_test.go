package registry_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

// atHome returns a Dialer that connects to the given server on this machine, whatever host it
// is asked for. A real program leaves Connect and HasRoute unset, and uses a dns.Client as the
// Resolver.
func atHome(server *httptest.Server) *guard.Dialer {
	return &guard.Dialer{
		Resolver: resolver{},
		Connect: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
		HasRoute: func(context.Context, netip.Addr) bool { return true },
	}
}

// resolver resolves every name to the same public address.
type resolver struct{}

// Addresses implements guard.Resolver.
func (resolver) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

// This example prints the status, the expiry date and the registrar of a domain. One server on
// this machine serves IANA's bootstrap file, and another is the registry. A real program
// leaves BootstrapURL and RootCAs unset.
func Example() {
	iana := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"1.0","services":[[["com"],["https://rdap.example.com/"]]]}`)
	}))
	defer iana.Close()
	rdap := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/rdap+json")
		_, _ = io.WriteString(w, `{"objectClassName":"domain","ldhName":"EXAMPLE.COM","status":["active"],
			"events":[{"eventAction":"expiration","eventDate":"2027-08-13T04:00:00Z"}],
			"entities":[{"objectClassName":"entity","roles":["registrar"],"publicIds":[{"type":"IANA Registrar ID","identifier":"376"}],
				"vcardArray":["vcard",[["version",{},"text","4.0"],["fn",{},"text","Example Registrar"]]]}]}`)
	}))
	defer rdap.Close()
	roots := x509.NewCertPool()
	roots.AddCert(rdap.Certificate())

	client := registry.New(whois.Config{
		Connector:    atHome(rdap),
		RootCAs:      roots,
		BootstrapURL: iana.URL,
		Now:          time.Now,
		UserAgent:    "example",
		Log:          slog.New(slog.DiscardHandler),
	})
	result, err := client.Lookup(context.Background(), whois.Query{Domain: "www.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Status, "until", *result.ExpiresAt)
	fmt.Println(result.Registrar.Name, result.Registrar.IANAID)
	// Output:
	// [active] until 2027-08-13T04:00:00Z
	// Example Registrar 376
}
