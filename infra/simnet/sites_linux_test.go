package simnet

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
)

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2020, 12, 31, 23, 59, 59, 0, time.UTC)
}

func example(c *x509.Certificate) {
	c.DNSNames, c.SerialNumber = []string{"example.com", "www.example.com"}, big.NewInt(0x0a1b2c)
}

func alias(of string) []string { return []string{"60 IN CNAME " + of + "."} }

// hosts returns the hosts of the tables, except those of certificateSites.
func hosts() []host {
	every := says(http.StatusOK,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	return []host{
		{name: "example.com", serve: web(ok, example), records: []string{
			"300 IN MX 10 mx1.example.com.", "200 IN MX 20 MX2.example.com.", `300 IN TXT "v=spf1 " "-all"`,
			"300 IN NS ns1.example.com.", "300 IN SOA ns1.example.com. admin.example.com. 1 2 3 4 5",
		}},
		{name: "www", records: alias("example.com")},
		{name: "dangling", records: alias("gone.example.com")},
		{name: "empty"},
		{name: "loopback", addrs: []string{"127.0.0.1"}},
		{name: "servfail", rcode: dns.RcodeServerFailure},
		{name: "refused", rcode: dns.RcodeRefused},
		{name: "silent", silent: true},
		{name: "long", records: []string{`60 IN TXT` + strings.Repeat(` "`+strings.Repeat("a", 250)+`"`, 6)}}, // too long for a datagram
		{name: "six", addrs: []string{sixAddr}, serve: web(ok, alsoDead8)},
		{name: "unrouted", addrs: []string{unroutedAddr}},

		// Hosts with unusual or broken TLS or HTTP.
		{name: "expired", serve: web(ok, expired)},
		{name: "alert", serve: webUpTo(0, ok)},
		{name: "old", serve: webUpTo(tls.VersionTLS12, ok)},
		{name: "plain", serve: plain},
		{name: "mute", serve: mute},
		{name: "closed", addrs: []string{closedAddr}},
		{name: "http500", serve: web(says(http.StatusInternalServerError))},
		{name: "headers", serve: web(every)},
		{name: "hangup", serve: web(hangUp)},
		{name: "quiet", serve: web(hang)},
		{name: "endless", serve: web(endless)},
		{name: "hybrid", serve: webBy(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} }, ok)},
		{name: "alpn", serve: webFor(func(h *tls.ClientHelloInfo) bool { return len(h.SupportedProtos) > 0 }, ok)},
		{name: "h2only", serve: webFor(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SupportedProtos, "h2") }, ok)},
		{name: "nohead", serve: web(onlyGET)},

		// Chains of redirects.
		{name: "there", serve: web(to("https://www.example.com/"))},
		{name: "relative", serve: web(paths(map[string]http.HandlerFunc{"/": to("a/b?x=1#frag"), "/a/b?x=1": to("../c"), "/c": ok}))},
		{name: "hops5", serve: web(chain(5))},
		{name: "shop", serve: web(to(`/\my_shop.example.com/?50%-off`))},
		{name: "my_shop", serve: web(ok)},

		{name: "rdap.registry.net", serve: web(registryPages())},
		{name: "rdap-mute.registry.net", serve: mute},
	}
}

// tableRows returns the tables of expected answers. No two rows have the same name.
func tableRows() []row {
	_, all := certificateSites()
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest {
			all = append(all, asks(op.Slug)("10.0.0.1", fails(lookup.InvalidDomain)))
		}
	}
	return slices.Concat(all, dnsRows(), sslRows(), headersRows(), redirectRows(), whoisRows(), bundleRows())
}

// sslRows returns the rows for ssl-check, with the fields of spec §2.2.
func sslRows() []row {
	ssl := asks("ssl-check")
	return slices.Concat([]row{
		ssl("example.com", has(
			`{"domain":"example.com","port":443,"sni":"example.com","peer_ip":"93.184.`, `"tls_version":"tlsv1.3","cipher":"tls_`,
			`"subject":"CN=example.com","issuer":"CN=Simnet CA,O=Simnet,C=US","serial":"0a1b2c"`,
			`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["example.com","www.example.com"]`,
			`"signature_algorithm":"ecdsa-with-SHA256"`)),
		ssl("expired", has(`"not_before":"2020-01-01T00:00:00Z","not_after":"2020-12-31T23:59:59Z","expired":true,"not_yet_valid":false`)),
		ssl("old", has(`"tls_version":"tlsv1.2"`)),
		ssl("hybrid", has(`"tls_version":"tlsv1.3"`)),
		ssl("alpn", has(`"tls_version":"tlsv1.3"`)),
		ssl("h2only", has(`"tls_version":"tlsv1.3"`)),
		ssl("six", has(`"peer_ip":"`+sixAddr+`"`)),
		ssl("loopback", fails(lookup.BlockedAddress)),
		ssl("example.com", fails(lookup.InvalidPort), "port=8443"),
	},
		alike("ssl-check", fails(lookup.NXDomain), "gone", "dangling"),
		alike("ssl-check", fails(lookup.ConnectFailed), "closed", "empty", "servfail"),
		alike("ssl-check", fails(lookup.HandshakeFailed), "plain", "alert"),
		alike("ssl-check", fails(lookup.SSLTimeout, "The TLS handshake timed out."), "mute"),
		alike("ssl-check", fails(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,"), "unrouted"),
		alike("ssl-check", fails(lookup.SSLTimeout, guard.Unresolvable), "silent", "refused"),
	)
}

// certificateSites returns hosts that only openssl can serve, and their rows. crypto/tls
// cannot connect to them, or only with a setting in go.mod. ssl-check must still show their
// certificates, because that is what ssl-check sells: the leaf certificate.
func certificateSites() (hosts []host, rows []row) {
	shown := func(name, key, ssl string, headers want, args ...string) {
		hosts = append(hosts, host{name: name, serve: byOpenSSL(key, args...)})
		leaf := has(`"tls_version":"tlsv1.2","cipher":"tls_`, `"subject":"CN=`+full(name)+`"`, `"hostname_match":true`, ssl)
		rows = append(rows, asks("ssl-check")(name, leaf), asks("headers")(name, headers))
	}
	strange := func(name, key, ciphers, ssl string, args ...string) {
		refused := fails(lookup.HandshakeFailed, "The TLS handshake failed: the host refused it. What was offered")
		shown(name, key, ssl, refused, append(args, "-cipher", ciphers+":@SECLEVEL=0")...)
	}
	const rsa, p256 = "rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256"
	strange("dhe", rsa, "DHE-RSA-AES128-GCM-SHA256", `"cipher":"tls_dhe_rsa_with_aes_128_gcm_sha256"`, "-tls1_2")
	strange("ccm", p256, "ECDHE-ECDSA-AES128-CCM", `"cipher":"tls_ecdhe_ecdsa_with_aes_128_ccm"`, "-tls1_2")
	strange("camellia", rsa, "ECDHE-RSA-CAMELLIA128-SHA256", `"cipher":"tls_ecdhe_rsa_with_camellia_128_cbc_sha256"`, "-tls1_2")
	strange("aria", rsa, "ECDHE-ARIA256-GCM-SHA384", `"cipher":"tls_ecdhe_rsa_with_aria_256_gcm_sha384"`, "-tls1_2")
	strange("brainpool", "ec -pkeyopt ec_paramgen_curve:brainpoolP256r1", "ALL", `"cipher":"tls_ecdhe_ecdsa_with_`, "-curves", "brainpoolP256r1")
	strange("pss", "rsa-pss -pkeyopt rsa_keygen_bits:2048", "ALL", "")
	strange("ed448", "ed448", "ALL", `"signature_algorithm":"Ed448"`)
	// With the two hosts below, the handshake succeeds and HTTP fails: see
	// nabla-c0d3/sslyze#729 and zmap/zcrypto#449.
	shown("sha1only", rsa, "", fails(lookup.HTTPFailed), "-tls1_2", "-sigalgs", "RSA+SHA1", "-cipher", "ECDHE:@SECLEVEL=0")
	shown("rsa512", "rsa:512", "", fails(lookup.HTTPFailed), "-tls1_2", "-cipher", "ALL:@SECLEVEL=0")
	return hosts, rows
}

// headersRows returns the rows for headers, with the fields of spec §2.4.
func headersRows() []row {
	headers := asks("headers")
	return slices.Concat([]row{
		headers("headers", has(
			`"url":"https://headers.example.com/","method":"HEAD","status":200`, `"cache-control":"no-cache, private"`, `"server":"café"`,
			`"strict-transport-security":"max-age=1"`, `"location":"/elsewhere"`)),
		headers("there", has(`"status":302`, `"location":"https://www.example.com/"`)),
		headers("http500", has(`"status":500`)),
		headers("nohead", has(`"method":"GET","status":200`)),
		headers("gone", fails(lookup.NXDomain)),
		headers("loopback", fails(lookup.BlockedAddress)),
	},
		alike("headers", has(`"status":200`), "expired", "old", "hybrid", "alpn"),
		alike("headers", fails(lookup.ConnectFailed), "closed"),
		alike("headers", fails(lookup.HandshakeFailed), "alert", "plain", "h2only"),
		alike("headers", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("headers", fails(lookup.HeadersTimeout, "The HTTPS header fetch timed out."), "quiet", "mute"),
		alike("headers", fails(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,"), "unrouted"),
		alike("headers", fails(lookup.HeadersTimeout, guard.Unresolvable), "silent", "refused"),
	)
}

// dnsRows returns the rows for dns, according to spec §7.2 and §7.3, with the fields of §2.1.
func dnsRows() []row {
	ask := asks("dns")
	const none = `"ttl":null,"records":[]`
	return append([]row{
		ask("example.com", has(`"type":"A","rcode":"NOERROR"`, `"ttl":300,"records":[{"address":"93.184.`)),
		ask("example.com", has(`"ttl":200,"records":[{"preference":10,`, `{"preference":20,"exchange":"mx2.example.com"}`), "type=MX"),
		ask("example.com", has(`"type":"TXT"`, `"records":[{"text":"v=spf1 -all","strings":["v=spf1 ","-all"]}]`), "type=txt"),
		ask("example.com", has(`"records":[{"target":"ns1.example.com"}]`), "type=NS"),
		ask("example.com", has(`"records":[{"mname":"ns1.example.com"`, `"minimum":5}`), "type=SOA"),
		ask("www", has(`"ttl":60,"records":[{"address":"93.184.`)),
		ask("www", has(`"records":[{"target":"example.com"}]`), "type=CNAME"),
		ask("six", has(`"records":[{"address":"`+sixAddr+`"}]`), "type=AAAA"),
		ask("empty", has(`"rcode":"NOERROR"`, none)),
		ask("servfail", has(`"rcode":"SERVFAIL"`, none)),
		ask("long", has(`"ttl":60,"records":[{"text":"aaaa`), "type=TXT"),
		ask("loopback", has(`"records":[{"address":"127.0.0.1"}]`)),
		ask("refused", fails(lookup.UpstreamUnavailable, guard.Unresolvable)),
		ask("silent", fails(lookup.DNSTimeout, guard.Unresolvable)),
		ask("example.com", fails(lookup.InvalidType), "type=PTR"),
		ask("example.com", fails(lookup.InvalidDomain), "domain=example.com"),
	}, alike("dns", fails(lookup.NXDomain), "gone", "dangling")...)
}

// redirectRows returns the rows for resolve-redirect: its codes, and the fields of spec §2.5.
// The tests of package redirect cover each stop reason.
func redirectRows() []row {
	trace := asks("resolve-redirect")
	return slices.Concat([]row{
		trace("example.com", has(`"final_url":"https://example.com/","hop_count":1`, `"stop_reason":null`, `"status":200`, `"location":null`)),
		trace("there", has(
			`"start_url":"https://there.example.com/","final_url":"https://www.example.com/","hop_count":2,"truncated":false,"stop_reason":null`,
			`[{"index":0,"url":"https://there.example.com/","method":"HEAD","status":302,"peer_ip":"93.184.`, `"location":"https://www.example.com/"},`)),
		trace("relative", has(`"final_url":"https://relative.example.com/c","hop_count":3`, `"url":"https://relative.example.com/a/b?x=1"`)),
		trace("shop", has(`"final_url":"https://my_shop.example.com/?50%-off","hop_count":2`, `"status":200`)),
		trace("hops5", has(`"hop_count":5,"truncated":true,"stop_reason":"max_hops"`)),
		trace("gone", fails(lookup.NXDomain)),
		trace("closed", fails(lookup.ConnectFailed)),
		trace("unrouted", fails(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,")),
		trace("loopback", fails(lookup.BlockedAddress)),
	},
		alike("resolve-redirect", fails(lookup.HandshakeFailed), "alert"),
		alike("resolve-redirect", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout), "quiet"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout, guard.Unresolvable), "refused"),
	)
}

// registries returns the RDAP servers by top-level domain. A top-level domain that is missing,
// such as de, has no RDAP server.
func registries() map[string]string {
	const main = "https://rdap.registry.net/"
	return map[string]string{"com": main + "v1/", "uk": main + "uk/", "org": "https://rdap-mute.registry.net/"}
}

// whoisRows returns the rows for whois, with the fields of spec §2.3.
func whoisRows() []row {
	whois := asks("whois")
	const registered = `"handle":"1234_DOMAIN_COM-VRSN"`
	return []row{
		whois("www.example.com", has(
			`{"domain":"www.example.com","source":"rdap","rdap_server":"https://rdap.registry.net/v1/",`+registered,
			`"status":["client transfer prohibited","active"],"registrar":{"name":"Simnet Registrar","iana_id":"376"}`,
			`"created_at":"1997-10-30T00:00:00Z","updated_at":"2025-03-04T02:06:07Z","expires_at":"2031-10-29T00:00:00Z"`,
			`"nameservers":["ns1.example.com","ns2.example.com"],"dnssec":true}`)),
		whois("bare.com", has(`"handle":null,"status":[],"registrar":null,"created_at":null,"updated_at":null,"expires_at":null,"nameservers":[],"dnssec":false`)),
		whois("www.example.co.uk", has(`"rdap_server":"https://rdap.registry.net/uk/"`, registered)),
		whois("moved.com", has(registered)),
		whois("missing.com", fails(lookup.NotFound)),
		whois("html.com", fails(lookup.RDAPUpstream)),
		whois("hang.com", fails(lookup.WhoisTimeout)),
		whois("example.org", fails(lookup.WhoisTimeout)),
		whois("example.de", fails(lookup.RDAPUnavailable)),
	}
}

// domainObject is an RDAP domain (RFC 9083) with every member that whois reads.
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

// registryPages returns a handler for the RDAP server of com and uk.
func registryPages() http.HandlerFunc {
	registered := func(name string) http.HandlerFunc {
		return body(strings.ReplaceAll(domainObject, "NAME", strings.ToUpper(name)))
	}
	pages := map[string]http.HandlerFunc{
		"/v1/domain/example.com": registered("example.com"), "/uk/domain/example.co.uk": registered("example.co.uk"),
		"/v1/domain/bare.com": body(`{"objectClassName":"domain","ldhName":"bare.com"}`), "/v1/domain/html.com": body("<html>hello</html>"),
		"/v1/domain/moved.com": to("https://rdap.registry.net/new/moved.com"), "/new/moved.com": registered("moved.com"),
		"/v1/domain/hang.com": hang,
	}
	addrs, _ := special()
	for i := range addrs {
		pages["/v1/domain/"+rdapName(i)] = to("https://" + hostile("direct", i) + "/domain/" + rdapName(i))
	}
	return paths(pages)
}

// corpus returns the values in a file of testdata/corpora. Each line of the file is a quoted value,
// or a comment that begins with #.
func corpus(file string) (values []string) {
	for line := range strings.Lines(string(testbed.Must(os.ReadFile("testdata/corpora/" + file)))) {
		if line[0] != '#' {
			values = append(values, testbed.Must(strconv.Unquote(strings.TrimSpace(line))))
		}
	}
	return values
}

// special returns addresses that are not public, and locations of redirects that try to lead
// to such addresses. If such a location leads to a host of this internet, that host must be
// example.com.
func special() (addrs, locations []string) { return corpus("addresses.txt"), corpus("locations.txt") }

// hostile returns the name of a host that leads to entry i of a corpus in the given way, such
// as through an alias.
func hostile(way string, i int) string { return fmt.Sprintf("%s%d.hostile.example.com", way, i) }

func rdapName(i int) string { return fmt.Sprintf("rdap%d.com", i) }

// specialHosts returns hosts that lead to every special address in every way, and hosts that
// redirect to every special location. The name of a turning host resolves to a public address
// at the first query, and to the special address afterwards.
func specialHosts() []host {
	var out []host
	addrs, locations := special()
	for i, a := range addrs {
		beside := "93.184.3.1" // a public address without a server, first in the answer
		if netip.MustParseAddr(a).Is6() {
			beside = "2606:2800:220:1::8"
		}
		direct := hostile("direct", i)
		out = append(out,
			host{name: direct, addrs: []string{a}},
			host{name: hostile("alias", i), records: alias(direct)},
			host{name: hostile("mixed", i), addrs: []string{beside, a}},
			host{name: hostile("redirect", i), serve: web(to("https://" + direct + "/"))},
			host{name: hostile("turning", i), later: []string{a}, serve: web(chain(1))},
		)
	}
	for i, location := range locations {
		out = append(out, host{name: hostile("location", i), serve: web(to(location))})
	}
	return out
}

func specialRows() []row {
	connects := []string{"ssl-check", "headers", "resolve-redirect"}
	var all []row
	addrs, locations := special()
	for i, a := range addrs {
		add := func(way, op, domain string, w want) {
			all = append(all, row{name: a + ", " + way, op: op, domain: domain, want: w})
		}
		for j, way := range []string{"direct", "alias", "mixed"} {
			add(way, connects[(i+j)%len(connects)], hostile(way, i), fails(lookup.BlockedAddress))
		}
		add("redirect", "resolve-redirect", hostile("redirect", i), has(`"hop_count":1`, `"stop_reason":"blocked_address"`))
		// The service resolves a host once per lookup, so it keeps the public address.
		add("turning", "resolve-redirect", hostile("turning", i), has(`"hop_count":2`, `"stop_reason":null`))
		add("rdap", "whois", rdapName(i), fails(lookup.RDAPUpstream, "The RDAP server is not at a public address"))
	}
	for i, location := range locations {
		all = append(all, row{name: location, op: "resolve-redirect", domain: hostile("location", i), want: has(`"index":0`, `"status":302`)})
	}
	return all
}
