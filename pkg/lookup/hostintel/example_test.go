package hostintel_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/hostintel"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// exampleLookup is a lookup that calls a function.
type exampleLookup[Q, R any] func(Q) (R, error)

func (l exampleLookup[Q, R]) Lookup(_ context.Context, q Q) (R, error) { return l(q) }

// A bundle in which one child fails on our side: the others have their results, and
// the failed one is owed.
func ExampleClient_Lookup() {
	client := hostintel.New(
		exampleLookup[dns.Query, dns.Result](func(q dns.Query) (dns.Result, error) {
			return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR"}, nil
		}),
		exampleLookup[ssl.Query, ssl.Result](func(q ssl.Query) (ssl.Result, error) {
			return ssl.Result{Domain: q.Domain, Port: 443, HostnameMatch: true}, nil
		}),
		exampleLookup[whois.Query, whois.Result](func(whois.Query) (whois.Result, error) {
			return whois.Result{}, fault.New(fault.WhoisTimeout, nil)
		}),
	)
	r, err := client.Lookup(context.Background(), hostintel.Query{Domain: "example.com", DNSType: "MX"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.DNS.Result.Type, r.SSL.Result.HostnameMatch)
	failed, err := json.Marshal(r.Whois)
	fmt.Println(string(failed), err)
	fields, _ := r.Owed()
	fmt.Println("owed:", fields)
	// Output:
	// MX true
	// {"error":{"code":"whois_timeout","message":"The RDAP lookup timed out."}} <nil>
	// owed: [whois]
}
