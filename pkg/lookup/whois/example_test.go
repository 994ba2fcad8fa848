package whois_test

import (
	"fmt"
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// Parameters are normalised before anything is looked up.
func ExampleParseQuery() {
	for _, domain := range []string{"Bücher.Example.COM.", "192.0.2.1"} {
		q, err := whois.ParseQuery(url.Values{"domain": {domain}})
		if err != nil {
			fmt.Println(fault.From(err).Code)
			continue
		}
		fmt.Println(q.Domain)
	}
	// Output:
	// xn--bcher-kva.example.com
	// invalid_domain
}
