package simnet

import (
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// valid changes when a certificate is valid.
func valid(from, to string) edit {
	return func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = must(time.Parse(time.RFC3339, from)), must(time.Parse(time.RFC3339, to))
	}
}

func expired() edit              { return valid("2020-01-01T00:00:00Z", "2020-12-31T23:59:59Z") }
func named(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }
func serial(n int64) edit        { return func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) } }

// tlsHosts are about connections and certificates.
func tlsHosts() []host {
	return []host{
		{name: "expired", serve: web(ok(), expired())},
		{name: "future", serve: web(ok(), valid("2090-01-01T00:00:00Z", "2090-12-31T23:59:59Z"))},
		{name: "stranger", serve: web(ok(), named("other.example.net"))},
		{name: "nosans", serve: web(ok(), named())},
		{name: "wild", serve: web(ok(), named("*.example.com"))},
		{name: "tls10", serve: webTLS(only(tls.VersionTLS10), ok())},
		{name: "tls11", serve: webTLS(only(tls.VersionTLS11), ok())},
		{name: "tls12", serve: webTLS(only(tls.VersionTLS12), ok())},
		{name: "mtls12", serve: webTLS(wantsCertificate(tls.VersionTLS12), ok())},
		{name: "mtls13", serve: webTLS(wantsCertificate(tls.VersionTLS13), ok())},
		{name: "oddsuite", serve: showsThen(tls.VersionTLS12, 0xc0ac, swallow)},
		{name: "oddversion", serve: showsThen(0x0300, 0x0005, swallow)}, // SSL 3.0
		{name: "alert", serve: webTLS(refusesHello, ok())},
		{name: "plain", serve: raw(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			swallow(conn)
		})},
		{name: "reset", serve: raw(func(conn net.Conn) { hear(conn); resets(conn) })},
		{name: "mute", serve: raw(swallow)},
		{name: "closed", addrs: []string{closedAddr}},
		{name: "hole", addrs: []string{holeAddr}},
		{name: "wall", addrs: []string{wallAddr}},
		{name: "second", addrs: []string{closedAddr, "93.184.2.2"}, serve: web(ok())},
	}
}

// sslRows are those of ssl-check, and the fields of spec §2.2.
func sslRows() []row {
	ssl := asks("ssl-check")
	return slices.Concat([]row{
		ssl("example.com", want{
			"sni": "example.com", "port": 443, "peer_ip": starts("93.184."), "tls_version": "tlsv1.3", "cipher": starts("tls_"),
			"subject": "CN=example.com", "issuer": "CN=Simnet CA,O=Simnet,C=US", "serial": "0a1b2c", "expired": false, "not_yet_valid": false,
			"hostname_match": true, "sans": listing{"example.com", "www.example.com"}, "signature_algorithm": "ecdsa-with-SHA256", "fingerprint_sha256": something,
		}),
		ssl("www", want{"sni": "www.example.com", "hostname_match": true}),
		ssl("expired", want{"expired": true, "not_yet_valid": false, "not_before": "2020-01-01T00:00:00Z", "not_after": "2020-12-31T23:59:59Z"}),
		ssl("future", want{"expired": false, "not_yet_valid": true, "not_before": "2090-01-01T00:00:00Z"}),
		ssl("stranger", want{"hostname_match": false, "sans": listing{"other.example.net"}}),
		ssl("nosans", want{"hostname_match": false, "sans": listing{}}),
		ssl("tls10", want{"tls_version": "tlsv1"}),
		ssl("tls11", want{"tls_version": "tlsv1.1"}),
		ssl("tls12", want{"tls_version": "tlsv1.2"}),
		ssl("mtls12", want{"tls_version": "tlsv1.2", "hostname_match": true}),
		ssl("mtls13", want{"tls_version": "tlsv1.3", "hostname_match": true}),
		ssl("oddsuite", want{"tls_version": "tlsv1.2", "cipher": none, "subject": "CN=oddsuite.example.com"}),
		ssl("oddversion", want{"tls_version": none, "cipher": starts("tls_"), "subject": "CN=oddversion.example.com"}),
		ssl("six", want{"peer_ip": "2606:2800:220:1::6"}),
		ssl("both", want{"peer_ip": "93.184.2.1"}),
		ssl("second", want{"peer_ip": "93.184.2.2"}),
		ssl("example.com", want{"port": 443}, "port=443"),
		ssl("example.com", fails(fault.InvalidPort), "port=8443"),
		ssl("127.0.0.1", fails(fault.InvalidDomain)),
		ssl("yxdomain", fails(fault.ConnectFailed, "The domain has no address to connect to: the resolvers answer YXDOMAIN")),
		ssl("manylast", fails(fault.BlockedAddress)),
	},
		alike("ssl-check", want{"hostname_match": true}, "wild", "long", "drips"),
		alike("ssl-check", fails(fault.NXDomain), "gone", "dangling"),
		alike("ssl-check", fails(fault.ConnectFailed), "closed", "wall", "hole", "empty", "servfail", "chain20", "cnameloop"),
		alike("ssl-check", fails(fault.HandshakeFailed), "plain", "alert", "reset"),
		alike("ssl-check", fails(fault.SSLTimeout), "mute", "silent", "refused", "refers", "bareservfail"),
	)
}

// certified is a site about a certificate, and what ssl-check says of it.
func certified(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve, tools: []string{"openssl", "curl"}}, []row{asks("ssl-check")(name, w)}}
}

// certificateSites show certificates that libraries refuse, or show one and fail:
// the leaf is the product.
func certificateSites() []site {
	return slices.Concat(oddCertificates(), oddNames(), oddChains(), oddKeys(), oddConnections())
}

// taken is that a leaf is shown as if it were an ordinary one.
func taken() want {
	return want{"hostname_match": true, "fingerprint_sha256": something, "expired": false}
}

// unread is that the leaf is not a certificate.
func unread() want {
	return fails(fault.HandshakeFailed, "The host sent a certificate that cannot be read.")
}

// oddCertificates are leaves whose parts are not what RFC 5280 wants.
func oddCertificates() []site {
	serial := func(hex string) server { return made(func(p *pieces) { p.serial = der(0x02, unhex(hex)) }) }
	times := func(tag byte, from, to string) server {
		return made(func(p *pieces) { p.validity = der(0x30, der(tag, []byte(from)), der(tag, []byte(to))) })
	}
	algorithm := func(id string) server {
		return made(func(p *pieces) { p.inner = der(0x30, oid(id)); p.outer = p.inner })
	}
	twice := func(p *pieces) { e := extension("1.2.3.4", der(0x05)); p.rest = extensions(e, e) }
	return []site{
		certified("negative", serial("ff7f"), want{"serial": "-81"}),
		certified("zeroserial", serial("00"), want{"serial": "00"}),
		certified("longserial", serial("00"+strings.Repeat("ab", 30)), want{"serial": strings.Repeat("ab", 30)}),
		certified("padserial", serial("000001"), want{"serial": "01"}),
		certified("version1", made(func(p *pieces) { p.version, p.rest = nil, nil }), want{"hostname_match": false, "sans": listing{}}),
		certified("version4", made(func(p *pieces) { p.version = unhex("a003020103") }), taken()),
		certified("mixedalgo", made(func(p *pieces) { p.outer = der(0x30, oid("1.2.840.113549.1.1.11")) }), want{"signature_algorithm": "sha256WithRSAEncryption"}),
		certified("unknownalgo", algorithm("1.2.3.4.5"), want{"signature_algorithm": "1.2.3.4.5"}),
		certified("md5algo", algorithm("1.2.840.113549.1.1.4"), want{"signature_algorithm": "md5WithRSAEncryption"}),
		certified("sha1algo", algorithm("1.2.840.113549.1.1.5"), want{"signature_algorithm": "sha1WithRSAEncryption"}),
		certified("trailing", made(func(p *pieces) { p.after = []byte("trailing") }), taken()),
		certified("twicesame", made(twice), taken().with("hostname_match", false)), // it has no names
		certified("fraction", times(0x18, "20260101000000.5Z", "20360101000000.25Z"), want{"not_before": "2026-01-01T00:00:00Z", "not_after": "2036-01-01T00:00:00Z"}),
		certified("noseconds", times(0x17, "2601010000Z", "3601010000Z"), want{"not_before": "2026-01-01T00:00:00Z"}),
		certified("offset", times(0x17, "260101000000+0100", "360101000000-0130"), want{"not_before": "2025-12-31T23:00:00Z", "not_after": "2036-01-01T01:30:00Z"}),
		certified("farfuture", times(0x18, "20260101000000Z", "99991231235959Z"), want{"not_after": "9999-12-31T23:59:59Z", "expired": false}),
		certified("longago", times(0x17, "500101000000Z", "991231235959Z"), want{"not_before": "1950-01-01T00:00:00Z", "not_after": "1999-12-31T23:59:59Z", "expired": true}),
		certified("shapeless", made(func(p *pieces) { *p = pieces{} }), unread()),
	}
}

// oddNames are subjects and alternative names.
func oddNames() []site {
	subject := func(rdns ...[]byte) server {
		return made(func(p *pieces) { p.subject = der(0x30, rdns...) })
	}
	cn := func(tag byte, value string) server { return subject(rdn("2.5.4.3", der(tag, []byte(value)))) }
	alternative := func(list ...[]byte) server { return made(func(p *pieces) { p.rest = extensions(sans(list...)) }) }
	names := func(list ...string) server {
		var all [][]byte
		for _, s := range list {
			all = append(all, dnsName(s))
		}
		return alternative(all...)
	}
	lots := func(n int) server {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("n%d.example.com", i)
		}
		return names(list...)
	}
	whole := subject(rdn("2.5.4.6", der(0x13, []byte("DE"))), rdn("0.9.2342.19200300.100.1.25", der(0x16, []byte("example"))),
		rdn("2.5.4.97", der(0x0c, []byte("VATDE-1"))), rdn("1.2.840.113549.1.9.1", der(0x16, []byte("a@example.com"))), rdn("0.9.2342.19200300.100.1.1", der(0x0c, []byte("u"))))
	multi := subject(der(0x31, der(0x30, oid("2.5.4.3"), der(0x0c, []byte("a"))), der(0x30, oid("2.5.4.11"), der(0x0c, []byte("b")))))
	mixed := alternative(der(0x81, []byte("a@example.com")), dnsName("mixedsan.example.com"), der(0x87, []byte{1, 2, 3, 4}), dnsName("*.mixedsan.example.com"))
	odd := listing{"a\x00b", "https://x/", "*.*.x", "oddsans.example.com.", "ODDSANS.example.com"}
	return []site{
		certified("nosubject", subject(), want{"subject": ""}),
		certified("bmpname", cn(0x1e, "\x03\xa9"), want{"subject": "CN=Ω"}),
		certified("t61name", cn(0x14, "caf\xe9"), want{"subject": "CN=café"}),
		certified("universal", cn(0x1c, "\x00\x00\x03\xa9"), want{"subject": "CN=Ω"}),
		certified("printable", cn(0x13, "a_b@c"), want{"subject": "CN=a_b@c"}),
		certified("badutf8", cn(0x0c, "a\xff"), want{"subject": "CN=#0c0261ff"}),
		certified("nulname", cn(0x0c, "a\x00b\nc"), want{"subject": `CN=a\00b\0Ac`}),
		certified("escapes", cn(0x0c, ` #a,b+c"d\e<f>;g `), want{"subject": `CN=\ #a\,b\+c\"d\\e\<f\>\;g\ `}),
		certified("fullname", whole, want{"subject": "UID=u,emailAddress=a@example.com,organizationIdentifier=VATDE-1,DC=example,C=DE"}),
		certified("multirdn", multi, want{"subject": "CN=a+OU=b"}),
		certified("emptysan", names(), want{"hostname_match": false, "sans": listing{}}),
		certified("latinsan", names("caf\xe9.example.com", "latinsan.example.com"), want{"hostname_match": true, "sans": count(2)}),
		certified("oddsans", names(odd...), want{"hostname_match": true, "sans": odd}),
		certified("ipsan", alternative(der(0x87, []byte{1, 2, 3}), dnsName("ipsan.example.com")), taken()),
		certified("urisan", alternative(der(0x86, []byte("http://[::1")), dnsName("urisan.example.com")), taken()),
		certified("mixedsan", mixed, want{"hostname_match": true, "sans": listing{"mixedsan.example.com", "*.mixedsan.example.com"}}),
		certified("deepwild", names("*.com", "deep*.example.com", "*.*.com"), want{"hostname_match": false, "sans": count(3)}),
		certified("thousand", lots(1000), want{"sans": count(1000)}),
		certified("overbound", lots(9000), want{"sans": count(5000)}),
		certified("huge", lots(30000), early()),
	}
}

// early is that the handshake ended before there was a certificate.
func early() want {
	return fails(fault.HandshakeFailed, "The TLS handshake failed before the host sent a certificate.")
}

// oddChains are chains that cannot be parsed as a whole.
func oddChains() []site {
	junk, padded := []byte("not a certificate"), append(handmade("padded.example.net"), 0)
	long := slices.Repeat([][]byte{handmade("long.example.net")}, 200)
	return []site{
		certified("junkchain", followed(tls.VersionTLS13, junk), want{"tls_version": "tlsv1.3", "cipher": starts("tls_"), "subject": "CN=junkchain.example.com"}),
		certified("junkchain12", followed(tls.VersionTLS12, junk), want{"tls_version": "tlsv1.2", "cipher": starts("tls_ecdhe_")}),
		certified("junkchain11", followed(tls.VersionTLS11, junk), want{"tls_version": "tlsv1.1"}),
		certified("padchain", followed(tls.VersionTLS13, padded), taken()),
		certified("longchain", followed(tls.VersionTLS13, long...), taken()),
		certified("junkleaf", chained(tls.VersionTLS13, junk), unread()),
		certified("reversed", reversed(), want{"subject": "CN=Simnet CA,O=Simnet,C=US", "hostname_match": false}),
		certified("selfsigned", selfSigned(), want{"subject": "", "issuer": "", "serial": "07", "hostname_match": true}),
	}
}

// oddKeys are leaves with keys that a library refuses before the leaf is seen,
// and leaves whose key the server does not have.
func oddKeys() []site {
	explicit := func(p *pieces) { // EC parameters spelled out, and cut short
		p.key = der(0x30, der(0x30, oid("1.2.840.10045.2.1"), der(0x30, unhex("020101"))), der(0x03, make([]byte, 66)))
	}
	unknown := func(p *pieces) { p.key = der(0x30, der(0x30, oid("1.2.3.4")), der(0x03, make([]byte, 33))) }
	return []site{
		certified("rsa9216", made(rsaKey(9216)), want{"tls_version": "tlsv1.3"}),
		certified("rsa9216old", madeUpTo(tls.VersionTLS12, rsaKey(9216)), want{"tls_version": "tlsv1.2"}),
		certified("rsa512", made(rsaKey(512)), taken()),
		certified("rsa1024", made(rsaKey(1024)), taken()),
		certified("explicit", made(explicit), taken()),
		certified("unknownkey", made(unknown), taken()),
		certified("wrongkey", made(otherKey), taken()),
		certified("wrongkey12", madeUpTo(tls.VersionTLS12, otherKey), want{"tls_version": "tlsv1.2"}),
		certified("p384", curve(elliptic.P384()), taken()),
		certified("p521", curve(elliptic.P521()), taken()),
		certified("p224", curve(elliptic.P224()), taken()),
		certified("ed25519", edwards(), taken()),
		certified("rsa", withRSA(), taken()),
	}
}

// oddConnections are old suites, and ends in the middle of a handshake.
func oddConnections() []site {
	curves := func(id tls.CurveID) server {
		return webTLS(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{id} }, ok())
	}
	const common = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 // everybody offers it
	notTLS := func() want { return fails(fault.HandshakeFailed, "The host does not speak TLS on port 443.") }
	refused := func(alert string) want {
		return fails(fault.HandshakeFailed, "The host refused the TLS handshake with alert "+alert)
	}
	late, old := fails(fault.SSLTimeout), want{"tls_version": "tlsv1.2"}
	return []site{
		certified("rsakex", suite(tls.TLS_RSA_WITH_AES_128_CBC_SHA), want{"cipher": "tls_rsa_with_aes_128_cbc_sha"}),
		certified("tripledes", suite(tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA), want{"cipher": "tls_rsa_with_3des_ede_cbc_sha"}),
		certified("rc4", suite(tls.TLS_RSA_WITH_RC4_128_SHA), want{"cipher": "tls_rsa_with_rc4_128_sha"}),
		certified("chacha", suite(tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256), want{"cipher": "tls_ecdhe_rsa_with_chacha20_poly1305_sha256"}),
		certified("p384only", curves(tls.CurveP384), want{"tls_version": "tlsv1.3"}), // asks for another hello
		certified("mlkemonly", curves(tls.X25519MLKEM768), refused("40")),
		certified("unknownsni", sends([]byte{21, 3, 1, 0, 2, 2, 112}), refused("112")),
		certified("sshport", sends([]byte("SSH-2.0-OpenSSH_9.9\r\n")), notTLS()),
		certified("longrecord", sends([]byte{22, 3, 3, 0xff, 0xff}), notTLS()),
		certified("halfhello", sends([]byte{22, 3, 3, 0, 80, 2, 0, 0, 76}), late),
		certified("nocerts", sends(serverHello(tls.VersionTLS12, common), []byte{22, 3, 3, 0, 7, 11, 0, 0, 3, 0, 0, 0}), early()),
		certified("floodcerts", raw(func(conn net.Conn) { // a Certificate message that never ends
			hear(conn)
			_, _ = conn.Write(append(serverHello(tls.VersionTLS12, common), 22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9))
			repeat(conn, "\x16\x03\x03\x40\x00"+strings.Repeat("\x00", 1<<14))
		}), unread()),
		certified("dripstls", raw(func(conn net.Conn) { dripOut(conn, "\x16\x03\x03\x40\x00"+strings.Repeat("\x00", 1<<14)) }), late),
		certified("hangs12", showsThen(tls.VersionTLS12, common, swallow), old),
		certified("resets12", showsThen(tls.VersionTLS12, common, resets), old),
		certified("closes12", showsThen(tls.VersionTLS12, common, func(net.Conn) {}), old),
		certified("hangupatonce", raw(func(net.Conn) {}), early()),
	}
}
