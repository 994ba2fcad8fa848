package headers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// exampleAddress is a guard.Resolver that gives every name one address.
type exampleAddress struct{ netip.Addr }

func (a exampleAddress) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{a.Addr}, nil
}

// A lookup through the guard. Behind the public address that the name resolves to
// is a server on loopback.
func ExampleClient_Lookup() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "example")
		w.Header().Set("Set-Cookie", "left=out")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	dialer := guard.NewDialer(guard.DialerConfig{
		Resolver: exampleAddress{netip.MustParseAddr("93.184.215.14")},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	})
	client := headers.New(origin.New(origin.Config{Connector: dialer, UserAgent: "example"}))
	r, err := client.Lookup(context.Background(), headers.Query{Domain: "www.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Method, r.URL, r.Status, r.PeerIP)
	fmt.Println("server:", *r.Headers.Server)
	// Output:
	// HEAD https://www.example.com/ 204 93.184.215.14
	// server: example
}
