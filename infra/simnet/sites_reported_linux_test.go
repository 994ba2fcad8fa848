package simnet

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// report is a case that users of another tool reported: where, and who is right about it,
// the service alone or dig, curl and the openrdap command as well, and why.
type report struct {
	thread string // on GitHub
	right  string
}

// named is a row of the report, which is called so.
func (r report) named(c row) row {
	c.name = r.thread + ": " + r.right
	return c
}

// reportedSites are what resolvers do to an answer.
func reportedSites() []site {
	const second, agree = "8.8.8.8", "both"
	policy := func(a asked) { // what it is, is said in the wrong section
		a.honest.Extra = append(a.honest.Extra, record("rpz.example.net.", "60 IN SOA rpz.example.net. host.example.net. 1 2 3 4 5"))
		denied()(a)
	}
	fourBytes := changes(func(m *dns.Msg) {
		m.Answer = []dns.RR{&dns.RFC3597{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 60}, Rdata: "5db80101"}}
	})
	capitals := changes(func(m *dns.Msg) {
		for _, rr := range m.Answer {
			rr.Header().Name = strings.ToUpper(rr.Header().Name)
		}
	})
	target := changes(func(m *dns.Msg) { // is looked up, though the alias was asked for
		m.Rcode, m.Answer = dns.RcodeNameError, []dns.RR{record(m.Question[0].Name, "60 IN CNAME gone.example.com.")}
	})
	both := answers("@ 60 IN CNAME a.example.com.", "a.example.com. 50 IN CNAME b.example.com.")
	table := []struct {
		report
		site
	}{
		{report{"NLnetLabs/unbound#738", "the service: a filter's NXDOMAIN proves nothing, the next resolver knows the address"},
			tricked("rpz", each(policy, honestly, nothing), by(second))},
		{report{"systemd/systemd#8608", "the service: a portal denies what is asked with EDNS"},
			tricked("portal", each(withEDNS(denied()), honestly, nothing), by(second))},
		{report{"pi-hole/pi-hole#5384", agree + ": a cache forgot the SOA record, and a second resolver says the same"},
			tricked("nxcached", each(denied(), denied(), nothing), fails(lookup.NXDomain))},
		{report{"jvns/mess-with-dns#4", "the service: a name with an SOA record exists"},
			tricked("nxapex", each(denied("nxapex.example.com."), honestly, nothing), by(second))},
		{report{"PowerDNS/pdns#6112", agree + ": whose SOA record of the root that is, no client can tell"},
			tricked("nxroot", denied("."), fails(lookup.NXDomain))},
		{report{"coredns/coredns#4341", agree + ": the alias is there, NXDOMAIN is about its target"},
			other("CNAME", "nxtarget", target, want{"rcode": "NXDOMAIN", "ttl": 60, "records.0.target": "gone.example.com"})},
		{report{"projectdiscovery/dnsx#212", "the service: of two aliases, one is of the name"},
			other("CNAME", "twoaliases", both, want{"ttl": 60, "records": count(1), "records.0.target": "a.example.com"})},
		{report{"NLnetLabs/unbound#653", "the service: a damaged record is not an empty answer"},
			other("AAAA", "fourbytes", fourBytes, fails(lookup.UpstreamUnavailable))},
		{report{"zmap/zdns#618", "the service: FORMERR is about EDNS, and without it there is an address"},
			tricked("formerr", withEDNS(rcodes(dns.RcodeFormatError)), good())},
		{report{"nil0x42/dnsanity#3", "the service: so is NOTIMP"},
			tricked("notimp", withEDNS(rcodes(dns.RcodeNotImplemented)), good())},
		{report{"OpenSMTPD/OpenSMTPD#852", "the service: a resolver that knows no MX says nothing about the name"},
			other("MX", "nomx", each(rcodes(dns.RcodeNotImplemented), answers("@ 60 IN MX 5 mx.example.com."), nothing),
				want{"resolver": second, "records.0.exchange": "mx.example.com"})},
		{report{"haproxy/haproxy#566", agree + ": letter case tells no names apart"}, tricked("capitals", capitals, good())},
		{report{"paulc/dnslib#32", agree + ": control characters are a part of a TXT record"},
			other("TXT", "controls", answers(`@ 60 IN TXT "a\005\000\000DQ"`), want{"records.0.text": "a\x05\x00\x00DQ"})},
	}
	sites := make([]site, len(table))
	for i, r := range table {
		r.rows[0] = r.named(r.rows[0])
		sites[i] = r.site
	}
	return append(sites, noIPv6())
}

// noIPv6 has an address, and for the other family its servers fail.
func noIPv6() site {
	fails := func(a asked) {
		if a.honest.Question[0].Qtype == dns.TypeAAAA {
			a.honest.Rcode = dns.RcodeServerFailure
		}
		honestly(a)
	}
	r := report{"dns-violations/dnsflagday#90", "the service: one family is enough to connect"}
	return site{host{name: "noipv6.example.com", serve: web(ok()), trick: fails}, []row{r.named(asks("headers")("noipv6", want{"status": 200}))}}
}

// reportedAnswer is a registration of com that a registry answers oddly about.
type reportedAnswer struct {
	report
	registration
}

func reportedAnswers() []reportedAnswer {
	const (
		card     = `["vcard",[["version",{},"text","4.0"],["fn",{},"text","Simnet Registrar"]]]`
		fn       = `["fn",{},"text","Simnet Registrar"]`
		named    = "registrar.name"
		date     = "1997-10-30T00:00:00Z"
		ianaType = "IANA Registrar ID"
	)
	about := func(name string, w want, changes ...string) registration {
		return registration{name, registered(name+".com", changes...), w}
	}
	within := `["vcard",[["version",{},"text","4.0"]]],"entities":[{"objectClassName":"entity","handle":"376","roles":["abuse"],"vcardArray":` + card + `}]`
	return []reportedAnswer{
		{report{"flipbit/whois#178", "the service: the name of the registrar stands on an entity with its handle (.cx)"},
			about("withinabuse", want{named: "Simnet Registrar"}, card, within)},
		{report{"20c/rdap#41", "the service: the properties are nested once more (.no)"},
			about("nestedcard", want{named: "Simnet Registrar"}, card, `["vcard",[`+strings.TrimPrefix(card, `["vcard",`)+`]`)},
		{report{"openrdap/rdap#28", "the service: parameters that are an array spoil nothing (.is)"},
			about("listparams", want{named: "Ex"}, fn, `["fn",[],"text","Ex"]`)},
		{report{"openrdap/rdap#25", "the service: a property that is too short spoils no other (LACNIC)"},
			about("shortproperty", want{named: "Simnet Registrar"}, fn, `["lang",{"type":"language-tag"},"en"],`+fn)},
		{report{"icann/icann-rdap#135", "the service: a time without a zone is UTC"},
			about("nozone", want{"created_at": date}, date, strings.TrimSuffix(date, "Z"))},
		{report{"icann/icann-rdap#103", "both: numbers of a DS record that are strings spoil nothing"},
			about("textnumbers", want{"dnssec": true}, `"delegationSigned":true`, `"delegationSigned":true,"dsData":[{"algorithm":"13","keyTag":"1","digestType":"2"}]`)},
		{report{"KincaidYang/whois#24", "both: a registry's own identifier is not IANA's (.uk)"},
			about("ownidentifier", want{"registrar.iana_id": ""}, ianaType, "Registry Identifier")},
		{report{"meeb/whoisit#53", "both: an entity's handle is not the domain's"},
			about("nohandle", want{"handle": nil}, `"handle":"1234_DOMAIN_COM-VRSN",`, "")},
		{report{"meeb/whoisit#34", "both: 422 says nothing about the name"}, registration{"limited", body(422, "{}"), upstream()}},
		{report{"rdap-org/client.rdap.org#13", "both: a reserved name has no registration"},
			registration{"reserved", body(404, `{"errorCode":404,"title":"Not Found","description":["Registry Reserved"]}`), fails(lookup.NotFound)}},
		{report{"NICMx/rdap-server#79", "both: the error's code is a string"},
			registration{"stringcode", body(200, `{"errorCode":"404","title":"Object not found"}`), fails(lookup.NotFound)}},
	}
}
