package ssl_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
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

// This example prints facts about the certificate of a host.
func Example() {
	host := httptest.NewTLSServer(http.NotFoundHandler())
	defer host.Close()

	client := ssl.New(ssl.Config{Connector: atHome(host)})
	result, err := client.Lookup(context.Background(), ssl.Query{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Subject, *result.TLSVersion)
	fmt.Println("for this name:", result.HostnameMatch, "expired:", result.Expired)
	// Output:
	// O=Acme Co tlsv1.3
	// for this name: true expired: false
}
