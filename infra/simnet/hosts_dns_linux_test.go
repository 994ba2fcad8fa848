package simnet

import (
	"strings"

	"github.com/miekg/dns"
)

// trickHosts are about what resolvers do to an answer. Their honest answer is
// one address where nobody listens, unless they serve.
func trickHosts() []host {
	var all []host
	for _, part := range []map[string]trick{forgedAnswers(), cutAnswers(), oddAnswers(), oddText(), quarrels()} {
		for name, t := range part {
			all = append(all, host{name: name + ".example.com", addrs: []string{closedAddr}, trick: t})
		}
	}
	return append(all,
		host{name: "sixfails.example.com", serve: web(ok()), trick: six(rcodes(dns.RcodeServerFailure))},
		host{name: "sixsilent.example.com", serve: web(ok()), trick: six(nothing)},
		host{name: "sixnx.example.com", serve: web(ok()), trick: six(rcodes(dns.RcodeNameError))},
		host{name: "fourfails.example.com", addrs: []string{"2606:2800:220:1::9"}, serve: web(ok()), trick: four(rcodes(dns.RcodeServerFailure))},
		host{name: "fourfirst.example.com", addrs: []string{"93.184.2.30"}, serve: web(ok()), trick: preceded(func(m *dns.Msg) {
			m.Id++
			m.Answer = []dns.RR{record(m.Question[0].Name, "300 IN A 10.0.0.4")} // a forger's, too early
		})},
		host{name: "_dmarc.example.com", records: []string{`60 IN TXT "v=DMARC1; p=none"`}},
	)
}

// forgedAnswers are replies to something else than what was asked.
func forgedAnswers() map[string]trick {
	question := func(change func(*dns.Question)) trick {
		return changes(func(m *dns.Msg) { change(&m.Question[0]) })
	}
	return map[string]trick{
		"liequestion":   question(func(q *dns.Question) { q.Name = "other.example.com." }),
		"liecase":       question(func(q *dns.Question) { q.Name = otherCase(q.Name) }),
		"lieclass":      question(func(q *dns.Question) { q.Qclass = dns.ClassCHAOS }),
		"lietype":       question(func(q *dns.Question) { q.Qtype = dns.TypeHINFO }),
		"lietwo":        changes(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"lieid":         changes(func(m *dns.Msg) { m.Id++ }),
		"liequery":      changes(func(m *dns.Msg) { m.Response = false }),
		"lieopcode":     changes(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }),
		"noquestion":    changes(func(m *dns.Msg) { m.Question = nil }),
		"nxnoquestion":  changes(func(m *dns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, dns.RcodeNameError }),
		"lieowner":      eachRecord(func(h *dns.RR_Header) { h.Name = "other.example.com." }),
		"flood":         flood,
		"idfirst":       preceded(func(m *dns.Msg) { m.Id++ }),
		"nxfirst":       preceded(func(m *dns.Msg) { m.Id++; m.Answer, m.Rcode = nil, dns.RcodeNameError }),
		"questionfirst": preceded(func(m *dns.Msg) { m.Question[0].Name = "other.example.com." }),
		"queryfirst":    preceded(func(m *dns.Msg) { m.Response = false }),
		"casefirst":     preceded(func(m *dns.Msg) { m.Question[0].Name = otherCase(m.Question[0].Name) }),
		"junkfirst":     func(a asked) { junk(a); a.send(a.honest) },
		"blankfirst":    func(a asked) { a.raw([]byte{}); a.send(a.honest) },
	}
}

// cutAnswers are replies that are not whole, and what follows over TCP.
func cutAnswers() map[string]trick {
	oneLess := func(a asked) {
		a.honest.Answer = append(a.honest.Answer, record(a.honest.Question[0].Name, "300 IN A "+closedAddr))
		whole := a.packed()
		a.honest.Answer = a.honest.Answer[:len(a.honest.Answer)-1]
		a.raw(whole[:len(a.packed())])
	}
	cut := changes(func(m *dns.Msg) { m.Truncated = true })
	return map[string]trick{
		"tc":         overUDP(cut),
		"tcspoiled":  overUDP(bytesOf(func(b []byte) []byte { return truncated(spoiled(b)) })),
		"tcheader":   overUDP(func(a asked) { a.raw(truncated(a.packed()[:12])) }),
		"spoiledudp": overUDP(bytesOf(spoiled)),
		"cutrecord":  overUDP(bytesOf(func(b []byte) []byte { return b[:len(b)-3] })),
		"cutbetween": overUDP(oneLess),
		"oversize":   overUDP(bytesOf(func(b []byte) []byte { return append(b, make([]byte, 5000)...) })),
		"fewanswers": overUDP(bytesOf(counts(6, -1))),
		"manyauth":   overUDP(bytesOf(counts(8, 1))),
		"manyextra":  overUDP(bytesOf(counts(10, 1))),
		"padded":     overUDP(bytesOf(padded)),
		"udpsilent":  overUDP(nothing),
		"udpspoofed": overUDP(changes(func(m *dns.Msg) { m.Id++ })),
		"udpjunk":    overUDP(junk),
		"udpflood":   overUDP(flood),
		"tcppadded":  overTCP(bytesOf(padded)),
		"cutopt": overUDP(func(a asked) { // BADVERS, and without its upper half NOERROR
			a.honest.Rcode, a.honest.Answer = dns.RcodeBadVers, nil
			a.honest.SetEdns0(1232, false)
			b := a.packed()
			a.raw(b[:len(b)-11])
		}),
		"tcpmute":    overTCP(nothing),
		"tcpcut":     overTCP(cut),
		"tcpcloses":  overTCP(func(a asked) { a.w.Close() }),
		"tcpblank":   overTCP(func(a asked) { a.raw([]byte{}) }),
		"tcpid":      overTCP(changes(func(m *dns.Msg) { m.Id++ })),
		"tcpspoiled": overTCP(bytesOf(spoiled)),
		"many":       many(4000, closedAddr),
		"manylast":   many(4000, "10.0.0.5"),
		"longtext": overTCP(changes(func(m *dns.Msg) {
			m.Answer = []dns.RR{record(m.Question[0].Name, "60 IN TXT"+strings.Repeat(` "`+strings.Repeat("a", 250)+`"`, 240))}
		})),
	}
}

// oddAnswers are honest replies of unusual content.
func oddAnswers() map[string]trick {
	return map[string]trick{
		"cnameloop": answers("@ 60 IN CNAME loop2.example.com.", "loop2.example.com. 60 IN CNAME @"),
		"cnameself": answers("@ 60 IN CNAME @"),
		"chain15":   aliases(15),
		"chain20":   aliases(20),
		"topbit":    answers("@ 2147483649 IN A 93.184.1.1"),
		"ttlzero":   answers("@ 0 IN CNAME x.example.com.", "x.example.com. 60 IN A 93.184.1.1"),
		"ttlmax":    answers("@ 2147483647 IN A 93.184.1.1"),
		"nodata": changes(func(m *dns.Msg) {
			m.Answer = nil
			m.Ns = []dns.RR{record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5")}
		}),
		"aliasnodata": answers("@ 60 IN CNAME x.example.com."),
		"aliasother":  answers("@ 60 IN CNAME x.example.com.", "y.example.com. 60 IN A 93.184.1.1"),
		"twoaliases":  answers("@ 30 IN CNAME x.example.com.", "@ 30 IN CNAME y.example.com.", "y.example.com. 60 IN A 10.0.0.7", "x.example.com. 60 IN A 93.184.1.1"),
		"servers": changes(func(m *dns.Msg) { // beside the answer, or beside an SOA without one
			m.Ns = []dns.RR{record("example.com.", "60 IN NS ns1.example.com.")}
			if len(m.Answer) == 0 {
				m.Ns = append(m.Ns, record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5"))
			}
		}),
		"twice":       answers("@ 60 IN A 93.184.1.1", "@ 50 IN A 93.184.1.1"),
		"othertype":   answers(`@ 60 IN TXT "x"`, "@ 60 IN A 93.184.1.1"),
		"dname.zone":  answers("zone.example.com. 60 IN DNAME other.example.com.", "@ 50 IN CNAME dname.other.example.com.", "dname.other.example.com. 40 IN A 93.184.1.1"),
		"dnameonly":   answers("example.com. 60 IN DNAME other.example.com.", "dnameonly.other.example.com. 40 IN A 93.184.1.1"),
		"otherclass":  eachRecord(func(h *dns.RR_Header) { h.Class = dns.ClassCHAOS }),
		"shoutsowner": eachRecord(func(h *dns.RR_Header) { h.Name = strings.ToUpper(h.Name) }),
		"mappedrecord": changes(func(m *dns.Msg) {
			m.Answer = []dns.RR{empty(m.Question[0].Name, dns.TypeAAAA, "00000000000000000000ffff0a000001")}
		}),
		"nordata": changes(func(m *dns.Msg) {
			m.Answer = append([]dns.RR{empty(m.Question[0].Name, m.Question[0].Qtype, "")}, m.Answer...)
		}),
		"shortsoa": changes(func(m *dns.Msg) { m.Answer = []dns.RR{empty(m.Question[0].Name, dns.TypeSOA, "0000")} }),
	}
}

// oddText are names and texts of unusual bytes.
func oddText() map[string]trick {
	return map[string]trick{
		"txtutf8":    answers(`@ 60 IN TXT "caf\195\169"`),
		"txtlatin":   answers(`@ 60 IN TXT "caf\233"`),
		"txtsplit":   answers(`@ 60 IN TXT "caf\195" "\169"`),
		"txtempty":   answers(`@ 60 IN TXT ""`),
		"txtgaps":    answers(`@ 60 IN TXT "" "a" ""`),
		"txtquotes":  answers(`@ 60 IN TXT "a\"b\\c;d"`),
		"txtcontrol": answers(`@ 60 IN TXT "\000\010"`),
		"txtdigits":  answers(`@ 60 IN TXT "\\195"`),
		"nullmx":     answers("@ 60 IN MX 0 ."),
		"soadots":    answers(`@ 60 IN SOA NS.example.com. first\.last.Example.com. 4294967295 2 3 4 5`),
		"soaroot":    answers("@ 60 IN SOA . . 0 0 0 0 0"),
		"nsbytes":    answers(`@ 60 IN NS a\000b.example.com.`),
		"nsdots":     answers(`@ 60 IN NS a\.b.example.com.`),
		"cnameslash": answers(`@ 60 IN CNAME a\\.example.com.`),
	}
}

// quarrels are return codes, and resolvers that do not agree.
func quarrels() map[string]trick {
	const (
		formerr, servfail, nx, notimp, refused = dns.RcodeFormatError, dns.RcodeServerFailure, dns.RcodeNameError, dns.RcodeNotImplemented, dns.RcodeRefused
	)
	return map[string]trick{
		"ednsformerr": noEDNS(formerr),
		"ednsbadvers": noEDNS(dns.RcodeBadVers),
		"ednsnotimp":  noEDNS(notimp),
		"formerr":     rcodes(formerr),
		"notimp":      rcodes(notimp),
		"notauth":     rcodes(dns.RcodeNotAuth),
		"rcode11":     rcodes(11),
		"rcode4095":   rcodes(4095),
		"servfailede": changes(func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: 6, ExtraText: "bogus"}}
			m.Rcode, m.Answer = servfail, nil
		}),
		"nxsoa": changes(func(m *dns.Msg) {
			m.Rcode, m.Answer = nx, nil
			m.Ns = []dns.RR{record("example.com.", "60 IN SOA a.b. c.d. 1 2 3 4 5")}
		}),
		"yxdomain": changes(func(m *dns.Msg) {
			m.Rcode, m.Answer = dns.RcodeYXDomain, []dns.RR{record("example.com.", "60 IN DNAME other.example.net.")}
		}),
		"refers":         refers(),
		"refersalias":    refers("@ 60 IN CNAME x.example.net."),
		"refersfirst":    each(refers(), honestly, nothing),
		"referstwice":    each(refers(), refers("@ 60 IN CNAME x.example.net."), honestly),
		"refersservfail": each(refers(), rcodes(servfail), refers()),
		"refersnx":       each(refers(), rcodes(nx), nothing),
		"bareservfail":   header(servfail),
		"barethenfail":   each(header(servfail), rcodes(servfail), header(servfail)),
		"barefailfirst":  each(header(servfail), honestly, nothing),
		"barerefused":    header(refused),
		"barenoerror":    header(0),
		"barenx":         header(nx),
		"barefirst":      each(header(refused), honestly, nothing),
		"servfailfirst":  each(rcodes(servfail), honestly, nothing),
		"servfailtwice":  each(rcodes(servfail), rcodes(servfail), honestly),
		"servfailalone":  each(rcodes(servfail), nothing, nothing),
		"servfailrefuse": each(rcodes(refused), rcodes(formerr), rcodes(servfail)),
		"servfailnx":     each(rcodes(servfail), rcodes(nx), nothing),
		"refusedfirst":   each(rcodes(refused), honestly, nothing),
		"refusedalone":   each(rcodes(refused), nothing, nothing),
		"refusedtwice":   each(rcodes(refused), rcodes(refused), honestly),
		"silentfirst":    each(nothing, honestly, nothing),
		"silenttwice":    each(nothing, nothing, honestly),
		"silentnx":       each(nothing, rcodes(nx), nothing),
		"liefirst":       each(changes(func(m *dns.Msg) { m.Id++ }), honestly, nothing),
		"tcpmutefirst":   each(overTCP(nothing), honestly, nothing),
	}
}
