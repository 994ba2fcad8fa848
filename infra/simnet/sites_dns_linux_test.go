package simnet

import "github.com/hostfacts/hostfacts/pkg/lookup"

// dnsRows are spec §7.2 and §7.3 for dns, and the fields of §2.1.
func dnsRows() []row {
	dns := asks("dns")
	none := want{"rcode": "NOERROR", "ttl": nil, "records": count(0)}
	return append([]row{
		dns("example.com", want{"type": "A", "rcode": "NOERROR", "ttl": 300, "records": count(1), "records.0.address": starts("93.184.")}),
		dns("example.com", want{"ttl": 200, "records.0.preference": 10, "records.1.exchange": "mx2.example.com"}, "type=MX"),
		dns("example.com", want{"type": "TXT", "records.0.text": "v=spf1 -all", "records.0.strings": []string{"v=spf1 ", "-all"}}, "type=txt"),
		dns("example.com", want{"records.0.target": "ns1.example.com"}, "type=NS"),
		dns("example.com", want{"records.0.mname": "ns1.example.com", "records.0.minimum": 5}, "type=SOA"),
		dns("www", want{"ttl": 60, "records": count(1)}),
		dns("six", want{"records.0.address": "2606:2800:220:1::6"}, "type=AAAA"),
		dns("empty", none),
		dns("servfail", want{"rcode": "SERVFAIL", "ttl": nil, "records": count(0)}),
		dns("long", want{"records": count(1), "ttl": 60}, "type=TXT"),
		dns("loopback", want{"records.0.address": "127.0.0.1"}),
		dns("BÜCHER.com.", want{"domain": "xn--bcher-kva.com"}),
		dns("_dmarc.example.com", want{"records.0.text": "v=DMARC1; p=none"}, "type=TXT"),
		dns("refused", fails(lookup.UpstreamUnavailable)),
		dns("silent", fails(lookup.DNSTimeout)),
		dns("example.com", fails(lookup.InvalidType), "type=PTR"),
		dns("example.com", fails(lookup.InvalidDomain), "domain=example.com"),
	}, alike("dns", fails(lookup.NXDomain), "gone", "dangling")...)
}
