package simnet

import (
	"crypto/rand"
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

func valid(from, to string) edit {
	return func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = must(time.Parse(time.RFC3339, from)), must(time.Parse(time.RFC3339, to))
	}
}

func expired() edit              { return valid("2020-01-01T00:00:00Z", "2020-12-31T23:59:59Z") }
func named(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }
func serial(n int64) edit        { return func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) } }

func tlsHosts() []host {
	return []host{
		{name: "expired", serve: web(ok(), expired())},
		{name: "stranger", serve: web(ok(), named("other.example.net"))},
		{name: "tls10", serve: webTLS(only(tls.VersionTLS10), ok())},
		{name: "mtls13", serve: webTLS(wantsCertificate, ok())},
		{name: "oddversion", serve: greets(0x0300, 0xfefe)},
		{name: "alert", serve: webTLS(refusesHello, ok())},
		{name: "old", serve: webTLS(from13, ok())},
		{name: "plain", serve: raw(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			swallow(conn)
		})},
		{name: "reset", serve: raw(func(conn net.Conn) { // with RST
			hear(conn)
			_ = conn.(*net.TCPConn).SetLinger(0)
		})},
		{name: "mute", serve: raw(swallow)},
		{name: "closed", addrs: []string{closedAddr}},
		{name: "hole", addrs: []string{holeAddr}},
		{name: "wall", addrs: []string{wallAddr}},
	}
}

// sslRows are those of ssl-check, and the fields of spec §2.2.
func sslRows() []row {
	ssl := asks("ssl-check")
	return slices.Concat([]row{
		ssl("example.com", want{
			"sni": "example.com", "port": 443, "peer_ip": starts("93.184."), "tls_version": "tlsv1.3", "cipher": starts("tls_"),
			"subject": "CN=example.com", "issuer": "CN=Simnet CA,O=Simnet,C=US", "serial": "0a1b2c", "expired": false, "not_yet_valid": false,
			"hostname_match": true, "sans": []string{"example.com", "www.example.com"}, "signature_algorithm": "ecdsa-with-SHA256", "fingerprint_sha256": something,
		}),
		ssl("www", want{"sni": "www.example.com", "hostname_match": true}),
		ssl("expired", want{"expired": true, "not_yet_valid": false, "not_before": "2020-01-01T00:00:00Z", "not_after": "2020-12-31T23:59:59Z"}),
		ssl("stranger", want{"hostname_match": false, "sans": []string{"other.example.net"}}),
		ssl("tls10", want{"tls_version": "tlsv1"}),
		ssl("old", want{"tls_version": "tlsv1.2"}),
		ssl("mtls13", want{"tls_version": "tlsv1.3", "hostname_match": true}),
		ssl("oddversion", want{"tls_version": nil, "cipher": nil, "subject": "CN=oddversion.example.com"}),
		ssl("six", want{"peer_ip": "2606:2800:220:1::6"}),
		ssl("example.com", fails(lookup.InvalidPort), "port=8443"),
		ssl("127.0.0.1", fails(lookup.InvalidDomain)),
	},
		alike("ssl-check", want{"hostname_match": true}, "long", "drips"),
		alike("ssl-check", fails(lookup.NXDomain), "gone", "dangling"),
		alike("ssl-check", fails(lookup.ConnectFailed), "closed", "wall", "hole", "empty", "servfail"),
		alike("ssl-check", fails(lookup.HandshakeFailed), "plain", "alert", "reset"),
		alike("ssl-check", fails(lookup.SSLTimeout, "The TLS handshake timed out."), "mute"),
		alike("ssl-check", fails(lookup.SSLTimeout, guard.Unresolved), "silent", "refused"),
	)
}

func certified(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve}, []row{asks("ssl-check")(name, w)}}
}

// certificateSites show certificates that libraries refuse, or show one and fail:
// the leaf is the product.
func certificateSites() []site {
	junk := []byte("not a certificate")
	rc4 := func(c *tls.Config) {
		c.CipherSuites, c.MaxVersion = []uint16{tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA}, tls.VersionTLS12
	}
	strange := func(name, key, cipher string, w want, args ...string) site {
		s := certified(name, byOpenSSL(key, append([]string{"-cipher", cipher + ":@SECLEVEL=0"}, args...)...), w.with("tls_version", "tlsv1.2"))
		s.rows = append(s.rows, asks("headers")(name, fails(lookup.HandshakeFailed, "The TLS handshake failed: the host refused it. What was offered")))
		return s
	}
	const rsa, p256 = "rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256"
	return []site{
		strange("dhe", rsa, "DHE-RSA-AES128-GCM-SHA256", want{"cipher": "tls_dhe_rsa_with_aes_128_gcm_sha256"}, "-tls1_2"),
		strange("ccm", p256, "ECDHE-ECDSA-AES128-CCM", want{"cipher": "tls_ecdhe_ecdsa_with_aes_128_ccm"}, "-tls1_2"),
		strange("camellia", rsa, "ECDHE-RSA-CAMELLIA128-SHA256", want{"cipher": "tls_ecdhe_rsa_with_camellia_128_cbc_sha256"}, "-tls1_2"),
		strange("aria", rsa, "ECDHE-ARIA256-GCM-SHA384", want{"cipher": "tls_ecdhe_rsa_with_aria_256_gcm_sha384"}, "-tls1_2"),
		strange("brainpool", "ec -pkeyopt ec_paramgen_curve:brainpoolP256r1", "ALL", want{"cipher": starts("tls_ecdhe_ecdsa_with_")}, "-curves", "brainpoolP256r1"),
		strange("pss", "rsa-pss -pkeyopt rsa_keygen_bits:2048", "ALL", want{"cipher": starts("tls_")}),
		strange("ed448", "ed448", "ALL", want{"cipher": starts("tls_ecdhe_ecdsa_with_"), "signature_algorithm": "Ed448"}),
		certified("rc4", webTLS(rc4, ok()), want{"cipher": "tls_ecdhe_ecdsa_with_rc4_128_sha"}),
		certified("selfsigned", selfSigned(), want{"subject": "", "issuer": "", "serial": "07", "hostname_match": true}),
		certified("junkchain", chained(func(leaf []byte) [][]byte { return [][]byte{leaf, junk} }),
			want{"tls_version": "tlsv1.3", "cipher": starts("tls_"), "subject": "CN=junkchain.example.com"}),
	}
}

// chained shows a chain of any bytes that is made of the ordinary leaf.
func chained(chain func(leaf []byte) [][]byte) server {
	return shows(func(ca *authority, name string) tls.Certificate {
		leaf := ca.Leaf(name)
		leaf.Certificate = chain(leaf.Certificate[0])
		return leaf
	})
}

// selfSigned shows a self-signed certificate without any name but the alternative one.
func selfSigned() server {
	return shows(func(ca *authority, name string) tls.Certificate {
		now := time.Now()
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		}
		der := must(x509.CreateCertificate(rand.Reader, template, template, ca.Key.Public(), ca.Key))
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.Key}
	})
}

func httpHosts() []host {
	every := status(200,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	notHead := func(method, _ string) string {
		if method == "HEAD" {
			return status(405, "Content-Length: 0")
		}
		return status(200, "Server: got", "Content-Length: 5") + "hello"
	}
	return []host{
		{name: "http500", serve: web(says(status(500)))},
		{name: "headers", serve: web(says(every))},
		{name: "head405", serve: web(notHead)},
		{name: "http999", serve: web(says("HTTP/1.1 999 Request denied\r\n\r\n"))},
		{name: "hangup", serve: web(says(""))},
		{name: "quiet", serve: web(says(hang))},
		{name: "endless", serve: talks(func(secure *tls.Conn) { // headers without end
			_, err := io.WriteString(secure, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(secure, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
			}
		})},
		{name: "drips", serve: talks(func(secure *tls.Conn) { // asked or not
			dripOut(secure, status(200, "Server: "+strings.Repeat("x", 1000)))
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
		headers("head405", want{"method": "GET", "status": 200, "headers.server": "got"}),
		headers("there", want{"status": 302, "headers.location": "https://www.example.com/"}),
		headers("http500", want{"status": 500}),
		headers("http999", want{"status": 999}),
		headers("gone", fails(lookup.NXDomain)),
	},
		alike("headers", want{"status": 200}, "expired", "stranger", "tls10", "old", "rc4", "selfsigned"),
		alike("headers", fails(lookup.ConnectFailed), "closed", "wall"),
		alike("headers", fails(lookup.HandshakeFailed), "alert", "plain"),
		alike("headers", fails(lookup.HandshakeFailed, "The TLS handshake failed"), "junkchain", "mtls13"),
		alike("headers", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("headers", fails(lookup.HeadersTimeout, "The HTTPS header fetch timed out."), "quiet", "drips", "mute"),
		alike("headers", fails(lookup.HeadersTimeout, guard.Unresolved), "silent", "refused"),
	)
}

func answered(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve}, []row{asks("headers")(name, w)}}
}

// answerSites are about what an origin answers, byte for byte: an answer of each
// kind that package origin takes, refuses, or asks again about.
func answerSites() []site {
	const head, end = "HTTP/1.1 200 OK\r\n", "\r\n\r\n"
	sends := func(name, answer string, w want) site { return answered(name, web(says(answer)), w) }
	h2 := func(c *tls.Config) { c.NextProtos = []string{"h2"} }
	return []site{
		answered("h2only", webTLS(h2, ok()), want{"status": 200, "headers.server": "simnet"}),
		sends("imperva", head+"Set-Cookie: ___utmvafIuFLPaB=abc\x01XYZ; path=/\r\nX-Powered-By: a"+end, want{"status": 200, "headers.x-powered-by": "a"}),
		sends("control", head+"Server: a\x01\x7f\tb"+end, want{"headers.server": "a\tb"}),
		sends("nofield", head+"Server: a\r\nbroken header line\r\n: x\r\nX Y: z\r\nX-Powered-By : b"+end, want{"headers.server": "a", "headers.x-powered-by": "b"}),
		sends("http783", "HTTP/1.1 783 Unexpected Token\r\nServer: a"+end, want{"status": 783, "headers.server": "a"}),
		sends("sticks", "HTTP/1.1 200OK\r\nServer: a"+end, want{"status": 200, "headers.server": "a"}),
		sends("lower", "http/1.1 200 ok\r\nServer: a"+end, want{"status": 200, "headers.server": "a"}),
		answered("truncated", talks(func(secure *tls.Conn) {
			hear(secure)
			_, _ = io.WriteString(secure, head+"Server: a\r\n")
			secure.Close()
		}), fails(lookup.HTTPFailed)),
		sends("interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+head+"Server: a"+end, want{"status": 200, "headers.server": "a"}),
	}
}
