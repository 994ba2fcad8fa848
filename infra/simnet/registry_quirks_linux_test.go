package simnet

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// registration is a domain of com, what its registry answers, and what the
// service makes of it.
type registration struct {
	name   string // without .com
	answer string
	want   want
}

// registrations are the quirks of registries.
func registrations() []registration {
	return slices.Concat(plainAnswers(), unusable(), shapes(), registrars(), dates(), lists(), moves(), transfers())
}

// whole is a full domain object with changes, and what is special about its
// result.
func whole(name string, changes object, w want) registration {
	return registration{name, registered(name+".com", changes), w}
}

// upstream is that a registry is of no use.
func upstream() want { return fails(fault.RDAPUpstream) }

// no are answers that are no use.
func no(name, answer string) registration { return registration{name, answer, upstream()} }

// plainAnswers are those of the commonest kinds.
func plainAnswers() []registration {
	to := func(name, url string) registration { return no(name, body(302, "", "Location: "+url)) }
	nobody := object{"entities": []object{{"roles": []string{"registrar"}, "vcardArray": []any{"vcard", []any{fn("No Number Ltd")}}}}}
	return []registration{
		{"bare", rdap(object{"objectClassName": "domain", "ldhName": "bare.com"}), want{
			"handle": none, "status": listing{}, "registrar": none, "created_at": none, "updated_at": none, "expires_at": none,
			"nameservers": listing{}, "dnssec": false,
		}},
		whole("noid", nobody, want{"registrar.name": "No Number Ltd", "registrar.iana_id": ""}),
		whole("unsigned", object{"secureDNS": object{"dsData": []object{{"keyTag": 1}}}}, want{"dnssec": false}),
		whole("onestatus", object{"status": "active"}, want{"status": listing{"active"}}),
		{"moved", body(302, "", "Location: https://rdap.registry.net/new/moved.com"), want{"handle": something}},
		{"missing", body(404, "{}"), fails(fault.NotFound)},
		{"errorobject", rdap(object{"errorCode": 404, "title": "Not Found"}), fails(fault.NotFound)},
		{"hang", hang, fails(fault.WhoisTimeout)},
		no("slowdown", body(429, "{}", "Retry-After: 60")),
		no("forbidden", body(403, "<html>")),
		no("unprocessed", body(422, "{}")),
		no("broken", body(500, "oops")),
		no("html", body(200, "<html>hello</html>")),
		no("empty", body(200, "")),
		no("another", registered("someone-else.com", nil)),
		no("entity", rdap(object{"objectClassName": "entity", "handle": "x"})),
		no("huge", body(200, `{"objectClassName":"domain","ldhName":"huge.com","x":"`+strings.Repeat("x", 2<<20)+`"}`)),
		no("deep", body(200, strings.Repeat("[", 5000)+strings.Repeat("]", 5000))),
		no("closes", ""),
		to("spinning", "https://rdap.registry.net/v1/domain/spinning.com"),
		to("toprivate", "https://rdap-private.registry.net/x"),
		to("toliteral", "https://10.0.0.8/x"),
		to("tolocalhost", "https://localhost/x"),
		to("tometadata", "https://metadata.google.internal/x"),
		to("tohttp", "http://rdap.registry.net/x"),
		to("toport", "https://rdap.registry.net:8443/x"),
	}
}

// unusable are answers that hold no domain.
func unusable() []registration {
	failure := func(code int) string {
		return fmt.Sprintf(`{"errorCode":%d,"title":"No","rdapConformance":["rdap_level_0"]}`, code)
	}
	return []registration{
		no("bad400", body(400, failure(400))), no("html400", body(400, "<html>")), no("code401", body(401, "")),
		no("html403", body(403, "<html>blocked</html>", "Content-Type: text/html")), no("code410", body(410, failure(410))),
		no("code501", body(501, failure(501))), no("code503", body(503, failure(503), "Retry-After: 3600")), no("code204", status(204)),
		no("error500", body(200, failure(500))), no("error429", body(200, failure(429))),
		{"html404", body(404, "<html>gone</html>"), fails(fault.NotFound)}, {"bare404", body(404, ""), fails(fault.NotFound)},
		{"error404", body(200, failure(404)), fails(fault.NotFound)},
		no("null", body(200, "null")), no("help", body(200, `{"rdapConformance":["rdap_level_0"],"notices":[]}`)), no("object", body(200, "{}")),
		no("array", body(200, "[]")), no("text", body(200, `"domain"`)), no("numeric", body(200, "7")), no("halfjson", body(200, `{"objectClassName":"domain"`)),
		no("spaces", body(200, "  \r\n")), no("search", body(200, `{"domainSearchResults":[{"objectClassName":"domain","ldhName":"search.com"}]}`)),
		no("nameless", rdap(object{"objectClassName": "domain"})), no("parent", registered("com", nil)),
		no("child", registered("www.child.com", nil)), no("manyvalues", body(200, `{"objectClassName":"domain","ldhName":"manyvalues.com","x":[`+strings.Repeat("0,", 30000)+"0]}")),
	}
}

// domainOf is the body of a registered domain of com.
func domainOf(name string) string {
	_, b, _ := strings.Cut(registered(name+".com", nil), "\r\n\r\n")
	return b
}

// shapes are JSON that is not quite what RFC 9083 says.
func shapes() []registration {
	latin := strings.Replace(rdap(object{"objectClassName": "domain", "ldhName": "latin.com", "handle": "caf#"}), "#", "\xe9", 1)
	return []registration{
		{"bom", body(200, "\xef\xbb\xbf"+domainOf("bom")), want{"handle": something}},
		{"latin", latin, want{"handle": "caf\ufffd"}},
		{"duplicate", body(200, strings.Replace(domainOf("duplicate"), `"handle":`, `"handle":"first","handle":`, 1)), want{"handle": "1234_DOMAIN_COM-VRSN"}},
		{"plaintype", strings.Replace(registered("plaintype.com", nil), "application/rdap+json", "text/plain;charset=x", 1), want{"handle": something}},
		no("trailing", body(200, domainOf("trailing")+"<!-- generated -->")), no("twoobjects", body(200, domainOf("twoobjects")+"{}")),
		no("capital", registered("capital.com", object{"objectClassName": "Domain"})), no("noclass", registered("noclass.com", object{"objectClassName": nil})),
		whole("handlenumber", object{"handle": 12345}, want{"handle": "12345"}), whole("handlenull", object{"handle": nil}, want{"handle": none}),
		whole("handleblank", object{"handle": " "}, want{"handle": none}), whole("handlelist", object{"handle": []string{"x"}}, want{"handle": none}),
		whole("redacted", object{"handle": "REDACTED FOR PRIVACY", "redacted": []object{{"name": object{"type": "Registry Domain ID"}, "method": "emptyValue"}}}, want{"handle": "REDACTED FOR PRIVACY"}),
		whole("dotted", object{"ldhName": "dotted.com."}, want{"domain": "dotted.com"}), whole("mixed", object{"ldhName": "MiXeD.cOm"}, want{"domain": "mixed.com"}),
		whole("unicodeonly", object{"ldhName": nil, "unicodeName": "unicodeonly.com"}, want{"domain": "unicodeonly.com"}),
		{"xn--mnchen-3ya", registered("münchen.com", object{"ldhName": "münchen.com"}), want{"domain": "xn--mnchen-3ya.com"}},
		whole("nosecure", object{"secureDNS": nil}, want{"dnssec": false}), whole("stringsigned", object{"secureDNS": object{"delegationSigned": "true"}}, want{"dnssec": false}),
		whole("onesigned", object{"secureDNS": object{"delegationSigned": 1}}, want{"dnssec": false}), whole("nullsigned", object{"secureDNS": object{"delegationSigned": nil}}, want{"dnssec": false}),
		whole("falsesigned", object{"secureDNS": object{"delegationSigned": false, "dsData": []object{{"keyTag": 1}}}}, want{"dnssec": false}),
		whole("keydata", object{"secureDNS": object{"keyData": []object{{"flags": 257, "protocol": 3, "algorithm": 13, "publicKey": "AA=="}}}}, want{"dnssec": false}),
		whole("zonesigned", object{"secureDNS": object{"zoneSigned": true}}, want{"dnssec": false}),
	}
}

// registrars are the ways in which registries write one.
func registrars() []registration {
	entities := func(name string, w want, list ...object) registration {
		return whole(name, object{"entities": list}, w)
	}
	named := func(name string, e object) registration { return entities(name, want{"registrar.name": "Ex"}, e) }
	numbered := func(name, id string, public any) registration {
		return entities(name, want{"registrar.name": "Ex", "registrar.iana_id": id}, with(entity("registrar", fn("Ex")), "publicIds", public))
	}
	nobody := func(name string, list ...object) registration {
		return entities(name, want{"registrar": none}, list...)
	}
	deep := any("x")
	for range 6 {
		deep = []any{deep}
	}
	return []registration{
		named("listparams", entity("registrar", []any{"fn", []any{}, "text", "Ex"})),         // .is
		named("shortproperty", entity("registrar", fn("Ex"), []any{"tel", object{}, "uri"})), // LACNIC
		named("deepproperty", entity("registrar", fn("Ex"), []any{"adr", object{}, "text", deep})),
		named("orgonly", entity("registrar", []any{"org", object{}, "text", "Ex"})),
		named("orgunits", entity("registrar", []any{"org", object{}, "text", []any{"Ex", "Unit"}})),
		named("emptyfn", entity("registrar", fn(""), []any{"org", object{}, "text", "Ex"})),
		named("blankfn", entity("registrar", fn("  "), []any{"org", object{}, "text", "Ex"})),
		named("shoutfn", entity("registrar", []any{"FN", object{}, "text", "Ex"})),
		named("secondfn", entity("registrar", fn(""), fn("Ex"))),
		named("spacedfn", entity("registrar", fn(" Ex "))),
		named("shoutrole", entity("Registrar", fn("Ex"))),
		named("onerole", with(entity("registrar", fn("Ex")), "roles", "registrar")),
		named("tworoles", with(entity("registrar", fn("Ex")), "roles", []string{"sponsor", "registrar"})),
		named("nested", with(entity("registrant", fn("Who")), "entities", []object{entity("registrar", fn("Ex"))})),
		entities("firstofmany", want{"registrar.name": "Ex"}, entity("registrant", fn("Who")), entity("registrar", fn("Ex")), entity("registrar", fn("Other"))),
		entities("withouturl", want{"registrar.name": "Ex", "registrar.iana_id": ""}, with(entity("registrar", fn("Ex")), "handle", "292")),
		numbered("number", "292", ianaID(292)),
		numbered("lowertype", "292", []object{{"type": "iana registrar id", "identifier": "292"}}),
		numbered("reserved", "9999", ianaID("9999")),
		numbered("nominet", "", []object{{"type": "Registry Identifier", "identifier": "NOMINET"}}),
		numbered("secondid", "292", []object{{"type": "Registry Identifier", "identifier": "X"}, {"type": "IANA Registrar ID", "identifier": "292"}}),
		numbered("oneid", "292", object{"type": "IANA Registrar ID", "identifier": "292"}),
		numbered("nullids", "", nil), numbered("textids", "", "292"),
		nobody("noentities"), nobody("registrantonly", entity("registrant", fn("Who"))), nobody("nocard", object{"objectClassName": "entity", "roles": []string{"registrar"}}),
		nobody("abuseonly", with(entity("registrar"), "entities", []object{entity("abuse", fn("Abuse desk"))})), // .cx: the desk is not the registrar
		entities("fnnumber", want{"registrar.name": "7"}, entity("registrar", []any{"fn", object{}, "text", 7})),
		nobody("cardobject", object{"roles": []string{"registrar"}, "vcardArray": object{"fn": "Ex"}}),
		nobody("jscontact", object{"roles": []string{"registrar"}, "jscontact_card": object{"name": object{"full": "Ex"}}}),
		whole("entityobject", object{"entities": object{"roles": []string{"registrar"}}}, want{"registrar": none}),
		whole("entitiesnull", object{"entities": nil}, want{"registrar": none}),
	}
}

// dates are the ways in which registries write one.
func dates() []registration {
	created := func(name string, date any, is any) registration {
		return whole(name, object{"events": []object{{"eventAction": "registration", "eventDate": date}}}, want{"created_at": is, "updated_at": none, "expires_at": none})
	}
	events := func(name string, w want, list ...object) registration { return whole(name, object{"events": list}, w) }
	return []registration{
		created("zulu", "2017-03-15T10:11:12Z", "2017-03-15T10:11:12Z"), created("fraction", "2017-03-15T10:11:12.987654Z", "2017-03-15T10:11:12Z"),
		created("offset", "2017-03-15T01:00:00+03:00", "2017-03-14T22:00:00Z"), created("shortoffset", "2017-03-15T01:00:00+0300", "2017-03-14T22:00:00Z"),
		created("minus", "2017-12-31T23:30:00-01:00", "2018-01-01T00:30:00Z"), created("nozone", "1997-10-30T00:00:00", "1997-10-30T00:00:00Z"),
		created("fractionnozone", "1997-10-30T00:00:00.5", "1997-10-30T00:00:00Z"), created("dateonly", "2017-03-15", "2017-03-15T00:00:00Z"),
		created("spaced", "2017-03-15 10:11:12", "2017-03-15T10:11:12Z"), created("lowercase", "2017-03-15t10:11:12z", "2017-03-15T10:11:12Z"),
		created("padded", " 2017-03-15T10:11:12Z ", "2017-03-15T10:11:12Z"), created("leap", "2016-02-29", "2016-02-29T00:00:00Z"),
		created("noleap", "2017-02-29", none), created("baddate", "last summer", none), created("words", "15-Mar-2017", none), created("slashes", "2017/03/15", none), created("emptydate", "", none),
		created("numberdate", 1489536000, none), created("nulldate", nil, none), created("yearzero", "0000-01-01T00:00:00Z", none), created("longdate", strings.Repeat("2", 100), none),
		events("noevents", want{"created_at": none, "updated_at": none, "expires_at": none}),
		events("otherevents", want{"created_at": none, "updated_at": none, "expires_at": none},
			object{"eventAction": "last update of RDAP database", "eventDate": "2026-01-01T00:00:00Z"}, object{"eventAction": "registrar expiration", "eventDate": "2026-01-02T00:00:00Z"},
			object{"eventAction": "transfer", "eventDate": "2026-01-03T00:00:00Z"}, object{"eventAction": "reregistration", "eventDate": "2026-01-04T00:00:00Z"}),
		events("shoutevent", want{"expires_at": "2030-01-01T00:00:00Z"}, object{"eventAction": "Expiration", "eventDate": "2030-01-01T00:00:00Z"}),
		events("twoevents", want{"updated_at": "2020-01-01T00:00:00Z"}, object{"eventAction": "last changed", "eventDate": "never"},
			object{"eventAction": "last changed", "eventDate": "2020-01-01T00:00:00Z"}, object{"eventAction": "last changed", "eventDate": "2021-01-01T00:00:00Z"}),
		whole("eventsnull", object{"events": nil}, want{"created_at": none}), whole("eventsobject", object{"events": object{"eventAction": "registration"}}, want{"created_at": none}),
	}
}

// lists are name servers and status words.
func lists() []registration {
	servers := func(name string, is listing, list ...object) registration {
		return whole(name, object{"nameservers": list}, want{"nameservers": is})
	}
	many := make([]object, 100)
	for i := range many {
		many[i] = nameserver(fmt.Sprintf("ns%d.example.net", i))
	}
	return []registration{
		servers("denic", listing{"ns1.example.net", "ns2.example.net"}, nameserver("ns1.example.net."), nameserver("ns2.example.net.")),
		servers("verisign", listing{"ns1.example.net"}, nameserver("NS1.EXAMPLE.NET")),
		servers("sametwice", listing{"ns1.example.net"}, nameserver("ns1.example.net"), nameserver("NS1.example.NET.")),
		servers("unicodens", listing{"xn--bcher-kva.com"}, object{"unicodeName": "bücher.com"}),
		servers("oddns", listing{"ns_1.example.net", "ns.local"}, nameserver(""), nameserver("a b"), nameserver("ns_1.example.net"), nameserver("a..b"), nameserver("ns.local"), object{}),
		servers("nons", listing{}), whole("nsnull", object{"nameservers": nil}, want{"nameservers": listing{}}),
		whole("manyns", object{"nameservers": many}, want{"nameservers": count(64)}),
		whole("eppstatus", object{"status": []string{"clientTransferProhibited"}}, want{"status": listing{"clientTransferProhibited"}}),
		whole("nostatus", object{"status": []string{}}, want{"status": listing{}}), whole("nullstatus", object{"status": nil}, want{"status": listing{}}),
		whole("oddstatus", object{"status": []any{"active", 7, nil, "", []any{"x"}}}, want{"status": listing{"active"}}),
		whole("textstatus", object{"status": "client hold"}, want{"status": listing{"client hold"}}),
	}
}

// moves are redirects. The pages under /hop/n redirect n times more.
func moves() []registration {
	move := func(code int, to string) string { return body(code, "", "Location: "+to) }
	const here, there = "https://rdap.registry.net", "https://rdap-other.registry.net"
	found := want{"rdap_server": here + "/v1/", "handle": something}
	return []registration{
		{"elsewhere", move(302, there+"/domain/elsewhere.com"), found}, {"relative", move(307, "/domain/relative.com"), found},
		{"permanent", move(308, there+"/domain/permanent.com"), found}, {"three", move(301, "/hop/2/three.com"), found},
		no("four", move(301, "/hop/3/four.com")), no("nolocation", body(302, "")), no("choices", body(300, "")), no("unchanged", body(304, "")),
		no("touser", move(302, "https://a:b@rdap-other.registry.net/x")), no("toftp", move(302, "ftp://rdap-other.registry.net/x")),
		no("tofile", move(302, "file:///etc/passwd")), no("tobadurl", move(302, "https://%zz/")), no("tosix", move(302, "https://[::1]/x")),
		no("todecimal", move(302, "https://2130706433/x")), no("tosingle", move(302, "https://intranet/x")), no("toport80", move(302, "https://10.0.0.8:80/x")),
		no("togone", move(302, "https://gone.registry.net/x")), no("toclosed", move(302, "https://rdap-closed.registry.net/x")),
		no("towebsite", move(302, there+"/page")), no("topingpong", move(302, "/ping")), no("tostranger", move(302, "https://rdap-stranger.registry.net/x")),
		{"tomissing", move(302, there+"/domain/missing.com"), fails(fault.NotFound)},
		{"tosilence", move(302, "https://rdap-mute.registry.net/x"), fails(fault.WhoisTimeout)},
	}
}

// transfers are bodies that come in unusual ways.
func transfers() []registration {
	zipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text)) // to memory
		_ = z.Close()
		return b.String()
	}
	ch := domainOf("chunks")
	return []registration{
		{"gzip", body(200, zipped(domainOf("gzip")), "Content-Encoding: gzip"), want{"handle": something}},
		{"chunks", status(200, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n%x;x=y\r\n%s\r\n0\r\n\r\n", 5, ch[:5], len(ch)-5, ch[5:]), want{"handle": something}},
		{"closed", status(200, "Connection: close") + domainOf("closed") + quit, want{"handle": something}},
		{"http10", "HTTP/1.0 200 OK\r\n\r\n" + domainOf("http10") + quit, want{"handle": something}},
		{"hints", "HTTP/1.1 103 Early Hints\r\n\r\n" + registered("hints.com", nil), want{"handle": something}},
		no("bomb", body(200, zipped(strings.Repeat(" ", 10<<20)), "Content-Encoding: gzip")), no("notgzip", body(200, "{}", "Content-Encoding: gzip")),
		no("brotli", body(200, "x", "Content-Encoding: br")), no("tenmega", body(200, `{"x":"`+strings.Repeat("x", 10<<20)+`"}`)),
		no("short", status(200, "Content-Length: 10000")+"{"+quit), no("badchunk", status(200, "Transfer-Encoding: chunked")+"zz\r\n"+quit),
		no("badcoding", status(200, "Transfer-Encoding: zzz")+"{}"+quit), no("twolengths", status(200, "Content-Length: 1", "Content-Length: 2")+"{}"),
		no("hundreds", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)), no("switches", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"),
		no("bighead", status(200, "X-Filler: "+strings.Repeat("x", 100<<10))+"{}"), no("nohttp", "SSH-2.0-OpenSSH_9.9\r\n\r\n"),
		{"stalls", status(200, "Content-Length: 10000") + "{" + hang, fails(fault.WhoisTimeout)},
		{"dripping", drip + registered("dripping.com", nil), fails(fault.WhoisTimeout)},
		no("forever", status(200, "Transfer-Encoding: chunked")+forever),
	}
}
