package simnet

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// registries are the RDAP servers of the bootstrap file, by top-level domain.
// Their names are in the table of hosts. One that is missing has none.
func registries() map[string]string {
	return map[string]string{
		"com":  "https://rdap.registry.net/v1/",
		"net":  "https://rdap.registry.net/v1/",
		"org":  "https://rdap-mute.registry.net/",
		"info": "https://rdap-closed.registry.net/",
		"biz":  "https://rdap-private.registry.net/",
		"name": "https://rdap-nowhere.registry.net/",
		"pro":  "https://rdap-stranger.registry.net/",
		"dev":  "https://rdap-expired.registry.net/",
		"app":  "https://10.0.0.7/",
		"UK":   "https://rdap.registry.net/uk", // in capitals, and without the slash
		"io":   "https://rdap.registry.net/io/",
		"kg":   "http://rdap-plain.registry.net/",
		"mg":   "http://rdap-nowhere.registry.net/ https://rdap.registry.net/mg/", // https is preferred
		"ng":   "http://rdap-plain.registry.net/ng/",
		"tv":   "https://rdap-alias.registry.net/v1/",
		"cc":   "https://rdap-six.registry.net/",
		"ai":   "https://rdap-hole.registry.net/",
		"pl":   "https://rdap-servfail.registry.net/",
		"in":   "https://rdap-unresolved.registry.net/",
		"ca":   "https://rdap-selfsigned.registry.net/",
		"au":   "https://rdap-tls11.registry.net/",
		"nl":   "https://rdap-mtls.registry.net/",
		"br":   "https://rdap-reset.registry.net/",
		"fr":   "https://rdap-port.registry.net:8443/",
		"int":  "https://rdap-mixed.registry.net/",
		"xyz":  "https://rdap-single/",
	}
}

type object = map[string]any

// registered is a domain object with everything that the result takes out of
// one (RFC 9083).
func registered(name string, changes object) string {
	o := object{
		"objectClassName": "domain", "ldhName": strings.ToUpper(name), "handle": "1234_DOMAIN_COM-VRSN",
		"status": []string{"client transfer prohibited", "active"},
		"entities": []object{{
			"objectClassName": "entity", "roles": []string{"registrar"}, "handle": "376",
			"publicIds":  []object{{"type": "IANA Registrar ID", "identifier": "376"}},
			"vcardArray": []any{"vcard", []any{[]any{"version", object{}, "text", "4.0"}, []any{"fn", object{}, "text", "Simnet Registrar"}}},
		}},
		"events": []object{
			{"eventAction": "registration", "eventDate": "1997-10-30T00:00:00Z"},
			{"eventAction": "last changed", "eventDate": "2025-03-04T05:06:07+03:00"},
			{"eventAction": "expiration", "eventDate": "2031-10-29T00:00:00Z"},
			{"eventAction": "last update of RDAP database", "eventDate": "2026-01-01T00:00:00Z"},
		},
		"nameservers": []object{
			{"objectClassName": "nameserver", "ldhName": "ns1.example.com"}, {"objectClassName": "nameserver", "ldhName": "ns2.example.com"},
		},
		"secureDNS": object{"delegationSigned": true},
	}
	maps.Copy(o, changes)
	return rdap(o)
}

// bare has nothing but the name.
func bare(name string) string { return rdap(object{"objectClassName": "domain", "ldhName": name}) }

// rdap is a 200 with a JSON body.
func rdap(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps and strings
	}
	return body(200, string(b))
}

func body(code int, b string, lines ...string) string {
	lines = append(lines, "Content-Type: application/rdap+json", fmt.Sprintf("Content-Length: %d", len(b)))
	return status(code, lines...) + b
}

// hopPages are where redirects of com go on, and the registries of others.
func hopPages(to func(string) string) map[string]string {
	return map[string]string{
		"/domain/relative.com": registered("relative.com", nil),
		"/hop/2/three.com":     to("/hop/1/three.com"), "/hop/1/three.com": to("/hop/0/three.com"), "/hop/0/three.com": registered("three.com", nil),
		"/hop/3/four.com": to("/hop/2/four.com"), "/hop/2/four.com": to("/hop/1/four.com"), "/hop/1/four.com": to("/hop/0/four.com"), "/hop/0/four.com": registered("four.com", nil),
		"/ping": to("/pong"), "/pong": to("/ping"),
		"/uk/domain/example.co.uk": registered("example.co.uk", nil), "/uk/domain/co.uk": registered("co.uk", nil),
		"/io/domain/github.io": registered("github.io", nil), "/mg/domain/example.mg": registered("example.mg", nil),
		"/v1/domain/example.tv": registered("example.tv", nil), "/domain/example.cc": registered("example.cc", nil),
	}
}

// registryPages is what the registry of com and net answers.
func registryPages() page {
	const at = "/v1/domain/"
	elsewhere := func(url string) string { return body(302, "", "Location: "+url) }
	pages := map[string]string{
		at + "example.com":       registered("example.com", nil),
		at + "bare.com":          bare("bare.com"),
		at + "noid.com":          registered("noid.com", object{"entities": []object{{"roles": []string{"registrar"}, "vcardArray": []any{"vcard", []any{[]any{"fn", object{}, "text", "No Number Ltd"}}}}}}),
		at + "unsigned.com":      registered("unsigned.com", object{"secureDNS": object{"dsData": []object{{"keyTag": 1}}}}),
		at + "baddate.com":       registered("baddate.com", object{"events": []object{{"eventAction": "registration", "eventDate": "last summer"}}}),
		at + "onestatus.com":     registered("onestatus.com", object{"status": "active"}),
		at + "missing.com":       body(404, "{}"),
		at + "errorobject.com":   rdap(object{"errorCode": 404, "title": "Not Found"}),
		at + "slowdown.com":      body(429, "{}", "Retry-After: 60"),
		at + "forbidden.com":     body(403, "<html>"),
		at + "unprocessed.com":   body(422, "{}"),
		at + "broken.com":        body(500, "oops"),
		at + "html.com":          body(200, "<html>hello</html>"),
		at + "empty.com":         body(200, ""),
		at + "another.com":       registered("someone-else.com", nil),
		at + "entity.com":        rdap(object{"objectClassName": "entity", "handle": "x"}),
		at + "huge.com":          body(200, `{"objectClassName":"domain","ldhName":"huge.com","x":"`+strings.Repeat("x", 2<<20)+`"}`),
		at + "deep.com":          body(200, strings.Repeat("[", 5000)+strings.Repeat("]", 5000)),
		at + "hang.com":          hang,
		at + "closes.com":        "",
		at + "moved.com":         elsewhere("https://rdap.registry.net/new/moved.com"),
		"/new/moved.com":         registered("moved.com", nil),
		at + "spinning.com":      elsewhere("https://rdap.registry.net/v1/domain/spinning.com"),
		at + "toprivate.com":     elsewhere("https://rdap-private.registry.net/x"),
		at + "toliteral.com":     elsewhere("https://10.0.0.8/x"),
		at + "tolocalhost.com":   elsewhere("https://localhost/x"),
		at + "tometadata.com":    elsewhere("https://metadata.google.internal/x"),
		at + "tohttp.com":        elsewhere("http://rdap.registry.net/x"),
		at + "toport.com":        elsewhere("https://rdap.registry.net:8443/x"),
		at + "xn--bcher-kva.com": registered("xn--bcher-kva.com", nil),
	}
	for _, p := range []map[string]string{corpusRedirects(at), quirkPages(at), hopPages(elsewhere)} {
		maps.Copy(pages, p)
	}
	return paths(pages)
}
