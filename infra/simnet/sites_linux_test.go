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

func makeExpired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2020, 12, 31, 23, 59, 59, 0, time.UTC)
}

func makeExample(c *x509.Certificate) {
	c.DNSNames, c.SerialNumber = []string{"example.com", "www.example.com"}, big.NewInt(0x0a1b2c)
}

func aliasRecords(target string) []string { return []string{"60 IN CNAME " + target + "."} }

// hosts returns the hosts of the tables, except those of certificateSites.
func hosts() []host {
	allHeaders := respondWith(http.StatusOK,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	return []host{
		{name: "example.com", serve: web(serveOK, makeExample), records: []string{
			"300 IN MX 10 mx1.example.com.", "200 IN MX 20 MX2.example.com.", `300 IN TXT "v=spf1 " "-all"`,
			"300 IN NS ns1.example.com.", "300 IN SOA ns1.example.com. admin.example.com. 1 2 3 4 5",
		}},
		{name: "www", records: aliasRecords("example.com")},
		{name: "dangling", records: aliasRecords("gone.example.com")},
		{name: "empty"},
		{name: "loopback", addrs: []string{"127.0.0.1"}},
		{name: "servfail", rcode: dns.RcodeServerFailure},
		{name: "refused", rcode: dns.RcodeRefused},
		{name: "silent", silent: true},
		{name: "long", records: []string{`60 IN TXT` + strings.Repeat(` "`+strings.Repeat("a", 250)+`"`, 6)}}, // too long for a datagram
		{name: "six", addrs: []string{sixAddr}, serve: web(serveOK, addDead8)},
		{name: "unrouted", addrs: []string{unroutedAddr}},

		// Hosts with unusual or broken TLS or HTTP.
		{name: "expired", serve: web(serveOK, makeExpired)},
		{name: "alert", serve: webUpTo(0, serveOK)},
		{name: "old", serve: webUpTo(tls.VersionTLS12, serveOK)},
		{name: "plain", serve: plainHTTP},
		{name: "mute", serve: muteServer},
		{name: "closed", addrs: []string{closedAddr}},
		{name: "http500", serve: web(respondWith(http.StatusInternalServerError))},
		{name: "headers", serve: web(allHeaders)},
		{name: "hangup", serve: web(hangUp)},
		{name: "quiet", serve: web(hang)},
		{name: "endless", serve: web(sendEndlessHeader)},
		{name: "hybrid", serve: webWithConfig(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} }, serveOK)},
		{name: "alpn", serve: webFor(func(h *tls.ClientHelloInfo) bool { return len(h.SupportedProtos) > 0 }, serveOK)},
		{name: "h2only", serve: webFor(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SupportedProtos, "h2") }, serveOK)},
		{name: "nohead", serve: web(onlyGET)},

		// Chains of redirects.
		{name: "there", serve: web(redirectTo("https://www.example.com/"))},
		{name: "relative", serve: web(servePaths(map[string]http.HandlerFunc{"/": redirectTo("a/b?x=1#frag"), "/a/b?x=1": redirectTo("../c"), "/c": serveOK}))},
		{name: "hops5", serve: web(redirectChain(5))},
		{name: "shop", serve: web(redirectTo(`/\my_shop.example.com/?50%-off`))},
		{name: "my_shop", serve: web(serveOK)},

		{name: "rdap.registry.net", serve: web(registryPages())},
		{name: "rdap-mute.registry.net", serve: muteServer},
	}
}

// tableRows returns the tables of expected answers. No two rows have the same name.
func tableRows() []row {
	_, all := certificateSites()
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest {
			all = append(all, rowMaker(op.Slug)("10.0.0.1", wantError(lookup.InvalidDomain)))
		}
	}
	return slices.Concat(all, dnsRows(), sslRows(), headersRows(), redirectRows(), whoisRows(), bundleRows())
}

// sslRows returns the rows for ssl-check, with the fields of spec §2.2.
func sslRows() []row {
	ssl := rowMaker("ssl-check")
	return slices.Concat([]row{
		ssl("example.com", wantResult(
			`{"domain":"example.com","port":443,"sni":"example.com","peer_ip":"93.184.`, `"tls_version":"tlsv1.3","cipher":"tls_`,
			`"subject":"CN=example.com","issuer":"CN=Simnet CA,O=Simnet,C=US","serial":"0a1b2c"`,
			`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["example.com","www.example.com"]`,
			`"signature_algorithm":"ecdsa-with-SHA256"`)),
		ssl("expired", wantResult(`"not_before":"2020-01-01T00:00:00Z","not_after":"2020-12-31T23:59:59Z","expired":true,"not_yet_valid":false`)),
		ssl("old", wantResult(`"tls_version":"tlsv1.2"`)),
		ssl("hybrid", wantResult(`"tls_version":"tlsv1.3"`)),
		ssl("alpn", wantResult(`"tls_version":"tlsv1.3"`)),
		ssl("h2only", wantResult(`"tls_version":"tlsv1.3"`)),
		ssl("six", wantResult(`"peer_ip":"`+sixAddr+`"`)),
		ssl("loopback", wantError(lookup.BlockedAddress)),
		ssl("example.com", wantError(lookup.InvalidPort), "port=8443"),
	},
		rowsFor("ssl-check", wantError(lookup.NXDomain), "gone", "dangling"),
		rowsFor("ssl-check", wantError(lookup.ConnectFailed), "closed", "empty", "servfail"),
		rowsFor("ssl-check", wantError(lookup.HandshakeFailed), "plain", "alert"),
		rowsFor("ssl-check", wantError(lookup.SSLTimeout, "The TLS handshake timed out."), "mute"),
		rowsFor("ssl-check", wantError(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,"), "unrouted"),
		rowsFor("ssl-check", wantError(lookup.SSLTimeout, guard.Unresolvable), "silent", "refused"),
	)
}

// certificateSites returns hosts that only openssl can serve, and their rows. To some of these
// hosts, crypto/tls cannot connect at all; to the others, it connects only with a setting in
// go.mod. ssl-check must show the certificates of all of them, because the leaf certificate is
// what ssl-check sells.
func certificateSites() (hosts []host, rows []row) {
	shown := func(name, key, ssl string, headers wantedAnswer, args ...string) {
		hosts = append(hosts, host{name: name, serve: opensslServer(key, args...)})
		leaf := wantResult(`"tls_version":"tlsv1.2","cipher":"tls_`, `"subject":"CN=`+domainName(name)+`"`, `"hostname_match":true`, ssl)
		rows = append(rows, rowMaker("ssl-check")(name, leaf), rowMaker("headers")(name, headers))
	}
	strange := func(name, key, ciphers, ssl string, args ...string) {
		refused := wantError(lookup.HandshakeFailed, "The TLS handshake failed: the host refused it. What was offered")
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
	shown("sha1only", rsa, "", wantError(lookup.HTTPFailed), "-tls1_2", "-sigalgs", "RSA+SHA1", "-cipher", "ECDHE:@SECLEVEL=0")
	shown("rsa512", "rsa:512", "", wantError(lookup.HTTPFailed), "-tls1_2", "-cipher", "ALL:@SECLEVEL=0")
	return hosts, rows
}

// headersRows returns the rows for headers, with the fields of spec §2.4.
func headersRows() []row {
	headers := rowMaker("headers")
	return slices.Concat([]row{
		headers("headers", wantResult(
			`"url":"https://headers.example.com/","method":"HEAD","status":200`, `"cache-control":"no-cache, private"`, `"server":"café"`,
			`"strict-transport-security":"max-age=1"`, `"location":"/elsewhere"`)),
		headers("there", wantResult(`"status":302`, `"location":"https://www.example.com/"`)),
		headers("http500", wantResult(`"status":500`)),
		headers("nohead", wantResult(`"method":"GET","status":200`)),
		headers("gone", wantError(lookup.NXDomain)),
		headers("loopback", wantError(lookup.BlockedAddress)),
	},
		rowsFor("headers", wantResult(`"status":200`), "expired", "old", "hybrid", "alpn"),
		rowsFor("headers", wantError(lookup.ConnectFailed), "closed"),
		rowsFor("headers", wantError(lookup.HandshakeFailed), "alert", "plain", "h2only"),
		rowsFor("headers", wantError(lookup.HTTPFailed), "hangup", "endless"),
		rowsFor("headers", wantError(lookup.HeadersTimeout, "The HTTPS header fetch timed out."), "quiet", "mute"),
		rowsFor("headers", wantError(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,"), "unrouted"),
		rowsFor("headers", wantError(lookup.HeadersTimeout, guard.Unresolvable), "silent", "refused"),
	)
}

// dnsRows returns the rows for dns, according to spec §7.2 and §7.3, with the fields of §2.1.
func dnsRows() []row {
	ask := rowMaker("dns")
	const none = `"ttl":null,"records":[]`
	return append([]row{
		ask("example.com", wantResult(`"type":"A","rcode":"NOERROR"`, `"ttl":300,"records":[{"address":"93.184.`)),
		ask("example.com", wantResult(`"ttl":200,"records":[{"preference":10,`, `{"preference":20,"exchange":"mx2.example.com"}`), "type=MX"),
		ask("example.com", wantResult(`"type":"TXT"`, `"records":[{"text":"v=spf1 -all","strings":["v=spf1 ","-all"]}]`), "type=txt"),
		ask("example.com", wantResult(`"records":[{"target":"ns1.example.com"}]`), "type=NS"),
		ask("example.com", wantResult(`"records":[{"mname":"ns1.example.com"`, `"minimum":5}`), "type=SOA"),
		ask("www", wantResult(`"ttl":60,"records":[{"address":"93.184.`)),
		ask("www", wantResult(`"records":[{"target":"example.com"}]`), "type=CNAME"),
		ask("six", wantResult(`"records":[{"address":"`+sixAddr+`"}]`), "type=AAAA"),
		ask("empty", wantResult(`"rcode":"NOERROR"`, none)),
		ask("servfail", wantResult(`"rcode":"SERVFAIL"`, none)),
		ask("long", wantResult(`"ttl":60,"records":[{"text":"aaaa`), "type=TXT"),
		ask("loopback", wantResult(`"records":[{"address":"127.0.0.1"}]`)),
		ask("refused", wantError(lookup.UpstreamUnavailable, guard.Unresolvable)),
		ask("silent", wantError(lookup.DNSTimeout, guard.Unresolvable)),
		ask("example.com", wantError(lookup.InvalidType), "type=PTR"),
		ask("example.com", wantError(lookup.InvalidDomain), "domain=example.com"),
	}, rowsFor("dns", wantError(lookup.NXDomain), "gone", "dangling")...)
}

// redirectRows returns the rows for resolve-redirect: its codes, and the fields of spec §2.5.
// The tests of package redirect cover each stop reason.
func redirectRows() []row {
	trace := rowMaker("resolve-redirect")
	return slices.Concat([]row{
		trace("example.com", wantResult(`"final_url":"https://example.com/","hop_count":1`, `"stop_reason":null`, `"status":200`, `"location":null`)),
		trace("there", wantResult(
			`"start_url":"https://there.example.com/","final_url":"https://www.example.com/","hop_count":2,"truncated":false,"stop_reason":null`,
			`[{"index":0,"url":"https://there.example.com/","method":"HEAD","status":302,"peer_ip":"93.184.`, `"location":"https://www.example.com/"},`)),
		trace("relative", wantResult(`"final_url":"https://relative.example.com/c","hop_count":3`, `"url":"https://relative.example.com/a/b?x=1"`)),
		trace("shop", wantResult(`"final_url":"https://my_shop.example.com/?50%-off","hop_count":2`, `"status":200`)),
		trace("hops5", wantResult(`"hop_count":5,"truncated":true,"stop_reason":"max_hops"`)),
		trace("gone", wantError(lookup.NXDomain)),
		trace("closed", wantError(lookup.ConnectFailed)),
		trace("unrouted", wantError(lookup.ConnectFailed, "The TCP connection to the host failed: this service has no route to IPv6,")),
		trace("loopback", wantError(lookup.BlockedAddress)),
	},
		rowsFor("resolve-redirect", wantError(lookup.HandshakeFailed), "alert"),
		rowsFor("resolve-redirect", wantError(lookup.HTTPFailed), "hangup", "endless"),
		rowsFor("resolve-redirect", wantError(lookup.RedirectTimeout), "quiet"),
		rowsFor("resolve-redirect", wantError(lookup.RedirectTimeout, guard.Unresolvable), "refused"),
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
	whois := rowMaker("whois")
	const registered = `"handle":"1234_DOMAIN_COM-VRSN"`
	return []row{
		whois("www.example.com", wantResult(
			`{"domain":"www.example.com","source":"rdap","rdap_server":"https://rdap.registry.net/v1/",`+registered,
			`"status":["client transfer prohibited","active"],"registrar":{"name":"Simnet Registrar","iana_id":"376"}`,
			`"created_at":"1997-10-30T00:00:00Z","updated_at":"2025-03-04T02:06:07Z","expires_at":"2031-10-29T00:00:00Z"`,
			`"nameservers":["ns1.example.com","ns2.example.com"],"dnssec":true}`)),
		whois("bare.com", wantResult(`"handle":null,"status":[],"registrar":null,"created_at":null,"updated_at":null,"expires_at":null,"nameservers":[],"dnssec":false`)),
		whois("www.example.co.uk", wantResult(`"rdap_server":"https://rdap.registry.net/uk/"`, registered)),
		whois("moved.com", wantResult(registered)),
		whois("missing.com", wantError(lookup.NotFound)),
		whois("html.com", wantError(lookup.RDAPUpstream)),
		whois("hang.com", wantError(lookup.WhoisTimeout)),
		whois("example.org", wantError(lookup.WhoisTimeout)),
		whois("example.de", wantError(lookup.RDAPUnavailable)),
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
		return serveText(strings.ReplaceAll(domainObject, "NAME", strings.ToUpper(name)))
	}
	pages := map[string]http.HandlerFunc{
		"/v1/domain/example.com": registered("example.com"), "/uk/domain/example.co.uk": registered("example.co.uk"),
		"/v1/domain/bare.com": serveText(`{"objectClassName":"domain","ldhName":"bare.com"}`), "/v1/domain/html.com": serveText("<html>hello</html>"),
		"/v1/domain/moved.com": redirectTo("https://rdap.registry.net/new/moved.com"), "/new/moved.com": registered("moved.com"),
		"/v1/domain/hang.com": hang,
	}
	addrs, _ := specialEntries()
	for i := range addrs {
		pages["/v1/domain/"+rdapName(i)] = redirectTo("https://" + hostileName("direct", i) + "/domain/" + rdapName(i))
	}
	return servePaths(pages)
}

// readCorpus returns the values in a file of testdata/corpora. Each line of the file is a
// quoted value, or a comment that begins with #.
func readCorpus(file string) (values []string) {
	for line := range strings.Lines(string(testbed.Must(os.ReadFile("testdata/corpora/" + file)))) {
		if line[0] != '#' {
			values = append(values, testbed.Must(strconv.Unquote(strings.TrimSpace(line))))
		}
	}
	return values
}

// specialEntries returns addresses that are not public, and locations of redirects that try to
// lead to such addresses. If such a location leads to a host of this internet, that host must
// be example.com.
func specialEntries() (addrs, locations []string) {
	return readCorpus("addresses.txt"), readCorpus("locations.txt")
}

// hostileName returns the name of a host that leads to entry i of a corpus in the given way,
// such as through an alias.
func hostileName(way string, i int) string { return fmt.Sprintf("%s%d.hostile.example.com", way, i) }

func rdapName(i int) string { return fmt.Sprintf("rdap%d.com", i) }

// specialHosts returns hosts that lead to every special address in every way, and hosts that
// redirect to every special location. The name of a turning host resolves to a public address
// at the first query, and to the special address afterwards.
func specialHosts() []host {
	var out []host
	addrs, locations := specialEntries()
	for i, a := range addrs {
		publicAddr := "93.184.3.1" // a public address without a server, first in the answer
		if netip.MustParseAddr(a).Is6() {
			publicAddr = "2606:2800:220:1::8"
		}
		direct := hostileName("direct", i)
		out = append(out,
			host{name: direct, addrs: []string{a}},
			host{name: hostileName("alias", i), records: aliasRecords(direct)},
			host{name: hostileName("mixed", i), addrs: []string{publicAddr, a}},
			host{name: hostileName("redirect", i), serve: web(redirectTo("https://" + direct + "/"))},
			host{name: hostileName("turning", i), laterAddrs: []string{a}, serve: web(redirectChain(1))},
		)
	}
	for i, location := range locations {
		out = append(out, host{name: hostileName("location", i), serve: web(redirectTo(location))})
	}
	return out
}

func specialRows() []row {
	connects := []string{"ssl-check", "headers", "resolve-redirect"}
	var all []row
	addrs, locations := specialEntries()
	for i, a := range addrs {
		add := func(way, op, domain string, w wantedAnswer) {
			all = append(all, row{name: a + ", " + way, op: op, domain: domain, want: w})
		}
		for j, way := range []string{"direct", "alias", "mixed"} {
			add(way, connects[(i+j)%len(connects)], hostileName(way, i), wantError(lookup.BlockedAddress))
		}
		add("redirect", "resolve-redirect", hostileName("redirect", i), wantResult(`"hop_count":1`, `"stop_reason":"blocked_address"`))
		// The service resolves a host once per lookup, so it keeps the public address.
		add("turning", "resolve-redirect", hostileName("turning", i), wantResult(`"hop_count":2`, `"stop_reason":null`))
		add("rdap", "whois", rdapName(i), wantError(lookup.RDAPUpstream, "The RDAP server is not at a public address"))
	}
	for i, location := range locations {
		all = append(all, row{name: location, op: "resolve-redirect", domain: hostileName("location", i), want: wantResult(`"index":0`, `"status":302`)})
	}
	return all
}
