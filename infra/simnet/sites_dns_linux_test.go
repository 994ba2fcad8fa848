package simnet

import (
	"slices"
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
		dns("servers", noRecord(), "type=MX"),
		dns("cnameloop", want{"records.0.target": "loop2.example.com"}, "type=CNAME"),
		dns("chain20", want{"records": count(1), "records.0.target": "hop.example.com"}, "type=CNAME"),
		dns("nordata", want{"records": count(0)}, "type=MX"),
		dns("nordata", want{"records": count(0)}, "type=TXT"),
		dns("nordata", want{"records": count(0)}, "type=NS"),
		dns("nordata", want{"records": count(0)}, "type=CNAME"),
		dns("nordata", want{"records": count(0)}, "type=SOA"),
		dns("nordata", want{"records": count(0)}, "type=AAAA"),
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

// dishonestSites are those whose answers dig is only asked for A about.
func dishonestSites() []site { return slices.Concat(forgedAnswers(), cutAnswers(), quarrels()) }

// oddFamilies are names of which the addresses of one family have a trick.
func oddFamilies() []site {
	six := func(t trick) trick { return families(honestly, t) }
	four := func(t trick) trick { return families(t, honestly) }
	ssl := func(name string, addrs []string, t trick, peer any) site {
		h := host{name: full(name), addrs: addrs, serve: web(ok()), trick: t, tools: []string{"dig"}}
		return site{h, []row{asks("ssl-check")(name, want{"peer_ip": peer})}}
	}
	return []site{
		ssl("sixfails", nil, six(rcodes(dns.RcodeServerFailure)), starts("93.184.")),
		ssl("sixsilent", nil, six(nothing), starts("93.184.")),
		ssl("sixnx", nil, six(rcodes(dns.RcodeNameError)), starts("93.184.")),
		ssl("fourfails", []string{"2606:2800:220:1::9"}, four(rcodes(dns.RcodeServerFailure)), "2606:2800:220:1::9"),
		ssl("fourfirst", []string{"93.184.2.30"}, preceded(func(m *dns.Msg) {
			m.Id++
			m.Answer = []dns.RR{record(m.Question[0].Name, "300 IN A 10.0.0.4")} // a forger's, too early
		}), "93.184.2.30"),
	}
}

// forgedAnswers are replies to something else than what was asked.
func forgedAnswers() []site {
	question := func(change func(*dns.Question)) trick {
		return changes(func(m *dns.Msg) { change(&m.Question[0]) })
	}
	return []site{
		tricked("liequestion", question(func(q *dns.Question) { q.Name = "other.example.com." }), unheard()),
		tricked("liecase", question(func(q *dns.Question) { q.Name = otherCase(q.Name) }), unheard()),
		tricked("lieclass", question(func(q *dns.Question) { q.Qclass = dns.ClassCHAOS }), unheard()),
		tricked("lietype", question(func(q *dns.Question) { q.Qtype = dns.TypeHINFO }), unheard()),
		tricked("lietwo", changes(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), unheard()),
		tricked("lieid", changes(func(m *dns.Msg) { m.Id++ }), unheard()),
		tricked("liequery", changes(func(m *dns.Msg) { m.Response = false }), unheard()),
		tricked("lieopcode", changes(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), unheard()),
		tricked("noquestion", changes(func(m *dns.Msg) { m.Question = nil }), unheard()),
		tricked("nxnoquestion", changes(func(m *dns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, dns.RcodeNameError }), unheard()),
		tricked("lieowner", eachRecord(func(h *dns.RR_Header) { h.Name = "other.example.com." }), noRecord()),
		tricked("flood", flood, unheard()),
		tricked("idfirst", preceded(func(m *dns.Msg) { m.Id++ }), good()),
		tricked("nxfirst", preceded(func(m *dns.Msg) { m.Id++; m.Answer, m.Rcode = nil, dns.RcodeNameError }), good()),
		tricked("questionfirst", preceded(func(m *dns.Msg) { m.Question[0].Name = "other.example.com." }), good()),
		tricked("queryfirst", preceded(func(m *dns.Msg) { m.Response = false }), good()),
		tricked("casefirst", preceded(func(m *dns.Msg) { m.Question[0].Name = otherCase(m.Question[0].Name) }), good()),
		tricked("junkfirst", func(a asked) { junk(a); a.send(a.honest) }, good()),
		tricked("blankfirst", func(a asked) { a.raw([]byte{}); a.send(a.honest) }, good()),
	}
}

// cutAnswers are replies that are not whole, and what follows over TCP.
func cutAnswers() []site {
	oneLess := func(a asked) {
		a.honest.Answer = append(a.honest.Answer, record(a.honest.Question[0].Name, "300 IN A "+closedAddr))
		whole := a.packed()
		a.honest.Answer = a.honest.Answer[:len(a.honest.Answer)-1]
		a.raw(whole[:len(a.packed())])
	}
	withoutOPT := func(a asked) { // BADVERS, and without its upper half NOERROR
		a.honest.Rcode, a.honest.Answer = dns.RcodeBadVers, nil
		a.honest.SetEdns0(1232, false)
		b := a.packed()
		a.raw(b[:len(b)-11])
	}
	cut := changes(func(m *dns.Msg) { m.Truncated = true })
	longText := changes(func(m *dns.Msg) {
		m.Answer = []dns.RR{record(m.Question[0].Name, "60 IN TXT"+strings.Repeat(` "`+strings.Repeat("a", 250)+`"`, 240))}
	})
	return []site{
		tricked("tc", overUDP(cut), good()),
		tricked("tcspoiled", overUDP(bytesOf(func(b []byte) []byte { return truncated(spoiled(b)) })), good()),
		tricked("tcheader", overUDP(func(a asked) { a.raw(truncated(a.packed()[:12])) }), good()),
		tricked("spoiledudp", overUDP(bytesOf(spoiled)), good()),
		tricked("cutrecord", overUDP(bytesOf(func(b []byte) []byte { return b[:len(b)-3] })), good()),
		tricked("cutbetween", overUDP(oneLess), good()),
		tricked("oversize", overUDP(bytesOf(func(b []byte) []byte { return append(b, make([]byte, 5000)...) })), good()),
		tricked("fewanswers", overUDP(bytesOf(counts(6, -1))), good()),
		tricked("manyauth", overUDP(bytesOf(counts(8, 1))), good()),
		tricked("manyextra", overUDP(bytesOf(counts(10, 1))), good()),
		tricked("padded", overUDP(bytesOf(padded)), good()),
		tricked("udpsilent", overUDP(nothing), good()),
		tricked("udpspoofed", overUDP(changes(func(m *dns.Msg) { m.Id++ })), good()),
		tricked("udpjunk", overUDP(junk), good()),
		tricked("udpflood", overUDP(flood), good()),
		tricked("cutopt", overUDP(withoutOPT), good()),
		tricked("tcppadded", overTCP(bytesOf(padded)), useless()),
		tricked("tcpmute", overTCP(nothing), unheard()),
		tricked("tcpcut", overTCP(cut), useless()),
		tricked("tcpcloses", overTCP(func(a asked) { a.w.Close() }), useless()),
		tricked("tcpblank", overTCP(func(a asked) { a.raw([]byte{}) }), useless()),
		tricked("tcpid", overTCP(changes(func(m *dns.Msg) { m.Id++ })), useless()),
		tricked("tcpspoiled", overTCP(bytesOf(spoiled)), useless()),
		tricked("many", many(4000, closedAddr), want{"records": count(1000)}),
		tricked("manylast", many(4000, "10.0.0.5"), want{"records": count(1000)}),
		tricked("longtext", overTCP(longText), want{"records.0.text": strings.Repeat("a", 60000), "records.0.strings": count(240)}, "type=TXT"),
	}
}

// oddAnswers are honest replies of unusual content.
func oddAnswers() []site {
	address := func(address string, ttl int) want {
		return want{"records": count(1), "records.0.address": address, "ttl": ttl}
	}
	noData := changes(func(m *dns.Msg) {
		m.Answer = nil
		m.Ns = []dns.RR{record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5")}
	})
	servers := changes(func(m *dns.Msg) { // beside the answer, or beside an SOA without one
		m.Ns = []dns.RR{record("example.com.", "60 IN NS ns1.example.com.")}
		if len(m.Answer) == 0 {
			m.Ns = append(m.Ns, record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5"))
		}
	})
	mapped := changes(func(m *dns.Msg) {
		m.Answer = []dns.RR{empty(m.Question[0].Name, dns.TypeAAAA, "00000000000000000000ffff0a000001")}
	})
	withEmpty := changes(func(m *dns.Msg) {
		m.Answer = append([]dns.RR{empty(m.Question[0].Name, m.Question[0].Qtype, "")}, m.Answer...)
	})
	short := changes(func(m *dns.Msg) { m.Answer = []dns.RR{empty(m.Question[0].Name, dns.TypeSOA, "0000")} })
	twoAliases := answers("@ 30 IN CNAME x.example.com.", "@ 30 IN CNAME y.example.com.", "y.example.com. 60 IN A 10.0.0.7", "x.example.com. 60 IN A 93.184.1.1")
	dname := answers("zone.example.com. 60 IN DNAME other.example.com.", "@ 50 IN CNAME dname.other.example.com.", "dname.other.example.com. 40 IN A 93.184.1.1")
	return []site{
		tricked("cnameloop", answers("@ 60 IN CNAME loop2.example.com.", "loop2.example.com. 60 IN CNAME @"), noRecord()),
		tricked("cnameself", answers("@ 60 IN CNAME @"), noRecord()),
		tricked("chain15", aliases(15), want{"records": count(1), "ttl": 30}),
		tricked("chain20", aliases(20), noRecord()),
		tricked("topbit", answers("@ 2147483649 IN A 93.184.1.1"), want{"ttl": 0}),
		tricked("ttlzero", answers("@ 0 IN CNAME x.example.com.", "x.example.com. 60 IN A 93.184.1.1"), want{"ttl": 0}),
		tricked("ttlmax", answers("@ 2147483647 IN A 93.184.1.1"), want{"ttl": 1<<31 - 1}),
		tricked("nodata", noData, noRecord()),
		tricked("aliasnodata", answers("@ 60 IN CNAME x.example.com."), noRecord()),
		tricked("aliasother", answers("@ 60 IN CNAME x.example.com.", "y.example.com. 60 IN A 93.184.1.1"), noRecord()),
		tricked("twoaliases", twoAliases, address("93.184.1.1", 30)),
		tricked("servers", servers, good()),
		tricked("twice", answers("@ 60 IN A 93.184.1.1", "@ 50 IN A 93.184.1.1"), want{"records": count(2), "ttl": 50}),
		tricked("othertype", answers(`@ 60 IN TXT "x"`, "@ 60 IN A 93.184.1.1"), good()),
		tricked("dname.zone.example.com", dname, address("93.184.1.1", 40)),
		tricked("dnameonly", answers("example.com. 60 IN DNAME other.example.com.", "dnameonly.other.example.com. 40 IN A 93.184.1.1"), noRecord()),
		tricked("otherclass", eachRecord(func(h *dns.RR_Header) { h.Class = dns.ClassCHAOS }), noRecord()),
		tricked("shoutsowner", eachRecord(func(h *dns.RR_Header) { h.Name = strings.ToUpper(h.Name) }), good()),
		tricked("mappedrecord", mapped, want{"records.0.address": "::ffff:10.0.0.1"}, "type=AAAA"),
		tricked("nordata", withEmpty, good()),
		tricked("shortsoa", short, want{"records": count(0)}, "type=SOA"),
	}
}

// oddText are names and texts of unusual bytes.
func oddText() []site {
	text := func(name, txt, all string, parts ...string) site {
		return tricked(name, answers("@ 60 IN TXT "+txt), want{"records.0.text": all, "records.0.strings": listing(parts)}, "type=TXT")
	}
	other := func(name, data string, w want) site {
		return tricked(name, answers("@ 60 IN "+data), w, "type="+strings.Fields(data)[0])
	}
	return []site{
		text("txtutf8", `"caf\195\169"`, "café", "café"),
		text("txtlatin", `"caf\233"`, `caf\233`, `caf\233`),
		text("txtsplit", `"caf\195" "\169"`, "café", `caf\195`, `\169`),
		text("txtempty", `""`, "", ""),
		text("txtgaps", `"" "a" ""`, "a", "", "a", ""),
		text("txtquotes", `"a\"b\\c;d"`, `a"b\c;d`, `a"b\c;d`),
		text("txtcontrol", `"\000\010"`, "\x00\n", "\x00\n"),
		text("txtdigits", `"\\195"`, `\092195`, `\092195`),
		other("nullmx", "MX 0 .", want{"records.0.preference": 0, "records.0.exchange": "."}),
		other("soadots", `SOA NS.example.com. first\.last.Example.com. 4294967295 2 3 4 5`,
			want{"records.0.mname": "ns.example.com", "records.0.rname": `first\.last.example.com`, "records.0.serial": 1<<32 - 1}),
		other("soaroot", "SOA . . 0 0 0 0 0", want{"records.0.mname": ".", "records.0.rname": "."}),
		other("nsbytes", `NS a\000b.example.com.`, want{"records.0.target": `a\000b.example.com`}),
		other("nsdots", `NS a\.b.example.com.`, want{"records.0.target": `a\.b.example.com`}),
		other("cnameslash", `CNAME a\\.example.com.`, want{"records.0.target": `a\\.example.com`}),
	}
}

// quarrels are return codes, and resolvers that do not agree.
func quarrels() []site {
	formerr, fail, nx := rcodes(dns.RcodeFormatError), rcodes(dns.RcodeServerFailure), rcodes(dns.RcodeNameError)
	refused := rcodes(dns.RcodeRefused)
	bareFail, bareRefused := header(dns.RcodeServerFailure), header(dns.RcodeRefused)
	lie := changes(func(m *dns.Msg) { m.Id++ })
	extended := changes(func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: 6, ExtraText: "bogus"}}
		m.Rcode, m.Answer = dns.RcodeServerFailure, nil
	})
	authoritative := changes(func(m *dns.Msg) {
		m.Rcode, m.Answer = dns.RcodeNameError, nil
		m.Ns = []dns.RR{record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5")}
	})
	tooLong := changes(func(m *dns.Msg) {
		m.Rcode, m.Answer = dns.RcodeYXDomain, []dns.RR{record("example.com.", "60 IN DNAME other.example.net.")}
	})
	const second, third = "8.8.8.8", "9.9.9.10"
	return []site{
		tricked("ednsformerr", noEDNS(dns.RcodeFormatError), good()),
		tricked("ednsbadvers", noEDNS(dns.RcodeBadVers), good()),
		tricked("ednsnotimp", noEDNS(dns.RcodeNotImplemented), useless()),
		tricked("formerr", formerr, useless()),
		tricked("notimp", rcodes(dns.RcodeNotImplemented), useless()),
		tricked("notauth", rcodes(dns.RcodeNotAuth), useless()),
		tricked("rcode11", rcodes(11), useless()),
		tricked("rcode4095", rcodes(4095), useless()),
		tricked("servfailede", extended, servfail()),
		tricked("nxsoa", authoritative, denied()),
		tricked("yxdomain", tooLong, noRecord().with("rcode", "YXDOMAIN")),
		// Servers to ask instead are no answer.
		tricked("refers", refers(), useless()),
		tricked("refersalias", refers("@ 60 IN CNAME x.example.net."), useless()),
		tricked("refersfirst", each(refers(), honestly, nothing), by(second)),
		tricked("referstwice", each(refers(), refers("@ 60 IN CNAME x.example.net."), honestly), by(third)),
		tricked("refersservfail", each(refers(), fail, refers()), servfail()),
		tricked("refersnx", each(refers(), nx, nothing), denied()),
		tricked("bareservfail", bareFail, useless()),
		tricked("barethenfail", each(bareFail, fail, bareFail), servfail()),
		tricked("barefailfirst", each(bareFail, honestly, nothing), by(second)),
		tricked("barerefused", bareRefused, useless()),
		tricked("barenoerror", header(dns.RcodeSuccess), unheard()),
		tricked("barenx", header(dns.RcodeNameError), unheard()),
		tricked("barefirst", each(bareRefused, honestly, nothing), by(second)),
		tricked("servfailfirst", each(fail, honestly, nothing), by(second)),
		tricked("servfailtwice", each(fail, fail, honestly), by(third)),
		tricked("servfailalone", each(fail, nothing, nothing), servfail()),
		tricked("servfailrefuse", each(refused, formerr, fail), servfail()),
		tricked("servfailnx", each(fail, nx, nothing), denied()),
		tricked("refusedfirst", each(refused, honestly, nothing), by(second)),
		tricked("refusedalone", each(refused, nothing, nothing), unheard()),
		tricked("refusedtwice", each(refused, refused, honestly), by(third)),
		tricked("silentfirst", each(nothing, honestly, nothing), by(second)),
		tricked("silenttwice", each(nothing, nothing, honestly), by(third)),
		tricked("silentnx", each(nothing, nx, nothing), denied()),
		tricked("liefirst", each(lie, honestly, nothing), by(second)),
		tricked("tcpmutefirst", each(overTCP(nothing), honestly, nothing), by(second)),
	}
}
