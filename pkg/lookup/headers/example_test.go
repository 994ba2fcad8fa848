package headers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
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

// This example prints one security header of a host, and whether the host sends another.
func Example() {
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		w.Header().Set("Set-Cookie", "session=1") // the result has only the sixteen headers of the spec, so it does not have this one
	}))
	defer host.Close()

	client := headers.New(&origin.Client{Connector: atHome(host), UserAgent: "example"})
	result, err := client.Lookup(context.Background(), headers.Query{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Method, result.URL, result.Status)
	fmt.Println("HSTS:", *result.Headers.StrictTransportSecurity)
	fmt.Println("a content security policy:", result.Headers.ContentSecurityPolicy != nil)
	// Output:
	// HEAD https://example.com/ 200
	// HSTS: max-age=31536000
	// a content security policy: false
}
