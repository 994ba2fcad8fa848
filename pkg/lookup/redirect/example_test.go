package redirect_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
)

// atHome returns a Dialer that connects to a server on this machine, whatever the host. A real
// program leaves Connect and HasRoute unset, and uses a dns.Client as the Resolver.
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

// This example prints the URLs that a domain redirects to.
func Example() {
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			http.Redirect(w, r, "https://www.example.com/en", http.StatusMovedPermanently)
		}
	}))
	defer host.Close()

	client := redirect.New(&origin.Client{Connector: atHome(host), UserAgent: "example"})
	result, err := client.Lookup(context.Background(), redirect.Query{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, hop := range result.Hops {
		fmt.Println(hop.Status, hop.URL)
	}
	fmt.Println("ends at", result.FinalURL)
	// Output:
	// 301 https://example.com/
	// 200 https://www.example.com/en
	// ends at https://www.example.com/en
}
