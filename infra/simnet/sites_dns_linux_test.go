package simnet

import (
	"strings"
	"unicode"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// dnsRows are spec §7.2 and §7.3 for dns, and the fields of §2.1.
func dnsRows() []row {
	dns := asks("dns")
	return append([]row{
		dns("example.com", want{"type": "A", "rcode": "NOERROR", "resolver": something, "ttl": 300, "records": count(1), "records.0.address": starts("93.184.")}),
		dns("example.com", want{"ttl": 200, "records.0.preference": 10, "records.1.exchange": "mx2.example.com"}, "type=MX"),
		dns("example.com", want{"type": "TXT", "records.0.text": "v=spf1 -all", "records.0.strings": []string{"v=spf1 ", "-all"}}, "type=txt"),
		dns("example.com", want{"records.0.target": "ns1.example.com"}, "type=NS"),
		dns("example.com", want{"records.0.mname": "ns1.example.com", "records.0.minimum": 5}, "type=SOA"),
		dns("www", want{"ttl": 60, "records": count(1)}),
		dns("six", want{"records.0.address": "2606:2800:220:1::6"}, "type=AAAA"),
		dns("empty", noRecord()),
		dns("servfail", noRecord().with("rcode", "SERVFAIL")),
		dns("long", want{"records": count(1), "ttl": 60}, "type=TXT"),
		dns("loopback", want{"records.0.address": "127.0.0.1"}),
		dns("mapped", want{"records.0.address": "::ffff:93.184.2.12"}, "type=AAAA"),
		dns("BÜCHER.com.", want{"domain": "xn--bcher-kva.com"}),
		dns("_dmarc.example.com", want{"records.0.text": "v=DMARC1; p=none"}, "type=TXT"),
		dns("refused", fails(lookup.UpstreamUnavailable)),
		dns("silent", fails(lookup.DNSTimeout)),
		{op: "dns", domain: "localhost", want: fails(lookup.InvalidDomain)},
		dns("example.com", fails(lookup.InvalidType), "type=PTR"),
		dns("example.com", fails(lookup.InvalidDomain), "domain=example.com"),
	}, alike("dns", fails(lookup.NXDomain), "gone", "dangling")...)
}

// good is an answer with the address of a site without a listener.
func good() want {
	return want{"rcode": "NOERROR", "records": count(1), "records.0.address": closedAddr}
}

func by(resolver string) want { return good().with("resolver", resolver) }

func noRecord() want { return want{"rcode": "NOERROR", "ttl": nil, "records": count(0)} }

// tricked is a site about what resolvers do to an answer, and what dns says then.
// Its honest answer is one address where nobody listens.
func tricked(name string, t trick, w want, more ...string) site {
	h := host{name: full(name), addrs: []string{closedAddr}, trick: t}
	return site{h, []row{asks("dns")(name, w, more...)}}
}

// other is such a site for a question of another type.
func other(typ, name string, t trick, w want) site {
	return tricked(name, t, w, "type="+typ)
}

// dishonestSites are a kind each of what package dns holds against a resolver.
func dishonestSites() []site {
	otherCase := changes(func(m *dns.Msg) { // every letter in the other case
		m.Question[0].Name = strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) {
				return r ^ 0x20
			}
			return r
		}, m.Question[0].Name)
	})
	const second = "8.8.8.8"
	return []site{
		tricked("liecase", otherCase, fails(lookup.DNSTimeout)),
		tricked("tc", overUDP(changes(func(m *dns.Msg) { m.Truncated = true })), good()),
		tricked("udpsilent", overUDP(nothing), good()),
		tricked("servfailnx", each(rcodes(dns.RcodeServerFailure), denied("com."), nothing), fails(lookup.NXDomain)),
		tricked("nxalone", each(denied(), rcodes(dns.RcodeRefused), rcodes(dns.RcodeRefused)), fails(lookup.UpstreamUnavailable)),
		tricked("refusedfirst", each(rcodes(dns.RcodeRefused), honestly, nothing), by(second)),
		tricked("silentfirst", each(nothing, honestly, nothing), by(second)),
	}
}

// oddSites are honest replies of unusual content.
func oddSites() []site {
	dname := answers("zone.example.com. 60 IN DNAME other.example.com.", "@ 50 IN CNAME dname.other.example.com.", "dname.other.example.com. 40 IN A 93.184.1.1")
	odd := func(name, data string, w want) site {
		return other(strings.Fields(data)[0], name, answers("@ 60 IN "+data), w)
	}
	return []site{
		tricked("dname.zone.example.com", dname, want{"records": count(1), "records.0.address": "93.184.1.1", "ttl": 40}),
		odd("txtsplit", `TXT "caf\195" "\169"`, want{"records.0.text": "café", "records.0.strings": []string{`caf\195`, `\169`}}),
		odd("nullmx", "MX 0 .", want{"records.0.preference": 0, "records.0.exchange": "."}),
		odd("soadots", `SOA NS.example.com. first\.last.Example.com. 4294967295 2 3 4 5`,
			want{"records.0.mname": "ns.example.com", "records.0.rname": `first\.last.example.com`, "records.0.serial": 1<<32 - 1}),
	}
}
