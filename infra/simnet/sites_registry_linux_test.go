package simnet

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// registry is a line of the bootstrap file, and what whois says of a name there.
type registry struct {
	tld, base string
	asked     string
	want      want
}

// registries are the RDAP servers, by top-level domain. One that is missing, such
// as de, has none.
func registries() []registry {
	const main = "https://rdap.registry.net/"
	return []registry{
		{"com", main + "v1/", "www.example.com", want{
			"domain": "www.example.com", "source": "rdap", "rdap_server": "https://rdap.registry.net/v1/", "handle": "1234_DOMAIN_COM-VRSN",
			"status": []string{"client transfer prohibited", "active"}, "registrar.name": "Simnet Registrar", "registrar.iana_id": "376",
			"created_at": "1997-10-30T00:00:00Z", "updated_at": "2025-03-04T02:06:07Z", "expires_at": "2031-10-29T00:00:00Z",
			"nameservers": []string{"ns1.example.com", "ns2.example.com"}, "dnssec": true,
		}},
		{"uk", main + "uk/", "www.example.co.uk", want{"rdap_server": main + "uk/", "domain": "www.example.co.uk", "handle": starts("1234_")}},
		{"org", "https://rdap-mute.registry.net/", "example.org", fails(lookup.WhoisTimeout)},
	}
}

// registrations are domains of com, what their registry answers, and what is made of it.
func registrations() []registration {
	return []registration{
		{"bare", body(200, `{"objectClassName":"domain","ldhName":"bare.com"}`), want{
			"handle": nil, "status": []string{}, "registrar": nil, "created_at": nil, "updated_at": nil, "expires_at": nil,
			"nameservers": []string{}, "dnssec": false,
		}},
		{"missing", body(404, "{}"), fails(lookup.NotFound)},
		{"hang", hang, fails(lookup.WhoisTimeout)},
		{"html", body(200, "<html>hello</html>"), upstream()},
		{"moved", body(302, "", "Location: https://rdap.registry.net/new/moved.com"), want{"handle": starts("1234_")}},
	}
}

type registration struct {
	name   string // without .com
	answer string
	want   want
}

func upstream() want { return fails(lookup.RDAPUpstream) }

// whoisRows ask each registry, and that of com for each of its registrations (spec §2.3).
func whoisRows() []row {
	whois := asks("whois")
	rows := []row{
		whois("www.gov.uk", want{"domain": "www.gov.uk", "handle": starts("1234_")}),
		whois("free.gov.uk", fails(lookup.NotFound)),
		whois("bücher.com", want{"domain": "xn--bcher-kva.com"}),
		whois("example.de", fails(lookup.RDAPUnavailable)),
	}
	for _, r := range registries() {
		rows = append(rows, whois(r.asked, r.want))
	}
	for _, r := range registrations() {
		rows = append(rows, whois(r.name+".com", r.want))
	}
	return rows
}

func registryHosts() []host {
	return []host{{name: "rdap.registry.net", serve: web(registryPages())}, {name: "rdap-mute.registry.net", serve: raw(swallow)}}
}

// domainObject has everything that the result takes out of a domain (RFC 9083).
const domainObject = `{"objectClassName":"domain","ldhName":"NAME","handle":"1234_DOMAIN_COM-VRSN",` +
	`"status":["client transfer prohibited","active"],` +
	`"entities":[{"objectClassName":"entity","handle":"376","roles":["registrar"],"publicIds":[{"type":"IANA Registrar ID","identifier":"376"}],` +
	`"vcardArray":["vcard",[["version",{},"text","4.0"],["fn",{},"text","Simnet Registrar"]]]}],` +
	`"events":[{"eventAction":"registration","eventDate":"1997-10-30T00:00:00Z"},` +
	`{"eventAction":"last changed","eventDate":"2025-03-04T05:06:07+03:00"},` +
	`{"eventAction":"expiration","eventDate":"2031-10-29T00:00:00Z"},` +
	`{"eventAction":"last update of RDAP database","eventDate":"2026-01-01T00:00:00Z"}],` +
	`"nameservers":[{"objectClassName":"nameserver","ldhName":"ns1.example.com"},{"objectClassName":"nameserver","ldhName":"ns2.example.com"}],` +
	`"secureDNS":{"delegationSigned":true}}`

func registered(name string) string {
	return body(200, strings.ReplaceAll(domainObject, "NAME", strings.ToUpper(name)))
}

func body(code int, b string, lines ...string) string {
	lines = append(lines, "Content-Type: application/rdap+json", fmt.Sprintf("Content-Length: %d", len(b)))
	return status(code, lines...) + b
}

// registryPages is what the registry of com answers, and others with the same server.
func registryPages() page {
	const at = "/v1/domain/"
	pages := map[string]string{}
	for _, path := range []string{
		at + "example.com", at + "xn--bcher-kva.com", "/new/moved.com", "/uk/domain/example.co.uk", "/uk/domain/gov.uk",
	} {
		pages[path] = registered(path[strings.LastIndex(path, "/")+1:])
	}
	for _, r := range registrations() {
		pages[at+r.name+".com"] = r.answer
	}
	// What it answers about special addresses.
	for i := range specialAddresses() {
		pages[at+rdapName(i)] = body(302, "", "Location: https://"+hostile("direct", i)+"/domain/"+rdapName(i))
	}
	return paths(pages)
}

// corpus are the values of a file of testdata/corpora, a quoted one on each line.
func corpus(file string) (values []string) {
	for line := range strings.Lines(string(testbed.Must(os.ReadFile("testdata/corpora/" + file)))) {
		if line[0] != '#' {
			values = append(values, testbed.Must(strconv.Unquote(strings.TrimSpace(line))))
		}
	}
	return values
}

// specialAddresses are not public.
func specialAddresses() []string { return corpus("addresses.txt") }

// foreignLocations are where a redirect leads to nobody of this internet but example.com.
func foreignLocations() []string { return corpus("locations.txt") }

// hostile is one of the hosts that lead to an address or a location of the corpora.
func hostile(way string, i int) string { return fmt.Sprintf("%s%d.hostile.example.com", way, i) }

func rdapName(i int) string { return fmt.Sprintf("rdap%d.com", i) }

// specialHosts lead to every special address in every way, and redirect to every
// foreign location. What is turning was public when it was asked for first.
func specialHosts() []host {
	var out []host
	for i, a := range specialAddresses() {
		beside := "93.184.3.1" // public and closed, first in the answer
		if netip.MustParseAddr(a).Is6() {
			beside = "2606:2800:220:1::8"
		}
		direct := hostile("direct", i)
		out = append(out,
			host{name: direct, addrs: []string{a}},
			host{name: hostile("alias", i), alias: direct},
			host{name: hostile("mixed", i), addrs: []string{beside, a}},
			host{name: hostile("redirect", i), serve: web(to("https://" + direct + "/"))},
			host{name: hostile("turning", i), later: []string{a}, serve: web(chain(1))},
		)
	}
	for i, location := range foreignLocations() {
		out = append(out, host{name: hostile("location", i), serve: web(root(status(302, "Location: "+location), status(200)))})
	}
	return out
}

func specialRows() []row {
	connects := []string{"ssl-check", "headers", "resolve-redirect"}
	var all []row
	for i, a := range specialAddresses() {
		add := func(way, op, domain string, w want) {
			all = append(all, row{name: a + ", " + way, op: op, domain: domain, want: w})
		}
		for j, way := range []string{"direct", "alias", "mixed"} {
			add(way, connects[(i+j)%len(connects)], hostile(way, i), fails(lookup.BlockedAddress))
		}
		add("redirect", "resolve-redirect", hostile("redirect", i), want{"stop_reason": "blocked_address", "hop_count": 1})
		// Resolved once, so it stays what it was.
		add("turning", "resolve-redirect", hostile("turning", i), want{"stop_reason": nil, "hop_count": 2})
		add("rdap", "whois", rdapName(i), fails(lookup.RDAPUpstream, "The RDAP server is not at a public address"))
	}
	for i, location := range foreignLocations() {
		all = append(all, row{name: location, op: "resolve-redirect", domain: hostile("location", i), want: want{"hops.0.status": 302}})
	}
	return all
}
