package dns_test

import (
	"context"
	"fmt"
	"net/url"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// A lookup over a resolver on loopback that knows one name.
func ExampleClient_Lookup() {
	server, err := testbed.ListenDNS("127.0.0.1:0", miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		soa, _ := miekg.NewRR("com. 900 IN SOA a.gtld-servers.net. nstld.verisign-grs.com. 1 1800 900 604800 900")
		m := new(miekg.Msg).SetRcode(q, miekg.RcodeNameError)
		m.Ns = []miekg.RR{soa} // without it, the client would ask a second resolver
		if name := q.Question[0].Name; miekg.CanonicalName(name) == "example.com." {
			mx, _ := miekg.NewRR(name + " 300 IN MX 10 mx1.example.com.")
			m.Rcode, m.Answer = miekg.RcodeSuccess, []miekg.RR{mx}
		}
		testbed.Send(w, q, m)
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := dns.New(dns.Config{Resolvers: []string{server.Addr}})
	for _, domain := range []string{"Example.COM.", "nobody.example.com"} {
		q, err := dns.ParseQuery(url.Values{"domain": {domain}, "type": {"MX"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := client.Lookup(context.Background(), q)
		if err != nil {
			fmt.Println(q.Domain, fault.From(err).Code)
			continue
		}
		fmt.Println(r.Domain, r.Rcode, *r.TTL, r.Records)
	}
	// Output:
	// example.com NOERROR 300 [{10 mx1.example.com}]
	// nobody.example.com nxdomain
}
