package simnet

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

func expired() edit {
	return func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2020, 12, 31, 23, 59, 59, 0, time.UTC)
	}
}

func named(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }
func serial(n int64) edit        { return func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) } }

func tlsHosts() []host {
	return []host{
		{name: "expired", serve: web(ok(), expired())},
		{name: "mtls13", serve: webTLS(wantsCertificate, ok())},
		{name: "oddversion", serve: greets(0x0300, 0xfefe)},
		{name: "alert", serve: webTLS(refuses(0), ok())},
		{name: "old", serve: webTLS(refuses(tls.VersionTLS12), ok())},
		{name: "plain", serve: raw(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			swallow(conn)
		})},
		{name: "mute", serve: raw(swallow)},
		{name: "closed", addrs: []string{closedAddr}},
	}
}

// sslRows are those of ssl-check, and the fields of spec §2.2.
func sslRows() []row {
	ssl := asks("ssl-check")
	return slices.Concat([]row{
		ssl("example.com", want{
			"sni": "example.com", "port": 443, "peer_ip": starts("93.184."), "tls_version": "tlsv1.3", "cipher": starts("tls_"),
			"subject": "CN=example.com", "issuer": "CN=Simnet CA,O=Simnet,C=US", "serial": "0a1b2c", "expired": false, "not_yet_valid": false,
			"hostname_match": true, "sans": []string{"example.com", "www.example.com"}, "signature_algorithm": "ecdsa-with-SHA256",
		}),
		ssl("expired", want{"expired": true, "not_yet_valid": false, "not_before": "2020-01-01T00:00:00Z", "not_after": "2020-12-31T23:59:59Z"}),
		ssl("old", want{"tls_version": "tlsv1.2"}),
		ssl("mtls13", want{"tls_version": "tlsv1.3", "hostname_match": true}),
		ssl("oddversion", want{"tls_version": nil, "cipher": nil, "subject": "CN=oddversion.example.com"}),
		ssl("six", want{"peer_ip": "2606:2800:220:1::6"}),
		ssl("loopback", fails(lookup.BlockedAddress)),
		ssl("example.com", fails(lookup.InvalidPort), "port=8443"),
	},
		alike("ssl-check", want{"hostname_match": true}, "long"),
		alike("ssl-check", fails(lookup.NXDomain), "gone", "dangling"),
		alike("ssl-check", fails(lookup.ConnectFailed), "closed", "empty", "servfail"),
		alike("ssl-check", fails(lookup.HandshakeFailed), "plain", "alert"),
		alike("ssl-check", fails(lookup.SSLTimeout, "The TLS handshake timed out."), "mute"),
		alike("ssl-check", fails(lookup.SSLTimeout, guard.Unresolved), "silent", "refused"),
	)
}

// certificateSites show certificates that only openssl can serve, and that crypto/tls
// does not get, or only with a setting of go.mod: the leaf is the product.
func certificateSites() []site {
	shown := func(name, key string, ssl, headers want, args ...string) site {
		h := host{name: full(name), serve: byOpenSSL(key, args...)}
		ssl["tls_version"], ssl["subject"], ssl["hostname_match"] = "tlsv1.2", "CN="+h.name, true
		return site{h, []row{asks("ssl-check")(name, ssl), asks("headers")(name, headers)}}
	}
	strange := func(name, key, cipher string, w want, args ...string) site {
		refused := fails(lookup.HandshakeFailed, "The TLS handshake failed: the host refused it. What was offered")
		return shown(name, key, w, refused, append(args, "-cipher", cipher+":@SECLEVEL=0")...)
	}
	const rsa, p256 = "rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256"
	noHTTP := fails(lookup.HTTPFailed) // but through the handshake
	return []site{
		strange("dhe", rsa, "DHE-RSA-AES128-GCM-SHA256", want{"cipher": "tls_dhe_rsa_with_aes_128_gcm_sha256"}, "-tls1_2"),
		strange("ccm", p256, "ECDHE-ECDSA-AES128-CCM", want{"cipher": "tls_ecdhe_ecdsa_with_aes_128_ccm"}, "-tls1_2"),
		strange("camellia", rsa, "ECDHE-RSA-CAMELLIA128-SHA256", want{"cipher": "tls_ecdhe_rsa_with_camellia_128_cbc_sha256"}, "-tls1_2"),
		strange("aria", rsa, "ECDHE-ARIA256-GCM-SHA384", want{"cipher": "tls_ecdhe_rsa_with_aria_256_gcm_sha384"}, "-tls1_2"),
		strange("brainpool", "ec -pkeyopt ec_paramgen_curve:brainpoolP256r1", "ALL", want{"cipher": starts("tls_ecdhe_ecdsa_with_")}, "-curves", "brainpoolP256r1"),
		strange("pss", "rsa-pss -pkeyopt rsa_keygen_bits:2048", "ALL", want{"cipher": starts("tls_")}),
		strange("ed448", "ed448", "ALL", want{"cipher": starts("tls_ecdhe_ecdsa_with_"), "signature_algorithm": "Ed448"}),
		// nabla-c0d3/sslyze#729, zmap/zcrypto#449
		shown("sha1only", rsa, want{}, noHTTP, "-tls1_2", "-sigalgs", "RSA+SHA1", "-cipher", "ECDHE:@SECLEVEL=0"),
		shown("rsa512", "rsa:512", want{}, noHTTP, "-tls1_2", "-cipher", "ALL:@SECLEVEL=0"),
	}
}

func httpHosts() []host {
	every := status(200,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	return []host{
		{name: "http500", serve: web(says(status(500)))},
		{name: "headers", serve: web(says(every))},
		{name: "hangup", serve: web(says(""))},
		{name: "quiet", serve: web(says(hang))},
		{name: "endless", serve: talks(func(secure *tls.Conn) { // headers without end
			_, err := io.WriteString(secure, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(secure, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
			}
		})},
	}
}

// headersRows are those of headers, and the fields of spec §2.4.
func headersRows() []row {
	headers := asks("headers")
	return slices.Concat([]row{
		headers("headers", want{
			"url": "https://headers.example.com/", "method": "HEAD", "status": 200, "headers.cache-control": "no-cache, private",
			"headers.server": "café", "headers.strict-transport-security": "max-age=1", "headers.location": "/elsewhere",
		}),
		headers("there", want{"status": 302, "headers.location": "https://www.example.com/"}),
		headers("http500", want{"status": 500}),
		headers("gone", fails(lookup.NXDomain)),
		headers("loopback", fails(lookup.BlockedAddress)),
	},
		alike("headers", want{"status": 200}, "expired", "old"),
		alike("headers", fails(lookup.ConnectFailed), "closed"),
		alike("headers", fails(lookup.HandshakeFailed), "alert", "plain", "mtls13"),
		alike("headers", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("headers", fails(lookup.HeadersTimeout, "The HTTPS header fetch timed out."), "quiet", "mute"),
		alike("headers", fails(lookup.HeadersTimeout, guard.Unresolved), "silent", "refused"),
	)
}

// dnsRows are spec §7.2 and §7.3 for dns, and the fields of §2.1.
func dnsRows() []row {
	dns := asks("dns")
	none := want{"rcode": "NOERROR", "ttl": nil, "records": count(0)}
	return append([]row{
		dns("example.com", want{"type": "A", "rcode": "NOERROR", "ttl": 300, "records": count(1), "records.0.address": starts("93.184.")}),
		dns("example.com", want{"ttl": 200, "records.0.preference": 10, "records.1.exchange": "mx2.example.com"}, "type=MX"),
		dns("example.com", want{"type": "TXT", "records.0.text": "v=spf1 -all", "records.0.strings": []string{"v=spf1 ", "-all"}}, "type=txt"),
		dns("example.com", want{"records.0.target": "ns1.example.com"}, "type=NS"),
		dns("example.com", want{"records.0.mname": "ns1.example.com", "records.0.minimum": 5}, "type=SOA"),
		dns("www", want{"ttl": 60, "records": count(1)}),
		dns("six", want{"records.0.address": "2606:2800:220:1::6"}, "type=AAAA"),
		dns("empty", none),
		dns("servfail", want{"rcode": "SERVFAIL", "ttl": nil, "records": count(0)}),
		dns("long", want{"records": count(1), "ttl": 60}, "type=TXT"),
		dns("loopback", want{"records.0.address": "127.0.0.1"}),
		dns("BÜCHER.com.", want{"domain": "xn--bcher-kva.com"}),
		dns("_dmarc.example.com", want{"records.0.text": "v=DMARC1; p=none"}, "type=TXT"),
		dns("refused", fails(lookup.UpstreamUnavailable)),
		dns("silent", fails(lookup.DNSTimeout)),
		dns("example.com", fails(lookup.InvalidType), "type=PTR"),
		dns("example.com", fails(lookup.InvalidDomain), "domain=example.com"),
	}, alike("dns", fails(lookup.NXDomain), "gone", "dangling")...)
}

// redirectHosts are about chains.
func redirectHosts() []host {
	return []host{
		{name: "there", serve: web(to("https://www.example.com/"))},
		{name: "relative", serve: web(paths(map[string]string{
			"/": status(301, "Location: a/b?x=1#frag"), "/a/b?x=1": status(308, "Location: ../c"), "/c": status(200),
		}))},
		{name: "hops5", serve: web(chain(5))},
	}
}

// redirectRows are the codes of resolve-redirect, and the fields of spec §2.5. Each stop
// reason has its row in package redirect.
func redirectRows() []row {
	trace := asks("resolve-redirect")
	return slices.Concat([]row{
		trace("example.com", want{"stop_reason": nil, "hop_count": 1, "hops.0.status": 200, "hops.0.location": nil, "final_url": "https://example.com/"}),
		trace("there", want{
			"start_url": "https://there.example.com/", "final_url": "https://www.example.com/", "hop_count": 2, "truncated": false, "stop_reason": nil,
			"hops.0.index": 0, "hops.0.method": "HEAD", "hops.0.status": 302, "hops.0.location": "https://www.example.com/", "hops.1.peer_ip": starts("93.184."),
		}),
		trace("relative", want{"final_url": "https://relative.example.com/c", "hop_count": 3, "hops.1.url": "https://relative.example.com/a/b?x=1"}),
		trace("hops5", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}),
		trace("gone", fails(lookup.NXDomain)),
		trace("closed", fails(lookup.ConnectFailed)),
		trace("loopback", fails(lookup.BlockedAddress)),
	},
		alike("resolve-redirect", fails(lookup.HandshakeFailed), "alert"),
		alike("resolve-redirect", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout), "quiet"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout, guard.Unresolved), "refused"),
	)
}
