package simnet

import (
	"crypto/x509"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// deadNetwork is an IPv4 network at whose addresses nothing answers. If the service runs in a
// separate namespace, as in TestDelay, packets to these addresses are silently dropped. From
// the internet's own namespace, a connection to them fails at once. So only TestDelay looks up
// hosts with such addresses.
const deadNetwork = "93.184.200.0/24"

// deadAddrs returns n addresses at which nothing answers.
func deadAddrs(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("93.184.200.%d", i+1))
	}
	return all
}

// brokenHosts returns hosts whose dead addresses come before their good ones.
func brokenHosts() []host {
	all := []host{
		{name: "dead1", deadAddrs: deadAddrs(1), serve: web(serveOK)},
		{name: "dead8", deadAddrs: deadAddrs(8), addrs: []string{sixAddr}}, // the server of six.example.com, which has this address, answers for dead8 as well
	}
	const chained = 5
	for i := range chained {
		page := serveOK
		if i+1 < chained {
			page = redirectTo(fmt.Sprintf("https://step%d.example.com/", i+1))
		}
		all = append(all, host{name: fmt.Sprintf("step%d", i), deadAddrs: deadAddrs(1), serve: web(page)})
	}
	return all
}

// addDead8 makes the certificate of six.example.com valid for dead8.example.com as well,
// because both names have the same address.
func addDead8(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "dead8.example.com") }

// racedLookup is a lookup of a host with dead addresses. The lookup's time is compared with the
// time of a client that connects according to RFC 8305. The ratio of the lookup's time to the
// client's time may be at most maxRatio (design §9).
type racedLookup struct {
	timedLookup
	maxRatio float64
}

func racedLookups() []racedLookup {
	return []racedLookup{
		{timedLookup{catalog.Headers(), "dead1.example.com", 4, "two addresses, the first of which never answers"}, 1.15},
		{timedLookup{catalog.UptimeCheck(), "dead1.example.com", 4, "two addresses, the first of which never answers"}, 1.15},
		{timedLookup{catalog.Headers(), "dead8.example.com", 4, "eight IPv4 addresses dead, one IPv6 address good"}, 1.15},
		{timedLookup{catalog.ResolveRedirect(), "step0.example.com", 20, "five hosts, the first address of each dead"}, 1.3},
	}
}
