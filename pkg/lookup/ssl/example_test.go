package ssl_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"

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
	client := ssl.New(ssl.Config{Connector: testbed.Behind(server.Listener.Addr())})
	r, err := client.Lookup(context.Background(), ssl.Query{Domain: "example.com"})
	fmt.Println(r.PeerIP, *r.TLSVersion, r.Subject, r.HostnameMatch, err)
	// Output:
	// 93.184.215.14 tlsv1.3 O=Acme Co true <nil>
}
