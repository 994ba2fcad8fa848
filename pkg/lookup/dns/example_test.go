package dns_test

import (
	"context"
	"fmt"
	"net"
	"net/url"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// zone is a resolver that answers every question about MX records with two records.
func zone(w miekg.ResponseWriter, question *miekg.Msg) {
	reply := new(miekg.Msg).SetReply(question)
	name := question.Question[0].Name
	for _, mx := range []miekg.MX{{Preference: 10, Mx: "mail.example.net."}, {Preference: 20, Mx: "backup.example.net."}} {
		mx.Hdr = miekg.RR_Header{Name: name, Rrtype: miekg.TypeMX, Class: miekg.ClassINET, Ttl: 300}
		reply.Answer = append(reply.Answer, &mx)
	}
	_ = w.WriteMsg(reply) // fails only if the client is gone
}

// This example looks up the mail servers of a domain with a resolver on this machine. A real
// program uses public resolvers, such as 1.1.1.1:53 and 8.8.8.8:53.
func Example() {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer socket.Close()
	go func() { _ = miekg.ActivateAndServe(nil, socket, miekg.HandlerFunc(zone)) }()

	query, err := dns.ParseQuery(url.Values{"domain": {"Example.COM"}, "type": {"mx"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := dns.New(dns.Config{Resolvers: []string{socket.LocalAddr().String()}})
	result, err := client.Lookup(context.Background(), query)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Domain, result.Type, result.Rcode, "TTL", *result.TTL)
	for _, record := range result.Records {
		if mx, ok := record.(dns.MX); ok {
			fmt.Println(mx.Preference, mx.Exchange)
		}
	}
	// Output:
	// example.com MX NOERROR TTL 300
	// 10 mail.example.net
	// 20 backup.example.net
}
