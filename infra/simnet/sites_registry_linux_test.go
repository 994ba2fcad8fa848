package simnet

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// registry is a line of the bootstrap file, and what whois says of a name there.
type registry struct {
	tld, base string // several servers are apart by a space
	asked     string
	want      want
}

// registries are the RDAP servers, by top-level domain. One that is missing, such
// as de, has none.
func registries() []registry {
	const main, plain = "https://rdap.registry.net/", "http://rdap-plain.registry.net/"
	late := fails(fault.WhoisTimeout)
	from := func(server string) want { return want{"rdap_server": server, "handle": something} }
	return []registry{
		{"com", main + "v1/", "www.example.com", want{
			"domain": "www.example.com", "source": "rdap", "rdap_server": "https://rdap.registry.net/v1/", "handle": "1234_DOMAIN_COM-VRSN",
			"status": listing{"client transfer prohibited", "active"}, "registrar.name": "Simnet Registrar", "registrar.iana_id": "376",
			"created_at": "1997-10-30T00:00:00Z", "updated_at": "2025-03-04T02:06:07Z", "expires_at": "2031-10-29T00:00:00Z",
			"nameservers": listing{"ns1.example.com", "ns2.example.com"}, "dnssec": true,
		}},
		{"net", main + "v1/", "", nil},
		{"org", "https://rdap-mute.registry.net/", "example.org", late},
		{"info", "https://rdap-closed.registry.net/", "example.info", upstream()},
		{"biz", "https://rdap-private.registry.net/", "example.biz", upstream()},
		{"dev", "https://rdap-expired.registry.net/", "example.dev", upstream()},
		{"app", "https://10.0.0.7/", "example.app", upstream()},
		{"au", "https://rdap-tls11.registry.net/", "example.au", upstream()},
		{"UK", "https://rdap.registry.net/uk", "www.example.co.uk", from(main+"uk/").with("domain", "www.example.co.uk")}, // in capitals, and without the slash
		{"io", main + "io/", "foo.github.io", want{"domain": "foo.github.io", "handle": something}},
		{"kg", plain, "example.kg", from(plain)},
		{"mg", "http://rdap-nowhere.registry.net/ https://rdap.registry.net/mg/", "example.mg", from(main + "mg/")}, // https is preferred
		{"tv", "https://rdap-alias.registry.net/v1/", "example.tv", upstream()},                                     // the certificate is for another name
	}
}

// whoisRows ask each registry, and that of com for each of its registrations
// (spec §2.3).
func whoisRows() []row {
	whois := asks("whois")
	rows := []row{
		whois("co.uk", want{"domain": "co.uk", "handle": something}),
		whois("bücher.com", want{"domain": "xn--bcher-kva.com"}),
		whois("example.de", fails(fault.RDAPUnavailable)),
		whois("example.invalid", fails(fault.InvalidDomain)),
		whois("_dmarc.example.com", fails(fault.InvalidDomain)),
	}
	for _, r := range registries() {
		if r.asked != "" {
			rows = append(rows, whois(r.asked, r.want))
		}
	}
	for _, r := range registrations() {
		rows = append(rows, whois(r.name+".com", r.want))
	}
	return rows
}

// registryHosts are the RDAP servers.
func registryHosts() []host {
	other := paths(map[string]string{"/domain/permanent.com": registered("permanent.com", nil)})
	plain := paths(map[string]string{"/domain/example.kg": registered("example.kg", nil)})
	hosts := []host{
		{name: "rdap", serve: web(registryPages())},
		{name: "rdap-mute", serve: raw(swallow)},
		{name: "rdap-closed", addrs: []string{closedAddr}},
		{name: "rdap-private", addrs: []string{"10.0.0.9"}},
		{name: "rdap-expired", serve: web(ok(), expired())},
		{name: "rdap-tls11", serve: webTLS(only(tls.VersionTLS11), ok())},
		{name: "rdap-other", serve: web(other)},
		{name: "rdap-plain", serve: raw(swallow), plain: raw(func(conn net.Conn) { answer(conn, plain) })},
		{name: "rdap-alias", alias: "rdap.registry.net"},
	}
	for i := range hosts {
		hosts[i].name += ".registry.net"
	}
	return hosts
}

type object = map[string]any

// registered is a domain object with everything that the result takes out of
// one (RFC 9083).
func registered(name string, changes object) string {
	o := object{
		"objectClassName": "domain", "ldhName": strings.ToUpper(name), "handle": "1234_DOMAIN_COM-VRSN",
		"status":   []string{"client transfer prohibited", "active"},
		"entities": []object{with(with(entity("registrar", fn("Simnet Registrar")), "handle", "376"), "publicIds", ianaID("376"))},
		"events": []object{
			{"eventAction": "registration", "eventDate": "1997-10-30T00:00:00Z"},
			{"eventAction": "last changed", "eventDate": "2025-03-04T05:06:07+03:00"},
			{"eventAction": "expiration", "eventDate": "2031-10-29T00:00:00Z"},
			{"eventAction": "last update of RDAP database", "eventDate": "2026-01-01T00:00:00Z"},
		},
		"nameservers": []object{nameserver("ns1.example.com"), nameserver("ns2.example.com")},
		"secureDNS":   object{"delegationSigned": true},
	}
	maps.Copy(o, changes)
	return rdap(o)
}

// entity is an entity in a role with a jCard of properties.
func entity(role string, properties ...any) object {
	card := append([]any{[]any{"version", object{}, "text", "4.0"}}, properties...)
	return object{"objectClassName": "entity", "roles": []string{role}, "vcardArray": []any{"vcard", card}}
}

func fn(name string) any { return []any{"fn", object{}, "text", name} }

func ianaID(id any) []object { return []object{{"type": "IANA Registrar ID", "identifier": id}} }

func nameserver(name string) object {
	return object{"objectClassName": "nameserver", "ldhName": name}
}

// with adds members to an entity.
func with(e object, key string, value any) object {
	e[key] = value
	return e
}

// rdap is a 200 with a JSON body.
func rdap(v any) string { return body(200, string(must(json.Marshal(v)))) }

func body(code int, b string, lines ...string) string {
	lines = append(lines, "Content-Type: application/rdap+json", fmt.Sprintf("Content-Length: %d", len(b)))
	return status(code, lines...) + b
}

// registryPages is what the registry of com and net answers, and that of others
// with the same server.
func registryPages() page {
	const at = "/v1/domain/"
	pages := map[string]string{at + "xn--bcher-kva.com": registered("xn--bcher-kva.com", nil)}
	for _, path := range []string{
		at + "example.com", at + "example.tv", "/new/moved.com", "/domain/relative.com",
		"/uk/domain/example.co.uk", "/uk/domain/co.uk", "/io/domain/github.io", "/mg/domain/example.mg",
	} {
		pages[path] = registered(path[strings.LastIndex(path, "/")+1:], nil)
	}
	for _, r := range registrations() {
		pages[at+r.name+".com"] = r.answer
	}
	maps.Copy(pages, specialRedirects(at))
	return paths(pages)
}
