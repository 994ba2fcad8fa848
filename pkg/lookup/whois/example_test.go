package whois_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

// Until when a domain is registered, by the registry that IANA names for it. Package registry has
// an example that needs no network.
func Example() {
	query, err := guard.ParseQuery(url.Values{"domain": {"www.example.com"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	resolver := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53", "8.8.8.8:53"}})
	client := registry.New(whois.Config{
		Connector: &guard.Dialer{Resolver: resolver},
		Now:       time.Now,
		UserAgent: "example (+https://example.com)",
		Log:       slog.Default(),
	})
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	result, err := client.Lookup(ctx, query)
	if err != nil {
		fmt.Println(err)
		return
	}
	if result.ExpiresAt != nil {
		fmt.Println(result.Domain, "is registered until", *result.ExpiresAt)
	}
}
