package simnet

import (
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// dnsRows are spec §7.2 and §7.3 for dns, and the fields of §2.1.
func dnsRows() []row {
	dns := func(domain, more string, w want) row { return row{op: "dns", domain: domain, more: more, want: w} }
	failed := func(domain string, code fault.Code) row { return row{op: "dns", domain: domain, code: code} }
	return slices.Concat(dnsTrickRows(), dnsContentRows(), []row{
		dns("example.com", "", want{"type": "A", "rcode": "NOERROR", "resolver": something, "ttl": 300, "records": count(1), "records.0.address": starts("93.184.")}),
		dns("example.com", "type=MX", want{"ttl": 200, "records.0.preference": 10, "records.1.exchange": "mx2.example.com"}),
		dns("example.com", "type=txt", want{"type": "TXT", "records.0.text": "v=spf1 -all", "records.0.strings": listing{"v=spf1 ", "-all"}}),
		dns("example.com", "type=NS", want{"records.0.target": "ns1.example.com"}),
		dns("example.com", "type=SOA", want{"records.0.mname": "ns1.example.com", "records.0.minimum": 5}),
		dns("www.example.com", "type=CNAME", want{"records.0.target": "example.com", "ttl": 60}),
		dns("www.example.com", "", want{"ttl": 60, "records": count(1)}),
		dns("six.example.com", "type=AAAA", want{"records.0.address": "2606:2800:220:1::6"}),
		dns("empty.example.com", "", want{"rcode": "NOERROR", "ttl": none, "records": count(0)}),
		dns("servfail.example.com", "", want{"rcode": "SERVFAIL", "ttl": none, "records": count(0)}),
		dns("long.example.com", "type=TXT", want{"records": count(1), "ttl": 60}),
		dns("loopback.example.com", "", want{"records.0.address": "127.0.0.1"}),
		dns("mapped.example.com", "type=AAAA", want{"records.0.address": "::ffff:93.184.2.12"}),
		dns("BÜCHER.com.", "", want{"domain": "xn--bcher-kva.com"}),
		dns("_dmarc.example.com", "type=TXT", want{"records.0.text": "v=DMARC1; p=none"}),
		dns("_dmarc\u3002example\uff0ecom\uff61", "type=TXT", want{"domain": "_dmarc.example.com", "records.0.text": "v=DMARC1; p=none"}),
		failed("gone.example.com", fault.NXDomain),
		failed("dangling.example.com", fault.NXDomain),
		failed("refused.example.com", fault.UpstreamUnavailable),
		failed("silent.example.com", fault.DNSTimeout),
		failed("localhost", fault.InvalidDomain),
		{op: "dns", domain: "example.com", more: "type=PTR", code: fault.InvalidType},
		{op: "dns", domain: "example.com", more: "type=", code: fault.InvalidType},
		{op: "dns", domain: "example.com", more: "domain=example.com", code: fault.InvalidDomain},
	})
}

// dnsTrickRows are what resolvers do to an answer.
func dnsTrickRows() []row {
	dns := func(name, more string, w want) row {
		return row{op: "dns", domain: name + ".example.com", more: more, want: w}
	}
	good := func(name string) row {
		return dns(name, "", want{"rcode": "NOERROR", "records": count(1), "records.0.address": closedAddr})
	}
	by := func(name, resolver string) row {
		return dns(name, "", want{"resolver": resolver, "records.0.address": closedAddr})
	}
	none0 := func(name string) row {
		return dns(name, "", want{"rcode": "NOERROR", "ttl": none, "records": count(0)})
	}
	servfail := func(name string) row {
		return dns(name, "", want{"rcode": "SERVFAIL", "ttl": none, "records": count(0)})
	}
	failed := func(name string, code fault.Code) row {
		return row{op: "dns", domain: name + ".example.com", code: code}
	}
	return []row{
		// Replies to something else.
		none0("lieowner"),
		failed("liequestion", fault.DNSTimeout), failed("liecase", fault.DNSTimeout), failed("lieclass", fault.DNSTimeout),
		failed("lietype", fault.DNSTimeout), failed("lietwo", fault.DNSTimeout), failed("lieid", fault.DNSTimeout),
		failed("liequery", fault.DNSTimeout), failed("lieopcode", fault.DNSTimeout), failed("noquestion", fault.DNSTimeout),
		failed("nxnoquestion", fault.DNSTimeout), failed("flood", fault.DNSTimeout),
		good("idfirst"), good("nxfirst"), good("questionfirst"), good("queryfirst"), good("casefirst"), good("junkfirst"), good("blankfirst"),
		// Nothing that can be used over UDP, and honest over TCP.
		good("udpsilent"), good("udpspoofed"), good("udpjunk"), good("udpflood"),
		// Replies that are not whole.
		good("tc"), good("tcspoiled"), good("tcheader"), good("spoiledudp"), good("cutrecord"), good("cutbetween"), good("oversize"),
		good("fewanswers"), good("manyauth"), good("manyextra"), good("padded"), good("cutopt"), failed("tcppadded", fault.UpstreamUnavailable),
		failed("tcpmute", fault.DNSTimeout),
		failed("tcpcut", fault.UpstreamUnavailable), failed("tcpcloses", fault.UpstreamUnavailable), failed("tcpblank", fault.UpstreamUnavailable),
		failed("tcpid", fault.UpstreamUnavailable), failed("tcpspoiled", fault.UpstreamUnavailable),
		dns("many", "", want{"records": count(1000)}),
		dns("longtext", "type=TXT", want{"records.0.text": strings.Repeat("a", 60000), "records.0.strings": count(240)}),
		// Return codes, and resolvers that do not agree.
		good("ednsformerr"), good("ednsbadvers"), failed("ednsnotimp", fault.UpstreamUnavailable),
		failed("formerr", fault.UpstreamUnavailable), failed("notimp", fault.UpstreamUnavailable), failed("notauth", fault.UpstreamUnavailable),
		failed("rcode11", fault.UpstreamUnavailable), failed("rcode4095", fault.UpstreamUnavailable), failed("barerefused", fault.UpstreamUnavailable),
		failed("barenoerror", fault.DNSTimeout), failed("barenx", fault.DNSTimeout), failed("refusedalone", fault.DNSTimeout),
		failed("nxsoa", fault.NXDomain), failed("servfailnx", fault.NXDomain), failed("silentnx", fault.NXDomain),
		servfail("servfailede"), servfail("barethenfail"), servfail("servfailalone"), servfail("servfailrefuse"),
		failed("bareservfail", fault.UpstreamUnavailable), by("barefailfirst", "8.8.8.8"),
		dns("yxdomain", "", want{"rcode": "YXDOMAIN", "ttl": none, "records": count(0)}),
		// Servers to ask instead are no answer.
		failed("refers", fault.UpstreamUnavailable), failed("refersalias", fault.UpstreamUnavailable), failed("refersnx", fault.NXDomain),
		by("refersfirst", "8.8.8.8"), by("referstwice", "9.9.9.10"), servfail("refersservfail"),
		good("servers"), dns("servers", "type=MX", want{"rcode": "NOERROR", "ttl": none, "records": count(0)}),
		by("barefirst", "8.8.8.8"), by("servfailfirst", "8.8.8.8"), by("servfailtwice", "9.9.9.10"), by("refusedfirst", "8.8.8.8"),
		by("refusedtwice", "9.9.9.10"), by("silentfirst", "8.8.8.8"), by("silenttwice", "9.9.9.10"), by("liefirst", "8.8.8.8"), by("tcpmutefirst", "8.8.8.8"),
	}
}

// dnsContentRows are honest replies of unusual content.
func dnsContentRows() []row {
	dns := func(name, more string, w want) row {
		return row{op: "dns", domain: name + ".example.com", more: more, want: w}
	}
	good := func(name string) row {
		return dns(name, "", want{"records": count(1), "records.0.address": closedAddr})
	}
	none0 := func(name string) row {
		return dns(name, "", want{"rcode": "NOERROR", "ttl": none, "records": count(0)})
	}
	text := func(name, all string, parts ...string) row {
		return dns(name, "type=TXT", want{"records.0.text": all, "records.0.strings": listing(parts)})
	}
	return []row{
		// Unusual content.
		none0("cnameloop"), none0("cnameself"), none0("chain20"), none0("nodata"), none0("aliasnodata"), none0("aliasother"), none0("dnameonly"),
		none0("otherclass"), good("shoutsowner"), good("nordata"), good("othertype"),
		dns("cnameloop", "type=CNAME", want{"records.0.target": "loop2.example.com"}),
		dns("chain15", "", want{"records": count(1), "ttl": 30}),
		dns("chain20", "type=CNAME", want{"records": count(1), "records.0.target": "hop.example.com"}),
		dns("topbit", "", want{"ttl": 0}), dns("ttlzero", "", want{"ttl": 0}), dns("ttlmax", "", want{"ttl": 1<<31 - 1}),
		dns("twoaliases", "", want{"records": count(1), "records.0.address": "93.184.1.1", "ttl": 30}),
		dns("twice", "", want{"records": count(2), "ttl": 50}),
		dns("dname.zone", "", want{"records": count(1), "ttl": 40}),
		dns("mappedrecord", "type=AAAA", want{"records.0.address": "::ffff:10.0.0.1"}),
		dns("shortsoa", "type=SOA", want{"records": count(0)}),
		dns("nordata", "type=MX", want{"records": count(0)}), dns("nordata", "type=TXT", want{"records": count(0)}),
		dns("nordata", "type=NS", want{"records": count(0)}), dns("nordata", "type=CNAME", want{"records": count(0)}),
		dns("nordata", "type=SOA", want{"records": count(0)}), dns("nordata", "type=AAAA", want{"records": count(0)}),
		// Unusual bytes.
		text("txtutf8", "café", "café"), text("txtlatin", `caf\233`, `caf\233`), text("txtsplit", "café", `caf\195`, `\169`),
		text("txtempty", "", ""), text("txtgaps", "a", "", "a", ""), text("txtquotes", `a"b\c;d`, `a"b\c;d`),
		text("txtcontrol", "\x00\n", "\x00\n"), text("txtdigits", `\092195`, `\092195`),
		dns("nullmx", "type=MX", want{"records.0.preference": 0, "records.0.exchange": "."}),
		dns("soadots", "type=SOA", want{"records.0.mname": "ns.example.com", "records.0.rname": `first\.last.example.com`, "records.0.serial": 1<<32 - 1}),
		dns("soaroot", "type=SOA", want{"records.0.mname": ".", "records.0.rname": "."}),
		dns("nsbytes", "type=NS", want{"records.0.target": `a\000b.example.com`}),
		dns("nsdots", "type=NS", want{"records.0.target": `a\.b.example.com`}),
		dns("cnameslash", "type=CNAME", want{"records.0.target": `a\\.example.com`}),
	}
}
