package simnet

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
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
	},
		alike("ssl-check", want{"hostname_match": true}, "wild", "long", "drips"),
		alike("ssl-check", fails(fault.NXDomain), "gone", "dangling"),
		alike("ssl-check", fails(fault.ConnectFailed), "closed", "wall", "hole", "empty", "servfail"),
		alike("ssl-check", fails(fault.HandshakeFailed), "plain", "alert", "reset"),
		alike("ssl-check", fails(fault.SSLTimeout), "mute", "silent", "refused", "refers"),
	)
}

// certified is a site about a certificate, and what ssl-check says of it.
func certified(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve, tools: []string{"openssl", "curl"}}, []row{asks("ssl-check")(name, w)}}
}

// certificateSites show certificates that libraries refuse, or show one and fail:
// the leaf is the product.
func certificateSites() []site {
	junk := []byte("not a certificate")
	const common = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 // everybody offers it
	flood := "\x16\x03\x03\x40\x00" + strings.Repeat("\x00", 1<<14)
	rc4 := func(c *tls.Config) {
		c.CipherSuites, c.MaxVersion = []uint16{tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA}, tls.VersionTLS12
	}
	mlkem := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} }
	unread := fails(fault.HandshakeFailed, "The host sent a certificate that cannot be read.")
	early := fails(fault.HandshakeFailed, "The TLS handshake failed before the host sent a certificate.")
	return []site{
		certified("rc4", webTLS(rc4, ok()), want{"cipher": "tls_ecdhe_ecdsa_with_rc4_128_sha"}),
		certified("mlkemonly", webTLS(mlkem, ok()), fails(fault.HandshakeFailed, "The host refused the TLS handshake with alert 40")),
		certified("selfsigned", selfSigned(), want{"subject": "", "issuer": "", "serial": "07", "hostname_match": true}),
		certified("junkchain", chained(func(leaf []byte) [][]byte { return [][]byte{leaf, junk} }),
			want{"tls_version": "tlsv1.3", "cipher": starts("tls_"), "subject": "CN=junkchain.example.com"}),
		certified("junkleaf", chained(func([]byte) [][]byte { return [][]byte{junk} }), unread),
		certified("sshport", sends([]byte("SSH-2.0-OpenSSH_9.9\r\n")), fails(fault.HandshakeFailed, "The host does not speak TLS on port 443.")),
		certified("hangupatonce", raw(func(net.Conn) {}), early),
		certified("hangs12", showsThen(tls.VersionTLS12, common, swallow), want{"tls_version": "tlsv1.2"}),
		certified("floodcerts", raw(func(conn net.Conn) { // a Certificate message that never ends
			hear(conn)
			_, _ = conn.Write(append(serverHello(tls.VersionTLS12, common), 22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9))
			repeat(conn, flood)
		}), unread),
		certified("dripstls", raw(func(conn net.Conn) { dripOut(conn, flood) }), fails(fault.SSLTimeout)),
	}
}

// chained shows a chain of any bytes that is made of the ordinary leaf.
func chained(chain func(leaf []byte) [][]byte) server {
	return func(ca *authority, name string) func(net.Conn) {
		leaf := ca.Leaf(name)
		leaf.Certificate = chain(leaf.Certificate[0])
		config := &tls.Config{Certificates: []tls.Certificate{leaf}}
		return func(conn net.Conn) { _ = tls.Server(conn, config).Handshake() } // the client may end it
	}
}

// selfSigned shows a certificate of its own, without any name but the alternative
// one.
func selfSigned() server {
	return func(ca *authority, name string) func(net.Conn) {
		now := time.Now()
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		}
		der := must(x509.CreateCertificate(rand.Reader, template, template, ca.Key.Public(), ca.Key))
		config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: ca.Key}}}
		return func(conn net.Conn) {
			if secure := tls.Server(conn, config); secure.Handshake() == nil {
				answer(secure, ok())
			}
		}
	}
}
