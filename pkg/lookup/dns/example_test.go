package dns_test

import (
	"context"
	"fmt"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// A lookup over a resolver on loopback that knows one name.
func ExampleClient_Lookup() {
	mx, _ := miekg.NewRR("example.com. 300 IN MX 10 mx1.example.com.")
	server, err := testbed.ListenDNS("127.0.0.1:0", testbed.Zone{Records: map[string][]miekg.RR{"example.com.": {mx}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := dns.New(dns.Config{Resolvers: []string{server.Addr}})
	r, err := client.Lookup(context.Background(), dns.Query{Domain: "example.com", Type: "MX"})
	fmt.Println(r.Domain, r.Rcode, *r.TTL, r.Records, err)
	_, err = client.Lookup(context.Background(), dns.Query{Domain: "nobody.example.com", Type: "MX"})
	fmt.Println(fault.From(err).Code)
	// Output:
	// example.com NOERROR 300 [{10 mx1.example.com}] <nil>
	// nxdomain
}
