package simnet

import (
	"crypto/tls"
	"strings"

	"github.com/miekg/dns"
)

// host is a name of this internet.
type host struct {
	name string
	// addrs are its A and AAAA records. A host with serve and without addrs
	// gets a public IPv4 address of its own.
	addrs []string
	// later are its A and AAAA records from each resolver's second query on.
	later   []string
	alias   string   // CNAME
	records []string // others, in zone file form without the owner
	rcode   int      // of every answer about it
	silent  bool     // no resolver answers
	overTCP bool     // answers do not fit into a datagram
	trick   trick    // answers for the resolvers
	serve   server   // what listens on port 443 of its addresses
	plain   server   // on port 80, for a host that has serve
}

// allHosts is everybody, the hostile addresses included.
func allHosts() []host {
	var all []host
	for _, part := range [][]host{nameHosts(), trickHosts(), tlsHosts(), certificateHosts(), httpHosts(), answerHosts(), redirectHosts(), locationHosts(), registryHosts(), privateHosts(), corpusHosts(), corpusLocations()} {
		all = append(all, part...)
	}
	return all
}

func ok() page { return says(status(200, "Server: simnet", "Content-Type: text/html")) }

// nameHosts are about the DNS.
func nameHosts() []host {
	return []host{
		{name: "example.com", serve: web(ok(), named("example.com", "www.example.com"), serial(0x0a1b2c)), records: []string{
			"300 IN MX 10 mx1.example.com.", "200 IN MX 20 MX2.example.com.", `300 IN TXT "v=spf1 " "-all"`,
			"300 IN NS ns1.example.com.", "300 IN SOA ns1.example.com. admin.example.com. 1 2 3 4 5",
		}},
		{name: "bare.com", serve: web(ok())},
		{name: "www.example.com", alias: "example.com"},
		{name: "dangling.example.com", alias: "gone.example.com"},
		{name: "empty.example.com"},
		{name: "servfail.example.com", rcode: dns.RcodeServerFailure},
		{name: "refused.example.com", rcode: dns.RcodeRefused},
		{name: "silent.example.com", silent: true},
		{name: "long.example.com", overTCP: true, serve: web(ok()), records: []string{`60 IN TXT "` + strings.Repeat("a", 255) + `"`}},
		{name: "six.example.com", addrs: []string{"2606:2800:220:1::6"}, serve: web(ok())},
		{name: "both.example.com", addrs: []string{"93.184.2.1", "2606:2800:220:1::7"}, serve: web(ok())},
		{name: "xn--bcher-kva.com", serve: web(ok())},
	}
}

// tlsHosts are about connections and certificates.
func tlsHosts() []host {
	return []host{
		{name: "expired.example.com", serve: web(ok(), expired)},
		{name: "future.example.com", serve: web(ok(), notYetValid)},
		{name: "stranger.example.com", serve: web(ok(), named("other.example.net"))},
		{name: "nosans.example.com", serve: web(ok(), named())},
		{name: "wild.example.com", serve: web(ok(), named("*.example.com"))},
		{name: "tls10.example.com", serve: webTLS(only(tls.VersionTLS10), ok())},
		{name: "tls11.example.com", serve: webTLS(only(tls.VersionTLS11), ok())},
		{name: "tls12.example.com", serve: webTLS(only(tls.VersionTLS12), ok())},
		{name: "mtls12.example.com", serve: webTLS(func(c *tls.Config) { only(tls.VersionTLS12)(c); wantsCertificate(c) }, ok())},
		{name: "mtls13.example.com", serve: webTLS(func(c *tls.Config) { only(tls.VersionTLS13)(c); wantsCertificate(c) }, ok())},
		{name: "oddsuite.example.com", serve: chooses(tls.VersionTLS12, 0xc0ac)},
		{name: "oddversion.example.com", serve: chooses(0x0300, 0x0005)}, // SSL 3.0
		{name: "alert.example.com", serve: alerts()},
		{name: "plain.example.com", serve: plain()},
		{name: "reset.example.com", serve: resets()},
		{name: "mute.example.com", serve: mute()},
		{name: "closed.example.com", addrs: []string{closedAddr}},
		{name: "hole.example.com", addrs: []string{holeAddr}},
		{name: "wall.example.com", addrs: []string{wallAddr}},
		{name: "second.example.com", addrs: []string{closedAddr, "93.184.2.2"}, serve: web(ok())},
	}
}

// httpHosts are about answers.
func httpHosts() []host {
	every := status(200,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	refuses := func(code int) page {
		return func(method, _ string) string {
			if method == "HEAD" {
				return status(code, "Content-Length: 0")
			}
			return status(200, "Server: got", "Content-Length: 5") + "hello"
		}
	}
	return []host{
		{name: "headers.example.com", serve: web(says(every))},
		{name: "none.example.com", serve: web(says(status(204)))},
		{name: "head405.example.com", serve: web(refuses(405))},
		{name: "head501.example.com", serve: web(refuses(501))},
		{name: "http404.example.com", serve: web(says(status(404)))},
		{name: "http499.example.com", serve: web(says(status(499)))},
		{name: "http500.example.com", serve: web(says(status(500)))},
		{name: "http503.example.com", serve: web(says(status(503)))},
		{name: "http999.example.com", serve: web(says("HTTP/1.1 999 Request denied\r\n\r\n"))},
		{name: "garbage.example.com", serve: web(says("\x00\x01\x02\r\n\r\n"))},
		{name: "hangup.example.com", serve: web(says(""))},
		{name: "quiet.example.com", serve: web(says(hang))},
		{name: "endless.example.com", serve: endless()},
		{name: "drips.example.com", serve: drips()},
		{name: "expired500.example.com", serve: web(says(status(500)), expired)},
	}
}

// redirectHosts are about chains.
func redirectHosts() []host {
	go1 := func(name, location string) host { return host{name: name + ".example.com", serve: web(to(location))} }
	return []host{
		go1("there", "https://www.example.com/"),
		{name: "relative.example.com", serve: web(paths(map[string]string{
			"/": status(301, "Location: a/b?x=1#frag"), "/a/b?x=1": status(308, "Location: ../c"), "/c": status(200),
		}))},
		{name: "hops4.example.com", serve: web(chain(4))}, {name: "hops5.example.com", serve: web(chain(5))},
		go1("self", "https://self.example.com/"), go1("ping", "https://pong.example.com/"), go1("pong", "https://ping.example.com/"),
		{name: "nowhere.example.com", serve: web(says(status(302)))},
		{name: "three04.example.com", serve: web(says(status(304, "Location: /x")))},
		{name: "three00.example.com", serve: web(says(status(300, "Location: /x")))},
		go1("blank", ""), go1("badurl", "https://%zz/"), go1("userinfo", "https://a@example.com/"), go1("nohost", "https:///path"),
		go1("tohttp", "http://example.com/"), go1("toftp", "ftp://example.com/"), go1("tojs", "javascript:alert(1)"),
		go1("tolocalhost", "https://localhost/"), go1("toliteral", "https://127.0.0.1/"), go1("tosix", "https://[::1]/"),
		go1("tomapped", "https://[::ffff:10.0.0.1]/"), go1("todecimal", "https://2130706433/"), go1("tooctal", "https://0177.0.0.1/"),
		go1("tohex", "https://0x7f.1/"), go1("tometadata", "https://169.254.169.254/latest/meta-data/"),
		go1("tointernal", "https://metadata.google.internal/"), go1("tosingle", "https://intranet/"),
		go1("toport", "https://example.com:8443/"), go1("toport80", "https://example.com:80/"), go1("toport443", "https://example.com:443/"),
		go1("toprivate", "https://loopback.example.com/"), go1("togone", "https://gone.example.com/"),
		go1("toclosed", "https://closed.example.com/"), go1("toalert", "https://alert.example.com/"), go1("toexpired", "https://expired.example.com/"),
		go1("tohangup", "https://hangup.example.com/"), go1("tomute", "https://mute.example.com/"), go1("tosilent", "https://silent.example.com/"),
		go1("toservfail", "https://servfail.example.com/"),
	}
}

// chain redirects n times and then answers.
func chain(n int) page {
	pages := map[string]string{}
	at := "/"
	for i := range n {
		next := "/" + strings.Repeat("x", i+1)
		pages[at] = status(302, "Location: "+next)
		at = next
	}
	pages[at] = status(200)
	return paths(pages)
}

// registryHosts are the RDAP servers.
func registryHosts() []host {
	return []host{
		{name: "rdap.registry.net", serve: web(registryPages())},
		{name: "rdap-mute.registry.net", serve: mute()},
		{name: "rdap-closed.registry.net", addrs: []string{closedAddr}},
		{name: "rdap-private.registry.net", addrs: []string{"10.0.0.9"}},
		{name: "rdap-stranger.registry.net", serve: web(ok(), named("other.example.net"))},
		{name: "rdap-expired.registry.net", serve: web(ok(), expired)},
		{name: "rdap-other.registry.net", serve: web(paths(map[string]string{
			"/page": body(200, "<html>hello</html>"), "/domain/elsewhere.com": registered("elsewhere.com", nil), "/domain/permanent.com": registered("permanent.com", nil),
		}))},
		{name: "rdap-plain.registry.net", serve: web(paths(map[string]string{"/ng/domain/example.ng": registered("example.ng", nil)})), plain: bareHTTP(paths(map[string]string{
			"/domain/example.kg": registered("example.kg", nil), "/ng/domain/example.ng": body(301, "", "Location: https://rdap-plain.registry.net/ng/domain/example.ng"),
		}))},
		{name: "rdap-alias.registry.net", alias: "rdap.registry.net"},
		{name: "rdap-six.registry.net", addrs: []string{"2606:2800:220:1::a"}, serve: web(registryPages())},
		{name: "rdap-hole.registry.net", addrs: []string{holeAddr}},
		{name: "rdap-servfail.registry.net", rcode: dns.RcodeServerFailure},
		{name: "rdap-unresolved.registry.net", silent: true},
		{name: "rdap-selfsigned.registry.net", serve: made()},
		{name: "rdap-tls11.registry.net", serve: webTLS(only(tls.VersionTLS11), ok())},
		{name: "rdap-mtls.registry.net", serve: webTLS(wantsCertificate, ok())},
		{name: "rdap-reset.registry.net", serve: resets()},
		{name: "rdap-port.registry.net", addrs: []string{closedAddr}},
		{name: "rdap-mixed.registry.net", addrs: []string{closedAddr, "10.0.0.6"}},
	}
}

// privateHosts are names that must not be connected to.
func privateHosts() []host {
	return []host{
		{name: "loopback.example.com", addrs: []string{"127.0.0.1"}},
		{name: "metadata.example.com", addrs: []string{"169.254.169.254"}},
		{name: "alias.example.com", alias: "loopback.example.com"},
		{name: "mixed.example.com", addrs: []string{"93.184.2.10", "10.0.0.1"}, serve: nil},
		{name: "mixed6.example.com", addrs: []string{"93.184.2.11", "fd00::1"}, serve: nil},
		{name: "mapped.example.com", addrs: []string{"::ffff:93.184.2.12"}},
		{name: "turning.example.com", addrs: []string{"93.184.2.13"}, later: []string{"10.0.0.2"}, serve: web(paths(map[string]string{
			"/": status(302, "Location: /2"), "/2": status(200),
		}))},
		{name: "toturning.example.com", serve: web(to("https://mixed.example.com/"))},
	}
}
