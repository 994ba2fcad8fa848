package bundle_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// The bundle over its real parts. The resolver and the origin are on loopback.
func ExampleUptime_Lookup() {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer web.Close()
	server, err := testbed.ListenDNS("127.0.0.1:0", miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		a, _ := miekg.NewRR(q.Question[0].Name + " 60 IN A 93.184.215.14")
		m := testbed.Reply(q)
		m.Answer = []miekg.RR{a}
		testbed.Send(w, q, m)
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	connector := testbed.Behind(web.Listener.Addr())
	fetched := headers.New(&origin.Client{Connector: connector, UserAgent: "example"})
	resolver := dns.New(dns.Config{Resolvers: []string{server.Addr}})
	client := bundle.Uptime{Connector: connector, DNS: resolver, SSL: ssl.New(ssl.Config{Connector: connector}), Headers: fetched}
	r, err := client.Lookup(context.Background(), guard.Query{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Verdict, r.DNS.Result.Records, r.SSL.Result.HostnameMatch, r.Headers.Result.Status)
	// Output:
	// degraded [{93.184.215.14}] true 503
}
