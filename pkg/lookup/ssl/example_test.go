package ssl_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// An inspection through the guard. Behind the public address that the name
// resolves to is a server on loopback.
func ExampleClient_Lookup() {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := ssl.New(ssl.Config{
		Connector: testbed.Behind(server.Listener.Addr()),
		Now:       func() time.Time { return time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC) },
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
