package whois_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

// This example looks up the expiry date of a domain at the registry that IANA names for it.
// Package registry has an example that works without a network.
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

// This example shows the JSON of a Result. A fact that the registry does not publish is null
// there, and a list without entries is an empty array.
func ExampleResult() {
	expires := "2027-08-13T04:00:00Z"
	answer, err := json.MarshalIndent(whois.Result{
		Domain:      "www.example.com",
		Source:      whois.Source,
		RDAPServer:  "https://rdap.example.com/",
		Status:      []string{"active"},
		Registrar:   &whois.Registrar{Name: "Example Registrar", IANAID: "376"},
		ExpiresAt:   &expires,
		Nameservers: []string{},
	}, "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(answer))
	// Output:
	// {
	//   "domain": "www.example.com",
	//   "source": "rdap",
	//   "rdap_server": "https://rdap.example.com/",
	//   "handle": null,
	//   "status": [
	//     "active"
	//   ],
	//   "registrar": {
	//     "name": "Example Registrar",
	//     "iana_id": "376"
	//   },
	//   "created_at": null,
	//   "updated_at": null,
	//   "expires_at": "2027-08-13T04:00:00Z",
	//   "nameservers": [],
	//   "dnssec": false
	// }
}
