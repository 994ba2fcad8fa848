package bundle_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"

	miekg "github.com/miekg/dns"

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
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := &miekg.Server{PacketConn: socket, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetReply(q)
		m.RecursionAvailable = true
		if q.Question[0].Qtype == miekg.TypeA {
			m.Answer = []miekg.RR{&miekg.A{
				Hdr: miekg.RR_Header{Name: q.Question[0].Name, Rrtype: miekg.TypeA, Class: miekg.ClassINET, Ttl: 60},
				A:   net.ParseIP("93.184.215.14"),
			}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	defer func() { _ = server.Shutdown() }()

	resolver := dns.New(dns.Config{Resolvers: []string{socket.LocalAddr().String()}})
	dialer := guard.NewDialer(guard.DialerConfig{
		Resolver: resolver,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, web.Listener.Addr().String())
		},
	})
	fetched := headers.New(origin.New(origin.Config{Connector: dialer, UserAgent: "example"}))
	client := bundle.NewUptime(dialer, resolver, ssl.New(ssl.Config{Connector: dialer}), fetched)
	r, err := client.Lookup(context.Background(), bundle.UptimeQuery{Domain: "example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Verdict, r.DNS.Result.Records, r.SSL.Result.HostnameMatch, r.Headers.Result.Status)
	// Output:
	// degraded [{93.184.215.14}] true 503
}
