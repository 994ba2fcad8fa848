package simnet

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// dnsRows are spec §7.2 and §7.3 for dns, and the fields of §2.1.
func dnsRows() []row {
	dns := asks("dns")
	return append([]row{
		dns("example.com", want{"type": "A", "rcode": "NOERROR", "resolver": something, "ttl": 300, "records": count(1), "records.0.address": starts("93.184.")}),
		dns("example.com", want{"ttl": 200, "records.0.preference": 10, "records.1.exchange": "mx2.example.com"}, "type=MX"),
		dns("example.com", want{"type": "TXT", "records.0.text": "v=spf1 -all", "records.0.strings": listing{"v=spf1 ", "-all"}}, "type=txt"),
		dns("example.com", want{"records.0.target": "ns1.example.com"}, "type=NS"),
		dns("example.com", want{"records.0.mname": "ns1.example.com", "records.0.minimum": 5}, "type=SOA"),
		dns("www", want{"records.0.target": "example.com", "ttl": 60}, "type=CNAME"),
		dns("www", want{"ttl": 60, "records": count(1)}),
		dns("six", want{"records.0.address": "2606:2800:220:1::6"}, "type=AAAA"),
		dns("empty", noRecord()),
		dns("servfail", servfail()),
		dns("long", want{"records": count(1), "ttl": 60}, "type=TXT"),
		dns("loopback", want{"records.0.address": "127.0.0.1"}),
		dns("mapped", want{"records.0.address": "::ffff:93.184.2.12"}, "type=AAAA"),
		dns("BÜCHER.com.", want{"domain": "xn--bcher-kva.com"}),
		dns("_dmarc.example.com", want{"records.0.text": "v=DMARC1; p=none"}, "type=TXT"),
		dns("_dmarc\u3002example\uff0ecom\uff61", want{"domain": "_dmarc.example.com", "records.0.text": "v=DMARC1; p=none"}, "type=TXT"),
		dns("refused", fails(fault.UpstreamUnavailable)),
		dns("silent", fails(fault.DNSTimeout)),
		{op: "dns", domain: "localhost", want: fails(fault.InvalidDomain)},
		dns("example.com", fails(fault.InvalidType), "type=PTR"),
		dns("example.com", fails(fault.InvalidType), "type="),
		dns("example.com", fails(fault.InvalidDomain), "domain=example.com"),
		// Names of sites below, asked for another type.
	}, alike("dns", fails(fault.NXDomain), "gone", "dangling")...)
}

// with changes a value, or adds one.
func (w want) with(path string, value any) want {
	w[path] = value
	return w
}

// good is an answer with the address of a site without a listener.
func good() want {
	return want{"rcode": "NOERROR", "records": count(1), "records.0.address": closedAddr}
}

// by is that answer from one resolver.
func by(resolver string) want { return good().with("resolver", resolver) }

// noRecord is an answer without a record.
func noRecord() want { return want{"rcode": "NOERROR", "ttl": none, "records": count(0)} }

func servfail() want { return noRecord().with("rcode", "SERVFAIL") }

func useless() want { return fails(fault.UpstreamUnavailable) }
func unheard() want { return fails(fault.DNSTimeout) }
func denied() want  { return fails(fault.NXDomain) }

// tricked is a site about what resolvers do to an answer, and what dns says then.
// Its honest answer is one address where nobody listens.
func tricked(name string, t trick, w want, more ...string) site {
	h := host{name: full(name), addrs: []string{closedAddr}, trick: t, tools: []string{"dig"}}
	return site{h, []row{asks("dns")(name, w, more...)}}
}

// dishonestSites are those whose answers dig is only asked for A about: a kind
// each of what package dns holds against a resolver.
func dishonestSites() []site {
	bits := func(change func(*dns.MsgHdr)) trick { return changes(func(m *dns.Msg) { change(&m.MsgHdr) }) }
	cut := bits(func(h *dns.MsgHdr) { h.Truncated = true })
	otherCase := changes(func(m *dns.Msg) { m.Question[0].Name = turned(m.Question[0].Name) })
	const second = "8.8.8.8"
	return []site{
		// Replies to something else than what was asked.
		tricked("liecase", otherCase, unheard()),
		tricked("lieid", bits(func(h *dns.MsgHdr) { h.Id++ }), unheard()),
		tricked("noquestion", changes(func(m *dns.Msg) { m.Question = nil }), unheard()),
		// Replies that are not whole, and what follows over TCP.
		tricked("tc", overUDP(cut), good()),
		tricked("udpsilent", overUDP(nothing), good()),
		tricked("tcpmute", overTCP(nothing), unheard()),
		tricked("tcpcut", overTCP(cut), useless()),
		tricked("tcpcloses", overTCP(func(a asked) { a.w.Close() }), useless()),
		// Return codes, and resolvers that do not agree.
		tricked("notimp", rcodes(dns.RcodeNotImplemented), useless()),
		tricked("refers", refers(), useless()), // servers to ask instead are no answer
		tricked("servfailnx", each(rcodes(dns.RcodeServerFailure), rcodes(dns.RcodeNameError), nothing), denied()),
		tricked("refusedfirst", each(rcodes(dns.RcodeRefused), honestly, nothing), by(second)),
		tricked("silentfirst", each(nothing, honestly, nothing), by(second)),
	}
}

// oddSites are honest replies of unusual content.
func oddSites() []site {
	mapped := changes(func(m *dns.Msg) { // the zone file form has none
		m.Answer = []dns.RR{&dns.RFC3597{
			Hdr:   dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 60},
			Rdata: "00000000000000000000ffff0a000001",
		}}
	})
	owner := changes(func(m *dns.Msg) {
		for _, rr := range m.Answer {
			rr.Header().Name = strings.ToUpper(rr.Header().Name)
		}
	})
	dname := answers("zone.example.com. 60 IN DNAME other.example.com.", "@ 50 IN CNAME dname.other.example.com.", "dname.other.example.com. 40 IN A 93.184.1.1")
	other := func(name, data string, w want) site {
		return tricked(name, answers("@ 60 IN "+data), w, "type="+strings.Fields(data)[0])
	}
	return []site{
		tricked("topbit", answers("@ 2147483649 IN A 93.184.1.1"), want{"ttl": 0}),
		tricked("dname.zone.example.com", dname, want{"records": count(1), "records.0.address": "93.184.1.1", "ttl": 40}),
		tricked("shoutsowner", owner, good()),
		tricked("mappedrecord", mapped, want{"records.0.address": "::ffff:10.0.0.1"}, "type=AAAA"),
		other("txtsplit", `TXT "caf\195" "\169"`, want{"records.0.text": "café", "records.0.strings": listing{`caf\195`, `\169`}}),
		other("txtquotes", `TXT "a\"b\\c;d"`, want{"records.0.text": `a"b\c;d`, "records.0.strings": count(1)}),
		other("txtdigits", `TXT "\\195"`, want{"records.0.text": `\092195`, "records.0.strings": count(1)}),
		other("nullmx", "MX 0 .", want{"records.0.preference": 0, "records.0.exchange": "."}),
		other("soadots", `SOA NS.example.com. first\.last.Example.com. 4294967295 2 3 4 5`,
			want{"records.0.mname": "ns.example.com", "records.0.rname": `first\.last.example.com`, "records.0.serial": 1<<32 - 1}),
	}
}
