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
	code   fault.Code
	want   want
}

// registrations are the quirks of registries.
func registrations() []registration {
	return slices.Concat(unusable(), shapes(), registrars(), dates(), lists(), moves(), transfers())
}

func quirkPages(at string) map[string]string {
	pages := map[string]string{}
	for _, r := range registrations() {
		pages[at+r.name+".com"] = r.answer
	}
	return pages
}

// quirkRows asks for each.
func quirkRows() []row {
	var rows []row
	for _, r := range registrations() {
		rows = append(rows, row{op: "whois", domain: r.name + ".com", code: r.code, want: r.want})
	}
	return rows
}

// whole is a full domain object with changes, and what is special about its
// result.
func whole(name string, changes object, w want) registration {
	return registration{name: name, answer: registered(name+".com", changes), want: w}
}

// upstream are answers that are no use.
func upstream(name, answer string) registration {
	return registration{name: name, answer: answer, code: fault.RDAPUpstream}
}

// unusable are answers that hold no domain.
func unusable() []registration {
	failure := func(code int) string {
		return fmt.Sprintf(`{"errorCode":%d,"title":"No","rdapConformance":["rdap_level_0"]}`, code)
	}
	return []registration{
		upstream("bad400", body(400, failure(400))), upstream("html400", body(400, "<html>")), upstream("code401", body(401, "")),
		upstream("html403", body(403, "<html>blocked</html>", "Content-Type: text/html")), upstream("code410", body(410, failure(410))),
		upstream("code501", body(501, failure(501))), upstream("code503", body(503, failure(503), "Retry-After: 3600")), upstream("code204", status(204)),
		upstream("error500", body(200, failure(500))), upstream("error429", body(200, failure(429))),
		{name: "html404", answer: body(404, "<html>gone</html>"), code: fault.NotFound}, {name: "bare404", answer: body(404, ""), code: fault.NotFound},
		{name: "error404", answer: body(200, failure(404)), code: fault.NotFound},
		upstream("null", body(200, "null")), upstream("help", body(200, `{"rdapConformance":["rdap_level_0"],"notices":[]}`)), upstream("object", body(200, "{}")),
		upstream("array", body(200, "[]")), upstream("text", body(200, `"domain"`)), upstream("numeric", body(200, "7")), upstream("halfjson", body(200, `{"objectClassName":"domain"`)),
		upstream("spaces", body(200, "  \r\n")), upstream("search", body(200, `{"domainSearchResults":[{"objectClassName":"domain","ldhName":"search.com"}]}`)),
		upstream("nameless", rdap(object{"objectClassName": "domain"})), upstream("parent", registered("com", nil)),
		upstream("child", registered("www.child.com", nil)), upstream("manyvalues", body(200, `{"objectClassName":"domain","ldhName":"manyvalues.com","x":[`+strings.Repeat("0,", 30000)+"0]}")),
	}
}

// shapes are JSON that is not quite what RFC 9083 says.
func shapes() []registration {
	latin := strings.Replace(rdap(object{"objectClassName": "domain", "ldhName": "latin.com", "handle": "caf#"}), "#", "\xe9", 1)
	raw := func(name string) string {
		_, b, _ := strings.Cut(registered(name+".com", nil), "\r\n\r\n")
		return b
	}
	return []registration{
		{name: "bom", answer: body(200, "\xef\xbb\xbf"+raw("bom")), want: want{"handle": something}},
		{name: "latin", answer: latin, want: want{"handle": "caf\ufffd"}},
		{name: "duplicate", answer: body(200, strings.Replace(raw("duplicate"), `"handle":`, `"handle":"first","handle":`, 1)), want: want{"handle": "1234_DOMAIN_COM-VRSN"}},
		{name: "plaintype", answer: strings.Replace(registered("plaintype.com", nil), "application/rdap+json", "text/plain;charset=x", 1), want: want{"handle": something}},
		upstream("trailing", body(200, raw("trailing")+"<!-- generated -->")), upstream("twoobjects", body(200, raw("twoobjects")+"{}")),
		upstream("capital", registered("capital.com", object{"objectClassName": "Domain"})), upstream("noclass", registered("noclass.com", object{"objectClassName": nil})),
		whole("handlenumber", object{"handle": 12345}, want{"handle": "12345"}), whole("handlenull", object{"handle": nil}, want{"handle": none}),
		whole("handleblank", object{"handle": " "}, want{"handle": none}), whole("handlelist", object{"handle": []string{"x"}}, want{"handle": none}),
		whole("redacted", object{"handle": "REDACTED FOR PRIVACY", "redacted": []object{{"name": object{"type": "Registry Domain ID"}, "method": "emptyValue"}}}, want{"handle": "REDACTED FOR PRIVACY"}),
		whole("dotted", object{"ldhName": "dotted.com."}, want{"domain": "dotted.com"}), whole("mixed", object{"ldhName": "MiXeD.cOm"}, want{"domain": "mixed.com"}),
		whole("unicodeonly", object{"ldhName": nil, "unicodeName": "unicodeonly.com"}, want{"domain": "unicodeonly.com"}),
		{name: "xn--mnchen-3ya", answer: registered("münchen.com", object{"ldhName": "münchen.com"}), want: want{"domain": "xn--mnchen-3ya.com"}},
		whole("nosecure", object{"secureDNS": nil}, want{"dnssec": false}), whole("stringsigned", object{"secureDNS": object{"delegationSigned": "true"}}, want{"dnssec": false}),
		whole("onesigned", object{"secureDNS": object{"delegationSigned": 1}}, want{"dnssec": false}), whole("nullsigned", object{"secureDNS": object{"delegationSigned": nil}}, want{"dnssec": false}),
		whole("falsesigned", object{"secureDNS": object{"delegationSigned": false, "dsData": []object{{"keyTag": 1}}}}, want{"dnssec": false}),
		whole("keydata", object{"secureDNS": object{"keyData": []object{{"flags": 257, "protocol": 3, "algorithm": 13, "publicKey": "AA=="}}}}, want{"dnssec": false}),
		whole("zonesigned", object{"secureDNS": object{"zoneSigned": true}}, want{"dnssec": false}),
	}
}

// entity is an entity in a role with a jCard of properties.
func entity(role string, properties ...any) object {
	card := append([]any{[]any{"version", object{}, "text", "4.0"}}, properties...)
	return object{"objectClassName": "entity", "roles": []string{role}, "vcardArray": []any{"vcard", card}}
}

func fn(name string) any { return []any{"fn", object{}, "text", name} }

// with adds members to an entity.
func with(e object, key string, value any) object {
	e[key] = value
	return e
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
		named("listparams", entity("registrar", []any{"fn", []any{}, "text", "Ex"})),                // .is
		named("shortproperty", entity("registrar", fn("Ex"), []any{"tel", object{}, "uri"})),        // LACNIC
		named("deepproperty", entity("registrar", fn("Ex"), []any{"adr", object{}, "text", deep})),  //
		named("orgonly", entity("registrar", []any{"org", object{}, "text", "Ex"})),                 //
		named("orgunits", entity("registrar", []any{"org", object{}, "text", []any{"Ex", "Unit"}})), //
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
		numbered("number", "292", []object{{"type": "IANA Registrar ID", "identifier": 292}}),
		numbered("lowertype", "292", []object{{"type": "iana registrar id", "identifier": "292"}}),
		numbered("reserved", "9999", []object{{"type": "IANA Registrar ID", "identifier": "9999"}}),
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
		created("noleap", "2017-02-29", none), created("words", "15-Mar-2017", none), created("slashes", "2017/03/15", none), created("emptydate", "", none),
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
	ns := func(name string) object { return object{"objectClassName": "nameserver", "ldhName": name} }
	many := make([]object, 100)
	for i := range many {
		many[i] = ns(fmt.Sprintf("ns%d.example.net", i))
	}
	return []registration{
		servers("denic", listing{"ns1.example.net", "ns2.example.net"}, ns("ns1.example.net."), ns("ns2.example.net.")),
		servers("verisign", listing{"ns1.example.net"}, ns("NS1.EXAMPLE.NET")),
		servers("sametwice", listing{"ns1.example.net"}, ns("ns1.example.net"), ns("NS1.example.NET.")),
		servers("unicodens", listing{"xn--bcher-kva.com"}, object{"unicodeName": "bücher.com"}),
		servers("oddns", listing{"ns_1.example.net", "ns.local"}, ns(""), ns("a b"), ns("ns_1.example.net"), ns("a..b"), ns("ns.local"), object{}),
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
		{name: "elsewhere", answer: move(302, there+"/domain/elsewhere.com"), want: found}, {name: "relative", answer: move(307, "/domain/relative.com"), want: found},
		{name: "permanent", answer: move(308, there+"/domain/permanent.com"), want: found}, {name: "three", answer: move(301, "/hop/2/three.com"), want: found},
		upstream("four", move(301, "/hop/3/four.com")), upstream("nolocation", body(302, "")), upstream("choices", body(300, "")), upstream("unchanged", body(304, "")),
		upstream("touser", move(302, "https://a:b@rdap-other.registry.net/x")), upstream("toftp", move(302, "ftp://rdap-other.registry.net/x")),
		upstream("tofile", move(302, "file:///etc/passwd")), upstream("tobadurl", move(302, "https://%zz/")), upstream("tosix", move(302, "https://[::1]/x")),
		upstream("todecimal", move(302, "https://2130706433/x")), upstream("tosingle", move(302, "https://intranet/x")), upstream("toport80", move(302, "https://10.0.0.8:80/x")),
		upstream("togone", move(302, "https://gone.registry.net/x")), upstream("toclosed", move(302, "https://rdap-closed.registry.net/x")),
		upstream("towebsite", move(302, there+"/page")), upstream("topingpong", move(302, "/ping")), upstream("tostranger", move(302, "https://rdap-stranger.registry.net/x")),
		{name: "tomissing", answer: move(302, there+"/domain/missing.com"), code: fault.NotFound},
		{name: "tosilence", answer: move(302, "https://rdap-mute.registry.net/x"), code: fault.WhoisTimeout},
	}
}

// transfers are bodies that come in unusual ways.
func transfers() []registration {
	split := func(name string) (string, string) {
		h, b, _ := strings.Cut(registered(name+".com", nil), "\r\n\r\n")
		return h, b
	}
	zipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text)) // to memory
		_ = z.Close()
		return b.String()
	}
	_, gz := split("gzip")
	_, ch := split("chunks")
	_, cl := split("closed")
	_, old := split("http10")
	return []registration{
		{name: "gzip", answer: body(200, zipped(gz), "Content-Encoding: gzip"), want: want{"handle": something}},
		{name: "chunks", answer: status(200, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n%x;x=y\r\n%s\r\n0\r\n\r\n", 5, ch[:5], len(ch)-5, ch[5:]), want: want{"handle": something}},
		{name: "closed", answer: status(200, "Connection: close") + cl + quit, want: want{"handle": something}},
		{name: "http10", answer: "HTTP/1.0 200 OK\r\n\r\n" + old + quit, want: want{"handle": something}},
		{name: "hints", answer: "HTTP/1.1 103 Early Hints\r\n\r\n" + registered("hints.com", nil), want: want{"handle": something}},
		upstream("bomb", body(200, zipped(strings.Repeat(" ", 10<<20)), "Content-Encoding: gzip")), upstream("notgzip", body(200, "{}", "Content-Encoding: gzip")),
		upstream("brotli", body(200, "x", "Content-Encoding: br")), upstream("tenmega", body(200, `{"x":"`+strings.Repeat("x", 10<<20)+`"}`)),
		upstream("short", status(200, "Content-Length: 10000")+"{"+quit), upstream("badchunk", status(200, "Transfer-Encoding: chunked")+"zz\r\n"+quit),
		upstream("badcoding", status(200, "Transfer-Encoding: zzz")+"{}"+quit), upstream("twolengths", status(200, "Content-Length: 1", "Content-Length: 2")+"{}"),
		upstream("hundreds", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)), upstream("switches", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"),
		upstream("bighead", status(200, "X-Filler: "+strings.Repeat("x", 100<<10))+"{}"), upstream("nohttp", "SSH-2.0-OpenSSH_9.9\r\n\r\n"),
		{name: "stalls", answer: status(200, "Content-Length: 10000") + "{" + hang, code: fault.WhoisTimeout},
		{name: "dripping", answer: drip + registered("dripping.com", nil), code: fault.WhoisTimeout},
		upstream("forever", status(200, "Transfer-Encoding: chunked")+forever),
	}
}
