package headers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// A lookup through the guard. Behind the public address that the name resolves to
// is a server on loopback.
func ExampleClient_Lookup() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "example")
		w.Header().Set("Set-Cookie", "left=out")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	client := headers.New(&origin.Client{Connector: testbed.Behind(server.Listener.Addr()), UserAgent: "example"})
	r, err := client.Lookup(context.Background(), headers.Query{Domain: "www.example.com"})
	fmt.Println(r.Method, r.URL, r.Status, r.PeerIP, *r.Headers.Server, err)
	// Output:
	// HEAD https://www.example.com/ 204 93.184.215.14 example <nil>
}
