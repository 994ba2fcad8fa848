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
			{"eventAction": "registration", "eventDate": "1997-10-30T00:00:00"},
			{"eventAction": "last changed", "eventDate": "2025-03-04T05:06:07+03:00"},
			{"eventAction": "expiration", "eventDate": "2031-10-29"},
			{"eventAction": "last update of RDAP database", "eventDate": "2026-01-01T00:00:00Z"},
		},
		"nameservers": []object{
			{"objectClassName": "nameserver", "ldhName": "NS1.EXAMPLE.COM"}, {"objectClassName": "nameserver", "ldhName": "ns2.example.com."},
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
	maps.Copy(pages, corpusRedirects(at))
	return paths(pages)
}
