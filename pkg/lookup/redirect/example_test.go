package redirect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// A trace that ends at a redirect to plain HTTP, which is not followed. Behind the
// public address that the names resolve to is a server on loopback.
func ExampleClient_Lookup() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := "https://www.example.com/start"
		if r.Host == "www.example.com" {
			to = "http://www.example.com/"
		}
		http.Redirect(w, r, to, http.StatusMovedPermanently)
	}))
	defer server.Close()
	client := redirect.New(&origin.Client{Connector: testbed.Behind(server.Listener.Addr()), UserAgent: "example"})
	r, err := client.Lookup(context.Background(), redirect.Query{Domain: "example.com"})
	for _, hop := range r.Hops {
		fmt.Println(hop.Index, hop.Status, hop.URL, "->", *hop.Location)
	}
	fmt.Println("stopped:", *r.StopReason, err)
	// Output:
	// 0 301 https://example.com/ -> https://www.example.com/start
	// 1 301 https://www.example.com/start -> http://www.example.com/
	// stopped: insecure_redirect <nil>
}
