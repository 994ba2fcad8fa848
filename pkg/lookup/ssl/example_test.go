package ssl_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// exampleAddress is a guard.Resolver that gives every name one address.
type exampleAddress struct{ netip.Addr }

func (a exampleAddress) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{a.Addr}, nil
}

// An inspection through the guard. Behind the public address that the name
// resolves to is a server on loopback.
func ExampleClient_Lookup() {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := ssl.New(ssl.Config{
		Connector: guard.NewDialer(guard.DialerConfig{
			Resolver: exampleAddress{netip.MustParseAddr("93.184.215.14")},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			},
		}),
		Now: func() time.Time { return time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC) },
	})
	r, err := client.Lookup(context.Background(), ssl.Query{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.PeerIP, *r.TLSVersion, r.Subject)
	fmt.Println("expired", r.Expired, "matches", r.HostnameMatch)
	// Output:
	// 93.184.215.14 tlsv1.3 O=Acme Co
	// expired false matches true
}
